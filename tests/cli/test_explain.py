"""softmask explain: what it writes, which graphs it chooses, and what it refuses before any work."""

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from softmask.cli.explain import _drawn, _numbers
from softmask.data.files import save_store
from softmask.data.pyg import from_data
from softmask.data.smiles import from_smiles
from softmask.data.synthetic import motif
from softmask.errors import SettingError

QUICK = ["--hidden", "8", "--layers", "2", "--epochs", "2"]
SVG = "{http://www.w3.org/2000/svg}"


def _fit(run, store, folder: Path) -> tuple[Path, Path]:
    data, model = folder / "set.safetensors", folder / "model.safetensors"
    save_store(store, data)
    assert run("fit", data, "--out", model, *QUICK)[0] == 0
    return data, model


@pytest.fixture
def trained(run, tmp_path):
    return _fit(run, motif(num_graphs=30, seed=0), tmp_path)


def _content(page: Path) -> dict:
    return json.loads(re.search(r'id="content">(.*?)</script>', page.read_text(), re.DOTALL)[1])


def test_a_page_and_pictures(run, trained, tmp_path):
    data, model = trained
    page, folder = tmp_path / "page.html", tmp_path / "new" / "pictures"
    code, out, err = run("explain", model, data, "--html", page, "--svg", folder, "--graphs", "7,2-3")
    assert (code, out) == (0, "")
    assert "3 pictures" in err
    assert "3 of 30 graphs" in err
    content = _content(page)
    assert [g["number"] for g in content["graphs"]] == [7, 2, 3]
    assert content["layers"] == 2
    assert content["roles"] == ["background", "motif"]
    assert sorted(p.name for p in folder.iterdir()) == ["graph-2.svg", "graph-3.svg", "graph-7.svg"]
    words = ["".join(t.itertext()) for t in ET.parse(folder / "graph-7.svg").iter(f"{SVG}text")]
    assert "motif, graph 7" in words
    assert any(re.fullmatch(r"predicted \w+ \(probability [01]\.\d\d\), class \w+", w) for w in words)
    # What the page says without a threshold is what the model predicts.
    _, printed, _ = run("predict", model, data, "--json")
    rows = [json.loads(line) for line in printed.splitlines()]
    for graph in content["graphs"]:
        row = rows[graph["number"]]
        assert content["classes"][graph["predicted"]] == str(row["predicted"])
        expected = [row[f"probability_{c}"] for c in content["classes"]]
        assert graph["curve"][0] == pytest.approx(expected, abs=2e-4)
        assert graph["probabilities"] == pytest.approx(expected, abs=2e-4)


def test_molecules_are_drawn_as_molecules(run, tmp_path):
    pytest.importorskip("rdkit")
    molecules = ["CCO", "c1ccccc1", "CC(=O)N", "C#N", "CCCl", "CO"]
    data, model = _fit(run, from_smiles(molecules, [0, 1, 0, 1, 0, 1], name="some"), tmp_path)
    page = tmp_path / "page.html"
    code, _, err = run("explain", model, data, "--html", page, "--svg", tmp_path / "svg")
    assert code == 0, err
    graph = _content(page)["graphs"][2]
    assert graph["name"] == "CC(=O)N"
    assert graph["bonds"]
    assert _content(page)["words"][:2] == ["C", "O"]
    assert "bond-0" in (tmp_path / "svg" / "graph-2.svg").read_text()


def test_numbers_as_targets(run, tmp_path):
    from softmask.data.targets import with_targets

    store = with_targets(motif(num_graphs=12, seed=0), np.linspace(0, 1, 12))
    data, model = _fit(run, store, tmp_path)
    code, _, err = run("explain", model, data, "--html", tmp_path / "p.html", "--svg", tmp_path / "svg", "--limit", 2)
    assert code == 0, err
    content = _content(tmp_path / "p.html")
    assert content["classes"] is None
    assert all(len(g["predicted"]) == len(g["actual"]) == 1 for g in content["graphs"])
    assert "actual" in next((tmp_path / "svg").iterdir()).read_text()


def test_a_table_of_molecules(run, tmp_path):
    pytest.importorskip("rdkit")
    rows = ["smiles,logS", *(f"{'C' * n}O,{n / 7}" for n in range(1, 13))]
    (tmp_path / "known.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "new.csv").write_text("smiles\nCCCO\nCCN\n")
    model, page = tmp_path / "model.safetensors", tmp_path / "p.html"
    assert run("fit", tmp_path / "known.csv", "--target", "logS", "--out", model, *QUICK)[0] == 0
    code, _, err = run("explain", model, tmp_path / "known.csv", "--smiles", "smiles", "--html", page, "--graphs", "3")
    assert code == 0, err
    content = _content(page)
    assert content["targets"] == ["logS"]
    assert content["graphs"][0]["actual"] == [pytest.approx(4 / 7, abs=1e-5)]
    code, _, err = run("explain", model, tmp_path / "new.csv", "--html", page)
    assert code == 0, err
    assert [g["actual"] for g in _content(page)["graphs"]] == [None, None]


def test_what_is_known_of_something_else_is_left_out(run, trained, tmp_path):
    from softmask.data.targets import with_targets

    save_store(with_targets(motif(num_graphs=6, seed=1), np.linspace(0, 1, 6)), tmp_path / "numbers.safetensors")
    code, _, err = run("explain", trained[1], tmp_path / "numbers.safetensors", "--html", tmp_path / "p.html")
    assert code == 0, err
    assert {g["actual"] for g in _content(tmp_path / "p.html")["graphs"]} == {None}


def test_larger_graphs_are_cut_to_the_wanted_size(run, trained, tmp_path):
    data, model = trained
    code, _, _ = run(
        *("explain", model, data, "--html", tmp_path / "p.html", "--svg", tmp_path / "svg"),
        *("--graphs", "0", "--size", "6"),
    )
    assert code == 0
    (graph,) = _content(tmp_path / "p.html")["graphs"]
    assert graph["nodes"] == 6
    assert graph["whole"] > 6
    assert f"6 important of {graph['whole']} nodes" in (tmp_path / "svg" / "graph-0.svg").read_text()


def test_hostile_names_change_nothing(run, tmp_path):
    harm = "</script><script>alert(1)</script>"
    store = motif(num_graphs=8, seed=0)
    info = {**store.info, "name": harm, "names": [f"../../{harm}{i}" for i in range(8)], "classes": [harm, "<b>"]}
    from dataclasses import replace

    folder = tmp_path / "<img src=x onerror=alert(1)>"
    folder.mkdir()
    data, model = _fit(run, replace(store, info=info), folder)
    page = folder / "p.html"
    code, _, err = run("explain", model, data, "--html", page, "--svg", folder / "svg", "--limit", 2)
    assert code == 0, err
    assert harm not in page.read_text()
    assert page.read_text().count("<script") == 3
    pictures = list((folder / "svg").iterdir())
    assert len(pictures) == 2
    for picture in pictures:
        assert re.fullmatch(r"graph-\d+\.svg", picture.name)
        assert not list(ET.parse(picture).iter(f"{SVG}script"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do: give --html PAGE"),
        (["--html", "page.txt"], "ends in .html"),
        (["--html", "no/folder/page.html"], "there is no folder"),
        (["--svg", "set.safetensors"], "cannot make the folder"),
        (["--html", "p.html", "--graphs", "1,x"], "'x' is no number"),
        (["--html", "p.html", "--graphs", "5-2"], "is no number"),
        (["--html", "p.html", "--graphs", "0,30"], "there is no graph 30: .* has graphs 0 to 29"),
        (["--html", "p.html", "--graphs", "1", "--limit", "3"], "not both"),
        (["--html", "p.html", "--reduction", "median"], "mean, max or norm"),
        (["--html", "p.html", "--size", "6000"], "from 1 to 5000"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(run, trained, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    code, _, err = run("explain", trained[1], trained[0], *arguments)
    assert code == 2
    assert re.search(message, " ".join(err.split()))
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_without_permission(run, trained, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("the superuser may write anywhere")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    code, _, err = run("explain", trained[1], trained[0], "--html", folder / "p.html")
    assert code == 2
    assert "cannot write" in err


def test_a_model_that_does_not_fit_the_graphs(run, trained, tmp_path):
    pytest.importorskip("rdkit")
    (tmp_path / "other").mkdir()
    _, model = _fit(run, from_smiles(["CCO", "CC", "CN", "CO"], [0, 1, 0, 1]), tmp_path / "other")
    code, _, err = run("explain", model, trained[0], "--html", tmp_path / "p.html")
    assert code == 2
    assert "trained on node labels; these graphs have none" in err
    assert not (tmp_path / "p.html").exists()


def test_graphs_of_another_set_are_told_apart_by_their_classes(run, trained, tmp_path):
    from softmask.data.synthetic import ba2motifs

    data, model = trained
    save_store(ba2motifs(num_graphs=4), tmp_path / "other.safetensors")
    code, _, err = run("explain", model, tmp_path / "other.safetensors", "--html", tmp_path / "page.html")
    assert code == 0
    assert "the model knows the classes biclique, house; these graphs also have cycle: are they of another set?" in err
    assert "another set" not in run("explain", model, data, "--html", tmp_path / "page.html", "--limit", 2)[2]


def test_a_graph_too_large_to_draw(run, trained, tmp_path):
    import torch
    from torch_geometric.data import Data

    line = torch.stack([torch.arange(5999), torch.arange(1, 6000)])
    graphs = [Data(edge_index=torch.cat([line, line.flip(0)], 1), num_nodes=6000, y=torch.tensor([c])) for c in (0, 1)]
    save_store(from_data(graphs), tmp_path / "large.safetensors")
    page = tmp_path / "p.html"
    code, _, err = run("explain", trained[1], tmp_path / "large.safetensors", "--html", page)
    assert code == 2
    assert re.search(r"graph 0 has 6,000 nodes .* --size 500", " ".join(err.split()))
    code, _, err = run("explain", trained[1], tmp_path / "large.safetensors", "--html", page, "--size", 50)
    assert code == 0, err
    assert _content(page)["graphs"][0]["nodes"] == 50


def test_numbers_of_graphs():
    assert _numbers("5") == [5]
    assert _numbers(" 3, 1-2,3") == [3, 1, 2]
    for text in ("", "1,", "-1", "1-", "a", "1.5", "0-99999999", "\u0665"):
        with pytest.raises(SettingError):
            _numbers(text)


def test_graphs_are_drawn_evenly_over_the_classes():
    store = motif(num_graphs=60, seed=0)
    rare = store.select(np.flatnonzero((store.y.numpy() == 0) | (np.arange(60) < 8)))
    label = rare.y.numpy()
    few = int((label == 1).sum())
    assert 0 < few < 8
    chosen = _drawn(rare, np.arange(len(rare)), 2 * few, seed=0)
    assert len(set(chosen)) == 2 * few
    assert (label[chosen] == 1).sum() == few
    assert chosen == sorted(chosen)
    assert chosen == _drawn(rare, np.arange(len(rare)), 2 * few, seed=0)
    assert chosen != _drawn(rare, np.arange(len(rare)), 2 * few, seed=1)
    assert _drawn(rare, np.arange(len(rare)), 1000, seed=0) == list(range(len(rare)))
    assert set(_drawn(rare, np.arange(5, 9), 1000, seed=0)) == {5, 6, 7, 8}


def test_help_teaches(run):
    code, out, _ = run("explain", "--help")
    assert code == 0
    assert "softmask explain mutag.safetensors MUTAG --html" in " ".join(out.split())
