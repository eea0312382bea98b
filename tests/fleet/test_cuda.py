"""The fleet on a GPU: compiled, captured, in half precision. Every fleet compiles anew, so there are few of them."""

import networkx as nx
import numpy as np
import pytest
import torch

from softmask.baselines.gin import GIN
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.networkx import from_networkx
from softmask.data.synthetic import motif
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.waves import SmallerWaveWarning
from softmask.nn import GAT, SoftMaskGNN
from softmask.paper.table2 import rows

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # The compiler gives advice as warnings.
    pytest.mark.filterwarnings("ignore::UserWarning:torch.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("default::softmask.fleet.waves.SmallerWaveWarning"),
]

EPOCHS = 6


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=60, seed=0)


@pytest.fixture(scope="module")
def replicas():
    rng = np.random.default_rng(0)
    parts = [rng.permutation(60) for _ in range(3)]
    # Parts of different sizes, so that the replicas take different numbers of steps; all but the first average.
    return [
        Replica(s, p[: 44 + 3 * s], {"test": p[44 + 3 * s :]}, lr=2e-3, average=2.0 * s) for s, p in enumerate(parts)
    ]


def _train(store, replicas, device, precision, **options):
    features = Features.of(store)
    fleet = Fleet(
        lambda: SoftMaskGNN(features.channels, 32, 3, 2, jk=True),
        *(store, features(store), replicas),
        batch_size=16,
        device=device,
        precision=precision,
        **options,
    )
    return fleet.train(EPOCHS)


@pytest.fixture(scope="module")
def exact(store, replicas):
    return _train(store, replicas, "cuda", "float32")


@pytest.fixture(scope="module")
def half(store, replicas):
    return _train(store, replicas, "cuda", "bf16")


def test_the_gpu_computes_what_the_cpu_computes(store, replicas, exact):
    expected = _train(store, replicas, "cpu", "float32")
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, atol=2e-4)
    np.testing.assert_allclose(exact.loss["test"], expected.loss["test"], atol=2e-4)


def test_a_replica_does_not_depend_on_its_company(store, replicas, exact):
    alone = _train(store, replicas[1:2], "cuda", "float32")
    np.testing.assert_allclose(alone.train_loss[0], exact.train_loss[1], atol=1e-4)
    difference = max((alone.weights[0][n] - exact.weights[1][n]).abs().max().item() for n in alone.weights[0])
    assert difference < 1e-3


def test_a_fleet_that_is_not_compiled_computes_the_same(store, replicas, exact):
    plain = _train(store, replicas, "cuda", "float32", compiles=False)
    np.testing.assert_allclose(plain.train_loss, exact.train_loss, atol=1e-4)
    np.testing.assert_allclose(plain.loss["test"], exact.loss["test"], atol=1e-4)


def test_half_precision_follows_float32(exact, half):
    assert np.abs(half.train_loss - exact.train_loss).max() < 0.05
    assert np.abs(half.loss["test"] - exact.loss["test"]).max() < 0.05


def test_in_half_precision_a_replica_does_not_depend_on_its_company_either(store, replicas, half):
    alone = _train(store, replicas[1:2], "cuda", "bf16")
    assert np.abs(alone.train_loss[0] - half.train_loss[1]).max() < 0.02


@pytest.mark.parametrize("precision", ["tf32", "tf32-gradients"])
def test_tf32_follows_float32(store, replicas, exact, precision):
    rounded = _train(store, replicas, "cuda", precision)
    assert np.abs(rounded.train_loss - exact.train_loss).max() < 0.02
    assert np.abs(rounded.loss["test"] - exact.loss["test"]).max() < 0.02


@pytest.mark.parametrize("model", ["gat", "gin"])
def test_models_of_merged_nodes_learn_what_they_learn_on_the_cpu(model):
    """Stars, cliques and trees in one batch, without dropout."""
    graphs = [nx.star_graph(5 + i % 4) if i % 2 else nx.complete_graph(4 + i % 5) for i in range(24)]
    graphs += [nx.random_labeled_tree(12, seed=s) for s in range(12)]
    store = from_networkx(graphs, y=[i % 2 for i in range(36)])
    features = Features.of(store)
    make = {
        "gat": lambda: GAT(features.channels, 16, 2, 2, jk=True, dropout=0.0),
        "gin": lambda: GIN(features.channels, 16, 2, 2, dropout=0.0),
    }[model]
    found = []
    for device, merge in (("cpu", False), ("cuda", True)):
        fleet = Fleet(
            *(make, store, features(store), [Replica(s, range(30), {"test": range(30, 36)}, lr=2e-3) for s in (0, 1)]),
            **{"batch_size": 64, "device": device, "precision": "float32", "merge": merge, "compiles": False},
        )
        found.append(fleet.train(EPOCHS))
    cpu, merged = found
    np.testing.assert_allclose(merged.train_loss, cpu.train_loss, atol=5e-4)
    np.testing.assert_allclose(merged.loss["test"], cpu.loss["test"], atol=5e-4)


def test_two_runs_are_bit_equal(store, replicas, half):
    again = _train(store, replicas, "cuda", "bf16")
    np.testing.assert_array_equal(again.train_loss, half.train_loss)
    for a, b in zip(again.weights, half.weights):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_epoch_loop_does_not_wait_for_the_device(store, replicas):
    features = Features.of(store)
    fleet = Fleet(
        lambda: SoftMaskGNN(features.channels, 32, 3, 2, jk=True),
        *(store, features(store), replicas),
        batch_size=16,
        device="cuda",
    )

    def on_epoch(epoch, metrics):
        # The first epoch captures, and behind the last the metrics are read.
        torch.cuda.set_sync_debug_mode("error" if 1 < epoch < EPOCHS - 1 else "default")

    try:
        history = fleet.train(EPOCHS, keep="test", on_epoch=on_epoch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert history.epochs == EPOCHS


def test_out_of_memory_halves_the_wave(store):
    """Real memory: the process may take three times what one model needs, and eight want to train at once."""
    features = Features.of(store)

    def train(models):
        history, _, _ = train_in_waves(
            lambda: SoftMaskGNN(features.channels, 512, 4, 2),
            *(store, features(store), [Replica(s, np.arange(60), lr=1e-3) for s in range(models)], 1),
            batch_size=60,
            device="cuda",
            precision="float32",
            memory=2**40,
        )
        return history

    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    train(1)
    needed = torch.cuda.max_memory_reserved() - before
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 3 * needed) / total)
    try:
        with pytest.warns(SmallerWaveWarning, match="out of memory"):
            history = train(8)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(history.weights) == 8
    assert np.isfinite(history.train_loss).all()


def test_equal_nodes_are_merged_on_the_gpu_too():
    """Stars and cliques, on which a handful of classes stands for all nodes, hubs among them."""
    graphs = [nx.star_graph(3 + 7 * i) if i % 2 else nx.complete_graph(4 + i) for i in range(24)]
    store = from_networkx(graphs, y=[i % 2 for i in range(24)])
    replicas = [Replica(s, np.arange(s, 24), {"test": np.arange(6)}, lr=2e-3, dropout=0.0) for s in range(2)]
    on_gpu, on_cpu = (_train(store, replicas, device, "float32") for device in ("cuda", "cpu"))
    np.testing.assert_allclose(on_gpu.train_loss, on_cpu.train_loss, rtol=1e-3)
    half = _train(store, replicas, "cuda", "bf16")
    assert np.abs(half.train_loss - on_cpu.train_loss).max() < 0.05


def test_molecules_in_space_on_the_gpu():
    """The sums over pairs are kernels of their own there."""
    store = open_data("qm9-sample").select(range(64))
    (row,) = rows(quick=True, variants=["geometric"])
    train, test = np.arange(48), np.arange(48, 64)
    lesson, features = row.lesson(store, train), Features.of(store)
    replicas = [Replica(k, train, {"test": test}, lr=1e-3, target=k, buffers=lesson.buffers[k]) for k in range(3)]

    def run(device, precision):
        inputs = (lambda: row.model(features), lesson.store, features(store), replicas)
        fleet = Fleet(*inputs, batch_size=16, device=device, **lesson.options | {"precision": precision})
        return fleet.train(EPOCHS)

    on_cpu, on_gpu, half = run("cpu", "float32"), run("cuda", "float32"), run("cuda", "bf16")
    np.testing.assert_allclose(on_gpu.train_loss, on_cpu.train_loss, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(on_gpu.loss["test"], on_cpu.loss["test"], rtol=1e-3, atol=1e-4)
    assert np.abs(half.train_loss - on_cpu.train_loss).max() < 0.1
