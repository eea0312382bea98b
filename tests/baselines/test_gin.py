"""GIN against PyG's layers with torch's batch norm, and as a fleet whose models keep statistics of their own."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import given
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.loader import DataLoader

from softmask.baselines import baseline_settings
from softmask.baselines.entry import Inputs
from softmask.baselines.gin import GIN, build_gin, build_gin_eps
from softmask.data import Features
from softmask.data.synthetic import motif
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal
from softmask.ops.keyed import fold_key

STORE = motif(num_graphs=40, seed=1)
FEATURES = Features.of(STORE)


class PygGIN(torch.nn.Module):
    """The authors' network, of PyG's GINConv and torch's BatchNorm1d."""

    def __init__(self, ours: GIN, channels, hidden, outputs):
        super().__init__()
        train_eps = isinstance(ours.convs[0].eps, torch.nn.Parameter)
        sizes = [channels, *[hidden] * len(ours.convs)]
        self.convs, self.norms, self.mean = torch.nn.ModuleList(), torch.nn.ModuleList(), ours.readout == "mean"
        self.predictions = torch.nn.ModuleList(torch.nn.Linear(size, outputs) for size in sizes)
        for size in sizes[:-1]:
            first, second = torch.nn.Linear(size, hidden), torch.nn.Linear(hidden, hidden)
            mlp = torch.nn.Sequential(first, torch.nn.BatchNorm1d(hidden), torch.nn.ReLU(), second)
            self.convs.append(pyg.GINConv(mlp, train_eps=train_eps))
            self.norms.append(torch.nn.BatchNorm1d(hidden))
        self.to(next(ours.parameters()).dtype)
        with torch.no_grad():
            for mine, conv, norm in zip(ours.convs, self.convs, self.norms):
                conv.nn[0].weight.copy_(mine.lin_in.weight)
                conv.nn[3].weight.copy_(mine.lin_out.weight)
                # They stand before a batch norm, which takes them away.
                conv.nn[0].bias.zero_().requires_grad_(False)
                conv.nn[3].bias.zero_().requires_grad_(False)
                for theirs, own in ((conv.nn[1], mine.norm_in), (norm, mine.norm_out)):
                    theirs.load_state_dict(own.state_dict(), strict=False)
                if train_eps:
                    conv.eps.copy_(mine.eps)
        for theirs, own in zip(self.predictions, ours.predictions):
            theirs.load_state_dict(own.state_dict())

    def forward(self, x, edge_index, batch, batch_size):
        pool = pyg.global_mean_pool if self.mean else pyg.global_add_pool
        out = self.predictions[0](pool(x, batch, batch_size))
        for conv, norm, predict in zip(self.convs, self.norms, self.predictions[1:]):
            x = norm(conv(x, edge_index)).relu()
            out = out + predict(pool(x, batch, batch_size))
        return out


@pytest.mark.parametrize("readout", ["sum", "mean"])
@examples(20)
@given(graph=graphs(min_nodes=3, messy=False))
def test_it_is_pygs_layers_with_torchs_batch_norm(readout, graph):
    """In training (with the statistics that it leaves) and in evaluation; gradients too."""
    numbers = graph.numbers()
    ours = numbers.fill(GIN(5, 4, 2, 3, readout=readout, dropout=0.0, train_eps=True))
    theirs = PygGIN(ours, 5, 4, 3)
    x = numbers.normal(graph.num_nodes, 5)
    weight = numbers.normal(graph.num_graphs, 3)
    given_ = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    for training in (True, False):
        a, b = ours.train(training)(*given_), theirs.train(training)(*given_)
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)
        mine, other = (
            torch.autograd.grad((out * weight).sum(), m.predictions.parameters()) for out, m in ((a, ours), (b, theirs))
        )
        for g, h in zip(mine, other):
            torch.testing.assert_close(g, h, rtol=1e-6, atol=1e-8)
    for mine, conv, norm in zip(ours.convs, theirs.convs, theirs.norms):
        for own, other in ((mine.norm_in, conv.nn[1]), (mine.norm_out, norm)):
            torch.testing.assert_close(own.running_mean, other.running_mean, rtol=1e-6, atol=1e-8)
            torch.testing.assert_close(own.running_var, other.running_var, rtol=1e-6, atol=1e-8)


def test_tokens_are_one_hot_vectors():
    model = Numbers(0).fill(GIN(4, 8, 2, 3))
    tokens = torch.tensor([[0, 3], [2, -1], [1, 1]])
    hot = F.one_hot(tokens + 1, 5)[..., 1:].sum(dim=1).double()
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(model(tokens, edges), model(hot, edges), **EXACT)


def test_where_degrees_are_scaled_the_input_is_one():
    scaled = Features.of(STORE, kind="scaled-degree")
    inputs = Inputs(scaled.channels, 2, "classification", STORE.sizes.numpy(), features=scaled)
    constant = build_gin(inputs, baseline_settings("gin", hidden=8)).eval()
    plain = build_gin(inputs._replace(features=None), baseline_settings("gin", hidden=8)).eval()
    plain.load_state_dict(constant.state_dict())
    source, target = STORE.edges()
    rest = (torch.stack([source, target]), STORE.batch, STORE.num_graphs)
    x = scaled(STORE)
    torch.testing.assert_close(constant(x, *rest), plain(torch.ones_like(x), *rest))
    assert not torch.equal(constant(x, *rest), plain(x, *rest))


def test_gin_0_has_no_epsilon():
    inputs = Inputs(3, 2, "classification", np.array([5]))
    names = {n for n, _ in build_gin(inputs, baseline_settings("gin")).named_parameters()}
    learned = {n for n, _ in build_gin_eps(inputs, baseline_settings("gin-eps")).named_parameters()}
    assert learned - names == {f"convs.{k}.eps" for k in range(4)}


def _fleet(replicas, **options):
    options = {"batch_size": 8, "precision": "float64"} | options
    return Fleet(lambda: GIN(FEATURES.channels, 8, 2, 2), STORE, FEATURES(STORE), replicas, **options)


def _replicas():
    rng = np.random.default_rng(0)
    parts = [rng.permutation(40) for _ in range(3)]
    # Parts of different sizes, so that the replicas take different numbers of steps.
    return [Replica(s, p[: 24 + 4 * s], {"test": p[32:]}, lr=1e-2 / (1 + s)) for s, p in enumerate(parts)]


def test_a_replica_keeps_its_own_statistics_whoever_trains_beside_it():
    replicas = _replicas()
    together = _fleet(replicas).train(4)
    assert not together.troubles
    assert "convs.0.norm_in.running_mean" in together.weights[0]
    for r, replica in enumerate(replicas):
        alone = _fleet([replica]).train(4)
        for name, t in alone.weights[0].items():
            torch.testing.assert_close(t, together.weights[r][name], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=1e-6)


def test_the_fleet_trains_as_a_plain_loop_with_torchs_batch_norm_does():
    """The same graphs in each batch, PyG's batching, torch.optim.Adam: weights, statistics and the evaluated loss."""
    test = np.arange(30, 40)
    replica = Replica(3, np.arange(30), {"test": test}, lr=5e-3, weight_decay=1e-3, dropout=0.0)
    fleet = _fleet([replica])
    torch.manual_seed(3)
    model = PygGIN(GIN(FEATURES.channels, 8, 2, 2).double(), FEATURES.channels, 8, 2)
    adam = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-3)
    data = [STORE[g] for g in range(40)]
    hot = F.one_hot(FEATURES(STORE), FEATURES.channels).double()
    for g, item in enumerate(data):
        item.x = hot[int(STORE.node_ptr[g]) : int(STORE.node_ptr[g + 1])]

    def batch_of(ids):
        batch = next(iter(DataLoader([data[g] for g in ids], batch_size=len(ids))))
        return batch.x, batch.edge_index, batch.batch, len(ids)

    for epoch in range(1, 4):
        for graphs_ in deal(fleet.train_plans[0], fold_key(fold_key(fleet.keys, 1), epoch))[:, 0]:
            ids = graphs_[graphs_ >= 0].tolist()
            adam.zero_grad()
            F.cross_entropy(model(*batch_of(ids)), STORE.y[ids]).backward()
            adam.step()
    history = fleet.train(3)
    state = history.weights[0]
    torch.testing.assert_close(
        state["convs.0.norm_in.running_mean"], model.convs[0].nn[1].running_mean, atol=1e-7, rtol=1e-6
    )
    torch.testing.assert_close(state["convs.1.norm_out.running_var"], model.norms[1].running_var, atol=1e-7, rtol=1e-6)
    torch.testing.assert_close(
        state["convs.1.lin_in.weight"], model.convs[1].nn[0].weight.detach(), atol=1e-7, rtol=1e-6
    )
    expected = F.cross_entropy(model.eval()(*batch_of(test.tolist())), STORE.y[test])
    assert history.loss["test"][0, -1] == pytest.approx(expected.item(), abs=1e-6)


def test_it_goes_on_from_a_snapshot_with_its_statistics(tmp_path):
    from softmask.fleet.snapshot import Snapshot

    whole = _fleet(_replicas()).train(4)
    saves = Snapshot(tmp_path / "s.safetensors", every=0)
    _fleet(_replicas()).train(4, on_epoch=lambda epoch, _: epoch == 2, snapshot=saves)
    rest = _fleet(_replicas()).train(4, snapshot=Snapshot(tmp_path / "s.safetensors", every=0))
    np.testing.assert_array_equal(whole.loss["test"], rest.loss["test"])
    for a, b in zip(whole.weights, rest.weights):
        assert all(torch.equal(a[n], b[n]) for n in a)


def test_half_precision_follows_float32():
    full, half = (_fleet(_replicas(), precision=p).train(4) for p in ("float32", "bf16"))
    assert np.abs(half.train_loss - full.train_loss).mean() < 0.3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
def test_on_a_gpu():
    """Compiled and captured: what the CPU computes."""
    expected = _fleet(_replicas(), precision="float32").train(3)
    exact = _fleet(_replicas(), precision="float32", device="cuda").train(3)
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact.loss["test"], expected.loss["test"], rtol=1e-3, atol=1e-3)
