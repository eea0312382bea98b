"""The models that Table 2 keeps, through the commands; and the table cut short."""

import csv
import io
import json
import re

import numpy as np
import pytest

from softmask.data.catalog import open_data
from softmask.data.files import save_store
from softmask.data.splits import holdout
from softmask.data.targets import pick_targets
from softmask.paper.table2 import rows


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Eighty molecules, and a model of each target."""
    folder = tmp_path_factory.mktemp("table2")
    store = open_data("qm9-sample").select(range(80))
    save_store(store, folder / "eighty.safetensors")
    (row,) = rows(quick=True, variants=["geometric"])
    row.run(store, folder, "cpu")
    return folder / "eighty.safetensors", store, row, folder


def test_predict_gives_the_figures_of_the_record(run, made):
    data, store, row, folder = made
    code, out, err = run("predict", row.model_path(folder, "gap"), data, "--part", "test")
    assert code == 0, err
    table = list(csv.DictReader(io.StringIO(out)))
    ids = np.array([int(line["graph"]) for line in table])
    assert ids.tolist() == sorted(holdout(80, row.ratios, 0)[2].tolist())
    assert [line["name"] for line in table] == [store.info["names"][g] for g in ids]
    said = np.array([float(line["predicted_gap"]) for line in table])
    actual = store.y[:, store.info["targets"].index("gap")].numpy()[ids]
    record = json.loads(row.path(folder).read_text())
    assert np.abs(said - actual).mean() == pytest.approx(record["test_mae"]["gap"], rel=1e-6)


def test_explain_draws_molecules_and_counts_kinds_of_atoms(run, made, tmp_path):
    data, store, row, folder = made
    page, table, pictures = tmp_path / "mu.html", tmp_path / "mu.md", tmp_path / "pictures"
    code, out, err = run(
        *("explain", row.model_path(folder, "mu"), data, "--part", "test", "--limit", 3),
        *("--html", page, "--atoms", table, "--svg", pictures),
    )
    assert code == 0, err
    test = set(holdout(80, row.ratios, 0)[2].tolist())
    content = json.loads(re.search(r'id="content">(.*?)</script>', page.read_text(), re.DOTALL)[1])
    assert content["targets"] == ["mu (D)"]
    assert content["effects"]
    assert {g["number"] for g in content["graphs"]} < test
    assert all(len(g["effect"]) == g["nodes"] for g in content["graphs"])
    assert "mean absolute error on these" in page.read_text()
    assert "effect, 1 = " in next(pictures.iterdir()).read_text()
    assert table.read_text().strip() == out.strip()
    found = json.loads(table.with_suffix(".json").read_text())
    assert found["molecules"] == len(test)
    assert sum(kind["atoms"] for kind in found["kinds"].values()) == int(store.sizes[sorted(test)].sum())
    assert found["model"]["unit"] == "D"
    assert found["model"]["data_hash"] == store.content_hash()
    assert found["data_hash"] == pick_targets(store, ["mu"]).content_hash()
    assert found["provenance"]["command"].startswith("softmask explain")


def test_what_is_refused(run, made, tmp_path):
    data, _, row, folder = made
    model = row.model_path(folder, "mu")
    molecules = tmp_path / "molecules.csv"
    molecules.write_text("smiles\nCCO\nc1ccccc1\n")
    for arguments, words in (
        (["predict", model, molecules, "--smiles", "smiles"], "has no positions"),
        (["explain", model, molecules, "--smiles", "smiles", "--html", tmp_path / "a.html"], "has no positions"),
        (["predict", model, data, "--part", "tests"], "--part tests: use train, validation, test"),
        (["predict", model, "qm9-sample", "--part", "test"], "qm9-sample has 1,000. Leave --part out"),
        (["predict", model, molecules, "--smiles", "smiles", "--part", "test"], "not for tables"),
        (["explain", model, data, "--atoms", tmp_path / "table.txt"], "a name that ends in .md"),
        (["reproduce", "figure3", "--minutes", "1"], "--epochs and --minutes belong to table2"),
        (["reproduce", "table2", "--quick", "--out", molecules], "cannot make the folder"),
    ):
        code, _, err = run(*arguments)
        assert code == 2
        assert words in " ".join(err.split())


@pytest.mark.slow
def test_a_table_that_ends_in_time_goes_on(run, tmp_path):
    given = ("reproduce", "table2", "--quick", "--variant", "geometric", "--out", tmp_path, "--device", "cpu")
    code, out, err = run(*given, "--minutes", 0)
    assert code == 0
    assert "geometric soft-mask, ours\\* |" in out
    assert "and so not what it gives: geometric 1 of 2." in out
    assert "QM9, geometric: epoch 1 of 2" in err
    assert "the time is up" in err
    code, out, _ = run(*given)
    assert code == 0
    assert "| geometric soft-mask, ours |" in out
    record = json.loads((tmp_path / "quick" / "table2" / "geometric-seed0.json").read_text())
    assert (record["cut"], record["epochs"]) == (False, {"trained": 2, "of": 2})
