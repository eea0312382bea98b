"""Top-k pooling, SAGPool and DGCNN, which take no node away, against PyG's layers, which do; and as fleets."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from hypothesis import assume, given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch.nn import Conv1d, Linear, Module, ModuleList
from torch_geometric.loader import DataLoader

from softmask.baselines.dgcnn import DGCNN
from softmask.baselines.pooling import MeanConv, NormConv, PoolGNN, SAGScore, TopKScore
from softmask.data.synthetic import motif
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal
from softmask.ops import Segments
from softmask.ops.keyed import fold_key

NAMES = ("topk", "sagpool", "dgcnn")


class PygMeanConv(Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.mean = pyg.SimpleConv(aggr="mean", combine_root="self_loop")
        self.lin, self.skip = Linear(in_channels, out_channels, bias=False), Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.lin(self.mean(x, edge_index)) + self.skip(x)


class PygPoolGNN(Module):
    """Every pooling makes the graphs smaller."""

    def __init__(self, channels, hidden, layers, outputs, conv, pool):
        super().__init__()
        sizes = [channels, *[hidden] * (layers - 1)]
        self.convs = ModuleList(conv(size, hidden) for size in sizes)
        self.pools = ModuleList(pool(hidden) for _ in sizes)
        half = hidden // 2
        self.lins = ModuleList([Linear(2 * hidden, hidden), Linear(hidden, half), Linear(half, outputs)])

    def forward(self, x, edge_index, batch, batch_size):
        read = 0
        for conv, pool in zip(self.convs, self.pools):
            x, edge_index, _, batch, *_ = pool(conv(x, edge_index).relu(), edge_index, batch=batch)
            both = [f(x, batch, batch_size) for f in (pyg.global_mean_pool, pyg.global_max_pool)]
            read = read + torch.cat(both, dim=1)
        return self.lins[2](self.lins[1](self.lins[0](read).relu()).relu())


class PygDGCNN(Module):
    """With torch's convolutions along the nodes, which SortAggregation sorts."""

    def __init__(self, channels, hidden, layers, outputs, k):
        super().__init__()
        sizes = [channels, *[hidden] * layers, 1]
        self.mean = pyg.SimpleConv(aggr="mean", combine_root="self_loop")
        self.lins = ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.sort = pyg.SortAggregation(k)
        self.conv1, self.conv2 = Conv1d(1, 16, sum(sizes[1:]), sum(sizes[1:])), Conv1d(16, 32, 5)
        self.lin, self.out = Linear(32 * (k // 2 - 4), 128), Linear(128, outputs)

    def forward(self, x, edge_index, batch, batch_size):
        hidden = []
        for lin in self.lins:
            x = self.mean(lin(x), edge_index).tanh()
            hidden.append(x)
        h = self.sort(torch.cat(hidden, dim=1), batch, dim_size=batch_size)
        h = F.max_pool1d(self.conv1(h.unsqueeze(1)).relu(), 2)
        return self.out(self.lin(self.conv2(h).relu().flatten(1)).relu())


def pair(name, channels, hidden, layers, outputs, k=13, numbers=None):
    """Our model and PyG's, with the same weights: those that it starts with, or of `numbers`; without dropout."""
    if name == "dgcnn":
        ours = DGCNN(channels, hidden, layers, outputs, k, dropout=0.0)
        theirs = PygDGCNN(channels, hidden, layers, outputs, k)
    else:
        conv, score, ratio = (MeanConv, TopKScore, 0.8) if name == "topk" else (NormConv, SAGScore, 0.5)
        ours = PoolGNN(channels, hidden, layers, outputs, conv, score, ratio, dropout=0.0)
        layer = PygMeanConv if name == "topk" else pyg.GCNConv
        theirs = PygPoolGNN(channels, hidden, layers, outputs, layer, lambda d: pooling(name, d))
    ours = (numbers.fill(ours) if numbers is not None else ours.double()).train()
    theirs.double().load_state_dict(as_pyg(ours.state_dict(), name), strict=name != "sagpool")
    return ours, theirs


def pooling(name, channels):
    if name == "topk":
        return pyg.TopKPooling(channels, ratio=0.8)
    pool = pyg.SAGPooling(channels, ratio=0.5, GNN=pyg.GCNConv)
    # A weight of the one channel, of which only the sign has an effect.
    torch.nn.init.ones_(pool.select.weight).requires_grad_(False)
    return pool


def as_pyg(tensors, name):
    """Tensors by our names, weights or their gradients, as PyG's modules name and order them."""
    found = {}
    last = sum(n.startswith("lins.") and n.endswith("weight") for n in tensors)
    for n, t in tensors.items():
        if n.startswith("scores."):
            _, k, rest = n.split(".")
            n = f"pools.{k}." + ("select." if name == "topk" else "gnn." + "lin." * (rest == "weight")) + rest
        if name == "dgcnn":
            if n == "conv1.weight":
                t = t.unsqueeze(1)
            elif n == "conv2.weight":  # a window's nodes one after the other; there channel by channel
                t = t.reshape(32, 5, 16).transpose(1, 2)
            elif n == "lin.weight":
                t = t.reshape(128, -1, 32).transpose(1, 2).flatten(1)
            n = n.replace("last.", f"lins.{last}.")
        found[n] = t
    return found


def without_ties(name, ours, theirs, inputs):
    """PyG may take either of two nodes with one score first; such graphs are left out."""
    ranked = []
    if name == "dgcnn":
        hooks = [theirs.sort.register_forward_pre_hook(lambda _, args: ranked.append((args[0][:, -1], inputs[2])))]
        theirs(*inputs)
    else:

        def keep(_, args, out):
            ranked.append((out.squeeze(-1), torch.where(args[2].squeeze(-1), inputs[2], -1)))

        hooks = [score.register_forward_hook(keep) for score in ours.scores]
        ours(*inputs)
    for hook in hooks:
        hook.remove()
    assert ranked
    for score, graph in ranked:
        gaps = [score[graph == g].sort()[0].diff() for g in range(inputs[3])]
        assume(torch.cat(gaps).abs().min() > 1e-9 if any(len(g) for g in gaps) else True)


@pytest.mark.parametrize("name", NAMES)
@examples(30)
@given(graph=graphs(max_nodes=16, messy=False), padding=st.integers(0, 3))
def test_it_computes_what_pygs_layers_do(name, graph, padding):
    """Outputs and the gradients of all weights; graphs without nodes, isolated nodes, and padding of ours alone."""
    assume(graph.num_nodes > 0)
    numbers = graph.numbers()
    ours, theirs = pair(name, 3, 4, 3, 2, numbers=numbers)
    x, weight = numbers.normal(graph.num_nodes, 3), numbers.normal(graph.num_graphs, 2)
    given_ = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    without_ties(name, ours, theirs, given_)
    padded = torch.cat([x, numbers.normal(padding, 3)])
    batch = F.pad(graph.batch_vector, (0, padding), value=-1)
    a, b = ours(padded, graph.edge_index, batch, graph.num_graphs), theirs(*given_)
    torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    names = [n for n, p in theirs.named_parameters() if p.requires_grad]
    mine = torch.autograd.grad((a * weight).sum(), list(ours.parameters()))
    mine = as_pyg(dict(zip((n for n, _ in ours.named_parameters()), mine)), name)
    expected = torch.autograd.grad((b * weight).sum(), [dict(theirs.named_parameters())[n] for n in names])
    assert sorted(names) == sorted(mine)
    for n, g in zip(names, expected):
        torch.testing.assert_close(mine[n], g, rtol=1e-7, atol=1e-8, msg=n)


@pytest.mark.parametrize("name", ["topk", "sagpool"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_keeps_as_many_nodes_as_pyg(name, dtype):
    """Also where the share of the nodes is a whole number but for rounding."""
    graph = torch.repeat_interleave(torch.arange(200), torch.arange(1, 201))
    x, edges = Numbers(0).normal(len(graph), 3).to(dtype), torch.empty(2, 0, dtype=torch.long)
    model, alive = pair(name, 3, 4, 3, 2)[0].to(dtype), []
    for score in model.scores:
        score.register_forward_hook(lambda module, args, out: alive.append(args[2].squeeze(-1)))
    model(x, edges, graph, 200)
    for before, after in pairwise(alive):
        score = torch.rand(int(before.sum()), dtype=dtype)
        kept = pyg.pool.select.topk.topk(score, model.ratio, graph[before])
        assert torch.equal(graph[after].bincount(), graph[before][kept].bincount())


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_one_hot_vectors(name):
    model = pair(name, 4, 8, 2, 3, numbers=Numbers(0))[0]
    tokens = torch.tensor([[0, 3], [2, -1], [1, 1], [0, 0]])
    hot = F.one_hot(tokens + 1, 5)[..., 1:].sum(dim=1).double()
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(model(tokens, edges), model(hot, edges), **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_all_forms_of_a_batch_are_one(name):
    """A ring, all of whose nodes tie, and a path."""
    model = pair(name, 2, 4, 2, 3, numbers=Numbers(1))[0]
    edges = torch.tensor([[0, 1, 2, 1, 2, 0, 3, 4, 4, 5], [1, 2, 0, 0, 1, 2, 4, 3, 5, 4]])
    x = torch.cat([torch.ones(3, 2).double(), Numbers(2).normal(3, 2)])
    batch = torch.tensor([0, 0, 0, 1, 1, 1])
    expected = model(x, edges, batch)
    segments = Segments(batch, torch.tensor([0, 3]), torch.tensor([3, 6]))
    torch.testing.assert_close(model(x, edges, segments, 2), expected, **EXACT)
    torch.testing.assert_close(model(x[:3], edges[:, :6]), expected[:1], **EXACT)
    torch.testing.assert_close(model(x, edges, batch, 3)[:2], expected, **EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_receives_a_gradient(name):
    model = pair(name, 3, 8, 2, 2)[0]
    x, edges = Numbers(2).normal(4, 3), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    model(x, edges, torch.tensor([0, 0, 1, 1])).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


STORE = motif(num_graphs=40, seed=1)
X = Numbers(3).normal(STORE.num_nodes, 4)


def fleet(name, replicas, **options):
    options = {"batch_size": 8, "precision": "float64"} | options
    return Fleet(lambda: pair(name, 4, 16, 2, 2)[0], STORE, X, replicas, **options)


def replicas(dropout=0.5):
    rng = np.random.default_rng(0)
    parts = [rng.permutation(40) for _ in range(3)]
    # Parts of different sizes, so that the replicas take different numbers of steps.
    return [
        Replica(s, p[: 24 + 4 * s], {"test": p[32:]}, lr=1e-2 / (1 + s), dropout=dropout) for s, p in enumerate(parts)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_replica_learns_the_same_whoever_trains_beside_it(name):
    """With dropout, which each draws by its own key."""
    together = fleet(name, replicas()).train(3)
    assert not together.troubles
    for r, replica in enumerate(replicas()):
        alone = fleet(name, [replica]).train(3)
        for n, t in alone.weights[0].items():
            torch.testing.assert_close(t, together.weights[r][n], rtol=1e-7, atol=1e-7)
    without = fleet(name, replicas(dropout=0.0)).train(3)
    assert np.abs(without.train_loss - together.train_loss).max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_the_fleet_trains_as_a_plain_loop_with_pygs_layers_does(name):
    """The same graphs in each batch, PyG's batching, torch.optim.Adam: weights and the evaluated loss."""
    test = np.arange(30, 40)
    replica = Replica(3, np.arange(30), {"test": test}, lr=5e-3, weight_decay=1e-3)
    trained = fleet(name, [replica])
    torch.manual_seed(3)
    model = pair(name, 4, 16, 2, 2)[1]
    adam = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3, weight_decay=1e-3)
    data = [STORE[g] for g in range(40)]
    for g, item in enumerate(data):
        item.x = X[int(STORE.node_ptr[g]) : int(STORE.node_ptr[g + 1])]

    def batch_of(ids):
        batch = next(iter(DataLoader([data[g] for g in ids], batch_size=len(ids))))
        return batch.x, batch.edge_index, batch.batch, len(ids)

    for epoch in range(1, 4):
        for graphs_ in deal(trained.train_plans[0], fold_key(fold_key(trained.keys, 1), epoch))[:, 0]:
            ids = graphs_[graphs_ >= 0].tolist()
            adam.zero_grad()
            F.cross_entropy(model(*batch_of(ids)), STORE.y[ids]).backward()
            adam.step()
    history = trained.train(3)
    state = dict(model.named_parameters())
    for n, t in as_pyg(history.weights[0], name).items():
        torch.testing.assert_close(t, state[n].detach(), atol=1e-7, rtol=1e-6)
    expected = F.cross_entropy(model(*batch_of(test.tolist())), STORE.y[test])
    assert history.loss["test"][0, -1] == pytest.approx(expected.item(), abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_half_precision_follows_float32(name):
    full, half = (fleet(name, replicas(), precision=p).train(4) for p in ("float32", "bf16"))
    assert np.abs(half.train_loss - full.train_loss).mean() < 0.3


@pytest.mark.parametrize("name", NAMES)
def test_the_first_weights_are_those_of_pygs_layers(name):
    """Up to chance: the deviation of each weight over 200 models."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = [as_pyg(pair(name, 3, 4, 2, 2)[0].state_dict(), name) for _ in range(200)]
        other = [_fresh(name) for _ in range(200)]
    for n in drawn[0]:
        mine, theirs = (torch.stack([d[n] for d in models]).double() for models in (drawn, other))
        torch.testing.assert_close(mine.std(), theirs.std(), rtol=0.2, atol=1e-12)
        torch.testing.assert_close(mine.abs().max(), theirs.abs().max(), rtol=0.1, atol=1e-12)


def _fresh(name):
    if name == "dgcnn":
        return PygDGCNN(3, 4, 2, 2, 13).state_dict()
    conv = PygMeanConv if name == "topk" else pyg.GCNConv
    return PygPoolGNN(3, 4, 2, 2, conv, lambda d: pooling(name, d)).state_dict()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu(name):
    """Compiled and captured: what the CPU computes."""
    expected = fleet(name, replicas(), precision="float32").train(3)
    exact = fleet(name, replicas(), precision="float32", device="cuda").train(3)
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact.loss["test"], expected.loss["test"], rtol=1e-3, atol=1e-3)
    fleet(name, replicas(), device="cuda").train(3)
