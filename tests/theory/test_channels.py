"""A multi-channel SMG whose channels agree is a single-channel one."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, examples, graphs

from softmask.nn import SoftMaskConv, SoftMaskGNN


@examples(40)
@given(graphs(), st.integers(1, 4))
def test_layer(graph, channels):
    numbers = graph.numbers()
    conv = numbers.fill(SoftMaskConv(channels, channels))
    x, mask = numbers.normal(graph.num_nodes, channels), numbers.mask(graph.num_nodes, 1)
    wide = mask.expand(-1, channels).clone()
    torch.testing.assert_close(conv(x, graph.edge_index, wide), conv(x, graph.edge_index, mask), **EXACT)


@examples(40)
@given(graphs(), st.integers(1, 3), st.booleans())
def test_whole_network(graph, num_layers, jk):
    """Repeat the last row of each mask network's perceptron: all channels of a node get the same mask."""
    numbers = graph.numbers()
    single = numbers.fill(SoftMaskGNN(2, 3, num_layers, 2, jk=jk))
    multi = SoftMaskGNN(2, 3, num_layers, 2, multi_channel=True, jk=jk).double().eval()
    wide = {name: p.expand(3, *p.shape[1:]) if ".mlp.2." in name else p for name, p in single.state_dict().items()}
    multi.load_state_dict(wide)
    x = numbers.normal(graph.num_nodes, 2)
    args = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    out, masks = multi(*args, return_masks=True)
    expected, expected_masks = single(*args, return_masks=True)
    torch.testing.assert_close(out, expected, **EXACT)
    for mask, expected_mask in zip(masks, expected_masks):
        torch.testing.assert_close(mask, expected_mask.expand(-1, 3), **EXACT)
