import json
import math

import numpy as np
import pytest
import torch

from softmask.bench import compare as module
from softmask.bench.ceilings import Ceilings, measure_ceilings, precision_name
from softmask.bench.clock import forget, peak_bytes, timed
from softmask.bench.compare import compare, make_replicas
from softmask.bench.growth import Scale, cycles, growth, line, plot
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.study.settings import Settings

CPU = torch.device("cpu")
CEILINGS = Ceilings(copy_bytes_per_s=1e9, matrix_flop_per_s=2e9, precision="float32", width=4, threads=1)
SETTINGS = Settings(variant="smg", hidden=8, layers=2, batch_size=16)


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=40, seed=0)


@pytest.mark.parametrize("runs", [1, 2])
def test_the_record(store, runs):
    said = []
    record = compare("tiny", store, SETTINGS, runs=runs, seconds=0.1, ceilings=CEILINGS, say=said.append)
    assert json.loads(json.dumps(record)) == record
    usual, fleet = record["usual"], record["fleet"]
    assert record["replicas"] == 10 * runs
    assert record["graphs"] == 40
    assert record["settings"]["hidden"] == 8
    assert usual["ms_per_epoch"] == pytest.approx(usual["ms_per_fold_epoch"]["mean"] * 10 * runs)
    assert 0 < usual["train_ms_per_epoch"] < usual["ms_per_epoch"]
    assert 1 <= usual["warm_up_batches"] <= 3, "as many as the time allows"
    assert record["ratio"] == pytest.approx(usual["ms_per_epoch"] / fleet["ms_per_epoch"])
    # 36 graphs to train on, at most 16 in a batch
    assert fleet["steps_per_epoch"] == 3
    assert fleet["ms_per_step"] == pytest.approx(fleet["train_ms"]["median"] / 3)
    assert fleet["finite_loss"]
    assert 0 <= fleet["padding"] < 1
    assert min(fleet["first_epoch_s"], fleet["build_s"], fleet["peak_bytes"], usual["peak_bytes"]) > 0
    # Every graph is in the training part of 9 of 10 folds.
    nodes = 9 * runs * store.num_nodes / 3
    least = fleet["floor"]
    assert least["nodes_per_step"] == pytest.approx(nodes)
    assert least["arithmetic_ms"] == pytest.approx(1e3 * nodes * 2 * 36 * 8**2 / 2e9)
    assert least["traffic_ms"] == pytest.approx(1e3 * nodes * 2 * 24 * 8 * 4 / 1e9)
    assert least["ms"] == max(least["arithmetic_ms"], least["traffic_ms"])
    assert fleet["step_over_floor"] == pytest.approx(fleet["ms_per_step"] / least["ms"])
    assert fleet["share_of_matrix_rate"] == pytest.approx(least["arithmetic_ms"] / fleet["ms_per_step"])
    assert said == ["tiny: the usual way", "tiny: the fleet"]


def test_a_side_that_fails_leaves_the_other(store, monkeypatch, capsys):
    def broken(*arguments):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(module, "_usual", broken)
    record = compare("tiny", store, SETTINGS, seconds=0.05, ceilings=CEILINGS)
    assert record["usual"] == {"failed": "RuntimeError: out of memory"}
    assert record["ratio"] is None
    assert record["fleet"]["ms_per_epoch"] > 0
    assert "Traceback" in capsys.readouterr().err


def test_replicas_are_folds(store):
    replicas = make_replicas(store, SETTINGS, 2)
    assert len({r.seed for r in replicas}) == 20
    for run in (replicas[:10], replicas[10:]):
        assert sorted(np.concatenate([r.evaluate["test"] for r in run]).tolist()) == list(range(40))
    for r in replicas:
        assert not set(r.train) & set(r.evaluate["test"])


@pytest.mark.parametrize(("what", "value"), [("runs", 0), ("seconds", 0.0), ("seconds", math.nan)])
def test_what_makes_no_sense_is_refused(store, what, value):
    with pytest.raises(SettingError, match=what):
        compare("tiny", store, SETTINGS, **{what: value})


@pytest.mark.parametrize("precision", ["auto", "float64", "bf16", "tf32"])
def test_ceilings(precision):
    found = measure_ceilings(CPU, precision, seconds=0.02, copy_bytes=2**16, matrix_size=32)
    assert found.copy_bytes_per_s > 0
    assert found.matrix_flop_per_s > 0
    assert found.precision == {"auto": "float32"}.get(precision, precision)
    assert found.width == {"auto": 4, "float64": 8, "bf16": 2, "tf32": 4}[precision]


def test_auto_is_bf16_on_cuda():
    assert precision_name("auto", torch.device("cuda")) == "bf16"


def test_timing_counts_every_run():
    calls = []
    timing = timed(lambda: calls.append(0), CPU, 0.01)
    assert 0 < timing.least <= timing.median <= timing.most
    # One more to find out how long a sample should be.
    assert timing.runs == len(calls) - 1


def test_a_run_longer_than_the_time_is_run_once():
    calls = []
    assert timed(lambda: calls.append(0), CPU, 1e-12).runs == len(calls) == 1


def test_peak_memory_sees_a_large_tensor():
    forget(CPU)
    before = peak_bytes(CPU)
    torch.ones(2**25)
    assert peak_bytes(CPU) - before > 2**26


def test_line():
    exact = line([0, 1, 2, 5], [1, 3, 5, 11])
    assert exact == pytest.approx({"slope": 2, "intercept": 1, "r2": 1})
    # 0, 1, 0: the best line is flat and explains nothing.
    assert line([0, 1, 2], [0, 1, 0])["r2"] == pytest.approx(0, abs=1e-12)


def test_cycles_are_an_undirected_graph():
    store = cycles(50)
    source, target = store.edges()
    assert not bool((source == target).any())
    one = torch.zeros(50, 50).index_put_((source, target), torch.ones(1000), accumulate=True)
    assert torch.equal(one, one.t())
    assert torch.equal(one.sum(dim=0), torch.full((50,), 20.0))


def test_growth(tmp_path):
    record = growth(CPU, seconds=0.1, scale=Scale((50, 100, 200), (1, 2, 4), graphs=4, hidden=4))
    assert json.loads(json.dumps(record)) == record
    assert [p["nodes"] for p in record["nodes"]["points"]] == [50, 100, 200]
    assert [p["edges"] for p in record["nodes"]["points"]] == [500, 1000, 2000]
    assert [p["replicas"] for p in record["replicas"]["points"]] == [1, 2, 4]
    for by in ("nodes", "replicas"):
        assert record[by]["failed"] == []
        assert all(p["ms_per_step"] > 0 and p["peak_bytes"] > 0 for p in record[by]["points"])
        assert set(record[by]["lines"]) == {"ms_per_step", "peak_bytes"}
    pytest.importorskip("matplotlib")
    plot(record, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
