"""A chemist's commands: a table of molecules in, predictions row by row out; edge features beside."""

import csv
import io
import json
import shlex

import numpy as np
import pytest

from softmask import load_model
from softmask.cli.molecules import units

pytest.importorskip("rdkit")

QUICK = ["--hidden", "8", "--layers", "2", "--epochs", "3"]
SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C#N", "CN", "CCl", "O", "C1CC1", "CO", "C=C", "NN", "CBr", "CCC", "CCN"]


def _write(path, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


@pytest.fixture
def table(tmp_path):
    rows = [(f"m{i}", s, len(s) / 3, i % 2) for i, s in enumerate(SMILES)]
    return _write(tmp_path / "molecules.csv", [("id", "smiles", "logS", "active"), *rows])


@pytest.fixture
def spoilt(tmp_path):
    rows = [(s, len(s) / 3) for s in SMILES]
    rows[2], rows[5], rows[7] = ("C(", 1.5), ("CCl", ""), ("", 2.5)
    return _write(tmp_path / "spoilt.csv", [("smiles", "logS"), *rows])


def _predictions(out):
    return list(csv.DictReader(io.StringIO(out)))


def test_fit_and_predict(run, table, tmp_path):
    path = tmp_path / "m.safetensors"
    code, out, err = run("fit", table, "--smiles", "smiles", "--target", "logS", "--out", path, *QUICK, "--json")
    assert code == 0
    assert "14 molecules" in err
    assert "regression" in err
    report = json.loads(out)
    assert (report["task"], report["targets"], report["skipped"]) == ("regression", ["logS"], [])
    assert load_model(path).trained_.settings.attributes
    code, out, _ = run("predict", path, table, "--smiles", "smiles")
    assert code == 0
    rows = _predictions(out)
    assert list(rows[0]) == ["row", "smiles", "predicted_logS"]
    assert [(int(r["row"]), r["smiles"]) for r in rows] == list(enumerate(SMILES, start=1))
    np.testing.assert_allclose([float(r["predicted_logS"]) for r in rows], load_model(path).predict(SMILES), rtol=1e-6)


def test_classes(run, table, tmp_path):
    path = tmp_path / "m.safetensors"
    code, _, err = run("fit", table, "--target", "active", "--out", path, *QUICK)
    assert code == 0
    assert "2 classes, so classification" in err
    rows = _predictions(run("predict", path, table)[1])
    assert list(rows[0]) == ["row", "smiles", "predicted_active", "probability_0", "probability_1"]
    assert {r["predicted_active"] for r in rows} <= {"0", "1"}
    code, _, err = run("fit", table, "--target", "active", "--task", "regression", "--out", path, *QUICK)
    assert code == 0
    assert "regression (as asked)" in err


def test_text_that_is_not_ascii(run, tmp_path):
    """Files are UTF-8 whatever the system's own encoding is."""
    rows = [(s, "löslich" if i % 2 else "nicht löslich") for i, s in enumerate(SMILES)]
    table = tmp_path / "t.csv"
    table.write_text("smiles,Güte\n" + "".join(f"{s},{y}\n" for s, y in rows), encoding="utf-8")
    assert run("fit", table, "--target", "Güte", "--out", tmp_path / "m.safetensors", *QUICK)[0] == 0
    assert run("predict", tmp_path / "m.safetensors", table, "--out", tmp_path / "p.csv")[0] == 0
    found = _predictions((tmp_path / "p.csv").read_text(encoding="utf-8"))
    assert {r["predicted_Güte"] for r in found} <= {"löslich", "nicht löslich"}


def test_an_element_that_was_not_seen_is_named_with_its_molecule(run, table, tmp_path):
    assert run("fit", table, "--target", "logS", "--out", tmp_path / "m.safetensors", *QUICK)[0] == 0
    new = _write(tmp_path / "new.csv", [("smiles",), ("CCO",), ("C(",), ("C[Se]C",)])
    code, _, err = run("predict", tmp_path / "m.safetensors", new, "--skip-invalid")
    assert code == 0
    assert "(34; first in graph 1, C[Se]C)" in err


def test_rows_that_cannot_be_used(run, spoilt, tmp_path):
    path = tmp_path / "m.safetensors"
    code, _, err = run("fit", spoilt, "--target", "logS", "--out", path, *QUICK)
    assert code == 2
    assert "3 of 14 rows" in err
    assert all(f"line {line}:" in err for line in (4, 7, 9))
    assert not path.exists()
    code, out, err = run("fit", spoilt, "--target", "logS", "--out", path, *QUICK, "--skip-invalid", "--json")
    assert code == 0
    assert err.count("left out: line") == 3
    assert "11 molecules, 3 rows left out" in err
    assert len(json.loads(out)["skipped"]) == 3
    assert json.loads(out)["graphs"] == 11
    assert run("predict", path, spoilt)[0] == 2
    # A missing target is no reason not to predict; what cannot be predicted stays in its place.
    code, out, err = run("predict", path, spoilt, "--skip-invalid", "--masks")
    assert code == 0
    rows = _predictions(out)
    assert [r["row"] for r in rows] == [str(i) for i in range(1, 15)]
    assert [i for i, r in enumerate(rows) if r["predicted_logS"] == ""] == [2, 7]
    assert [i for i, r in enumerate(rows) if r["masks"] == ""] == [2, 7]
    assert len(json.loads(rows[1]["masks"])[0]) == 6
    for name in ("p.parquet", "p.jsonl"):
        assert run("predict", path, spoilt, "--skip-invalid", "--out", tmp_path / name)[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert lines[2] == {"row": 3, "smiles": "C(", "predicted_logS": None}


def test_evaluate(run, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wishes = ["--target", "logS", "--protocol", "holdout", "--edges"]
    code, out, _ = run("evaluate", table, "--smiles", "smiles", *wishes, *QUICK, "--json")
    assert code == 0
    question = json.loads(out)["question"]
    assert (question["task"], question["metric"]) == ("regression", "mean absolute error")
    assert question["settings"][0]["edges"] is True
    # Studies of other columns of the table are told apart.
    code, out, _ = run("evaluate", table, "--target", "active", "--protocol", "holdout", *QUICK)
    assert code == 0
    assert "on molecules (active)" in out
    listed = run("results", "list")[1]
    assert "molecules (logS)" in " ".join(listed.split())
    assert "molecules (active)" in " ".join(listed.split())
    # Units in brackets are no markup.
    units = _write(tmp_path / "u.csv", [("smiles", "IC50 [nM]"), *((s, len(s) / 3) for s in SMILES)])
    code, out, _ = run("evaluate", units, "--target", "IC50 [nM]", "--protocol", "holdout", *QUICK)
    assert code == 0
    assert "on u (IC50 [nM])" in out
    assert "u (IC50 [nM])" in run("results", "list")[1]


def test_tune(run, table, tmp_path, monkeypatch):
    """The choice is taken by fit, with the attributes of atoms that it was made with."""
    monkeypatch.chdir(tmp_path)
    grid = tmp_path / "grid.toml"
    grid.write_text("hidden = [8]\nlayers = [1]\nlr = [0.01, 0.001]\ndropout = [0.0]\n")
    given = [table, "--smiles", "smiles", "--target", "logS"]
    code, out, err = run("tune", *given, "--grid", grid, "--folds", "2", "--epochs", "3", "--out", "tuned")
    assert code == 0
    assert "14 molecules; logS: numbers" in " ".join(err.split())
    # The command that it names does.
    command = shlex.split(out.splitlines()[-1])
    assert command[:3] == ["softmask", "fit", str(table)]
    code, _, _ = run(*command[1:])
    assert code == 0
    settings = load_model("model.safetensors").trained_.settings
    assert settings.attributes
    assert (settings.hidden, settings.dropout) == (8, 0)
    assert settings.lr in (0.01, 0.001)
    # A grid may say otherwise.
    grid.write_text("hidden = [8]\nlayers = [1]\nattributes = [false]\n")
    code, _, _ = run("tune", *given, "--grid", grid, "--folds", "2", "--epochs", "2", "--out", "without")
    assert code == 0
    assert "attributes = false" in (tmp_path / "without" / "chosen.toml").read_text()
    code, _, err = run("tune", table, "--grid", grid)
    assert code == 2
    assert "--target" in err


def test_a_target_of_a_set(run, tmp_path):
    path = tmp_path / "m.safetensors"
    wishes = ["--target", "gap", "--target", "mu", "--batch-size", "256", "--edges"]
    code, _, _ = run("fit", "qm9-sample", *wishes, "--out", path, "--hidden", "4", "--layers", "1", "--epochs", "1")
    assert code == 0
    trained = load_model(path).trained_
    assert trained.targets == ["gap", "mu"]
    # Bond kinds and lengths.
    assert (trained.edge_features.values, len(trained.edge_features.mean)) == (((1, 2, 3, 12),), 1)
    assert trained.mean == pytest.approx((0.2511, 2.7), rel=0.05)
    code, out, _ = run("predict", path, "qm9-sample")
    assert code == 0
    assert list(_predictions(out)[0]) == ["graph", "name", "predicted_gap", "predicted_mu"]


def test_wishes_that_cannot_be_met(run, table, tmp_path):
    path = tmp_path / "m.safetensors"
    assert run("fit", table, "--target", "logS", "--out", path, *QUICK)[0] == 0
    out = ["--out", tmp_path / "n.safetensors"]
    same = _write(tmp_path / "same.csv", [("smiles", "y"), ("C", "1.5"), ("CC", "1.5")])
    excel = tmp_path / "t.xlsx"
    excel.write_bytes(b"PK")
    for args, words in [
        (["fit", same, "--target", "y", *out], "y is 1.5 for every molecule"),
        (["fit", excel, "--target", "y", *out], "save a table of molecules as .csv"),
        (["fit", table, *out], "name the column to learn with --target; its other columns are id, logS, active"),
        (["fit", table, "--target", "logs2", *out], "Did you mean 'logS'?"),
        (["fit", table, "--smiles", "smile", "--target", "logS", *out], "Did you mean 'smiles'?"),
        (["fit", tmp_path / "none.csv", "--target", "logS", *out], "no such file"),
        (["fit", table, "--target", "logS", "--task", "both", *out], "unknown task"),
        (["fit", "motif", "--smiles", "smiles", *out], "--smiles belongs to a table"),
        (["fit", "motif", "--skip-invalid", *out], "--skip-invalid belongs to a table"),
        (["fit", "motif", "--target", "gap", *out], "no targets with names"),
        (["fit", "motif", "--edges", *out], "no labels or attributes"),
        (["fit", "qm9-sample", "--target", "gapp", *out], "did you mean gap?"),
        (["fit", "qm9-sample", "--target", "gap", "--target", "gap", *out], "named twice"),
        (["fit", table, "--target", "logS", "--edges", "--norm", *out], "norm"),
        (["fit", table, "--target", "logS", "--edges", "--holdout", "0.2", *out], "edge features are not for"),
        (["evaluate", table], "name the column to learn"),
        (["predict", path, "qm9-sample"], "node labels"),
        (["predict", path, "motif", "--smiles", "smiles"], "--smiles belongs to a table"),
    ]:
        code, _, err = run(*args)
        assert code == 2, (args, err)
        assert err.splitlines()[-1].startswith("error:") or err.startswith("error:"), (args, err)
        assert words in err, (args, err)
    assert not (tmp_path / "n.safetensors").exists()


def test_explain_draws_molecules(run, table, tmp_path):
    pytest.importorskip("pygraphviz")
    path, pictures = tmp_path / "m.safetensors", tmp_path / "pictures"
    assert run("fit", table, "--target", "logS", "--out", path, *QUICK, "--edges")[0] == 0
    code, _, err = run("explain", path, table, "--smiles", "smiles", "--svg", pictures, "--graphs", "1,2")
    assert code == 0, err
    for number, atoms in ((1, 6), (2, 4)):
        text = (pictures / f"graph-{number}.svg").read_text()
        assert SMILES[number] in text
        assert f'class="atom-{atoms - 1}"' in text
        assert "effect, 1 = " in text
    code, out, err = run("explain", path, table, "--smiles", "smiles", "--atoms", tmp_path / "atoms.md")
    assert code == 0, err
    assert "Which atoms carry logS: 14 molecules" in out
    kinds = json.loads((tmp_path / "atoms.json").read_text())["kinds"]
    assert {name: kinds[name]["atoms"] for name in ("aromatic C", "carbonyl O", "nitrile N", "other Br")} == {
        "aromatic C": 6,
        "carbonyl O": 1,
        "nitrile N": 1,
        "other Br": 1,
    }


def test_a_table_has_no_units_of_qm9(run, tmp_path):
    rows = [(s, len(s) / 3) for s in SMILES]
    table = _write(tmp_path / "qm9.csv", [("smiles", "gap"), *rows])
    path, atoms = tmp_path / "m.safetensors", tmp_path / "atoms.md"
    assert run("fit", table, "--target", "gap", "--out", path, *QUICK)[0] == 0
    code, out, err = run("explain", path, table, "--atoms", atoms)
    assert code == 0, err
    assert "Which atoms carry gap" in out
    assert " Ha" not in out
    assert json.loads(atoms.with_suffix(".json").read_text())["model"]["unit"] == ""
    assert run("fit", "qm9-sample", "--target", "gap", "--out", path, *QUICK, "--epochs", 1)[0] == 0
    assert units(load_model(path)) == ["Ha"]


@pytest.fixture
def mutag(real_set):
    return real_set("MUTAG")


@pytest.mark.real
def test_edge_labels_of_mutag(mutag, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("evaluate", mutag, "--edges", "--folds", "3", "--repeats", "1", *QUICK, "--json")
    assert code == 0
    assert np.isfinite(json.loads(out)["result"]["figures"]["fair"]["mean"])
