"""The importance of a node against walks counted one by one, layers of the package, and cases done by hand."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import examples, graphs
from torch_geometric.utils import to_undirected

from softmask.errors import SettingError
from softmask.explain import node_importance, node_masks
from softmask.explain.importance import largest_one, walk_weights
from softmask.nn import SoftMaskConv
from softmask.ops import as_neighbours

CHAIN = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])  # 0 - 1 - 2


def walks_to(node, layers, sources):
    """Every way through the layers that ends at a node: at each one stay, or come along an edge."""
    if layers == 0:
        return [(node,)]
    return [(*before, node) for u in (node, *sources[node]) for before in walks_to(u, layers - 1, sources)]


def product_of(walk, masks):
    """Equation (3), factor by factor: who stays passes its own mask; who moves, that of both ends."""
    weight = 1.0
    for k, (u, v) in enumerate(pairwise(walk)):
        weight *= masks[v][k] if u == v else masks[u][k] * masks[v][k]
    return weight


def counted(masks, edges, num_nodes, jk):
    """Sum over walks of the product of masks, and the same where every node has the mean mask, by enumeration."""
    sources = [[s for s, t in edges if t == v and s != t] for v in range(num_nodes)]
    layers = masks.shape[1]
    even = np.tile(masks.numpy().sum(axis=0) / max(num_nodes, 1), (num_nodes, 1))
    weight, other = np.zeros(num_nodes), np.zeros(num_nodes)
    for v in range(num_nodes):
        for length in range(1 if jk else layers, layers + 1):
            walks = walks_to(v, length, sources)
            weight[v] += sum(product_of(walk, masks.tolist()) for walk in walks)
            other[v] += sum(product_of(walk, even.tolist()) for walk in walks)
    return weight, other


@examples(60)
@given(graphs(max_nodes=5, max_graphs=2), st.integers(1, 3), st.booleans())
def test_it_is_the_product_of_masks_over_all_walks_against_that_of_their_means(graph, layers, jk):
    masks = graph.numbers().mask(graph.num_nodes, layers)
    weight, even = counted(masks, graph.edges, graph.num_nodes, jk)
    found = walk_weights(masks, as_neighbours(graph.edge_index, graph.num_nodes), jk).numpy()
    np.testing.assert_allclose(found[:, 0], weight, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[:, 1], even, rtol=1e-12)
    ratio = np.divide(weight, even, out=np.zeros_like(weight), where=even > 0)
    np.testing.assert_allclose(node_importance(masks, graph.edge_index, jk), ratio, rtol=1e-10, atol=1e-12)


@examples(40)
@given(graphs(max_nodes=6, max_graphs=2), st.integers(1, 4), st.booleans())
def test_the_weights_are_what_the_layers_compute_where_all_matrices_are_one(graph, layers, jk):
    """The package's own layers with W = [1 | 1] on ones, where the ReLU does nothing."""
    conv = SoftMaskConv(1, 1).double()
    torch.nn.init.ones_(conv.lin_root.weight)
    torch.nn.init.ones_(conv.lin_rel.weight)
    masks = graph.numbers().mask(graph.num_nodes, layers)
    h, hidden = torch.ones(graph.num_nodes, 1, dtype=torch.float64), []
    with torch.no_grad():
        for k in range(layers):
            h = conv(h, graph.edge_index, masks[:, k : k + 1])
            hidden.append(h)
    read = sum(hidden) if jk else hidden[-1]
    found = walk_weights(masks, as_neighbours(graph.edge_index, graph.num_nodes), jk)[:, :1]
    torch.testing.assert_close(found, read, rtol=1e-12, atol=1e-12)


def test_a_chain_by_hand():
    a, b, c = 0.5, 0.25, 1.0
    one = torch.tensor([[a], [b], [c]], dtype=torch.float64)
    # One layer: the node itself, and for each neighbour the product of both masks.
    weight = [a + a * b, b + a * b + b * c, c + b * c]
    mean = (a + b + c) / 3
    even = torch.tensor([mean + mean**2, mean + 2 * mean**2, mean + mean**2]).double()
    torch.testing.assert_close(node_importance(one, CHAIN), torch.tensor(weight).double() / even)
    # Two layers: node 0 keeps its own (a), and takes what node 1 has by then (a b).
    two = torch.cat([one, one], dim=1)
    second = a * weight[0] + a * b * weight[1]
    assert float(walk_weights(two, as_neighbours(CHAIN, 3))[0, 0]) == pytest.approx(second, abs=1e-15)
    # Jumping knowledge adds what is read out after one layer.
    found = walk_weights(two, as_neighbours(CHAIN, 3), jk=True)[0, 0]
    assert float(found) == pytest.approx(second + weight[0], abs=1e-15)


@pytest.mark.parametrize("mask", [1.0, 0.3])
@pytest.mark.parametrize("jk", [False, True])
def test_where_masks_tell_no_node_from_another_importance_does_not_either(mask, jk):
    """A clique, a pair and a lone node, in one graph and in a graph each."""
    edges = to_undirected(torch.tensor([[0, 0, 0, 1, 1, 2, 4], [1, 2, 3, 2, 3, 3, 5]]))
    masks = torch.full((7, 3), mask, dtype=torch.float64)
    for batch in (None, torch.tensor([0, 0, 0, 0, 1, 1, 2])):
        assert node_importance(masks, edges, jk, batch).tolist() == pytest.approx([1.0] * 7)


def test_graphs_of_a_batch_have_means_of_their_own():
    masks = torch.rand(6, 2, dtype=torch.float64)
    both = torch.cat([CHAIN, CHAIN + 3], dim=1)
    found = node_importance(masks, both, batch=torch.tensor([0, 0, 0, 1, 1, 1]))
    torch.testing.assert_close(found, torch.cat([node_importance(part, CHAIN) for part in masks.split(3)]))


def test_open_masks_count_walks_and_hubs_are_no_better_than_leaves():
    star = to_undirected(torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]))
    masks = torch.ones(5, 3, dtype=torch.float64)
    adjacency = np.zeros((5, 5))
    adjacency[tuple(star.numpy())] = 1
    number = np.linalg.matrix_power(np.eye(5) + adjacency, 3).sum(axis=0)
    assert walk_weights(masks, as_neighbours(star, 5))[:, 1].tolist() == number.tolist()
    assert node_importance(masks, star).tolist() == [1.0] * 5


def test_a_shut_node_has_none_and_takes_away_from_its_neighbours_alone():
    masks = torch.ones(3, 1, dtype=torch.float64)
    masks[2] = 0
    # With the mean mask 2/3 the weights are 10/9, 14/9 and 10/9; with the masks 2, 2 and 0.
    assert node_importance(masks, CHAIN).tolist() == pytest.approx([9 / 5, 9 / 7, 0.0])
    # Shut in the last layer alone: nothing of it is read out there, but with jumping knowledge the first layer is.
    late = torch.ones(3, 2, dtype=torch.float64)
    late[2, 1] = 0
    assert float(node_importance(late, CHAIN)[2]) == 0
    assert float(node_importance(late, CHAIN, jk=True)[2]) > 0
    assert node_importance(torch.zeros(3, 2), CHAIN).tolist() == [0.0] * 3


def test_directed_edges_carry_one_way():
    edge = torch.tensor([[0], [1]])  # 0 is the neighbour of 1
    masks = torch.tensor([[0.5], [1.0]], dtype=torch.float64)
    # Node 1 has the walks 1 and 0 -> 1; node 0 has 0 alone. The mean is 3/4.
    assert node_importance(masks, edge).tolist() == pytest.approx([0.5 / 0.75, (1 + 0.5) / (0.75 + 0.75**2)])


@pytest.mark.parametrize(("reduction", "value"), [("mean", 0.5), ("max", 0.8), ("norm", np.sqrt(0.34))])
def test_channels_are_reduced(reduction, value):
    masks = [torch.tensor([[0.2, 0.8], [0.0, 0.0]], dtype=torch.float64)]
    assert node_masks(masks, reduction)[:, 0].tolist() == pytest.approx([value, 0.0])
    single = [torch.tensor([[0.3], [0.7]])]
    torch.testing.assert_close(node_masks(single, reduction), single[0])


def test_unknown_reductions_are_refused():
    with pytest.raises(SettingError, match="known are mean, max and norm"):
        node_masks([torch.zeros(2, 1)], "median")


def test_the_largest_of_each_graph_becomes_one():
    values, batch = torch.tensor([0.2, 0.4, 0.0, 0.0, 3.0]), torch.tensor([0, 0, 1, 1, 3])
    torch.testing.assert_close(largest_one(values, batch, 4), torch.tensor([0.5, 1.0, 0.0, 0.0, 1.0]))
