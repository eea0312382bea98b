"""DiffPool against its equations in plain matrices, and against PyG's dense layers; and as a fleet."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from baselines.company import assert_each_learns_as_alone, replicas
from baselines.test_pooling import numbers_kept, one_by_one, relu, weights
from hypothesis import assume, given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.nn import DenseSAGEConv, dense_diff_pool
from torch_geometric.utils import to_dense_adj, to_dense_batch

from softmask.baselines import Inputs, baseline_settings
from softmask.baselines.diffpool import DiffPool, build_diffpool
from softmask.baselines.train import train_baseline
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.synthetic import motif
from softmask.errors import CannotRun
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.waves import memory_needs
from softmask.ops.blocks import num_blocks

STORE = motif(num_graphs=40, seed=0)
FEATURES = Features.of(STORE)


@examples(15)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_the_model_by_hand(graph):
    """In evaluation; the running statistics of the batch norms are drawn too."""
    numbers = graph.numbers()
    model = numbers.fill(DiffPool(3, 4, 2, 5, largest=7))
    with torch.no_grad():
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(numbers.normal(*b.shape))
            elif name.endswith("running_var"):
                b.copy_(numbers.normal(*b.shape).square() + 0.5)
    w = weights(model)

    def sage(name, x, adjacency):
        hidden = []
        for k in range(3):
            c, n = f"{name}.convs.{k}", f"{name}.norms.{k}"
            degree = np.maximum(adjacency.sum(axis=1, keepdims=True), 1)
            x = (adjacency @ x / degree) @ w[f"{c}.lin_rel.weight"].T + x @ w[f"{c}.lin_root.weight"].T
            x = x + w[f"{c}.lin_root.bias"]
            x = relu(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
            x = (x - w[f"{n}.running_mean"]) / np.sqrt(w[f"{n}.running_var"] + 1e-5) * w[f"{n}.weight"] + w[f"{n}.bias"]
            hidden.append(x)
        return np.concatenate(hidden, axis=1)

    def forward(x, adjacency):
        read = []
        for level in range(2):
            z = sage(f"embeds.{level}", x, adjacency)
            s = sage(f"assigns.{level}", x, adjacency) @ w[f"to_clusters.{level}.weight"].T
            s = np.exp(s + w[f"to_clusters.{level}.bias"])
            s = s / s.sum(axis=1, keepdims=True)
            read.append(z.max(axis=0))
            x, adjacency = s.T @ z, s.T @ adjacency @ s
        read.append(sage("last", x, adjacency).max(axis=0))
        h = relu(w["lins.0.weight"] @ np.concatenate(read) + w["lins.0.bias"])
        return w["lins.1.weight"] @ h + w["lins.1.bias"]

    x = numbers.normal(graph.num_nodes, 3)
    given_ = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    out = model(*given_).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), atol=1e-7, rtol=1e-7)


class Dense(torch.nn.Module):
    """The same of PyG's dense layers and torch's batch norm, with the parameters of a model of ours."""

    def __init__(self, ours):
        super().__init__()
        self.ours, self.norms = ours, {}
        for name, norm in ours.named_modules():
            if type(norm).__name__ == "MaskedBatchNorm":
                self.norms[name] = torch.nn.BatchNorm1d(norm.channels).double()
                self.norms[name].load_state_dict(norm.state_dict(), strict=False)

    def sage(self, name, x, adj, mask):
        hidden, real = [], torch.ones_like(x[..., 0]).bool() if mask is None else mask
        for k in range(3):
            own = self.ours.get_submodule(f"{name}.convs.{k}")
            conv = DenseSAGEConv(own.lin_rel.in_channels, own.lin_rel.out_channels, normalize=True).double()
            x = torch.func.functional_call(conv, dict(own.named_parameters()), (x, adj, mask)).relu()
            norm = self.norms[f"{name}.norms.{k}"].train(self.ours.training)
            mine = dict(self.ours.get_submodule(f"{name}.norms.{k}").named_parameters())
            y = torch.func.functional_call(norm, mine, (x[real],))
            x = torch.zeros_like(x).masked_scatter(real.unsqueeze(-1), y)
            hidden.append(x)
        return torch.cat(hidden, dim=-1)

    def forward(self, x, edge_index, batch, batch_size):
        adj = to_dense_adj(edge_index, batch, batch_size=batch_size).double()
        x, mask = to_dense_batch(x, batch, batch_size=batch_size, max_num_nodes=adj.size(1))
        read, extra = [], 0.0
        for level, to_clusters in enumerate(self.ours.to_clusters):
            z = self.sage(f"embeds.{level}", x, adj, mask)
            s = to_clusters(self.sage(f"assigns.{level}", x, adj, mask))
            read.append((z if mask is None else z.masked_fill(~mask.unsqueeze(-1), -torch.inf)).amax(dim=1))
            x, adj, link, entropy = dense_diff_pool(z, adj, s, mask)
            mask, extra = None, extra + link + entropy
        read.append(self.sage("last", x, adj, None).amax(dim=1))
        return self.ours.lins[1](self.ours.lins[0](torch.cat(read, dim=-1)).relu()), extra


@pytest.mark.parametrize("levels", [1, 2])
@examples(20)
@given(graph=graphs(min_nodes=1, messy=False, directed=False), padding=st.integers(0, 3), slots=st.integers(0, 2))
def test_it_is_pygs_dense_form(levels, graph, padding, slots):
    """Outputs, both losses, all gradients and statistics, beside padded nodes and slots without a graph."""
    # Torch takes no statistics of one row.
    assume(graph.num_graphs > 1)
    numbers = graph.numbers()
    ours = numbers.fill(DiffPool(3, 4, levels, 5, largest=7)).train()
    theirs = Dense(ours)
    x, weight = numbers.normal(graph.num_nodes, 3), numbers.normal(graph.num_graphs, 5)
    expected, loss = theirs(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    x = torch.cat([x, numbers.normal(padding, 3)])
    batch = F.pad(graph.batch_vector, (0, padding), value=-1)
    out, extra = ours(x, graph.edge_index, batch, graph.num_graphs + slots)
    assert torch.isfinite(out).all()
    out = out[: graph.num_graphs]
    torch.testing.assert_close(out, expected, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(extra, loss, rtol=1e-9, atol=1e-9)
    mine, other = (
        torch.autograd.grad((o * weight).sum() + 10 * e, ours.parameters()) for o, e in ((out, extra), (expected, loss))
    )
    for g, h in zip(mine, other):
        torch.testing.assert_close(g, h, rtol=1e-5, atol=1e-6)
    for name, norm in theirs.norms.items():
        for field in ("running_mean", "running_var"):
            torch.testing.assert_close(
                getattr(ours.get_submodule(name), field), getattr(norm, field), rtol=1e-7, atol=1e-8
            )


@examples(20)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_company_and_padding_do_not_matter(graph):
    numbers = graph.numbers()
    model = numbers.fill(DiffPool(3, 4, 2, 5, largest=7))
    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    padded = F.pad(graph.batch_vector, (0, 4), value=-1)
    beside = model(torch.cat([x, numbers.normal(4, 3)]), graph.edge_index, padded, graph.num_graphs + 2)
    torch.testing.assert_close(beside[: graph.num_graphs], out, **EXACT)
    for g in range(graph.num_graphs):
        own = [v for v in range(graph.num_nodes) if graph.batch[v] == g]
        edges = torch.tensor(graph.induced(own), dtype=torch.long).reshape(-1, 2).t()
        torch.testing.assert_close(model(x[own], edges), out[g : g + 1], **EXACT)


def test_a_batch_of_nothing_has_losses_and_gradients_that_are_numbers():
    """A replica of a fleet may have no batch where others still have one."""
    model = DiffPool(3, 4, 2, 5, largest=7).train()
    out, extra = model(torch.randn(6, 3), torch.zeros(2, 0, dtype=torch.long), torch.full((6,), -1), 2)
    for g in torch.autograd.grad(out.sum() + extra, list(model.parameters())):
        assert torch.isfinite(g).all()


def test_losses_in_training_only_and_every_parameter_a_gradient():
    numbers = Numbers(0)
    model = DiffPool(3, 4, 2, 5, largest=6).double()
    edges = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
    given_ = (numbers.normal(6, 3), edges, torch.tensor([0, 0, 0, 1, 1, 1]), 2)
    out, extra = model.train()(*given_)
    assert extra > 0
    (out.sum() + extra).backward()
    assert all(p.grad is not None for p in model.parameters())
    assert isinstance(model.eval()(*given_), torch.Tensor)


def test_tokens_are_one_hot_vectors():
    model = Numbers(0).fill(DiffPool(4, 8, 2, 3, largest=3))
    tokens = torch.tensor([[0, 3], [2, -1], [1, 1]])
    hot = F.one_hot(tokens + 1, 5)[..., 1:].sum(dim=1).double()
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(model(tokens, edges), model(hot, edges), **EXACT)


def fleet(replicas, **options):
    options = {"batch_size": 8, "precision": "float64"} | options
    largest = int(STORE.sizes.max())
    make = lambda: DiffPool(FEATURES.channels, 8, 2, 2, largest=largest)  # noqa: E731
    return Fleet(make, STORE, FEATURES(STORE), replicas, **options)


def test_a_replica_learns_the_same_whoever_trains_beside_it():
    assert_each_learns_as_alone(fleet)


def test_half_precision_follows_float32():
    full, half = (fleet(replicas(), precision=p).train(4) for p in ("float32", "bf16"))
    assert np.abs(half.train_loss - full.train_loss).mean() < 0.3


@pytest.mark.parametrize(("largest", "hidden", "nodes"), [(40, 16, 10), (400, 16, 40), (160, 64, 40)])
def test_the_estimate_is_what_a_step_holds(largest, hidden, nodes):
    """What autograd keeps in a forward pass, and the products of all blocks, which come and go."""
    model = DiffPool(3, hidden, 2, 2, largest=largest).train()
    clusters = -(-largest // 4)
    blocks = num_blocks(4 * nodes, 4, max(16, -(-clusters // 4)))
    held = numbers_kept(model, nodes, 4) + blocks * clusters * (3 * hidden + 2 * clusters)
    assert 0.8 < model.numbers_held(4 * nodes, 4) / held < 1.25


def test_what_is_too_large_is_said_beforehand():
    inputs = Inputs(FEATURES.channels, 2, "classification", np.array([40_000]))

    def make():
        return build_diffpool(inputs, baseline_settings("diffpool"))

    needed = sum(memory_needs(make(), STORE, replicas(), 8, torch.float32, torch.device("cpu")))
    with pytest.raises(CannotRun, match=rf"one model needs about {needed / 2**30:.2f} GiB and 16.00 GiB are free"):
        train_in_waves(make, STORE, FEATURES(STORE), replicas(), 1, batch_size=8, memory=16 * 2**30)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
def test_on_a_gpu():
    """Compiled and captured: what the CPU computes."""
    expected = fleet(replicas(), precision="float32").train(3)
    exact = fleet(replicas(), precision="float32", device="cuda").train(3)
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, rtol=1e-2, atol=1e-2)
    assert np.isfinite(fleet(replicas(), device="cuda").train(3).train_loss).all()


@pytest.mark.real
def test_it_learns_on_mutag(real_set):
    store = open_data(real_set("MUTAG"))
    ids = np.random.default_rng(0).permutation(store.num_graphs)
    history = train_baseline(
        baseline_settings("diffpool"), store, [Replica(0, ids[:150], {"test": ids[150:]}, lr=1e-3)], epochs=40
    )
    y = store.y.numpy()[ids[:150]]
    assert history.train_metric[0, -5:].mean() > max(y.mean(), 1 - y.mean()) + 0.1
    assert not history.troubles
