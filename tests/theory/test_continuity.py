"""The layer is continuous in the masks on [0, 1], so soft masks come as near to hard ones as one likes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory import reference
from theory.graphs import EXACT, examples, graphs

from softmask.nn import SoftMaskConv, SoftMaskGNN


@examples(60)
@given(graphs(), st.sampled_from([1e-1, 1e-3, 1e-6, 1e-9]), st.booleans())
def test_limits_at_0_and_1(graph, eps, multi_channel):
    """When masks move by eps, f moves by at most eps * (|W_root| |h_v| + 2 |W_rel| sum_u |h_u|)."""
    numbers = graph.numbers()
    n = graph.num_nodes
    conv = numbers.fill(SoftMaskConv(3, 3))
    x = numbers.normal(n, 3)
    hard = numbers.mask(n, 3 if multi_channel else 1).round()
    soft = (hard - eps).abs()  # 0 becomes eps, 1 becomes 1 - eps
    moved = (conv(x, graph.edge_index, soft) - conv(x, graph.edge_index, hard)).abs()
    lists = reference.neighbour_lists(n, graph.edges)
    around = torch.stack([x[nodes].abs().sum(0) for nodes in lists]) if n > 0 else x
    bound = x.abs() @ conv.lin_root.weight.abs().t() + 2 * around @ conv.lin_rel.weight.abs().t()
    assert (moved <= eps * bound + 1e-12).all()


@pytest.mark.parametrize("hard", [0.0, 1.0])
@examples(20)
@given(graph=graphs(), num_layers=st.integers(1, 3))
def test_mask_networks_reach_both_ends(hard, graph, num_layers):
    """With a large last bias the network is the one with masks of 0 or 1."""
    numbers = graph.numbers()
    model = numbers.fill(SoftMaskGNN(2, 3, num_layers, 2))
    with torch.no_grad():
        for net in model.masks:
            net.mlp[2].weight.zero_()
            net.mlp[2].bias.fill_(40.0 if hard else -40.0)
    x = numbers.normal(graph.num_nodes, 2)
    masks = torch.full((num_layers, graph.num_nodes), hard, dtype=torch.float64)
    args = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    torch.testing.assert_close(model(*args), model(*args, masks=masks), **EXACT)
