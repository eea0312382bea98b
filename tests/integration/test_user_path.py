"""The README's path on a real set, through the command as a user types it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from softmask import load_model
from softmask.data import open_data


def _softmask(*args, **options):
    done = subprocess.run(
        [sys.executable, "-m", "softmask", *map(str, args)], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real
@pytest.mark.slow
def test_from_data_to_masks(real_set, tmp_path):
    mutag = real_set("MUTAG")
    _softmask("data", "check", mutag)
    info = json.loads(_softmask("data", "info", mutag, "--json"))
    assert info["graphs"] == 188
    model = tmp_path / "mutag.safetensors"
    _softmask("fit", mutag, "--hidden", 32, "--epochs", 60, "--out", model)
    _softmask("predict", model, mutag, "--out", tmp_path / "p.csv")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    store = open_data(mutag)
    truth = [str(store.info["classes"][c]) for c in store.y.tolist()]
    right = sum(row["predicted"] == label for row, label in zip(rows, truth))
    # Always saying the larger class would give 125 of 188.
    assert right > 140
    lines = _softmask("predict", model, mutag, "--masks", "--json").splitlines()
    assert [len(json.loads(line)["masks"][0]) for line in lines] == store.sizes.tolist()
    masks = load_model(model).masks(store)
    assert all(0 < m.min() <= m.max() < 1 for layers in masks for m in layers)
    study = ("evaluate", mutag, "--folds", 3, "--repeats", 1, "--hidden", 32, "--epochs", 60)
    told = json.loads(_softmask(*study, "--out", tmp_path / "study", "--json"))
    assert told["result"]["figures"]["fair"]["mean"] > 125 / 188


@pytest.mark.slow
def test_the_demo(tmp_path):
    found = json.loads(
        _softmask("demo", "--out", tmp_path / "pictures", "--graphs", 60, "--folds", 2, "--epochs", 2, "--json")
    )
    assert len(found["folds"]) == 2
    assert len(found["pictures"]) == 4
    for picture in found["pictures"]:
        assert Path(picture).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
