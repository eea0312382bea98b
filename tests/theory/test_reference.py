"""The layers and the whole network against the loops of reference.py, equations (3) to (6)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory import reference
from theory.graphs import EXACT, Graphs, Numbers, examples, graphs

from softmask.nn import VARIANTS, MaskNet, SoftMaskConv, SoftMaskGNN


def state(module):
    return {name: p.detach().numpy() for name, p in module.state_dict().items()}


def close(actual, expected):
    expected = torch.as_tensor(np.asarray(expected), dtype=torch.float64)
    torch.testing.assert_close(actual.detach(), expected, **EXACT)


@examples(60)
@given(graphs(), st.integers(1, 4), st.integers(1, 4))
def test_layer_with_one_mask_per_node(graph, c_in, c_out):
    numbers = graph.numbers()
    conv = numbers.fill(SoftMaskConv(c_in, c_out))
    x, mask = numbers.normal(graph.num_nodes, c_in), numbers.mask(graph.num_nodes, 1)
    lists = reference.neighbour_lists(graph.num_nodes, graph.edges)
    expected = reference.soft_mask_layer(x.numpy(), lists, mask.numpy(), *state(conv).values())
    close(conv(x, graph.edge_index, mask), expected)


@examples(60)
@given(graphs(), st.integers(1, 4))
def test_layer_with_a_mask_per_channel(graph, channels):
    numbers = graph.numbers()
    conv = numbers.fill(SoftMaskConv(channels, channels))
    x, mask = numbers.normal(graph.num_nodes, channels), numbers.mask(graph.num_nodes, channels)
    lists = reference.neighbour_lists(graph.num_nodes, graph.edges)
    expected = reference.soft_mask_layer(x.numpy(), lists, mask.numpy(), *state(conv).values())
    close(conv(x, graph.edge_index, mask), expected)


@examples(80)
@given(graphs(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.sampled_from(["none", "one", "all"]))
def test_mask_network(graph, c_in, hidden, c_out, before):
    numbers = graph.numbers()
    net = numbers.fill(MaskNet(c_in, hidden, c_out))
    x = numbers.normal(graph.num_nodes, c_in)
    mask = {"none": None, "one": numbers.mask(graph.num_nodes, 1), "all": numbers.mask(graph.num_nodes, c_in)}
    mask = mask[before]
    lists = reference.neighbour_lists(graph.num_nodes, graph.edges)
    expected = reference.mask_layer(x.numpy(), lists, None if mask is None else mask.numpy(), state(net))
    out = net(x, graph.edge_index, mask)
    close(out, expected)
    assert ((out > 0) & (out < 1)).all()


@pytest.mark.parametrize("head", ["classifier", "regressor"])
@pytest.mark.parametrize("readout", ["sum", "mean"])
@pytest.mark.parametrize("variant", VARIANTS)
@examples(8)
@given(graph=graphs(max_nodes=5), num_layers=st.integers(1, 4), given_masks=st.booleans())
def test_whole_network(variant, readout, head, graph, num_layers, given_masks):
    numbers = graph.numbers()
    multi, jk = VARIANTS[variant]["multi_channel"], VARIANTS[variant]["jk"]
    model = numbers.fill(SoftMaskGNN(2, 3, num_layers, 2, **VARIANTS[variant], readout=readout, head=head))
    x = numbers.normal(graph.num_nodes, 2)
    masks = [numbers.mask(graph.num_nodes, 3 if multi else 1) for _ in range(num_layers)]
    masks = masks if given_masks else None
    expected, used = reference.model(
        state(model),
        num_layers,
        x.numpy(),
        graph.edges,
        graph.batch,
        graph.num_graphs,
        jk,
        readout,
        head,
        None if masks is None else [m.numpy() for m in masks],
    )
    out, out_masks = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, masks=masks, return_masks=True)
    close(out, expected)
    assert len(out_masks) == num_layers
    for mask, mask_expected in zip(out_masks, used):
        close(mask, mask_expected)


# Node 1 hears node 0 three times, itself once, and node 2 once; node 3 hears nobody.
TRICKY = Graphs(edges=((0, 1), (0, 1), (1, 1), (2, 1), (0, 1)), batch=(0, 0, 0, 0), num_graphs=1, seed=0)


def test_the_bias_of_l2_counts_once_per_neighbour():
    net = Numbers(0).fill(MaskNet(1, 1, 1))
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.lin_rel.bias.fill_(0.25)  # the sum of the biases over the neighbours ...
        net.mlp[0].weight[0, 1] = 1.0  # ... is all that the perceptron passes on.
        net.mlp[2].weight.fill_(1.0)
    out = net(torch.zeros(4, 1, dtype=torch.float64), TRICKY.edge_index)
    torch.testing.assert_close(torch.logit(out).flatten().tolist(), [0.0, 1.0, 0.0, 0.0], **EXACT)


def test_self_loops_are_dropped_and_multiplicity_is_kept():
    conv = Numbers(0).fill(SoftMaskConv(1, 1))
    with torch.no_grad():
        conv.lin_root.weight.zero_()
        conv.lin_rel.weight.fill_(1.0)
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]], dtype=torch.float64)
    mask = torch.tensor([[0.5], [1.0], [0.25], [1.0]], dtype=torch.float64)
    out = conv(x, TRICKY.edge_index, mask)
    assert out.flatten().tolist() == [0.0, 3 * 0.5 + 25.0, 0.0, 0.0]


def test_the_regressor_has_the_papers_widths():
    model = SoftMaskGNN(3, 4, 3, 1, multi_channel=True, jk=True, head="regressor")
    assert [tuple(p.shape) for n, p in model.head.named_parameters() if n.endswith("weight")] == [
        (8, 12),  # ceil(3 / 2) * 4 from 3 * 4
        (4, 8),
        (1, 4),
    ]
