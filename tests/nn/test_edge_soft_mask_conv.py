import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.nn import NNConv

from softmask.nn.edge_soft_mask_conv import EdgeSoftMaskConv
from softmask.ops.edge_table import as_edge_table, from_sources

D, F = 3, 2


def _edges(graph):
    """The edges without self loops, and features that are the same both ways."""
    pairs = sorted({(s, t) for s, t in graph.edges if s != t} | {(t, s) for s, t in graph.edges if s != t})
    index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    numbers = Numbers(graph.seed + 1)
    by_pair = {}
    for s, t in pairs:
        by_pair.setdefault((min(s, t), max(s, t)), numbers.normal(F))
    attr = torch.stack([by_pair[min(p), max(p)] for p in pairs]) if pairs else torch.zeros(0, F, dtype=torch.float64)
    return index, attr


def _reference(conv, x, index, attr, mask):
    """The equation, edge by edge, in numpy."""
    w1, b1, w2, b2 = (p.detach().numpy() for p in conv.nn.parameters())
    h, m = x.numpy(), np.broadcast_to(mask.numpy(), x.shape)
    out = h @ conv.lin_root.weight.detach().numpy().T
    for (u, v), e in zip(index.t().tolist(), attr.numpy()):
        theta = (w2 @ np.maximum(w1 @ e + b1, 0) + b2).reshape(D, D)
        out[v] += (m[u] * h[u]) @ theta
    out = m * out
    return np.where(out > 0, out, np.expm1(np.minimum(out, 0)))


@examples(40)
@given(graphs(directed=False), st.booleans())
def test_against_the_equation(graph, multi):
    numbers = graph.numbers()
    conv = numbers.fill(EdgeSoftMaskConv(D, D, F, edge_hidden=4))
    index, attr = _edges(graph)
    x, mask = numbers.normal(graph.num_nodes, D), numbers.mask(graph.num_nodes, D if multi else 1)
    out = conv(x, index, mask, attr).detach().numpy()
    np.testing.assert_allclose(out, _reference(conv, x, index, attr, mask), atol=1e-10)


def test_with_masks_of_1_it_is_nnconv():
    numbers = Numbers(0)
    conv = numbers.fill(EdgeSoftMaskConv(D, 5, F, edge_hidden=4))
    theirs = NNConv(D, 5, conv.nn, aggr="add", bias=False).double()
    theirs.lin.weight.data = conv.lin_root.weight.data
    index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    x, attr = numbers.normal(4, D), numbers.normal(6, F)
    expected = torch.nn.functional.elu(theirs(x, index, attr))
    torch.testing.assert_close(conv(x, index, torch.ones(4, 1).double(), attr), expected, **EXACT)


@examples(40)
@given(graphs(directed=False), st.data())
def test_a_node_with_mask_0_is_inaccessible(graph, data):
    numbers = graph.numbers()
    n = graph.num_nodes
    conv = numbers.fill(EdgeSoftMaskConv(D, D, F, edge_hidden=4))
    index, attr = _edges(graph)
    x, mask = numbers.normal(n, D), numbers.mask(n, 1)
    shut = sorted(data.draw(st.sets(st.integers(0, n - 1)))) if n else []
    mask[shut] = 0.0
    out = conv(x, index, mask, attr)
    assert (out[shut] == 0).all()
    rest = [v for v in range(n) if v not in shut]
    name = {v: i for i, v in enumerate(rest)}
    inside = [i for i, (s, t) in enumerate(index.t().tolist()) if s in name and t in name]
    pairs = [[name[s], name[t]] for s, t in index.t()[inside].tolist()]
    small = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
    torch.testing.assert_close(out[rest], conv(x[rest], small, mask[rest], attr[inside]), **EXACT)


def test_operators():
    index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    table = as_edge_table(index, torch.zeros(6, 1).double(), 4)
    x = Numbers(0).normal(4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: from_sources(x, table), x)
    assert torch.autograd.gradgradcheck(lambda x: from_sources(x, table), x)
    torch.library.opcheck(torch.ops.softmask.from_sources.default, (x, *table[:3]))
    y = Numbers(1).normal(4, 2, 2).requires_grad_()
    torch.library.opcheck(torch.ops.softmask.to_sources.default, (y, *table[:3]))
    stacked = Numbers(2).normal(3, 4, 2)
    together = torch.vmap(lambda x: from_sources(x, table))(stacked)
    torch.testing.assert_close(together, torch.stack([from_sources(x, table) for x in stacked]))


def test_bad_input():
    conv = EdgeSoftMaskConv(D, 5, F)
    index = torch.tensor([[0], [1]])
    with pytest.raises(ValueError, match="counterpart"):
        conv(torch.zeros(2, D), index, torch.ones(2, 1), torch.zeros(1, F))
    with pytest.raises(ValueError, match="edge_attr"):
        conv(torch.zeros(2, D), index, torch.ones(2, 1))
    with pytest.raises(ValueError, match="mask per channel"):
        conv(torch.zeros(2, D), index, torch.ones(2, D), torch.zeros(1, F))
    with pytest.raises(ValueError, match="does not map 0 to 0"):
        EdgeSoftMaskConv(D, D, F, act="sigmoid")
    assert repr(conv) == "EdgeSoftMaskConv(3, 5, edge_channels=2)"
