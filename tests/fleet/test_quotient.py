"""Nodes that cannot be told apart, computed as one: the same model, to rounding."""

from collections import Counter
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from softmask.baselines.batch_norm import MaskedBatchNorm
from softmask.baselines.conv_gnn import ConvGNN, GCNConv, SAGEConv
from softmask.baselines.gin import GIN
from softmask.data import Features
from softmask.data.networkx import from_networkx
from softmask.data.tu import read_tu
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.quotient import quotient, stable_colours
from softmask.nn import GAT, SoftMaskGNN
from softmask.ops import Neighbours, Segments, attention_sum, graph_sum, neighbour_sum

EXAMPLES = settings(deadline=None, max_examples=40)


def some_graphs():
    """Graphs with many equal nodes: stars, cliques, cycles, trees, and random ones."""
    kinds = [
        lambda n, s: nx.star_graph(n),
        lambda n, s: nx.complete_graph(n + 1),
        lambda n, s: nx.cycle_graph(n + 2),
        lambda n, s: nx.random_labeled_tree(n + 1, seed=s),
        lambda n, s: nx.gnp_random_graph(n + 1, 0.3, seed=s),
        lambda n, s: nx.disjoint_union(nx.path_graph(3), nx.cycle_graph(n + 2)),
        lambda n, s: nx.Graph([*nx.star_graph(n).edges, (0, 0), (1, 1)]),
    ]
    one = st.tuples(st.sampled_from(range(len(kinds))), st.integers(1, 9), st.integers(0, 99))
    return st.lists(one, min_size=1, max_size=4).map(lambda drawn: [kinds[k](n, s) for k, n, s in drawn])


def refined(graph, labels):
    """Colour refinement by the book, on dictionaries."""
    colour = dict(enumerate(labels))
    while True:
        seen = {
            v: (colour[v], tuple(sorted(Counter(colour[u] for u in graph[v] if u != v).items()))) for v in graph.nodes
        }
        names = {s: i for i, s in enumerate(sorted(set(seen.values())))}
        new = {v: names[s] for v, s in seen.items()}
        if len(set(new.values())) == len(set(colour.values())):
            return [new[v] for v in graph.nodes]
        colour = new


def groups(values):
    """A colouring as the sets of places of one colour."""
    found = {}
    for place, value in enumerate(values):
        found.setdefault(value, set()).add(place)
    return sorted(map(sorted, found.values()))


@EXAMPLES
@given(some_graphs(), st.integers(1, 3), st.integers(0, 99))
def test_the_colours_are_those_of_the_book(graphs, kinds, seed):
    store = from_networkx(graphs)
    x = torch.from_numpy(np.random.default_rng(seed).integers(kinds, size=store.num_nodes))
    colour = stable_colours(store, x).tolist()
    ptr = store.node_ptr.tolist()
    for graph, (first, last) in zip(graphs, pairwise(ptr)):
        graph = nx.convert_node_labels_to_integers(graph)
        assert groups(colour[first:last]) == groups(refined(graph, x[first:last].tolist()))
    assert len(set(colour)) == sum(len(set(colour[a:b])) for a, b in pairwise(ptr)), "no colour in two graphs"
    assert list(dict.fromkeys(colour)) == list(range(len(set(colour)))), "in the order of the nodes"


def as_input(store, made=None):
    rows = made.store if made is not None else store
    base = rows.node_ptr[:-1][rows.batch]
    weights = {} if made is None else {"weight": made.weight.double(), "weight_t": made.weight_t.double()}
    neighbours = Neighbours(rows.row_ptr[:-1], rows.row_ptr[1:], rows.col, base, **weights)
    return neighbours, Segments(rows.batch, weight=None if made is None else made.size.double())


@EXAMPLES
@given(some_graphs(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from(["sum", "mean"]))
def test_the_model_says_the_same_of_the_quotient(graphs, multi_channel, jk, norm, readout):
    store = from_networkx(graphs)
    x = torch.arange(store.num_nodes) % 2
    colour, made = stable_colours(store, x), quotient(store, x)
    torch.manual_seed(0)
    model = SoftMaskGNN(2, 5, 3, 2, multi_channel=multi_channel, jk=jk, norm=norm, readout=readout).double().eval()
    of_nodes, of_classes = as_input(store), as_input(store, made)
    out, masks = model(x, *of_nodes, store.num_graphs, return_masks=True)
    again, merged = model(made.x, *of_classes, store.num_graphs, return_masks=True)
    torch.testing.assert_close(again, out, rtol=1e-10, atol=1e-10)
    for mask, other in zip(masks, merged):
        torch.testing.assert_close(other[colour], mask, rtol=1e-10, atol=1e-10)
    parameters = list(model.parameters())
    for one, other in zip(
        torch.autograd.grad(out.square().sum(), parameters), torch.autograd.grad(again.square().sum(), parameters)
    ):
        torch.testing.assert_close(other, one, rtol=1e-8, atol=1e-10)


OTHERS = {
    "gin": lambda channels: GIN(channels, 5, 3, 2, dropout=0.0),
    "gin-eps": lambda channels: GIN(channels, 5, 2, 2, readout="mean", dropout=0.0, train_eps=True),
    "gin, constant": lambda channels: GIN(channels, 5, 3, 2, dropout=0.0, constant=True),
    "gcn": lambda channels: ConvGNN(channels, 5, 3, 2, GCNConv, dropout=0.0),
    "sage": lambda channels: ConvGNN(channels, 5, 3, 2, SAGEConv, readout="mean", dropout=0.0),
    "gat": lambda channels: GAT(channels, 6, 3, 2, heads=2, jk=True, dropout=0.0),
}


@pytest.mark.parametrize("name", OTHERS)
@settings(EXAMPLES, max_examples=15)
@example([nx.cycle_graph(9)])
@given(some_graphs())
def test_so_do_other_models(name, graphs):
    """In training, where batch norms look at all nodes of a batch."""
    store = from_networkx(graphs)
    x = torch.arange(store.num_nodes) % 2
    made = quotient(store, x)
    torch.manual_seed(0)
    model = OTHERS[name](2).double().train()
    for norm in (module for module in model.modules() if isinstance(module, MaskedBatchNorm)):
        # Where all nodes are equal, a norm divides rounding by the root of eps, and a ReLU would cut it at zero.
        norm.eps = 0.5
        torch.nn.init.normal_(norm.bias)
    found = []
    for rows, of in ((x, as_input(store)), (made.x, as_input(store, made))):
        out = model(rows, *of, store.num_graphs)
        found.append((out, *torch.autograd.grad(out.square().sum(), list(model.parameters()))))
        found[-1] += tuple(b.clone() for b in model.buffers())
        for module in model.modules():
            if isinstance(module, MaskedBatchNorm):
                module.running_mean, module.running_var = torch.zeros_like(module.bias), torch.ones_like(module.bias)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-8)


@EXAMPLES
@given(some_graphs(), st.booleans())
def test_attention_over_classes_has_the_right_gradients(graphs, itself):
    store = from_networkx(graphs)
    made = quotient(store, torch.zeros(store.num_nodes, dtype=torch.long))
    neighbours, _ = as_input(store, made)
    n = made.store.num_nodes
    inputs = [torch.randn(n, 2, *size, dtype=torch.float64, requires_grad=True) for size in ((3,), (), ())]
    assert torch.autograd.gradcheck(lambda *inputs: attention_sum(*inputs, neighbours, itself=itself), inputs)


@EXAMPLES
@given(some_graphs(), st.sampled_from([1, 4]))
def test_sums_over_classes_have_the_right_gradients(graphs, channels):
    store = from_networkx(graphs)
    made = quotient(store, torch.zeros(store.num_nodes, dtype=torch.long))
    neighbours, segments = as_input(store, made)
    n = made.store.num_nodes
    x = torch.randn(n, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(n, channels, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, mask: neighbour_sum(x, neighbours, mask), (x, mask))
    assert torch.autograd.gradcheck(lambda x: graph_sum(x, segments, store.num_graphs), (x,))


def trained(store, merge, precision="float64", epochs=8, batch_size=1000, model=None):
    features = Features.of(store)
    ids = np.random.default_rng(0).permutation(store.num_graphs)
    replicas = [Replica(s, ids[5 * s : -20], {"test": ids[-20:]}, lr=5e-3) for s in range(3)]
    fleet = Fleet(
        model or (lambda: SoftMaskGNN(features.channels, 8, 2, len(store.info["classes"]), jk=True, dropout=0.0)),
        *(store, features(store), replicas),
        **{"batch_size": batch_size, "precision": precision, "merge": merge},
    )
    return fleet, fleet.train(epochs)


@pytest.mark.real
@pytest.mark.parametrize("model", [None, "gin", "gat"])
def test_a_fleet_learns_the_same(model, real_set):
    """With all graphs in one batch and without dropout, whose key is the place in the batch."""
    store = read_tu(real_set("IMDB-BINARY")).select(np.arange(0, 1000, 10))
    channels = Features.of(store).channels
    made = None if model is None else lambda: OTHERS[model](channels)
    (_, plain), (fleet, merged) = (trained(store, merge, model=made) for merge in (False, None))
    assert fleet.graphs.store.num_nodes < 0.5 * store.num_nodes
    for name in ("train_loss", "train_metric"):
        np.testing.assert_allclose(getattr(merged, name), getattr(plain, name), rtol=1e-9)
    np.testing.assert_allclose(merged.loss["test"], plain.loss["test"], rtol=1e-9)
    for one, other in zip(plain.weights, merged.weights):
        for name in one:
            torch.testing.assert_close(other[name], one[name], rtol=1e-7, atol=1e-9)


@pytest.mark.real
def test_in_float32_and_in_small_batches(real_set):
    """Other batches, so another training, but no worse."""
    store = read_tu(real_set("IMDB-BINARY")).select(np.arange(0, 1000, 4))
    (_, plain), (_, merged) = (trained(store, m, "float32", epochs=20, batch_size=32) for m in (False, True))
    assert abs(plain.train_loss[:, -1].mean() - merged.train_loss[:, -1].mean()) < 0.1


@pytest.mark.real
@pytest.mark.parametrize("name", ["IMDB-BINARY", "IMDB-MULTI", "MUTAG", "REDDIT-BINARY"])
def test_real_sets_have_no_colour_too_few(name, real_set):
    """Hashes could meet; that the colouring is stable is checked without them."""
    store = read_tu(real_set(name))
    x = Features.of(store)(store)
    colour = stable_colours(store, x)
    source, target = store.edges()
    count = int(colour.max()) + 1
    pair, times = torch.unique(target[source != target] * count + colour[source[source != target]], return_counts=True)
    node, around = pair // count, pair % count
    # Every node of a class has the same number of neighbours of each colour, so one triple a class and colour ...
    triples = torch.unique(torch.stack([colour[node], around, times], 1), dim=0, return_counts=True)
    assert len(torch.unique(triples[0][:, :2], dim=0)) == len(triples[0])
    # ... which all of its nodes have.
    assert torch.equal(triples[1], torch.bincount(colour)[triples[0][:, 0]])
    for column in x.reshape(len(x), -1).T:
        assert len(torch.unique(torch.stack([colour, column.double()], 1), dim=0)) == count


class Centred(torch.nn.Linear):
    """A layer in which nodes meet in a mean over all of them."""

    def forward(self, x, neighbours):
        return super().forward(x) - super().forward(x).mean(dim=0)


def test_layers_that_do_not_meet_in_sums_are_not_merged():
    store = from_networkx([nx.star_graph(5), nx.star_graph(6)], y=[0, 1])
    features = Features.of(store)
    for conv, merged in ((GCNConv, True), (Centred, False)):
        fleet = Fleet(
            lambda conv=conv: ConvGNN(features.channels, 4, 1, 2, conv, dropout=0.0),
            *(store, features(store), [Replica(0, [0, 1])]),
        )
        assert (fleet.graphs.quotient is not None) == merged


def test_what_is_not_merged():
    graphs = [nx.star_graph(5), nx.star_graph(6)]
    store = from_networkx(graphs, y=[0, 1])
    replicas = [Replica(0, [0, 1])]

    def fleet(store=store, **options):
        features = Features.of(store)
        return Fleet(lambda: SoftMaskGNN(features.channels, 4, 1, 2), store, features(store), replicas, **options)

    assert fleet().graphs.quotient.size.tolist() == [1, 5, 1, 6]
    assert fleet(merge=False).graphs.quotient is None
    assert fleet(precision="bf16").graphs.quotient is None, "its sums on the CPU would round the weights"
    directed = from_networkx([nx.DiGraph(g.edges) for g in graphs], y=[0, 1])
    assert fleet(directed).graphs.quotient is None
    with pytest.raises(SettingError, match="directed"):
        fleet(directed, merge=True)
    with pytest.raises(SettingError, match="bf16"):
        fleet(merge=True, precision="bf16")
    different = from_networkx([nx.path_graph(2), nx.path_graph(1)], y=[0, 1])
    assert (
        fleet(
            from_networkx([nx.gnp_random_graph(12, 0.5, seed=1), nx.gnp_random_graph(12, 0.5, seed=2)], y=[0, 1])
        ).graphs.quotient
        is None
    )
    assert fleet(different, merge=True).graphs.quotient is not None
