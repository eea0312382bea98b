"""GAT as a fleet: the operator of another model under vmap, in lockstep."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch_geometric.loader import DataLoader

from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal
from softmask.fleet.waves import memory_needs
from softmask.nn import GAT
from softmask.ops.keyed import fold_key

STORE = motif(num_graphs=40, seed=1)
FEATURES = Features.of(STORE)


def _model(dropout=0.5):
    return GAT(FEATURES.channels, 8, 2, 2, heads=2, jk=True, dropout=dropout)


def _replicas():
    rng = np.random.default_rng(0)
    parts = [rng.permutation(40) for _ in range(3)]
    # Parts of different sizes, so that the replicas take different numbers of steps.
    return [Replica(s, p[: 24 + s], {"test": p[24 + s :]}, lr=1e-2 / (1 + s)) for s, p in enumerate(parts)]


def _train(replicas, epochs=6, **options):
    options = {"batch_size": 8, "precision": "float64"} | options
    return Fleet(_model, STORE, FEATURES(STORE), replicas, **options).train(epochs)


def _difference(a, b):
    return max((a[name] - b[name]).abs().max().item() for name in a)


def test_a_replica_does_not_depend_on_its_company():
    replicas = _replicas()
    together = _train(replicas)
    assert not together.troubles
    for r, replica in enumerate(replicas):
        alone = _train([replica])
        assert _difference(alone.weights[0], together.weights[r]) < 1e-9
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=1e-9)
    assert (together.train_loss[:, -1] < together.train_loss[:, 0]).all()


def test_the_fleet_trains_as_a_plain_pytorch_loop_does():
    """The same graphs in each batch, PyG's batching, torch.optim.Adam, one model: the same weights."""
    replica = Replica(3, np.arange(40), lr=5e-3)
    fleet = Fleet(lambda: _model(0.0), STORE, FEATURES(STORE), [replica], batch_size=8, precision="float64")
    torch.manual_seed(3)
    model = _model(0.0).double()
    adam = torch.optim.Adam(model.parameters(), lr=5e-3)
    data = [STORE[g] for g in range(40)]
    for g, item in enumerate(data):
        item.x = FEATURES(STORE)[int(STORE.node_ptr[g]) : int(STORE.node_ptr[g + 1])]
    for epoch in range(1, 4):
        for graphs in deal(fleet.train_plans[0], fold_key(fold_key(fleet.keys, 1), epoch))[:, 0]:
            chosen = graphs[graphs >= 0].tolist()
            batch = next(iter(DataLoader([data[g] for g in chosen], batch_size=len(chosen))))
            adam.zero_grad()
            F.cross_entropy(model(batch.x, batch.edge_index, batch.batch), STORE.y[chosen]).backward()
            adam.step()
    assert _difference(fleet.train(3).weights[0], dict(model.named_parameters())) < 1e-9


def test_half_precision_follows_float32():
    full, half = _train(_replicas(), precision="float32"), _train(_replicas(), precision="bf16")
    assert np.abs(half.train_loss - full.train_loss).max() < 0.1


@pytest.mark.parametrize("tokens", [10, 5000])
def test_the_memory_that_a_step_holds_is_within_the_estimate(tokens):
    """Counts the tensors kept for the backward pass, of one replica on the CPU."""
    replicas = [Replica(0, np.arange(40))]
    model = GAT(tokens, 64, 4, 2)
    needs = memory_needs(model, STORE, replicas, 40, torch.float32, torch.device("cuda"))
    kept: dict[int, int] = {}

    def keep(t):
        kept[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    batch = next(iter(DataLoader([STORE[g] for g in range(40)], batch_size=40)))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        out = model(F.one_hot(FEATURES(STORE), tokens).float(), batch.edge_index, batch.batch)
    assert out.requires_grad
    assert sum(kept.values()) < sum(needs) < 5 * sum(kept.values())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
def test_on_a_gpu():
    """Compiled and captured: what the CPU computes, the same bits again, and half precision close to it."""
    expected = _train(_replicas(), precision="float32")
    exact = _train(_replicas(), precision="float32", device="cuda")
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, atol=5e-4)
    np.testing.assert_allclose(exact.loss["test"], expected.loss["test"], atol=5e-4)
    half, again = (_train(_replicas(), precision="bf16", device="cuda") for _ in range(2))
    assert np.abs(half.train_loss - exact.train_loss).max() < 0.1
    np.testing.assert_array_equal(half.train_loss, again.train_loss)
