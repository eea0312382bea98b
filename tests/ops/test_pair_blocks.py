import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs

from softmask.ops.pair_blocks import as_pair_blocks, num_pairs, num_places, split_nodes, split_pairs


def test_blocks_end_to_end():
    blocks = ((2, 3), (1, 2))
    assert num_places(blocks) == 8
    assert num_pairs(blocks) == 22
    nodes = split_nodes(torch.arange(8), blocks)
    assert [t.tolist() for t in nodes] == [[[0, 1, 2], [3, 4, 5]], [[6, 7]]]
    first, second = split_pairs(torch.arange(22), blocks)
    assert first.shape == (2, 3, 3)
    assert second.tolist() == [[[18, 19], [20, 21]]]


@examples(40)
@given(graphs(directed=False), st.booleans())
def test_pygs_form(graph, padded):
    """Every node stands where it is said to; pairs are bonded as the edges say."""
    numbers, batch = graph.numbers(), graph.batch_vector
    pos = numbers.normal(graph.num_nodes, 3)
    shuffle = numbers.permutation(graph.num_nodes)
    if padded and graph.num_nodes:
        batch = batch.clone()
        batch[0] = -1
    kind = torch.arange(len(graph.edges)) % 3 + 1
    pairs, at = as_pair_blocks(pos, batch, graph.num_graphs, graph.edge_index, kind)
    ((count, places),) = pairs.blocks
    assert count == graph.num_graphs
    real = batch >= 0
    assert torch.equal(at[real] // places, batch[real])
    assert at[real].unique().numel() == int(real.sum())
    torch.testing.assert_close(pairs.pos[at[real]], pos[real], **EXACT)
    assert pairs.weight.sum() == real.sum()
    bonded = {}
    for (s, t), k in zip(graph.edges, kind.tolist()):
        if s != t and real[s] and real[t]:
            bonded.setdefault((int(at[t]), int(at[s]) % places), set()).add(k)
    table = pairs.kind.reshape(-1, places)
    assert int((table > 0).sum()) == len(bonded)
    assert all(int(table[row, column]) in kinds for (row, column), kinds in bonded.items())
    # The order of the nodes does not matter.
    again, there = as_pair_blocks(pos[shuffle], batch[shuffle], graph.num_graphs, torch.zeros(2, 0, dtype=torch.long))
    mixed = batch[shuffle] >= 0
    torch.testing.assert_close(again.pos[there[mixed]], pos[shuffle][mixed], **EXACT)
