"""The order of nodes, of edges and of graphs does not matter."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs

from softmask.nn import VARIANTS, SoftMaskGNN


@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("variant", VARIANTS)
@examples(15)
@given(graph=graphs(), num_layers=st.integers(1, 3))
def test_order(variant, readout, graph, num_layers):
    """Nodes and graphs renumbered across the batch, edges shuffled: masks and vectors go along."""
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(2, 3, num_layers, 2, **VARIANTS[variant], readout=readout))
    x = numbers.normal(graph.num_nodes, 2)
    out, masks = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, return_masks=True)
    h = model.node_embeddings(x, graph.edge_index)

    order = numbers.permutation(graph.num_nodes)  # new node i is old node order[i]
    place = torch.argsort(order)
    graph_place = numbers.permutation(graph.num_graphs)  # old graph g becomes graph_place[g]
    edge_index = place[graph.edge_index[:, numbers.permutation(len(graph.edges))]]
    batch = graph_place[graph.batch_vector[order]]
    moved, moved_masks = model(x[order], edge_index, batch, graph.num_graphs, return_masks=True)
    torch.testing.assert_close(moved[graph_place], out, **EXACT)
    for mask, moved_mask in zip(masks, moved_masks):
        torch.testing.assert_close(moved_mask, mask[order], **EXACT)
    torch.testing.assert_close(model.node_embeddings(x[order], edge_index), h[order], **EXACT)


@examples(20)
@given(graphs())
def test_a_graph_in_a_batch_is_a_graph_alone(graph):
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(2, 3, 3, 2, jk=True))
    x = numbers.normal(graph.num_nodes, 2)
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    for g in range(graph.num_graphs):
        nodes = [v for v in range(graph.num_nodes) if graph.batch[v] == g]
        edges = torch.tensor(graph.induced(nodes), dtype=torch.long).reshape(-1, 2).t()
        torch.testing.assert_close(model(x[nodes], edges), out[g : g + 1], **EXACT)
