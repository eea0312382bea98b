import json

import pytest

from softmask.bench import compare as compare_module
from softmask.bench import growth as growth_module
from softmask.bench.growth import Scale
from softmask.data.files import save_store
from softmask.data.synthetic import motif


@pytest.fixture
def folder(tmp_path):
    """A folder in which a small set goes by the name of a real one."""
    save_store(motif(num_graphs=20, seed=0), tmp_path / "MUTAG.safetensors")
    return tmp_path


def test_all_sets_found_are_measured(run, folder):
    out = folder / "made" / "here"
    code, text, err = run("bench", "--data-dir", folder, "--seconds", "0.1", "--out", out, "--device", "cpu")
    assert code == 0, err
    assert "MUTAG" in text
    assert "ratio" in text
    assert [p.name for p in out.iterdir()] == ["fleet-cpu-MUTAG.json"]
    record = json.loads((out / "fleet-cpu-MUTAG.json").read_text())
    assert record["settings"]["variant"] == "m-smg-jk"
    assert record["ratio"] > 0
    assert record["provenance"]["command"] == "softmask bench --seconds 0.1 --device cpu"


def test_json_and_runs(run, folder):
    args = ("--data-dir", folder, "--seconds", "0.05", "--out", folder, "--device", "cpu", "--runs", "2", "--json")
    code, text, err = run("bench", "MUTAG", *args)
    assert code == 0, err
    (record,) = json.loads(text)["sets"]
    assert record["replicas"] == 20
    assert json.loads((folder / "fleet-cpu-MUTAG-runs2.json").read_text()) == record


def test_a_set_that_fails_does_not_stop_the_others(run, folder, monkeypatch):
    save_store(motif(num_graphs=20, seed=1), folder / "NCI1.safetensors")
    real = compare_module._fleet

    def broken(store, *rest):
        if store.info["seed"] == 0:
            raise RuntimeError("boom")
        return real(store, *rest)

    monkeypatch.setattr(compare_module, "_fleet", broken)
    code, text, err = run(
        "bench", "MUTAG", "NCI1", "--data-dir", folder, "--seconds", "0.05", "--out", folder, "--device", "cpu"
    )
    assert code == 1
    assert "failed: MUTAG, fleet: RuntimeError: boom" in err
    assert "failed" in text
    assert "NCI1" in text
    assert not (folder / "fleet-cpu-MUTAG.json").exists()
    assert (folder / "fleet-cpu-NCI1.json").exists()


def test_growth_alone(run, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    small = Scale((50, 100), (1, 2), graphs=4, hidden=4)
    monkeypatch.setattr(growth_module, "scale_for", lambda device: small)
    code, text, err = run("bench", "--growth", "--seconds", "0.1", "--out", tmp_path, "--device", "cpu")
    assert code == 0, err
    assert "growth" in text
    assert json.loads((tmp_path / "growth-cpu.json").read_text())["nodes"]["points"][1]["nodes"] == 100
    assert (tmp_path / "growth-cpu.png").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("QM9",), "the paper has no settings for 'QM9'"),
        (("PROTEINS",), "softmask data get PROTEINS"),
        (("MUTAG", "--seconds", "0"), "--seconds must be positive"),
        (("MUTAG", "--precision", "half"), "unknown precision"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_work(run, folder, args, message):
    code, text, err = run("bench", *args, "--data-dir", folder, "--out", folder / "results", "--device", "cpu")
    assert code == 2
    assert message in " ".join(err.split())
    assert text == ""
    assert not (folder / "results").exists()


def test_nothing_found(run, tmp_path):
    code, _, err = run("bench", "--data-dir", tmp_path, "--device", "cpu")
    assert code == 2
    assert "none of the paper's sets" in err
