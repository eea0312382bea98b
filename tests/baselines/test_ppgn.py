"""PPGN against its equations for one graph at a time, and against dense matrices of a whole batch; and as a fleet."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from baselines.company import assert_all_of_it_learns, assert_each_learns_as_alone, replicas
from baselines.test_pooling import CLOSE, numbers_kept, one_by_one, relu, weights
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.loader import DataLoader
from torch_geometric.utils import to_dense_adj, to_dense_batch

from softmask.baselines import baseline_settings
from softmask.baselines.ppgn import PPGN
from softmask.baselines.train import train_baseline
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.convert import as_store, with_targets
from softmask.data.store import GraphStore
from softmask.data.synthetic import motif
from softmask.errors import CannotRun
from softmask.fleet import Fleet, Replica, train_in_waves
from softmask.fleet.batches import blocks_of, deal, plan
from softmask.fleet.pairs import fewest_pairs
from softmask.fleet.predict import predict
from softmask.fleet.waves import SmallerWaveWarning, memory_needs
from softmask.ops import Segments, as_neighbours
from softmask.ops.keyed import fold_key
from softmask.ops.pair_blocks import num_pairs

STORE = motif(num_graphs=40, seed=1)
FEATURES = Features.of(STORE)
# Of every ten graphs one is large, so that the fleet deals them by size.
TAILED = as_store(
    [
        item
        for g, item in enumerate(motif(num_graphs=40, seed=2, background=(5, 9)))
        for item in [motif(num_graphs=40, seed=2, background=(30, 40))[g] if g % 10 == 3 else item]
    ]
)
STORES = {"one class": STORE, "by size": TAILED}


@examples(15)
@given(graph=graphs(min_nodes=1, messy=False, directed=False))
def test_the_model_by_hand(graph):
    numbers = graph.numbers()
    model = numbers.fill(PPGN(3, 4, 2, 5))
    w = weights(model)

    def mlp(name, x):
        x = relu(x @ w[f"{name}.0.weight"].T + w[f"{name}.0.bias"])
        return relu(x @ w[f"{name}.2.weight"].T + w[f"{name}.2.bias"])

    def forward(x, adjacency):
        n = len(adjacency)
        h = np.zeros((n, n, 4))
        h[:, :, 0] = adjacency
        for v in range(n):
            h[v, v, 1:] = x[v]
        score = 0
        for k in range(2):
            a, b = mlp(f"blocks.{k}.m1", h), mlp(f"blocks.{k}.m2", h)
            product = np.einsum("uwc,wvc->uvc", a, b)
            h = np.concatenate([h, product], axis=2) @ w[f"blocks.{k}.m4.weight"].T + w[f"blocks.{k}.m4.bias"]
            loops = np.array([h[v, v] for v in range(n)]).max(axis=0)
            rest = [h[u, v] for u in range(n) for v in range(n) if u != v]
            read = np.concatenate([loops, np.max(rest, axis=0) if rest else np.zeros(4)])
            score = score + w[f"outs.{k}.weight"] @ read + w[f"outs.{k}.bias"]
        return score

    x = numbers.normal(graph.num_nodes, 3)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs).detach().numpy()
    np.testing.assert_allclose(out, one_by_one(graph, x.numpy(), forward), **CLOSE)


class Dense(torch.nn.Module):
    """The same on PyG's dense batches, all graphs as large as the largest, with the modules of a model of ours."""

    def __init__(self, ours):
        super().__init__()
        self.ours = ours

    def forward(self, x, edge_index, batch, batch_size):
        edge_index = edge_index[:, edge_index[0] != edge_index[1]]
        adj = to_dense_adj(edge_index, batch, batch_size=batch_size, max_num_nodes=max(self._largest(batch), 1))
        features, there = to_dense_batch(x, batch, batch_size=batch_size, max_num_nodes=adj.size(1))
        h = torch.cat([adj.unsqueeze(-1), torch.diag_embed(features.movedim(-1, 1)).movedim(1, -1)], dim=-1)
        pairs = there.unsqueeze(1) & there.unsqueeze(2)
        loops = torch.eye(adj.size(1), dtype=torch.bool)
        score = 0
        for block, out in zip(self.ours.blocks, self.ours.outs):
            a, b = ((m(h) * pairs.unsqueeze(-1)).movedim(-1, 1) for m in (block.m1, block.m2))
            h = block.m4(torch.cat([h, (a @ b).movedim(1, -1)], dim=-1))
            score = score + out(torch.cat([self._most(h, pairs & loops), self._most(h, pairs & ~loops)], dim=-1))
        return score

    @staticmethod
    def _largest(batch):
        return int(torch.bincount(batch).max()) if len(batch) else 0

    @staticmethod
    def _most(h, where):
        most = h.masked_fill(~where.unsqueeze(-1), -torch.inf).flatten(1, 2).amax(dim=1)
        return torch.where(where.flatten(1).any(dim=1, keepdim=True), most, 0)


def in_blocks(graph, x, room, empty, most):
    """A batch whose graphs stand in blocks, by falling size, with so much more room each and some empty slots.

    Gives the arguments of a model and the slot of each graph.
    """
    sizes = np.bincount(graph.batch, minlength=graph.num_graphs)
    order = np.argsort(-sizes, kind="stable")
    blocks = fewest_pairs(np.concatenate([sizes[order] + room, np.ones(empty, dtype=int)]), most)
    places = np.repeat([n for _, n in blocks], [g for g, _ in blocks])
    first, slot = places.cumsum() - places, np.argsort(order)
    at = np.concatenate([first[slot[g]] + np.arange(n) for g, n in enumerate(sizes)]).astype(np.int64)
    rows, of = x.new_full((places.sum(), x.size(1)), 7.0), torch.full((places.sum(),), -1)
    rows[at], of[at] = x, torch.from_numpy(slot)[graph.batch_vector]
    edges = torch.from_numpy(at)[graph.edge_index]
    segments = Segments(of, torch.from_numpy(first), torch.from_numpy(first + np.pad(sizes[order], (0, empty))))
    return (rows, as_neighbours(edges, len(rows)), segments, len(places), blocks), torch.from_numpy(slot)


@examples(40)
@given(
    graph=graphs(max_graphs=5),
    room=st.integers(0, 2),
    empty=st.integers(0, 2),
    most=st.integers(1, 4),
)
def test_blocks_and_pygs_form_are_the_dense_form(graph, room, empty, most):
    """Outputs and all gradients: graphs of 0, 1, 2 and more nodes, repeated and directed edges, padding, no graph."""
    numbers = graph.numbers()
    model = numbers.fill(PPGN(3, 4, 3, 2))
    x, weight = numbers.normal(graph.num_nodes, 3), numbers.normal(graph.num_graphs, 2)
    expected = Dense(model)(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    placed, slot = in_blocks(graph, x, room, empty, most)
    padded = torch.cat([x, numbers.normal(empty, 3)]), F.pad(graph.batch_vector, (0, empty), value=-1)
    shuffled = numbers.permutation(len(padded[0]))
    back = torch.argsort(shuffled)
    outs = [
        model(*placed)[slot],
        model(padded[0], graph.edge_index, padded[1], graph.num_graphs + empty)[: graph.num_graphs],
        model(padded[0][shuffled], back[graph.edge_index], padded[1][shuffled], graph.num_graphs),
    ]
    gradients = torch.autograd.grad((expected * weight).sum(), list(model.parameters()))
    for out in outs:
        torch.testing.assert_close(out, expected, rtol=1e-8, atol=1e-8)
        for g, h in zip(torch.autograd.grad((out * weight).sum(), list(model.parameters())), gradients):
            torch.testing.assert_close(g, h, rtol=1e-7, atol=1e-7)


def test_it_tells_apart_what_weisfeiler_and_leman_do_not():
    """Two triangles and a ring of six, which no sum over neighbours tells apart."""
    torch.manual_seed(0)
    model = PPGN(1, 8, 2, 3).double().eval()
    around = torch.arange(6)
    ring = torch.stack([around, (around + 1) % 6])
    triangles = torch.stack([around, torch.tensor([1, 2, 0, 4, 5, 3])])
    outs = [model(torch.ones(6, 1).double(), torch.cat([e, e.flip(0)], dim=1)) for e in (ring, triangles)]
    assert (outs[0] - outs[1]).abs().max() > 1e-4


def test_a_batch_of_graphs_without_nodes():
    """They give what such a graph gives beside another, and gradients that are numbers."""
    torch.manual_seed(0)
    model, none = PPGN(1, 8, 2, 3).double(), torch.empty(2, 0, dtype=torch.long)
    alone = model(torch.empty(0, 1).double(), none, torch.empty(0, dtype=torch.long), 2)
    beside = model(torch.ones(1, 1).double(), none, torch.zeros(1, dtype=torch.long), 3)
    torch.testing.assert_close(alone, beside[1:])
    for g in torch.autograd.grad(alone.sum(), list(model.parameters())):
        assert torch.isfinite(g).all()


def test_tokens_are_one_hot_vectors():
    model = Numbers(0).fill(PPGN(4, 8, 2, 3))
    tokens = torch.tensor([[0, 3], [2, -1], [1, 1]])
    hot = F.one_hot(tokens + 1, 5)[..., 1:].sum(dim=1).double()
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    torch.testing.assert_close(model(tokens, edges), model(hot, edges), **EXACT)
    torch.testing.assert_close(model(tokens[:, 0], edges), model(F.one_hot(tokens[:, 0], 4).double(), edges), **EXACT)


def make(hidden=8, features=FEATURES):
    return PPGN(features.channels, hidden, 2, 2)


def fleet(replicas, store=STORE, **options):
    features = Features.of(store)
    model = partial(make, features=features)
    return Fleet(model, store, features(store), replicas, **{"batch_size": 8, "precision": "float64"} | options)


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_a_replica_learns_the_same_whoever_trains_beside_it(store):
    fleets = partial(fleet, store=store)
    assert len(fleets(replicas()).classes) == (1 if store is STORE else 2)
    assert_all_of_it_learns(fleets, assert_each_learns_as_alone(fleets))


def test_a_class_of_which_a_replica_has_no_graph():
    """It waits while the others train on theirs; it alone evaluates them."""
    large = np.flatnonzero(TAILED.sizes > 20)
    small = np.setdiff1d(np.arange(40), large)
    without = Replica(0, small[:20], {"test": large, "small": small[20:]}, lr=1e-2)
    only = Replica(1, large, {"test": small[:5]}, lr=1e-2)
    together = fleet([without, only], TAILED).train(3)
    for r, replica in enumerate((without, only)):
        alone = fleet([replica], TAILED).train(3)
        for name, t in alone.weights[0].items():
            torch.testing.assert_close(t, together.weights[r][name], **EXACT)
        np.testing.assert_allclose(alone.train_loss[0], together.train_loss[r], atol=1e-9)
        for part, loss in alone.loss.items():
            np.testing.assert_allclose(loss[0], together.loss[part][r], atol=1e-9)
    assert np.isnan(together.loss["small"][1]).all()


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_the_fleet_trains_as_a_plain_loop_on_dense_batches_does(store):
    """The same graphs in each batch, PyG's batching, torch.optim.Adam: weights, the evaluated loss, and predictions."""
    test, features = np.arange(30, 40), Features.of(store)
    replica = Replica(3, np.arange(30), {"test": test}, lr=5e-3, weight_decay=1e-3)
    trained = fleet([replica], store)
    torch.manual_seed(3)
    model = make(features=features).double()
    dense, adam = Dense(model), torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-3)
    data = [store[g] for g in range(40)]
    tokens = features(store).reshape(-1).long()
    for g, item in enumerate(data):
        own = slice(int(store.node_ptr[g]), int(store.node_ptr[g + 1]))
        item.x = F.one_hot(tokens[own], features.channels).double()

    def out(ids):
        batch = next(iter(DataLoader([data[g] for g in ids], batch_size=len(ids))))
        return dense(batch.x, batch.edge_index, batch.batch, len(ids))

    for epoch in range(1, 4):
        keys = fold_key(fold_key(trained.keys, 1), epoch)
        dealt = [iter(deal(made, keys)[:, 0]) for made in trained.train_plans]
        seen = []
        for k in trained.order:
            graphs_ = next(dealt[k])
            ids = graphs_[graphs_ >= 0].tolist()
            adam.zero_grad()
            F.cross_entropy(out(ids), store.y[ids]).backward()
            adam.step()
            seen += ids
        assert sorted(seen) == list(range(30))
    history = trained.train(3)
    for name, p in model.named_parameters():
        torch.testing.assert_close(history.weights[0][name], p.detach(), atol=1e-7, rtol=1e-6)
    expected = out(test.tolist())
    loss = F.cross_entropy(expected, store.y[test]).item()
    assert history.loss["test"][0, -1] == pytest.approx(loss, abs=1e-7)
    model.load_state_dict(history.weights[0])
    found, masks = predict(model, store, features(store))
    torch.testing.assert_close(found[test], expected.detach(), atol=1e-6, rtol=1e-6)
    assert masks == []


def test_half_precision_follows_float32():
    full, half = (fleet(replicas(), precision=p).train(4) for p in ("float32", "bf16"))
    assert np.abs(half.train_loss - full.train_loss).max() < 0.1


def test_numbers_are_learned_too():
    store = with_targets(STORE, STORE.sizes.double().numpy())
    history = train_baseline(baseline_settings("ppgn", hidden=8, layers=1), store, replicas()[:1], epochs=15)
    assert history.train_loss[0, -1] < 0.8 * history.train_loss[0, 0]


@pytest.mark.parametrize(("nodes", "hidden"), [(40, 16), (60, 64)])
def test_the_estimate_is_what_autograd_keeps(nodes, hidden):
    """Every tensor that a forward pass keeps for its gradient, but for the weights."""
    kept = [numbers_kept(PPGN(3, hidden, layers, 2), nodes, 2) for layers in (1, 3)]
    held = [PPGN(3, hidden, layers, 2).numbers_held(2 * nodes**2, 2) for layers in (1, 3)]
    # What comes and goes beside is the same whatever the number of layers.
    assert held[1] - held[0] == pytest.approx(kept[1] - kept[0], rel=0.02)
    assert 1 < held[1] / kept[1] < 1.5


def test_pairs_of_places_are_counted_in_the_precision_of_the_arithmetic():
    blocks = blocks_of([plan([r.train for r in replicas()], STORE.sizes, 8)], STORE.sizes, whole=4)
    assert all(places % 4 == 0 for _, places in blocks)
    assert fleet(replicas()).train_plans[0].layout.blocks == blocks
    for compute in (torch.float64, torch.float32, torch.bfloat16):
        shared, _ = memory_needs(make(), STORE, replicas(), 8, compute, torch.device("cpu"))
        assert shared == make().numbers_held(num_pairs(blocks), 8) * compute.itemsize
    most = max(num_pairs(made.layout.blocks) for made in fleet(replicas(), TAILED).train_plans)
    shared, _ = memory_needs(make(), TAILED, replicas(), 8, torch.float32, torch.device("cpu"))
    assert shared == make().numbers_held(most, 8) * 4


def test_what_does_not_fit_is_said_beforehand():
    """REDDIT-MULTI-12K: its largest graph has 3782 nodes, and a table of its pairs alone would not fit."""
    nodes = 40 * 3782
    rows, none = torch.zeros(nodes + 1, dtype=torch.long), torch.zeros(0, dtype=torch.int32)
    store = GraphStore(torch.arange(0, nodes + 1, 3782), rows, none, y=STORE.y, info=STORE.info)
    needed = sum(memory_needs(make(400), store, replicas(), 8, torch.float32, torch.device("cpu")))
    assert needed > 2**40
    told = rf"one model needs about {needed / 2**30:.2f} GiB and 16.00 GiB are free.*the largest graph has 3782"
    with pytest.raises(CannotRun, match=told):
        train_in_waves(lambda: make(400), store, rows[1:], replicas(), 1, 8, memory=16 * 2**30)
    shared, each = memory_needs(make(), STORE, replicas(), 8, torch.float32, torch.device("cpu"))
    with pytest.warns(SmallerWaveWarning, match="2 at a time"):
        train_in_waves(make, STORE, FEATURES(STORE), replicas(), 1, 8, memory=int((shared + 2.5 * each) / 0.9))


@pytest.mark.slow
def test_it_compiles_whole_and_in_half_precision():
    """What runs on CUDA, as far as a CPU can tell: one graph, without a break, that gives the same numbers."""
    make_one = lambda: PPGN(FEATURES.channels, 8, 1, 2)  # noqa: E731
    trained = Fleet(make_one, STORE, FEATURES(STORE), replicas(), batch_size=8, precision="bf16")
    trained.begin()
    (crew,) = trained.crews
    prepared = trained._prepare(0, crew)
    again = torch.compile(trained._prepare, backend="aot_eager", fullgraph=True, dynamic=False)(0, crew)
    assert torch.equal(again[0].x, prepared[0].x)
    assert again[0].pair_blocks == prepared[0].pair_blocks
    plain = trained._loss(crew, *prepared)[0]
    torch._dynamo.reset()
    compiled = torch.compile(trained._loss, backend="aot_eager", fullgraph=True, dynamic=False)(crew, *prepared)[0]
    torch.testing.assert_close(compiled, plain, rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad(compiled, list(crew.parameters.values()))
    assert all(bool(torch.isfinite(g).all()) for g in gradients)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore::DeprecationWarning")
@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
@pytest.mark.parametrize("compiles", [False, True])
def test_on_a_gpu(compiles, store):
    """Captured, and compiled or not: what the CPU computes."""
    expected = fleet(replicas(), store, precision="float32").train(3)
    exact = fleet(replicas(), store, precision="float32", device="cuda", compiles=compiles).train(3)
    np.testing.assert_allclose(exact.train_loss, expected.train_loss, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact.loss["test"], expected.loss["test"], rtol=1e-3, atol=1e-3)
    half = fleet(replicas(), store, device="cuda", compiles=compiles).train(3)
    assert np.abs(half.train_loss - expected.train_loss).max() < 0.1


@pytest.mark.real
def test_it_learns_on_mutag(real_set):
    store = open_data(real_set("MUTAG"))
    ids = np.random.default_rng(0).permutation(store.num_graphs)
    replica = Replica(0, ids[:150], {"test": ids[150:]}, lr=1e-3)
    history = train_baseline(baseline_settings("ppgn", hidden=16), store, [replica], epochs=20)
    y = store.y.numpy()[ids[:150]]
    assert history.train_metric[0, -5:].mean() > max(y.mean(), 1 - y.mean()) + 0.1
    assert not history.troubles
