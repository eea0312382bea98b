"""The paper's figures by their commands: trained on one machine, drawn on another, and gone on with."""

import sys
from pathlib import Path

import pytest

from softmask.paper import figure4


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(figure4, "QUICK_GRAPHS", 40)
    monkeypatch.setattr(figure4, "QUICK_HIDDEN", 4)
    monkeypatch.setattr(figure4, "PICTURES", 1)


@pytest.fixture
def sets(real_set):
    """The folder of real sets; to be named before `run`, which hides it."""
    return real_set("PROTEINS").parent


@pytest.mark.real
def test_a_machine_that_cannot_draw_trains_and_another_draws(sets, run, small, tmp_path, monkeypatch):
    command = ("reproduce", "proteins", "--quick", "--out", tmp_path, "--data-dir", sets)
    place = tmp_path / "quick" / "proteins"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pygraphviz", None)
        code, out, err = run(*command)
    assert code == 2
    assert "pip install 'softmask[draw]'" in err
    assert "- PROTEINS (quick form): of 2 rules" in out
    assert {path.name for path in place.iterdir()} == {"masks-PROTEINS.json", "masks.md"}
    before = (place / "masks-PROTEINS.json").read_bytes()
    code, out, err = run(*command)
    assert (code, err) == (0, "")
    assert (place / "masks-PROTEINS.json").read_bytes() == before, "nothing was trained again"
    pictures = [line for line in out.splitlines() if line.endswith((".svg", ".png"))]
    assert len(pictures) == 2
    assert all(Path(path).stat().st_size > 10_000 for path in pictures)


@pytest.mark.real
def test_rows_of_table_1_one_of_them_tuned(sets, run, tmp_path):
    rows = ("--set", "MUTAG", "--variant", "smg-jk", "--variant", "m-smg-jk-norm-tuned")
    code, out, err = run("reproduce", "table1", "--quick", *rows, "--out", tmp_path, "--data-dir", sets)
    assert code == 0
    assert "| MUTAG | SMG-JK |" in out
    assert "| MUTAG | M-SMG-JK, norm, tuned |" in out
    assert "m-smg-jk-norm-tuned, its settings: " in err
    assert (tmp_path / "quick" / "tune" / "MUTAG" / "m-smg-jk-norm-tuned" / "result.json").exists()


@pytest.mark.parametrize("what", ["figure3", "figure4", "collab"])
def test_a_folder_that_cannot_be_written_is_refused_before_any_work(run, tmp_path, what):
    (tmp_path / "file").touch()
    _empty_sets(tmp_path / "sets")
    code, out, err = run("reproduce", what, "--quick", "--out", tmp_path / "file", "--data-dir", tmp_path / "sets")
    assert (code, out) == (2, "")
    assert err.startswith("error: cannot make the folder")


def _empty_sets(folder, *but):
    for name in {"PROTEINS", "COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K"} - set(but):
        (folder / name).mkdir(parents=True)


@pytest.mark.parametrize("what", ["figure3", "figure4"])
def test_a_set_that_is_not_there_is_missed_before_another_is_trained(run, tmp_path, what, monkeypatch):
    monkeypatch.setenv("SOFTMASK_CACHE", str(tmp_path / "cache"))
    _empty_sets(tmp_path / "sets", "REDDIT-BINARY", "REDDIT-MULTI-12K")
    code, out, err = run("reproduce", what, "--quick", "--out", tmp_path / "new", "--data-dir", tmp_path / "sets")
    assert (code, out) == (2, "")
    assert "softmask data get REDDIT-" in err
    assert not (tmp_path / "new").exists()


def test_sets_of_a_figure(run, tmp_path):
    for args, words in [
        (["figure3", "--set", "NCI1", "--quick"], "quick form of the figure has no set 'NCI1'; it has PROTEINS"),
        (["figure4", "--set", "NCI1"], "figure4 has no set 'NCI1'; softmask reproduce nci1 draws it"),
        (["figure4", "--set", "reddit-binry"], "no set 'reddit-binry'; did you mean REDDIT-BINARY?"),
        (["figure4", "--set", "MUTAG"], "figure4 has no set 'MUTAG'; it has REDDIT-BINARY"),
        (["figure3", "--set", "reddit-binary"], "no set 'reddit-binary'; did you mean REDDIT-BINARY?"),
        (["collab", "--set", "COLLAB"], "--set belongs to"),
    ]:
        code, _, err = run("reproduce", *args, "--out", tmp_path / "new")
        assert code == 2
        assert words in " ".join(err.split())
    assert not (tmp_path / "new").exists()
