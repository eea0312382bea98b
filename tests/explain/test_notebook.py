from html.parser import HTMLParser

import numpy as np
import pytest
from explain.pages import HOSTILE, explained

from softmask.data.smiles import from_smiles
from softmask.explain.explanation import Explanation


class _Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_an_explanation_shows_itself():
    said = explained(12, layers=2, name="the first")
    read = _Tags(said._repr_html_())
    assert [t for t, _ in read.tags].count("svg") == 1
    words = " ".join(read.text.split())
    assert f"the first predicted {said.predicted} (probability {said.probabilities.max():.2f})" in words
    assert "layer 1" in words
    assert "layer 2" in words
    assert f"{np.argmax(said.importance)}1.00" in read.text.replace("\n", "")


def test_nothing_given_becomes_markup():
    said = explained(5, name=HOSTILE, classes=[HOSTILE, "b"], predicted=HOSTILE, actual="</div><script>")
    harmless = _Tags(explained(5)._repr_html_())
    read = _Tags(said._repr_html_())
    assert [t for t, _ in read.tags] == [t for t, _ in harmless.tags]
    assert not [a for _, attributes in read.tags for a in attributes if a.startswith("on")]
    assert "<script>window.harm" in read.text


def test_large_graphs_show_their_most_important_nodes():
    html = explained(700, layers=1)._repr_html_()
    assert "the 500 most important of 700 nodes" in html
    marks = html.split('id="layer-1-nodes"')[1].split('id="axes_2"')[0]
    assert marks.count("<use ") == 500


def test_molecules_are_drawn_as_molecules():
    pytest.importorskip("rdkit")
    store = from_smiles(["CC(=O)Cl"])
    said = Explanation(store[0], "CC(=O)Cl", np.linspace(0, 1, 8).reshape(4, 2), np.ones(4), 1.25, actual=1.5)
    html = said._repr_html_()
    assert "predicted 1.25, actual 1.5" in html
    assert "bond-0" in html, "RDKit drew it"


def test_without_graphviz_there_are_still_the_numbers(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pygraphviz":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    html = explained(5)._repr_html_()
    assert "pip install &#x27;softmask[draw]&#x27;" in html
    assert "most important nodes" in html
