"""The way of a user with a question: evaluate, tune, fit with the choice, compare. On real sets."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]


def _softmask(*args, cwd):
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [str(Path(sys.executable).with_name("softmask")), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_both_protocols_on_proteins(real_set, tmp_path):
    data = real_set("PROTEINS")
    command = ("evaluate", data, "--variant", "smg", "--protocol", "both", "--runs", 1, "--epochs", 5)
    told = json.loads(_softmask(*command, "--tensorboard", "--json", cwd=tmp_path))
    folder = tmp_path / told["folder"]
    assert folder.parent == tmp_path / "studies"
    figures = told["result"]["figures"]
    assert np.shape(figures["paper"]["scores"]) == np.shape(figures["fair"]["scores"]) == (1, 10)
    # The larger class has 663 of 1113 graphs; 5 epochs must at least not fall far behind it.
    assert figures["paper"]["mean"] > 0.6
    assert told["result"]["gap"] == pytest.approx(figures["paper"]["mean"] - figures["fair"]["mean"])
    assert (folder / "report.html").read_text().count("<svg") >= 4
    assert "epoch chosen on the test folds" in (folder / "report.md").read_text()
    assert list((folder / "events").rglob("events.*"))
    # A finished study is shown, not trained again.
    assert json.loads(_softmask(*command, "--json", cwd=tmp_path)) == told
    listed = json.loads(_softmask("results", "list", "--json", cwd=tmp_path))
    assert [row["folder"] for row in listed] == [told["folder"]]
    assert "epoch chosen on the test folds" in _softmask("results", "show", told["folder"], cwd=tmp_path)


def test_tune_fit_and_compare(real_set, tmp_path):
    data = real_set("MUTAG")
    grid = tmp_path / "grid.toml"
    grid.write_text('variant = "smg"\nhidden = [8, 16]\nlr = [0.01, 1e-6]\nepochs = 20\nlayers = 2\n')
    common = ("--folds", 3, "--repeats", 1, "--hidden", 8, "--epochs", 20)
    _softmask("tune", data, "--grid", grid, "--folds", 3, "--out", "tuned", cwd=tmp_path)
    chosen = tmp_path / "tuned" / "chosen.toml"
    assert "lr = 0.01" in chosen.read_text(), "a rate of a millionth learns nothing in 20 epochs"
    _softmask("fit", data, "--settings", chosen, "--epochs", 2, "--out", "m.safetensors", cwd=tmp_path)
    _softmask("evaluate", data, "--settings", chosen, "--folds", 3, "--repeats", 1, "--out", "a", cwd=tmp_path)
    _softmask("evaluate", data, *common, "--lr", "1e-6", "--out", "b", cwd=tmp_path)
    told = json.loads(_softmask("results", "compare", "a", "b", "--json", cwd=tmp_path))
    assert told["n"] == 3
    a, b = (json.loads((tmp_path / s / "result.json").read_text())["figures"]["fair"]["mean"] for s in "ab")
    assert told["difference"] == pytest.approx(a - b)
    # Folds as files, as benchmarks publish them.
    folds = json.loads((tmp_path / "a" / "splits.json").read_text())[0]["test"]
    (tmp_path / "folds").mkdir()
    for number, ids in enumerate(folds, start=1):
        (tmp_path / "folds" / f"test_idx-{number}.txt").write_text("\n".join(map(str, ids)))
    _softmask("evaluate", data, *common, "--fold-files", "folds", "--out", "c", cwd=tmp_path)
    assert json.loads((tmp_path / "c" / "splits.json").read_text())[0]["test"] == folds
    _softmask("results", "compare", "a", "c", cwd=tmp_path)
