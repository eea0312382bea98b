"""Nodes in blocks, against lists made by a loop."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples
from torch.func import vmap

from softmask.ops import Segments, graph_sum
from softmask.ops.blocks import as_blocks, num_blocks

sizes = st.lists(st.integers(0, 9), min_size=1, max_size=5)


def batch_of(sizes, padding):
    graph = [g for g, n in enumerate(sizes) for _ in range(n)]
    return torch.tensor(graph + [-1] * padding, dtype=torch.long)


@examples(60)
@given(sizes, st.integers(0, 4), st.integers(1, 4), st.booleans())
def test_every_node_stands_in_a_block_of_its_graph_in_their_order(sizes, padding, rows, ends):
    graph = batch_of(sizes, padding)
    last = torch.tensor(sizes).cumsum(0)
    batch = Segments(graph, last - torch.tensor(sizes), last) if ends else graph
    blocks = as_blocks(batch, len(sizes), rows)
    expected, owner, node = [], [], 0
    for g, n in enumerate(sizes):
        for first in range(0, n, rows):
            own = list(range(node + first, node + min(first + rows, n)))
            expected.append(own + [-1] * (rows - len(own)))
            owner.append(g)
        node += n
    more = num_blocks(len(graph), len(sizes), rows) - len(owner)
    assert more >= 0
    assert blocks.node.reshape(-1, rows).tolist() == expected + [[-1] * rows] * more
    assert blocks.graph.graph.tolist() == owner + [-1] * more
    assert (blocks.real == (blocks.node >= 0).reshape(-1, rows)).all()
    x = torch.arange(len(graph)).double().unsqueeze(-1) + 1
    found = blocks.gather(x).flatten()
    torch.testing.assert_close(found, torch.where(blocks.node >= 0, blocks.node + 1.0, 0.0).double())


def test_blocks_are_enough_whatever_the_sizes():
    """The bound is met: graphs of one node more than whole blocks."""
    blocks = as_blocks(batch_of([5, 5, 1], 0), 3, 4)
    assert (blocks.graph.graph >= 0).all()
    assert num_blocks(11, 3, 4) == 5


@examples(30)
@given(sizes, st.integers(0, 3), st.integers(1, 4), st.integers(0, 100))
def test_products_over_the_nodes_of_each_graph(sizes, padding, rows, seed):
    """Forward and gradient, against one graph after the other."""
    numbers, graph = Numbers(seed), batch_of(sizes, padding)
    a, b = (numbers.normal(len(graph), k).requires_grad_() for k in (2, 3))
    blocks = as_blocks(graph, len(sizes), rows)
    out = blocks.sum(blocks.gather(a).mT @ blocks.gather(b), len(sizes))
    expected = torch.stack([a[graph == g].t() @ b[graph == g] for g in range(len(sizes))])
    torch.testing.assert_close(out, expected, **EXACT)
    weight = numbers.normal(*out.shape)
    for mine, other in zip(*(torch.autograd.grad((y * weight).sum(), (a, b)) for y in (out, expected))):
        torch.testing.assert_close(mine, other, **EXACT)


def test_each_block_sees_what_its_graph_has():
    graph = batch_of([3, 0, 5], 2)
    blocks = as_blocks(graph, 3, 2)
    of = blocks.of_graph(torch.tensor([[7.0], [8.0], [9.0]])).squeeze(-1)
    assert of[blocks.graph.graph >= 0].tolist() == [7, 7, 9, 9, 9]


def test_replicas_have_blocks_of_their_own_under_vmap():
    numbers = Numbers(0)
    graphs = torch.stack([batch_of([3, 1, 4], 2), batch_of([0, 9, 1], 0), batch_of([2, 2, 2], 4)])
    x = numbers.normal(3, 10, 2).requires_grad_()

    def squares(x, graph):
        blocks = as_blocks(graph, 3, 3)
        rows = blocks.gather(x)
        return blocks.sum(rows.mT @ rows, 3), graph_sum(x, graph, 3)

    functorch = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        found, _ = vmap(squares)(x, graphs)
        (gradient,) = torch.autograd.grad(found.square().sum(), x)
    finally:
        functorch._set_vmap_fallback_enabled(before)
    for r in range(3):
        own = x[r].detach().requires_grad_()
        alone, _ = squares(own, graphs[r])
        torch.testing.assert_close(found[r], alone, **EXACT)
        torch.testing.assert_close(gradient[r], torch.autograd.grad(alone.square().sum(), own)[0], **EXACT)


def test_gradcheck():
    blocks = as_blocks(batch_of([3, 0, 2], 1), 3, 2)
    assert torch.autograd.gradcheck(blocks.gather, Numbers(1).normal(6, 2).requires_grad_())
    assert torch.autograd.gradgradcheck(blocks.gather, Numbers(1).normal(6, 2).requires_grad_())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    graph, x = batch_of([3, 0, 200, 7], 5), Numbers(0).normal(215, 4).float()
    here, there = as_blocks(graph, 4, 16), as_blocks(graph.cuda(), 4, 16)
    torch.testing.assert_close(here.gather(x), there.gather(x.cuda()).cpu())
    torch.testing.assert_close(here.sum(here.gather(x), 4), there.sum(there.gather(x.cuda()), 4).cpu())
