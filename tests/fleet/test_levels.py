"""Nodes that the first layers cannot tell apart, computed once for the whole batch: the same model, to rounding."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from softmask.data import Features
from softmask.data.networkx import from_networkx
from softmask.data.pyg import from_data
from softmask.data.tu import read_tu
from softmask.fleet import Fleet, Replica
from softmask.fleet.levels import StoreLevels
from softmask.fleet.predict import predict
from softmask.fleet.quotient import quotient
from softmask.nn import GAT, VARIANTS, SoftMaskGNN
from softmask.ops.levels import list_sum, own

EXAMPLES = settings(deadline=None, max_examples=30)


def some_graphs():
    """Graphs with isolated nodes, self loops, edges that stand twice, and often the same graph again."""

    def graph(nodes, pairs):
        ends = [(u % nodes, v % nodes) for u, v in pairs]
        both = ends + [(v, u) for u, v in ends if u != v]
        return Data(edge_index=torch.tensor(both, dtype=torch.long).reshape(-1, 2).t(), num_nodes=nodes)

    pair = st.tuples(st.integers(0, 8), st.integers(0, 8))
    one = st.builds(graph, st.integers(1, 7), st.lists(pair, max_size=10))
    return st.lists(one, min_size=1, max_size=4).map(lambda found: from_data([*found, *found[:2]]))


def inputs(store, seed=0, kinds=2):
    return torch.from_numpy(np.random.default_rng(seed).integers(kinds, size=store.num_nodes))


def of_batch(store, x, graphs):
    """The graphs as one plain batch: x, edges, graph of each node."""
    source, target = store.edges()
    nodes, edges, batch, place = [], [], [], 0
    for slot, g in enumerate(graphs):
        if g < 0:
            continue
        first, last = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
        inside = (target >= first) & (target < last)
        nodes.append(torch.arange(first, last))
        edges.append(torch.stack([source, target])[:, inside] - first + place)
        batch.append(torch.full((last - first,), slot))
        place += last - first
    return x[torch.cat(nodes)], torch.cat(edges, dim=1), torch.cat(batch)


@EXAMPLES
@given(some_graphs(), st.integers(1, 3), st.integers(0, 99))
def test_the_colours_are_those_of_the_book(store, kinds, seed):
    x = inputs(store, seed, kinds)
    levels = StoreLevels(store, x, layers=2)
    source, target = (t.tolist() for t in store.edges())
    around = {v: [u for u, w in zip(source, target) if w == v and u != v] for v in range(store.num_nodes)}
    colour = [(token,) for token in x.tolist()]
    for found in levels.colour.tolist():
        assert len(set(found)) == len(set(colour)) == len(set(zip(found, colour)))
        names = {c: i for i, c in enumerate(dict.fromkeys(colour))}
        colour = [
            (names[c], *sorted(Counter(names[colour[u]] for u in around[v]).items())) for v, c in enumerate(colour)
        ]


@EXAMPLES
@given(some_graphs(), st.data(), st.sampled_from(sorted(VARIANTS)), st.booleans(), st.sampled_from(["sum", "mean"]))
def test_the_model_says_the_same_of_a_batch(store, data, variant, norm, readout):
    x = inputs(store)
    graphs = [*data.draw(st.permutations(range(store.num_graphs))), -1]
    torch.manual_seed(0)
    model = SoftMaskGNN(2, 5, 3, 2, **VARIANTS[variant], norm=norm, readout=readout).double().eval()
    nodes, edges, batch = of_batch(store, x, graphs)
    out, masks = model(nodes, edges, batch, len(graphs), return_masks=True)
    few, levels, _ = StoreLevels(store, x, layers=3).batch(torch.tensor([graphs]))
    again, merged = model(few, levels, return_masks=True)
    torch.testing.assert_close(again, out, rtol=1e-10, atol=1e-10)
    for mask, other in zip(masks, merged):
        torch.testing.assert_close(other.amax(), mask.amax(), rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad(out.square().sum(), parameters), torch.autograd.grad(again.square().sum(), parameters)
    ):
        torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-10)


@EXAMPLES
@given(some_graphs(), st.booleans())
def test_the_sums_have_the_right_gradients(store, merged):
    x = inputs(store)
    made = quotient(store, x) if merged else None
    levels = StoreLevels(store if made is None else made.store, x if made is None else made.x, 2, made)
    batch = levels.batch(torch.arange(store.num_graphs).unsqueeze(0)).levels
    for layer in batch.layers:
        for rise in layer:
            rows = torch.randn(rise.own.offset_t.numel() - 1, 2, dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(lambda t, rise=rise: list_sum(t, rise.around), (rows,))
            assert torch.autograd.gradcheck(lambda t, rise=rise: own(t, rise), (rows,))


def test_a_batch_without_graphs():
    store = from_networkx([nx.path_graph(3)])
    x, levels, _ = StoreLevels(store, inputs(store), layers=2).batch(torch.tensor([[-1, -1]]))
    model = SoftMaskGNN(2, 4, 2, 3, multi_channel=True, readout="mean")
    out = model(x, levels)
    assert out.shape == (2, 3)
    gradients = torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True)
    assert all(g is None or torch.isfinite(g).all() for g in gradients)


def molecules(n=40):
    """Graphs of two classes, in which few nodes are equal, and the same graphs again and again."""
    graphs = [nx.gnp_random_graph(10 + i % 11, 0.25, seed=i % 11) for i in range(n)]
    return from_networkx(graphs, y=[i % 2 for i in range(n)])


def trained(store, merge, precision="float64", epochs=15, replicas=3, hidden=8, **options):
    features = Features.of(store)
    ids = np.random.default_rng(0).permutation(store.num_graphs)
    train, test = ids[len(ids) // 4 :], ids[: len(ids) // 4]
    parts = [Replica(s, train[3 * s :], {"test": test}, lr=5e-3, dropout=0.1 * s) for s in range(replicas)]
    classes = int(store.y.max()) + 1
    fleet = Fleet(
        lambda: SoftMaskGNN(features.channels, hidden, 3, classes, **options),
        *(store, features(store), parts),
        **{"batch_size": 16, "precision": precision, "merge": merge},
    )
    return fleet, fleet.train(epochs)


def assert_same(one, other, atol=1e-9):
    for name in ("train_loss", "train_metric"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=atol)
    np.testing.assert_allclose(other.loss["test"], one.loss["test"], atol=atol)
    for a, b in zip(one.weights, other.weights):
        for name in a:
            torch.testing.assert_close(b[name], a[name], rtol=0, atol=atol)


@pytest.mark.parametrize("options", [*({**v} for v in VARIANTS.values()), {"norm": True, "readout": "mean"}], ids=str)
def test_a_fleet_learns_the_same(options):
    """The same batches and the same dropout, 30 steps of three replicas."""
    (plain, before), (fleet, after) = (trained(molecules(), merge, **options) for merge in (False, None))
    assert plain.graphs.levels is None
    assert fleet.graphs.levels is not None
    assert fleet.graphs.quotient is None, "else other graphs would share a batch"
    assert fleet.train_plans[0].steps * 15 >= 30
    assert fleet.graphs.nodes_computed < 0.8 * plain.graphs.nodes_computed
    assert_same(before, after)


@pytest.mark.real
@pytest.mark.parametrize(("name", "options"), [("MUTAG", {"multi_channel": True, "jk": True}), ("PROTEINS", {})])
def test_a_fleet_learns_the_same_of_a_real_set(name, options, real_set):
    store = read_tu(real_set(name)).select(np.arange(0, 180, 2))
    (_, before), (fleet, after) = (trained(store, merge, epochs=7, **options) for merge in (False, None))
    assert fleet.graphs.levels is not None
    assert fleet.train_plans[0].steps * 7 >= 30
    assert_same(before, after)


@pytest.mark.real
def test_levels_of_quotients(real_set):
    """Where nodes of one graph never differ, they are merged for good, and their levels have weights."""
    store = read_tu(real_set("IMDB-MULTI")).select(np.arange(0, 1500, 25))
    (fleet, merged) = trained(store, None, epochs=8)
    assert fleet.graphs.levels is not None
    assert fleet.graphs.quotient is not None
    features = Features.of(store)
    model = SoftMaskGNN(features.channels, 8, 3, 3).double().eval()
    model.load_state_dict(merged.weights[0])
    out, _ = predict(model, store, features(store))
    test = fleet.replicas[0].evaluate["test"]
    loss = torch.nn.functional.cross_entropy(out[test], store.y[test])
    np.testing.assert_allclose(merged.loss["test"][0, -1], loss, atol=1e-9)


def test_a_replica_does_not_depend_on_its_company():
    (_, alone), (fleet, beside) = trained(molecules(), None, replicas=1), trained(molecules(), None, replicas=3)
    assert fleet.graphs.levels is not None
    for name, value in alone.weights[0].items():
        torch.testing.assert_close(beside.weights[0][name], value, rtol=0, atol=1e-12)


def test_in_float32():
    (_, exact), (fleet, rounded) = (trained(molecules(), None, p, epochs=5) for p in ("float64", "float32"))
    assert fleet.graphs.levels is not None
    np.testing.assert_allclose(rounded.train_loss, exact.train_loss, atol=1e-4)
    np.testing.assert_allclose(rounded.loss["test"], exact.loss["test"], atol=1e-4)


def test_closed_masks_are_reported_as_before():
    def fleet(merge):
        features = Features.of(store)
        parts = [Replica(s, np.arange(30), {"test": np.arange(30, 40)}, lr=1e-3) for s in range(2)]

        def build():
            model = SoftMaskGNN(features.channels, 8, 2, 2)
            with torch.no_grad():
                model.masks[1].mlp[2].bias.fill_(-60)
            return model

        return Fleet(build, store, features(store), parts, merge=merge)

    store = molecules()
    plain, levelled = fleet(False), fleet(None)
    assert levelled.graphs.levels is not None
    one, other = plain.train(2).troubles, levelled.train(2).troubles
    assert len(one) == 2
    assert one == other


def test_what_has_no_levels():
    store = molecules()
    parts = [Replica(0, np.arange(30))]

    def fleet(x=None, model=SoftMaskGNN, store=store, **options):
        x = Features.of(store)(store) if x is None else x
        channels = Features.of(store).channels if not x.is_floating_point() else x.size(1)
        return Fleet(lambda: model(channels, 4, 1, 2), store, x, parts, **options)

    assert fleet().graphs.levels is not None
    assert fleet(merge=False).graphs.levels is None
    assert fleet(precision="bf16").graphs.levels is None
    different = torch.randn(store.num_nodes, 2)
    assert fleet(different).graphs.levels is None, "all nodes have different inputs"
    assert fleet(different, merge=True).graphs.levels is not None
    assert fleet(model=GAT).graphs.levels is None
    source, target = store.edges()
    graphs = []
    for first, last in zip(store.node_ptr[:-1], store.node_ptr[1:]):
        inside = (target >= first) & (target < last) & (source < target)
        graphs.append(nx.DiGraph((torch.stack([source, target])[:, inside] - first).t().tolist()))
    assert fleet(store=from_networkx(graphs, y=store.y.tolist())).graphs.levels is None
