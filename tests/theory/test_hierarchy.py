"""Stacked SMGs, each on its own subgraph, are one SMG with the concatenated masks."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs, smg
from theory.masks import lemma_masks, ones, theorem_masks

from softmask.nn import SoftMaskGNN

CHANNELS = 3


@st.composite
def graph_and_parts(draw):
    """A graph, and for each of up to three SMGs its node subset and its number of layers."""
    graph = draw(graphs())
    some = st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes)
    parts = draw(st.lists(st.tuples(some, st.integers(1, 3)), min_size=1, max_size=3))
    return graph, parts


@examples(60)
@given(graph_and_parts())
def test_stacked_models_are_one_model(case):
    """H = SMG_kL(... SMG_k1(X, A, M_1) ..., A, M_L) = SMG_K(X, A, M_1 || ... || M_L), as SoftMaskGNNs."""
    graph, parts = case
    numbers = graph.numbers()
    total = sum(k for _, k in parts)
    one = numbers.fill(SoftMaskGNN(CHANNELS, CHANNELS, total, 1))
    x = numbers.normal(graph.num_nodes, CHANNELS)
    h, first, all_masks = x, 0, []
    for i, (inside, k) in enumerate(parts):
        part = numbers.fill(SoftMaskGNN(CHANNELS, CHANNELS, k, 1))
        part.convs.load_state_dict(one.convs[first : first + k].state_dict())
        if i == 0:
            part.lin_in.load_state_dict(one.lin_in.state_dict())
        else:
            part.lin_in.load_state_dict({"weight": torch.eye(CHANNELS), "bias": torch.zeros(CHANNELS)})
        masks = lemma_masks(graph, inside, k, numbers)
        h = part.node_embeddings(h, graph.edge_index, masks=masks)
        first += k
        all_masks += masks
    torch.testing.assert_close(h, one.node_embeddings(x, graph.edge_index, masks=all_masks), **EXACT)


@examples(60)
@given(graph_and_parts())
def test_one_model_learns_on_a_sequence_of_subgraphs(case):
    """The same written with the subgraphs themselves: each SMG sees its own nodes and edges and nothing else.

    Every part but the last ends with the masks of Theorem 1, so nodes outside its subgraph hand on zero.
    """
    graph, parts = case
    numbers = graph.numbers()
    x = numbers.normal(graph.num_nodes, CHANNELS)
    h, all_convs, all_masks = x, [], []
    for inside, k in parts:
        convs = numbers.stack(CHANNELS, k)
        nodes = [v for v in range(graph.num_nodes) if inside[v]]
        sub_edges = torch.tensor(graph.induced(nodes), dtype=torch.long).reshape(-1, 2).t()
        alone = smg(convs, h[nodes], sub_edges, ones(len(nodes), k))
        h = torch.zeros_like(h)
        h[nodes] = alone
        all_convs += convs
        all_masks += theorem_masks(graph, inside, k, numbers)
    torch.testing.assert_close(smg(all_convs, x, graph.edge_index, all_masks), h, **EXACT)
