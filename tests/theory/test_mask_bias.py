"""Why the mask network has biases: without them a node whose inputs vanish is stuck at 0.5."""

import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from theory.graphs import examples, graphs

from softmask.nn import MaskNet


@examples(60)
@given(graphs(min_nodes=1), st.integers(1, 3), st.sampled_from(["h", "mask"]), st.data())
def test_stuck_without_biases_and_free_with_them(graph, c_out, vanishing, data):
    numbers = graph.numbers()
    n = graph.num_nodes
    net = numbers.fill(MaskNet(2, 3, c_out))
    x, mask = numbers.normal(n, 2), numbers.mask(n, 1)
    zero = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    (x if vanishing == "h" else mask)[list(zero)] = 0.0
    blind = [v for v in zero if all(s in zero for s, t in graph.edges if t == v)]
    assume(blind)

    assert (net(x, graph.edge_index, mask)[blind] != 0.5).all()
    with torch.no_grad():
        for lin in (net.lin_root, net.lin_rel, net.mlp[0], net.mlp[2]):
            lin.bias.zero_()
    assert (net(x, graph.edge_index, mask)[blind] == 0.5).all()


def test_stuck_means_that_no_weight_can_move_it():
    """At vanishing inputs the gradient of the mask is zero for every weight, and not for the biases."""
    net = MaskNet(2, 3).double()
    with torch.no_grad():
        for name, p in net.named_parameters():
            p.fill_(0.1)
            if name.endswith("bias"):
                p.zero_()
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    net(torch.zeros(3, 2, dtype=torch.float64), edge_index).sum().backward()
    for name, p in net.named_parameters():
        if name.endswith("weight"):
            assert (p.grad == 0).all(), name
    assert net.mlp[2].bias.grad.item() != 0
