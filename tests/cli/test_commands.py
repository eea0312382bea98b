import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from softmask.data.files import save_store
from softmask.data.synthetic import motif

QUICK = ["--hidden", "8", "--layers", "2", "--epochs", "3"]


@pytest.fixture
def data(tmp_path):
    save_store(motif(num_graphs=30, seed=0), tmp_path / "set.safetensors")
    return tmp_path / "set.safetensors"


@pytest.fixture
def model(run, data, tmp_path):
    path = tmp_path / "model.safetensors"
    assert run("fit", data, "--out", path, *QUICK)[0] == 0
    return path


def test_help_is_quick_because_torch_is_not_imported():
    code = (
        "import sys; sys.argv = ['softmask', '--help']\n"
        "from softmask.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'torch', 'numpy', 'scipy', 'sklearn', 'pyarrow', 'torch_geometric', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "evaluate" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["fit"],
        ["predict"],
        ["evaluate"],
        ["data", "list"],
        ["data", "get"],
        ["data", "info"],
        ["data", "check"],
    ],
    ids=" ".join,
)
def test_every_help_has_an_example(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Example" in out
    assert f"softmask {' '.join(command)}" in " ".join(out.split())


def test_version(run):
    from softmask import __version__

    assert run("--version")[1].split() == ["softmask", __version__]


def test_fit_reports_and_writes_one_file(run, data, tmp_path):
    path = tmp_path / "m.safetensors"
    code, out, err = run("fit", data, "--out", path, *QUICK, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["epochs"] == 3
    assert report["graphs"] == 30
    assert {p.name for p in tmp_path.iterdir()} >= {"m.safetensors"}
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]
    code, out, _ = run("fit", data, "--out", path, *QUICK)
    assert "wrote" in out


def test_predict_in_all_formats(run, model, data, tmp_path):
    import pyarrow.parquet as pq

    code, out, _ = run("predict", model, data)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 30
    assert set(rows[0]) == {"graph", "predicted", "probability_biclique", "probability_house"}
    assert float(rows[0]["probability_biclique"]) + float(rows[0]["probability_house"]) == pytest.approx(1, abs=1e-5)

    store = motif(num_graphs=30, seed=0)
    for name in ("p.csv", "p.jsonl", "p.parquet"):
        code, _, err = run("predict", model, data, "--masks", "--out", tmp_path / name)
        assert code == 0
        assert "30 predictions" in err
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "p.parquet").to_pylist()
    text = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text())))
    for g in range(30):
        assert np.shape(lines[g]["masks"]) == (2, int(store.sizes[g]))
        assert lines[g] == table[g]
        assert json.loads(text[g]["masks"]) == lines[g]["masks"]
        assert text[g]["predicted"] == lines[g]["predicted"]
    assert run("predict", model, data, "--json")[1].splitlines()[0].startswith('{"graph": 0')


def test_evaluate(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("evaluate", data, "--folds", 3, "--runs", 2, "--protocol", "both", *QUICK, "--json")
    assert code == 0
    told = json.loads(out)
    figures = told["result"]["figures"]
    assert np.shape(figures["fair"]["scores"]) == (2, 3)
    assert figures["paper"]["mean"] == pytest.approx(np.mean(figures["paper"]["scores"]))
    assert {"torch", "softmask"} <= set(told["question"]["provenance"]["versions"])
    code, out, _ = run("evaluate", data, "--folds", 3, *QUICK)
    assert "epoch chosen on validation parts" in " ".join(out.split())
    code, out, _ = run("results", "list")
    assert "2 studies" in out
    # Folders stand on lines of their own, to be copied.
    assert {line.split()[1] for line in out.splitlines()[-2:]} == {str(p) for p in Path("studies").iterdir()}
    code, out, _ = run("results", "show", told["folder"])
    assert "epoch chosen on the test folds" in out


def test_bad_studies(run, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grid.toml").write_text("layers = [0]\n")
    (tmp_path / "folds.json").write_text("[[0, 1], [1, 2]]")
    (tmp_path / "ids.txt").write_text("0\n1\n")
    for args, words in [
        (["evaluate", data, "--protocol", "best"], "unknown protocol"),
        (["evaluate", data, "--grid", "grid.toml"], "valid"),
        (["evaluate", data, "--grid", "quick", "--protocol", "paper"], "test folds"),
        (["evaluate", data, "--fold-files", "folds.json"], "graph 1"),
        (["evaluate", data, "--train-ids", "ids.txt"], "holdout"),
        (["evaluate", data, "--protocol", "holdout", "--ratios", "a,b"], "--ratios"),
        (["evaluate", data, "--executor", "slurm"], "executor"),
        (["evaluate", data, "--halving"], "--grid"),
        (["evaluate", data, "--sample", "3"], "--grid"),
        (["evaluate", data, "--protocol", "paper", "--patience", "3"], "--patience belongs to"),
        (["evaluate", data, "--protocol", "paper", "--repeats", "7"], "--repeats belongs to"),
        (["evaluate", data, "--ratios", "1,2,3"], "--ratios belongs to"),
        (["evaluate", data, "--address", "host:1"], "--executor ray"),
        (["evaluate", data, "--settings", "none.toml"], "none.toml"),
        (["evaluate", data, "--settings", "paper"], "the paper has no settings"),
        (["tune", data, "--grid", "none"], "none"),
        (["evaluate", data, "--model", "nope.py:X"], "nope.py:X: "),
        (["reproduce", "table9"], "did you mean table2?"),
        (["reproduce", "xyz"], "there is table1, table2"),
        (["reproduce", "table1", "--set", "reddit-binary", "--quick"], "the quick form of the table has no set"),
        (["reproduce", "table1", "--set", "CORA"], "CORA"),
        (["reproduce", "figure3", "--variant", "smg"], "--variant belongs to table1"),
        (["reproduce", "nci1", "--set", "NCI1"], "--set belongs to"),
        (["results", "list"], "no folder"),
        (["results", "show", tmp_path], "study.json"),
        (["results", "compare", tmp_path, tmp_path], "study.json"),
    ]:
        code, out, err = run(*args)
        assert code == 2, (args, out, err)
        assert err.startswith("error:"), (args, err)
        assert words in " ".join(err.split()), (args, err)
    assert not (tmp_path / "studies").exists()


def test_errors_are_one_message_and_exit_code_2(run, data, model, tmp_path):
    for args, words in [
        (["fit", "MUTAGG", "--out", tmp_path / "m.safetensors"], "MUTAG"),
        (["fit", data, "--out", tmp_path / "no" / "m.safetensors"], "no folder"),
        (["fit", data, "--out", tmp_path], "is a folder"),
        (["fit", data, "--out", tmp_path / "run-0.5"], "run-0.5.safetensors"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--model", "gin"], "softmask evaluate"),
        (["evaluate", data, "--force"], "no effect on soft-mask"),
        (["fit", data, "--out", "/proc/m.safetensors"], "cannot write"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--seed", "99999999999999999999"], "seed"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--device", "mps"], "device"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--variant", "gcn"], "smg-jk"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--epochs", "0"], "epochs"),
        (["fit", data, "--out", tmp_path / "m.safetensors", "--device", "abacus"], "device"),
        (["evaluate", data, "--folds", "20"], "folds"),
        (["evaluate", data, "--readout", "max"], "readout"),
        (["predict", tmp_path / "none.safetensors", data], "no model file"),
        (["predict", data, data], "not a softmask model"),
        (["predict", model, data, "--out", tmp_path / "p.xls"], "format"),
        (["predict", model, data, "--out", tmp_path / "no" / "p.csv"], "cannot write"),
    ]:
        before = sorted(tmp_path.iterdir())
        code, out, err = run(*args)
        assert code == 2, (args, out, err)
        assert err.startswith("error:"), (args, err)
        assert words in err, (args, err)
        assert "Traceback" not in err
        assert sorted(tmp_path.iterdir()) == before


def test_one_class_only(run, tmp_path):
    from softmask.data.convert import with_targets

    save_store(with_targets(motif(num_graphs=10, seed=0), ["same"] * 10), tmp_path / "one.safetensors")
    for args in (
        ["fit", tmp_path / "one.safetensors", "--out", tmp_path / "m.safetensors"],
        ["evaluate", tmp_path / "one.safetensors"],
    ):
        code, _, err = run(*args)
        assert code == 2
        assert "class" in err


def test_graphs_with_other_features_are_refused(run, model, tmp_path):
    from softmask.data.convert import from_smiles

    pytest.importorskip("rdkit")
    run_model = tmp_path / "chem.safetensors"
    save_store(from_smiles(["CCO", "CCC", "CO", "CC"], ["a", "b", "a", "b"]), tmp_path / "chem-set.safetensors")
    assert run("fit", tmp_path / "chem-set.safetensors", "--out", run_model, *QUICK)[0] == 0
    code, _, err = run("predict", run_model, tmp_path / "set.safetensors")
    assert code == 2
    assert "node labels" in err
    save_store(from_smiles(["CCBr"]), tmp_path / "new.safetensors")
    code, out, err = run("predict", run_model, tmp_path / "new.safetensors")
    assert code == 0
    assert "warning" in err
    assert "CCBr" in out


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc, so Linux only")
def test_ctrl_c_outside_a_training_says_so(data, tmp_path):
    command = [sys.executable, "-m", "softmask", "fit", data, "--out", tmp_path / "m.safetensors"]
    # Softmask sets its handler before torch is imported, which takes far longer than this.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not _handles_interrupt(process.pid):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; nothing was left half written" in err
    assert not (tmp_path / "m.safetensors").exists()


def _handles_interrupt(pid):
    caught = next(s for s in Path(f"/proc/{pid}/status").read_text().splitlines() if s.startswith("SigCgt"))
    return (
        bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)
        and "libtorch" in Path(f"/proc/{pid}/maps").read_text()
    )


def test_ctrl_c_writes_the_model_as_far_as_it_got(data, tmp_path):
    """On a real terminal: the progress bar shows that epochs go by, Ctrl-C ends it, the file is there."""
    path = tmp_path / "m.safetensors"
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "softmask",
        "fit",
        data,
        "--out",
        path,
        "--epochs",
        "100000",
        "--hidden",
        "8",
    ]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen, asked = "", False
        while True:
            try:
                chunk = os.read(ours, 4096).decode(errors="replace")
            except OSError:  # the other end is closed
                break
            seen += chunk
            if not asked and re.search(r"[1-9]\d*/100000", seen):
                process.send_signal(signal.SIGINT)
                asked = True
        os.close(ours)
    assert process.returncode == 130
    assert "of 100000 epochs" in seen
    assert "once more stops at once" in seen
    from softmask import load_model

    assert load_model(path).trained_.summary["interrupted"]


def test_a_request_to_terminate_ends_a_training_between_epochs():
    from softmask.cli.interrupt import stop_on_interrupt

    before = signal.getsignal(signal.SIGTERM)
    with stop_on_interrupt() as stop:
        assert not stop.asked
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.asked
        assert signal.getsignal(signal.SIGTERM) == before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_request_to_stop_is_heeded_where_nobody_listens():
    """A reader of the standard error may be gone, as behind a pipe; that must not end the training in the middle."""
    code = (
        "import os, signal\n"
        "from softmask.cli.interrupt import stop_on_interrupt\n"
        "with stop_on_interrupt() as stop:\n"
        "    os.close(2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('asked' if stop.asked else 'not asked')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "asked\n"


@pytest.mark.parametrize("more", [False, True])
def test_nothing_more_is_begun_after_a_request_that_came_in_the_last_epoch(more, tmp_path, capsys):
    from typer import Exit

    from softmask.cli.study import resumable

    def train():
        with resumable(tmp_path, more) as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stop.asked

    if not more:
        train()  # all is done: nothing was interrupted
        return
    with pytest.raises(Exit) as end:
        train()
    assert end.value.exit_code == 130
    assert "the same command goes on" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("back", "told"), [(0, "no edge has a counterpart"), (1, "5 of 7 edges have no counterpart")])
def test_ties_that_stand_once_are_spoken_of_before_training(run, tmp_path, back, told):
    from softmask.data.tu import read_tu

    place = tmp_path / "ties"
    place.mkdir()
    edges = ["1, 2", "2, 3", "4, 5", "5, 6", "6, 4", "7, 8"] + ["2, 1"] * back
    (place / "ties_A.txt").write_text("\n".join(edges) + "\n")
    (place / "ties_graph_indicator.txt").write_text("".join(f"{g}\n" for g in (1, 1, 1, 2, 2, 2, 3, 3)))
    (place / "ties_graph_labels.txt").write_text("0\n1\n0\n")
    assert read_tu(place).directed
    _, _, of_tune = run("tune", place, "--folds", "9", "--out", tmp_path / "tuned")
    code, _, err = run("fit", place, "--out", tmp_path / "m.safetensors", *QUICK)
    assert code == 0
    for said in (of_tune, err):
        assert told in " ".join(said.split())
        assert "write each both ways" in " ".join(said.split())


def test_a_log_says_how_far_a_study_is(monkeypatch, capsys):
    from softmask.cli import progress

    now = 0.0

    def clock():
        nonlocal now
        now += 1e-7  # no two calls give one time
        return now

    monkeypatch.setattr(progress, "monotonic", clock)
    with progress.study_bar() as update:
        for epoch in (0, 1, 2, 3, 4, 4, 5, 6):
            # The first epoch takes longer, and says nothing of the others; and one is told twice.
            now += {0: 0, 1: 70}.get(epoch, 45)
            update("fair", 1, 3, epoch, 6)
        # The job before ended early, which says nothing of this one.
        now += 70
        update("fair", 2, 3, 1, 6)
    assert capsys.readouterr().err.splitlines() == [
        "fair, job 2 of 3: epoch 1 of 6",
        "fair, job 2 of 3: epoch 3 of 6, 45 s each, 7 min left",
        "fair, job 2 of 3: epoch 4 of 6, 60 s each, 8 min left",
        "fair, job 2 of 3: epoch 6 of 6, 54 s each, 5 min left",
        "fair, job 3 of 3: epoch 1 of 6",
    ]
    with progress.study_bar() as update:
        for epoch in range(0, 200, 50):
            now += 4000
            update("paper", 0, 1, epoch, 1000)
    assert capsys.readouterr().err.splitlines()[-1] == "paper: epoch 150 of 1000, 80 s each, 18 h 53 min left"
    with progress.study_bar() as update:
        for _ in range(6):
            now += 25
            update("fair", 0, 1, 0, 1)
    assert set(capsys.readouterr().err.splitlines()) == {"fair: under way"}
