import numpy as np
import pytest
import torch

from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.errors import CannotRun, SettingError
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.waves import SmallerWaveWarning, free_memory, memory_needs
from softmask.nn import SoftMaskGNN

STORE = motif(num_graphs=30, seed=0)
FEATURES = Features.of(STORE)
REPLICAS = [Replica(s, np.arange(20), {"test": np.arange(20, 30)}, lr=1e-2 / (1 + s)) for s in range(5)]


def _model():
    return SoftMaskGNN(FEATURES.channels, 8, 2, 2)


def _train(**options):
    options = {"batch_size": 8, "precision": "float64"} | options
    return train_in_waves(_model, STORE, FEATURES(STORE), REPLICAS, 4, **options)[0]


def _room_for_two(more=0):
    shared, each = memory_needs(_model(), STORE, REPLICAS, 8, torch.float64, torch.device("cpu"))
    return int((shared + (2.5 + more) * each) / 0.9)


def test_the_replicas_share_the_memory_of_a_batch_on_the_cpu_only():
    cpu, cuda = (memory_needs(_model(), STORE, REPLICAS, 8, torch.float32, torch.device(d)) for d in ("cpu", "cuda"))
    assert sum(cpu) == sum(cuda)
    assert cuda[0] == 0
    assert cpu[0] > cpu[1]


def test_waves_change_nothing():
    together = _train()
    with pytest.warns(SmallerWaveWarning, match="2 at a time"):
        apart = _train(memory=_room_for_two())
    np.testing.assert_allclose(apart.metric["test"], together.metric["test"])
    np.testing.assert_allclose(apart.train_loss, together.train_loss, atol=1e-10)
    for a, b in zip(apart.weights, together.weights):
        assert max((a[name] - b[name]).abs().max().item() for name in a) < 1e-9


@pytest.mark.parametrize(("more", "expected"), [(0, [2, 2, 1]), (1, [3, 2]), (2, [3, 2])])
def test_waves_are_about_equally_large(monkeypatch, more, expected):
    sizes, real = [], Fleet.train
    monkeypatch.setattr(Fleet, "train", lambda self, *a, **k: sizes.append(len(self.replicas)) or real(self, *a, **k))
    with pytest.warns(SmallerWaveWarning, match=f"{expected[0]} at a time"):
        _train(memory=_room_for_two(more))
    assert sizes == expected


def test_a_model_that_cannot_fit_is_refused_with_the_figure():
    with pytest.raises(SettingError, match=r"needs about 0\.\d\d MiB and 0\.05 MiB are free"):
        _train(memory=2**20 // 20)


class _Held(SoftMaskGNN):
    def numbers_held(self, nodes, graphs):
        assert graphs == 7  # 20 graphs in 3 batches
        return 10**6 * nodes


def test_a_model_may_say_what_it_holds():
    model, replicas = _Held(FEATURES.channels, 8, 2, 2), REPLICAS[:1]
    nodes = Fleet(_model, STORE, FEATURES(STORE), replicas, batch_size=8, merge=False).train_plans[0].nodes
    for compute, width in ((torch.float64, 8), (torch.float32, 4), (torch.bfloat16, 4)):
        shared, _ = memory_needs(model, STORE, replicas, 8, compute, torch.device("cpu"))
        assert shared == 10**6 * nodes * width
    with pytest.raises(SettingError, match=f"needs about {8e6 * nodes / 2**30:.2f} GiB"):
        train_in_waves(lambda: model, STORE, FEATURES(STORE), replicas, 1, 8, precision="float64", memory=2**30)


def test_out_of_memory_halves_the_wave(monkeypatch):
    """The allocator's error is put in by hand: a CPU machine would kill the process instead."""
    sizes = []

    def scarce(self, *args, **kwargs):
        sizes.append(len(self.replicas))
        if len(self.replicas) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, *args, **kwargs)

    expected = _train()
    real = Fleet.train
    monkeypatch.setattr(Fleet, "train", scarce)
    with pytest.warns(SmallerWaveWarning, match="out of memory"):
        history = _train()
    assert sizes == [5, 3, 2, 2, 1]
    np.testing.assert_allclose(history.metric["test"], expected.metric["test"])
    monkeypatch.setattr(Fleet, "train", lambda self, *a, **k: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.warns(SmallerWaveWarning), pytest.raises(SettingError, match="does not fit"):
        _train()


def test_only_a_long_training_is_compiled(monkeypatch):
    """What is asked of the fleet, for trainings of which none is begun."""
    asked = []

    def begin(*args, compiles, **options):
        asked.append(compiles)
        raise CannotRun("not begun")

    monkeypatch.setattr("softmask.fleet.waves.Fleet", begin)
    for epochs in (1, 10**9):
        with pytest.raises(CannotRun, match="not begun"):
            train_in_waves(_model, STORE, FEATURES(STORE), REPLICAS, epochs)
    assert asked == [False, True]


def test_the_epochs_of_all_waves_are_counted_together():
    seen = []
    with pytest.warns(SmallerWaveWarning):
        _train(memory=_room_for_two(), on_epoch=lambda epoch, metrics: seen.append(epoch))
    assert seen == sorted(seen)
    assert seen[-1] == 4


def test_ending_one_of_several_waves_is_an_error_and_ending_the_only_one_is_not():
    assert _train(on_epoch=lambda epoch, metrics: epoch == 2).epochs == 2
    with pytest.warns(SmallerWaveWarning), pytest.raises(SettingError, match="wave 1"):
        _train(memory=_room_for_two(), on_epoch=lambda epoch, metrics: True)


def test_free_memory_is_plausible():
    assert 2**26 < free_memory(torch.device("cpu")) < 2**45


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"replicas": [Replica(0, [0, 30])]}, "graph 30"),
        ({"replicas": [REPLICAS[0], Replica(0, [0])], "keep": "test"}, "replica 1"),
        ({"keep": "valid"}, "no such part"),
        ({"patience": ("test", 0)}, "patience"),
        ({"batch_size": 0}, "batch_size"),
        ({"loss": "hinge"}, "unknown loss"),
        ({"device": "gpu"}, "unknown device"),
        ({"make_model": torch.nn.Identity}, "no parameters"),
        ({"make_model": lambda: torch.nn.LazyLinear(2)}, "no size yet"),
    ],
)
def test_bad_input_is_refused_before_the_memory_is_looked_at(changes, words):
    options = {"make_model": _model, "replicas": REPLICAS, "batch_size": 8, "memory": 0} | changes
    with pytest.raises(SettingError, match=words):
        train_in_waves(store=STORE, x=FEATURES(STORE), epochs=1, **options)


def test_a_wave_without_the_part_that_is_waited_for_trains_to_the_end():
    replicas = [REPLICAS[0], Replica(9, np.arange(20), lr=1e-2)]
    shared, each = memory_needs(_model(), STORE, replicas, 8, torch.float64, torch.device("cpu"))
    options = {"batch_size": 8, "precision": "float64", "patience": ("test", 1)}
    with pytest.warns(SmallerWaveWarning, match="1 at a time"):
        history, _, _ = train_in_waves(
            *(_model, STORE, FEATURES(STORE), replicas, 30), memory=int((shared + 1.5 * each) / 0.9), **options
        )
    assert np.isnan(history.train_loss[0, -1])
    assert np.isfinite(history.train_loss[1]).all()


def test_no_replicas():
    with pytest.raises(SettingError, match="at least one"):
        train_in_waves(_model, STORE, FEATURES(STORE), [], 1)
