"""Baselines on the command line."""

import json
import re
from pathlib import Path

import pytest

from softmask.baselines.shallow.cost import Cost
from softmask.baselines.shallow.weisfeiler_lehman import WeisfeilerLehman

NETS = Path(__file__).parents[1] / "baselines" / "nets.py"


def test_models_are_listed(run):
    code, out, _ = run("models", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["gin"]["way"] == "fleet"
    assert rows["wl"]["row"] == "WL"
    code, out, _ = run("models")
    assert "sagpool" in out


def test_help_lists_the_models(run):
    _, out, _ = run("evaluate", "--help")
    for name in ("gin", "dgcnn", "labels-mlp"):
        assert name in out


def test_evaluate_a_baseline(run, tmp_path):
    small = ("--folds", 2, "--repeats", 1, "--epochs", 2, "--validation", 0.3)
    for name in ("gcn", "GCN"):  # the second finds the study of the first
        code, out, _ = run("evaluate", "motif:graphs=24", "--model", name, *small, "--hidden", 8, "-o", tmp_path / "a")
        assert code == 0
        assert "GCN on motif" in out
    code, out, _ = run("evaluate", "motif:graphs=24", "--model", f"{NETS}:Small", *small, "-o", tmp_path / "b")
    assert code == 0
    assert "Small on motif" in out
    code, out, _ = run("results", "compare", tmp_path / "a", tmp_path / "b", "--json")
    told = json.loads(out)
    assert (told["first"], told["second"]) == ("GCN", "Small")
    code, out, _ = run("results", "list", tmp_path, "--json")
    assert [row["question"]["settings"][0]["model"] for row in json.loads(out)] == ["gcn", f"{NETS}:Small"]


@pytest.mark.parametrize(
    ("minutes", "options", "told"),
    [(7.0, (), True), (0.9, (), False), (500.0, ("--force",), True)],
)
def test_a_long_kernel_is_announced(run, tmp_path, monkeypatch, minutes, options, told):
    monkeypatch.setattr(WeisfeilerLehman, "cost", lambda self, store: Cost(minutes, 0.5))
    study = ("evaluate", "motif:graphs=60", "--model", "wl", "--folds", 2, *options, "--json", "-o", tmp_path)
    code, out, err = run(*study)
    assert code == 0
    json.loads(out)
    line = f"wl on motif.* needs about {minutes:.0f} minutes on one core and 0.5 GB"
    assert (re.search(line, err) is not None) == told
    code, _, err = run(*study)
    assert code == 0
    assert "minutes" not in err, "it was done before"
    assert ("minutes" in run(*study, "--fresh")[2]) == told


def test_a_kernel_beyond_reason_is_refused_and_not_announced(run, tmp_path, monkeypatch):
    monkeypatch.setattr(WeisfeilerLehman, "cost", lambda self, store: Cost(500.0, 0.5))
    code, _, err = run("evaluate", "motif:graphs=60", "--model", "wl", "--folds", 2, "-o", tmp_path)
    assert code == 2
    assert " ".join(err.split()).count("needs about 500 minutes") == 1
    assert "--force" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model", "gni"], "did you mean gin?"),
        (["--model", "gin", "--variant", "smg"], "--variant has no effect on the model gin"),
        (["--model", "wl", "--hidden", "8"], "it heeds no setting"),
        (["--model", "dgcnn", "--readout", "mean"], "--readout has no effect"),
        (["--model", "gin", "--settings", "paper"], "--settings paper is for the soft-mask models"),
        (["--model", "ecc"], "needs edge labels or attributes"),
        (["--model", "wl", "--grid", "quick"], "the grid quick varies layers, lr: that has no effect on the model wl"),
        (["--model", "wl", "--patience", "5"], "patience has no effect on wl"),
        (["--model", "wl", "--repeats", "5"], "repeats has no effect on wl"),
        (["--model", "labels-mlp", "--validation", "0.2"], "validation has no effect on labels-mlp"),
        (["--model", "wl", "--precision", "float32"], "precision has no effect on wl"),
        (["--model", "wl", "--device", "cuda"], "device has no effect on wl: it computes on the CPU"),
        (["--model", "ppgn", "--precision", "bf16"], "precision has no effect on ppgn"),
        (["--grid", "quick", "--lr", "0.1"], "--lr 0.1, but the grid quick tries 0.005, 0.001"),
    ],
)
def test_what_makes_no_sense_is_refused(run, options, said):
    code, _, err = run("evaluate", "motif:graphs=24", *options)
    assert code == 2
    assert said in " ".join(err.split())


def test_a_tuned_baseline_is_no_model_to_keep(run, tmp_path):
    (tmp_path / "s.toml").write_text('model = "gin"\n')
    code, _, err = run("fit", "motif:graphs=24", "--settings", tmp_path / "s.toml", "-o", tmp_path / "m.safetensors")
    assert code == 2
    assert "soft-mask models" in " ".join(err.split())


@pytest.mark.parametrize("command", ["tune", "evaluate"])
def test_an_option_wins_over_the_one_value_of_a_grid(run, tmp_path, command):
    """The grid says 30 epochs, and two rates."""
    (tmp_path / "grid.toml").write_text("hidden = 8\nlayers = 2\nepochs = 30\nlr = [0.01, 0.001]\n")
    options = ("--grid", tmp_path / "grid.toml", "--epochs", 2, "--folds", 2, "--validation", 0.3, "--json")
    code, out, _ = run(command, "motif:graphs=24", *options, "-o", tmp_path / "s")
    assert code == 0
    settings = json.loads(out)["question"]["settings"]
    assert [(s["epochs"], s["lr"]) for s in settings] == [(2, 0.01), (2, 0.001)]
