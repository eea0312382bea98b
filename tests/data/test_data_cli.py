import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from softmask.cli.data import app
from softmask.data.catalog import KNOWN, SYNTHETIC
from softmask.data.files import save_store
from softmask.data.tu import read_tu
from softmask.errors import DataError


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.stdout


def test_list(write_tu, tmp_path):
    write_tu("MUTAG")
    text = run("list", "--data-dir", tmp_path)
    assert all(name in text for name in (*KNOWN, *SYNTHETIC))
    rows = {row["name"]: row for row in json.loads(run("list", "--data-dir", tmp_path, "--json"))}
    assert rows["MUTAG"]["where"] == str(tmp_path / "MUTAG")
    assert rows["MUTAG"]["graphs"] == 188
    assert len(rows) == len(KNOWN) + len(SYNTHETIC)


def test_list_with_a_wrong_folder(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        run("list", "--data-dir", tmp_path / "x")


def test_info(write_tu):
    folder = write_tu()
    found = json.loads(run("info", folder, "--json"))
    expected = {
        "name": "TOY", "graphs": 2, "nodes": 7, "nodes_min": 3, "nodes_max": 4, "nodes_mean": 3.5,
        "edges": 10, "directed": False, "self_loops_dropped": 0, "isolated_nodes": 1, "largest_degree": 3,
        "targets": 0, "classes": [[-1, 1], [1, 1]], "node_labels": [3], "node_attributes": 2,
        "edge_labels": [5], "edge_attributes": 0, "features": {"kind": "labels", "channels": 3},
    }  # fmt: skip
    assert {k: found[k] for k in expected} == expected
    text = run("info", folder)
    for line in (
        "classes             2: -1 (1), 1 (1)",
        "edges               5, undirected",
        found["content_hash"],
    ):
        assert line in text


def test_info_of_a_directed_set_without_targets(write_tu):
    folder = write_tu(A="1, 2\n5, 6\n2, 2\n", edge_labels=None, graph_labels=None)
    found = json.loads(run("info", folder, "--json"))
    assert (found["directed"], found["isolated_nodes"], found["self_loops_dropped"]) == (True, 3, 1)
    assert "2, directed" in run("info", folder)


def test_a_store_without_graphs(write_tu, tmp_path):
    save_store(read_tu(write_tu()).select([]), tmp_path / "empty.safetensors")
    assert "holds no graphs" in run("check", tmp_path / "empty.safetensors", code=2)
    with pytest.raises(DataError, match="holds no graphs"):
        run("info", tmp_path / "empty.safetensors")


def test_check_fine(write_tu):
    assert "fine: TOY: 2 graphs, 7 nodes" in run("check", write_tu())
    report = json.loads(run("check", write_tu(), "--json"))
    assert report["ok"]
    assert report["problems"] == []
    # Each class has one graph: fine, but worth a word.
    assert len(report["remarks"]) == 2


def test_check_names_the_problem(write_tu):
    folder = write_tu(A="1, 2\n2, 99\n", edge_labels=None)
    assert "TOY_A.txt, line 2: edge 2, 99 names node 99" in run("check", folder, code=2)
    report = json.loads(run("check", folder, "--json", code=2))
    assert not report["ok"]
    assert len(report["problems"]) == 1


def test_check_compares_with_what_is_known(write_tu):
    text = run("check", write_tu("MUTAG"), code=2)
    for line in (
        "graphs: 2, but MUTAG has 188",
        "node attributes: 2, but MUTAG has 0",
        "isolated: 1, but MUTAG has 0",
    ):
        assert line in text
    assert "classes:" not in text


def test_check_of_something_else(tmp_path):
    assert "no such file or folder" in run("check", tmp_path / "x.zip", code=2)
    assert "fine: motif" in run("check", "motif:graphs=4")


def test_get_without_network(monkeypatch):
    monkeypatch.setattr("torch_geometric.datasets.TUDataset.url", "http://127.0.0.1:9")
    with pytest.raises(DataError, match="cannot be reached"):
        run("get", "MUTAG")


@pytest.mark.parametrize("command", ["list", "get", "info", "check"])
def test_help_has_an_example(command):
    assert f"softmask data {command}" in " ".join(run(command, "--help").split())


def test_as_a_process_without_torch_for_help():
    code = (
        "import sys; from softmask.cli.data import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "check" in done.stdout


def test_json_of_a_process_is_nothing_but_json(write_tu):
    code = "from softmask.cli.data import app; app()"
    command = [sys.executable, "-c", code, "info", str(write_tu()), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["graphs"] == 2
    assert done.stderr == ""
