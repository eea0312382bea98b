"""Lemma 1 and Theorem 1: masks make the network see any subgraph alone. And what must break them does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory import reference
from theory.graphs import EXACT, Graphs, Numbers, examples, graphs, smg
from theory.masks import lemma_masks, ones, theorem_masks

from softmask.nn import SoftMaskConv, SoftMaskGNN
from softmask.ops import graph_sum

CHANNELS = 3
BITES = 1e-2  # A broken constraint must show by far more than the tolerance of 1e-10.


@st.composite
def graph_and_subset(draw, **kwargs):
    graph = draw(graphs(**kwargs))
    return graph, draw(st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes))


def subset(graph, inside):
    """The nodes of S, and the subgraph's edges and batch."""
    nodes = [v for v in range(graph.num_nodes) if inside[v]]
    edge_index = torch.tensor(graph.induced(nodes), dtype=torch.long).reshape(-1, 2).t()
    return nodes, edge_index, graph.batch_vector[nodes]


@examples(100)
@given(graph_and_subset(), st.integers(1, 5), st.booleans())
def test_lemma_1(case, num_layers, norm):
    graph, inside = case
    numbers = graph.numbers()
    convs = numbers.stack(CHANNELS, num_layers, norm)
    x = numbers.normal(graph.num_nodes, CHANNELS)
    masks = lemma_masks(graph, inside, num_layers, numbers)
    nodes, sub_edges, _ = subset(graph, inside)
    h = smg(convs, x, graph.edge_index, masks)
    alone = smg(convs, x[nodes], sub_edges, ones(len(nodes), num_layers))
    torch.testing.assert_close(h[nodes], alone, **EXACT)


@examples(100)
@given(graph_and_subset(), st.integers(1, 5), st.booleans())
def test_theorem_1(case, num_layers, norm):
    graph, inside = case
    numbers = graph.numbers()
    convs = numbers.stack(CHANNELS, num_layers, norm)
    x = numbers.normal(graph.num_nodes, CHANNELS)
    masks = theorem_masks(graph, inside, num_layers, numbers)
    nodes, sub_edges, sub_batch = subset(graph, inside)
    h = graph_sum(smg(convs, x, graph.edge_index, masks), graph.batch_vector, graph.num_graphs)
    alone = smg(convs, x[nodes], sub_edges, ones(len(nodes), num_layers))
    torch.testing.assert_close(h, graph_sum(alone, sub_batch, graph.num_graphs), **EXACT)


@examples(40)
@given(graph_and_subset(), st.integers(1, 4), st.booleans())
def test_both_for_the_whole_model(case, num_layers, multi_channel):
    """The input map has a bias, but it acts on every node alone."""
    graph, inside = case
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(2, CHANNELS, num_layers, 2, multi_channel=multi_channel))
    x = numbers.normal(graph.num_nodes, 2)
    nodes, sub_edges, sub_batch = subset(graph, inside)
    sub_ones = ones(len(nodes), num_layers)

    masks = lemma_masks(graph, inside, num_layers, numbers)
    h = model.node_embeddings(x, graph.edge_index, masks=masks)
    alone = model.node_embeddings(x[nodes], sub_edges, masks=sub_ones)
    torch.testing.assert_close(h[nodes], alone, **EXACT)

    masks = theorem_masks(graph, inside, num_layers, numbers)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, masks=masks)
    out_alone = model(x[nodes], sub_edges, sub_batch, graph.num_graphs, masks=sub_ones)
    torch.testing.assert_close(out, out_alone, **EXACT)


@examples(60)
@given(graphs(), st.data())
def test_a_node_with_mask_0_is_inaccessible(graph, data):
    """It becomes zero, and its neighbours compute what they would without it, whatever it holds."""
    numbers = graph.numbers()
    n = graph.num_nodes
    multi = data.draw(st.booleans())
    conv = numbers.fill(SoftMaskConv(CHANNELS, CHANNELS, norm=data.draw(st.booleans())))
    x, mask = numbers.normal(n, CHANNELS), numbers.mask(n, CHANNELS if multi else 1)
    shut = data.draw(st.sets(st.integers(0, n - 1))) if n > 0 else set()
    mask[list(shut)] = 0.0
    rest = [v for v in range(n) if v not in shut]
    edges = torch.tensor(graph.induced(rest), dtype=torch.long).reshape(-1, 2).t()
    out = conv(x, graph.edge_index, mask)
    assert (out[list(shut)] == 0).all()
    torch.testing.assert_close(out[rest], conv(x[rest], edges, mask[rest]), **EXACT)
    x[list(shut)] = 1e6
    torch.testing.assert_close(conv(x, graph.edge_index, mask), out, rtol=0, atol=0)


@examples(60)
@given(graphs(), st.data())
def test_the_sums_are_zero_invariant(graph, data):
    """Nodes that hold zero may as well not be there, for neighbours and readout; nothing sums to zero."""
    numbers = graph.numbers()
    n = graph.num_nodes
    conv = numbers.fill(SoftMaskConv(CHANNELS, CHANNELS, norm=data.draw(st.booleans())))
    x, mask = numbers.normal(n, CHANNELS), numbers.mask(n, 1)
    zero = data.draw(st.sets(st.integers(0, n - 1))) if n > 0 else set()
    x[list(zero)] = 0.0
    rest = [v for v in range(n) if v not in zero]
    edges = torch.tensor(graph.induced(rest), dtype=torch.long).reshape(-1, 2).t()
    out, alone = conv(x, graph.edge_index, mask)[rest], conv(x[rest], edges, mask[rest])
    torch.testing.assert_close(out, alone, **EXACT)
    batch = graph.batch_vector
    whole = graph_sum(x, batch, graph.num_graphs)
    torch.testing.assert_close(whole, graph_sum(x[rest], batch[rest], graph.num_graphs), **EXACT)
    for g in range(graph.num_graphs):
        if not any(graph.batch[v] == g for v in rest):
            assert (whole[g] == 0).all()


# S = {0, 1, 2}, a path; node 3 touches it twice, node 4 hangs on node 3.
CASE = Graphs(
    edges=tuple((a, b) for s, t in [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)] for a, b in [(s, t), (t, s)]),
    batch=(0,) * 5,
    num_graphs=1,
    seed=3,
)
INSIDE = [True, True, True, False, False]


def numpy_distance(masks, num_layers, readout, **broken):
    """How far the numpy layers are from the subgraph's on CASE: on S, or in the SUM or MEAN of all."""
    numbers = Numbers(11)
    # Positive weights, so that no ReLU hides a difference, and small ones, so that no sigmoid is saturated.
    weights = [numbers.normal(2, 4, 4).abs().numpy() / 4 for _ in range(num_layers)]
    x = numbers.normal(5, 4).abs().numpy()
    h, alone = x, x[:3]
    for k, (w_root, w_rel) in enumerate(weights):
        lists = reference.neighbour_lists(5, CASE.edges)
        h = reference.soft_mask_layer(h, lists, masks[k].numpy(), w_root, w_rel, **broken)
        lists = reference.neighbour_lists(3, CASE.induced([0, 1, 2]))
        alone = reference.soft_mask_layer(alone, lists, np.ones((3, 1)), w_root, w_rel, **broken)
    if readout is None:
        return np.abs(h[:3] - alone).max()
    reduce = {"sum": np.sum, "mean": np.mean}[readout]
    return np.abs(reduce(h, axis=0) - reduce(alone, axis=0)).max()


BROKEN = {
    "mean": {"aggregate": "mean"},
    "bias": {"bias": 0.3},
    "sigmoid": {"act": reference.sigmoid},
    "softplus": {"act": lambda a: np.log1p(np.exp(a))},
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("num_layers", [2, 3, 4])
def test_each_constraint_is_needed(broken, num_layers):
    lemma = lemma_masks(CASE, INSIDE, num_layers, Numbers(5))
    theorem = theorem_masks(CASE, INSIDE, num_layers, Numbers(5))
    assert numpy_distance(lemma, num_layers, None) < 1e-10
    assert numpy_distance(theorem, num_layers, "sum") < 1e-10
    assert numpy_distance(lemma, num_layers, None, **BROKEN[broken]) > BITES
    assert numpy_distance(theorem, num_layers, "sum", **BROKEN[broken]) > BITES


def test_the_theorem_needs_a_zero_invariant_readout():
    masks = theorem_masks(CASE, INSIDE, 2, Numbers(5))
    assert numpy_distance(masks, 2, "mean") > BITES
    for readout, bound in {"sum": (0, 1e-10), "mean": (BITES, np.inf)}.items():
        model = Numbers(1).fill(SoftMaskGNN(4, 4, 2, 1, readout=readout))
        with torch.no_grad():
            for p in model.parameters():
                p.abs_()
        x = Numbers(2).normal(5, 4).abs()
        nodes, sub_edges, _ = subset(CASE, INSIDE)
        out = model(x, CASE.edge_index, masks=masks)
        alone = model(x[nodes], sub_edges, masks=ones(3, 2))
        assert bound[0] <= (out - alone).abs().max().item() <= bound[1]


class BiasOutsideTheMask(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x, edge_index, mask):
        return self.conv(x, edge_index, mask) + 0.3


def with_sigmoid(conv):
    conv.act = torch.nn.Sigmoid()
    return conv


@pytest.mark.parametrize("change", [with_sigmoid, BiasOutsideTheMask])
def test_the_package_layers_break_too(change):
    """The same test of the same layers, which passes before the change, fails after it."""

    def distance(convs):
        x = Numbers(2).normal(5, CHANNELS).abs()
        nodes, sub_edges, _ = subset(CASE, INSIDE)
        h = smg(convs, x, CASE.edge_index, lemma_masks(CASE, INSIDE, 2, Numbers(5)))
        return (h[nodes] - smg(convs, x[nodes], sub_edges, ones(3, 2))).abs().max().item()

    convs = Numbers(4).stack(CHANNELS, 2)
    with torch.no_grad():
        for conv in convs:
            conv.lin_root.weight.abs_().div_(4)
            conv.lin_rel.weight.abs_().div_(4)
    assert distance(convs) < 1e-10
    assert distance([change(conv) for conv in convs]) > BITES


@pytest.mark.parametrize("act", ["sigmoid", "softplus"])
def test_the_layer_refuses_an_activation_that_moves_zero(act):
    with pytest.raises(ValueError, match="does not map 0 to 0"):
        SoftMaskConv(2, 2, act=act)


def test_the_masks_of_the_lemma_are_needed():
    """Opening a neighbour of S in an odd layer, or shutting it in the even layers only, lets it in."""
    masks = lemma_masks(CASE, INSIDE, 2, Numbers(5))
    masks[0][3] = 0.5
    assert numpy_distance(masks, 2, None) > BITES
    masks = lemma_masks(CASE, INSIDE, 2, Numbers(5))
    masks[0][3], masks[1][3] = 0.5, 0.0
    assert numpy_distance(masks, 2, None) > BITES


def test_in_a_directed_graph_the_edges_into_s_count():
    """The paper's graphs are undirected: read literally, N(1) = {} would leave node 1 open to its target."""
    graph = Graphs(edges=((1, 0),), batch=(0, 0), num_graphs=1, seed=0)
    masks = lemma_masks(graph, [True, False], 1, Numbers(0))
    assert masks[0].tolist() == [[1.0], [0.0]]
    x, weight = np.ones((2, 1)), np.ones((1, 1))
    lists = reference.neighbour_lists(2, graph.edges)
    alone = reference.soft_mask_layer(x[:1], [[]], np.ones((1, 1)), weight, weight)
    for mask, distance in ((0.0, 0.0), (0.5, 0.5)):
        h = reference.soft_mask_layer(x, lists, np.array([[1.0], [mask]]), weight, weight)
        assert abs(h[0, 0] - alone[0, 0]) == distance
