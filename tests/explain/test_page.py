"""The page as a text: what is in it, and that nothing given can become part of its markup."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
import torch
from explain.pages import HOSTILE, explained, page_of, subject
from hypothesis import given
from hypothesis import strategies as st

from softmask.errors import SettingError
from softmask.explain.page import THRESHOLDS, html_page
from softmask.explain.page import page as page_module


class _Reader(HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.title, self._inside = [], [], "", None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "title"):
            self._inside = tag
            if tag == "script":
                self.scripts.append("")

    def handle_endtag(self, tag):
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside == "title":
            self.title += data


def _content(page):
    return json.loads(_Reader(page).scripts[0])


def _numbers(graph):
    return np.frombuffer(zlib.decompress(base64.b64decode(graph["packed"])), dtype="<u2").astype(float)


@given(nodes=st.integers(1, 40), layers=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_page_holds_the_numbers(nodes, layers, seed):
    said = explained(nodes, seed, layers)
    one = subject(said, 7, bonds=np.arange(nodes - 1) % 3 + 1)
    content = _content(page_of([one]))
    (graph,) = content["graphs"]
    flat = _numbers(graph)
    n, e = nodes, nodes - 1
    assert len(flat) == (10 + layers) * n + 3 * e
    x, y, importance, stays, label, _, low, high, degree, many = flat[: 10 * n].reshape(10, n)
    masks = flat[10 * n : (10 + layers) * n].reshape(layers, n)
    step, second, bonds = flat[(10 + layers) * n :].reshape(3, e)
    # The shape of the drawing is kept, y turned round; the longer side is the whole range.
    place = np.stack([x, -y], axis=1)
    scale = np.ptp(place, axis=0).max() / max(np.ptp(one.place, axis=0).max(), 1e-12)
    if nodes > 1:
        moved = (one.place - one.place.mean(axis=0)) * scale
        assert np.abs(place - place.mean(axis=0) - moved).max() <= 2
        assert np.ptp(place, axis=0).max() == 65535
    assert np.abs(importance / 65535 - said.importance).max() < 1e-5
    assert np.abs(masks.T / 65535 - said.masks).max() < 1e-5
    for i, threshold in enumerate(THRESHOLDS):
        assert np.flatnonzero(stays > i).tolist() == said.subgraph(threshold=threshold).tolist()
    assert [content["words"][int(i)] for i in label] == one.labels
    assert (low + 65536 * high).tolist() == list(range(n))
    assert (degree + 65536 * many).tolist() == np.bincount(one.edges.reshape(-1), minlength=n).tolist()
    pairs = np.stack([np.cumsum(step), second], axis=1).astype(int).tolist()
    assert dict(zip(map(tuple, pairs), bonds.tolist())) == dict(zip(map(tuple, one.edges.tolist()), one.bonds.tolist()))


def test_names_stay_data():
    said = explained(5, name=HOSTILE, classes=[HOSTILE, HOSTILE + "2"], predicted=HOSTILE, actual=HOSTILE + "2")
    said.data.node_role = torch.tensor([0, 1, 0, 1, 0])
    one = subject(said, labels=[HOSTILE] * 5)
    page = page_of([one], HOSTILE, about=HOSTILE, roles=[HOSTILE, "{{script}}"])
    read = _Reader(page)
    harmless = _Reader(page_of([subject(explained(5))]))
    assert [t for t, _ in read.tags] == [t for t, _ in harmless.tags], "no element more than in a harmless page"
    assert len(read.scripts) == 3
    assert "<" not in read.scripts[0]
    content = json.loads(read.scripts[0])
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\u2028", " ")
    assert content["graphs"][0]["name"] == shown
    assert content["classes"][0] == shown
    assert content["words"] == [shown]
    assert content["roles"] == [shown, "{{script}}"], "what was put in is not filled in again"
    assert read.title == shown


def test_the_browser_may_run_these_scripts_only_and_fetch_nothing():
    read = _Reader(page_of([subject(explained(5))]))
    policy = next(a["content"] for t, a in read.tags if a.get("http-equiv") == "Content-Security-Policy")
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    assert parts["default-src"] == "'none'"
    assert parts["img-src"] == "data:"
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in read.scripts[1:]]
    assert parts["script-src"].split() == [f"'sha256-{h}'" for h in hashes]
    assert not [a for _, a in read.tags if "src" in a or (a.get("href") or "#")[0] != "#"]


def test_the_library_is_the_published_file_with_its_licence():
    vendor = files("softmask.explain.page").joinpath("vendor")
    library = vendor.joinpath("force-graph.min.js").read_bytes()
    assert hashlib.sha256(library).hexdigest() == "f59db59ba92ff5a76ed93d7a4d77a703b176260e5d9cd29f4f8eb4f6c369a629"
    assert b"</script" not in library
    assert b"<!--" not in library
    licence = vendor.joinpath("force-graph.LICENSE").read_text()
    for name in ("force-graph 1.52.0 (MIT)", "d3-zoom", "d3-ease 3.0.2 (BSD-3-Clause)", "lodash-es"):
        assert name in licence
    assert "Vasco Asturiano" in licence
    assert "Vasco Asturiano" in page_of([subject(explained(3))])


def test_scripts_set_no_markup():
    folder = files("softmask.explain.page")
    for name in page_module._SCRIPTS:
        text = folder.joinpath(name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), name


def test_classes_and_targets():
    known = subject(explained(4, actual="yes", predicted="no"), 3)
    strange = subject(explained(4, actual="<b>"), 4)
    unknown = subject(explained(4, actual=None), 5)
    graphs = _content(page_of([known, strange, unknown]))["graphs"]
    assert [(g["actual"], g["number"]) for g in graphs] == [(1, 3), ("<b>", 4), (None, 5)]
    assert graphs[0]["predicted"] == 0
    numbers = explained(4, classes=None, probabilities=None, predicted=[1.5, -2.0, 3.0], actual=[1.0, 2.0, 3.0])
    content = _content(page_of([subject(numbers)], targets=["mu", "gap", "r2"]))
    assert content["targets"] == ["mu", "gap", "r2"]
    assert content["graphs"][0]["predicted"] == [1.5, -2.0, 3.0]
    assert _content(page_of([subject(numbers)]))["targets"] == ["target 0", "target 1", "target 2"]
    single = explained(4, classes=None, probabilities=None, predicted=0.25, actual=None)
    assert _content(page_of([subject(single)]))["graphs"][0]["predicted"] == [0.25]


def test_a_graph_that_was_cut_keeps_the_numbers_of_its_nodes_and_all_their_neighbours():
    said = explained(4)
    said.data.nodes = torch.tensor([3, 900, 70000, 200000])
    degree = np.array([2, 1, 99999, 5])
    (graph,) = _content(page_of([subject(said, whole=250000, degree=degree)]))["graphs"]
    low, high, few, many = _numbers(graph)[6 * 4 : 10 * 4].reshape(4, 4)
    assert (low + 65536 * high).tolist() == [3, 900, 70000, 200000]
    assert (few + 65536 * many).tolist() == degree.tolist()
    assert graph["whole"] == 250000


def test_a_page_that_would_be_too_large_says_what_to_do(monkeypatch):
    monkeypatch.setattr(page_module, "MOST_BYTES", 100_000)
    with pytest.raises(SettingError, match=r"MB, more than .* --limit"):
        page_of([subject(explained(5))])


def test_no_graphs():
    with pytest.raises(SettingError, match="at least one graph"):
        html_page([], [], "nothing")


def test_many_graphs_stay_small():
    many = [subject(explained(500, seed), seed) for seed in range(20)]
    page = page_of(many)
    alone = page_of(many[:1])
    # 200 graphs of this size are a tenth of it each.
    assert (len(page) - len(alone)) / 19 * 200 < 6_000_000
