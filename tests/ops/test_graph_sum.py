import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples
from torch_geometric.nn import global_add_pool, global_mean_pool

from softmask.nn import SoftMaskGNN
from softmask.ops import graph_sum
from softmask.ops.graph_sum import graph_rows

batches = st.integers(0, 4).flatmap(
    lambda graphs: st.tuples(st.just(graphs), st.lists(st.integers(-1, graphs - 1), max_size=12))
)


def dense(batch, num_graphs):
    s = torch.zeros(num_graphs, len(batch), dtype=torch.float64)
    for v, g in enumerate(batch):
        if g >= 0:
            s[g, v] = 1
    return s


@examples(80)
@given(batches, st.integers(1, 3), st.integers(0, 100), st.sampled_from([torch.int64, torch.int32]))
def test_against_the_dense_matrix(case, channels, seed, dtype):
    """Forward and gradient; graphs in any order, without nodes, padding anywhere."""
    num_graphs, batch = case
    numbers = Numbers(seed)
    x = numbers.normal(len(batch), channels).requires_grad_()
    weight = numbers.normal(num_graphs, channels)
    out = graph_sum(x, torch.tensor(batch, dtype=dtype), num_graphs)
    expected = dense(batch, num_graphs) @ x
    torch.testing.assert_close(out, expected, **EXACT)
    grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (out, expected)]
    torch.testing.assert_close(*grads, **EXACT)


@examples(30)
@given(batches.filter(lambda case: case[0] > 0), st.integers(0, 100))
def test_against_pyg(case, seed):
    num_graphs, batch = case
    batch = torch.tensor(sorted(g for g in batch if g >= 0), dtype=torch.long)
    x = Numbers(seed).normal(len(batch), 3)
    torch.testing.assert_close(graph_sum(x, batch, num_graphs), global_add_pool(x, batch, num_graphs), **EXACT)
    model = Numbers(seed).fill(SoftMaskGNN(3, 3, 1, 3, readout="mean"))
    model.head = torch.nn.Identity()
    h = model.node_embeddings(x, torch.empty(2, 0, dtype=torch.long))
    out = model(x, torch.empty(2, 0, dtype=torch.long), batch, num_graphs)
    torch.testing.assert_close(out, global_mean_pool(h, batch, num_graphs), **EXACT)


BATCH = torch.tensor([1, -1, 0, 1, 1, 3])


def test_gradcheck():
    x = Numbers(0).normal(6, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: graph_sum(x, BATCH, 4), x)
    assert torch.autograd.gradgradcheck(lambda x: graph_sum(x, BATCH, 4), x)


def test_opcheck():
    x = Numbers(0).normal(6, 2).requires_grad_()
    torch.library.opcheck(torch.ops.softmask.graph_sum.default, (x, BATCH, None, None, 4))


def test_opcheck_with_other_strides():
    torch.library.opcheck(torch.ops.softmask.graph_sum.default, (Numbers(0).normal(2, 6).t(), BATCH, None, None, 4))


@pytest.mark.parametrize(
    ("x_dim", "batch_dim"), [d for d in itertools.product([None, 0, 1, 2], [None, 0, 1]) if d != (None, None)]
)
def test_vmap_is_a_loop(x_dim, batch_dim):
    numbers = Numbers(1)
    xs = [numbers.normal(6, 2) for _ in range(3)] if x_dim is not None else [numbers.normal(6, 2)] * 3
    places = [BATCH, torch.tensor([0, 0, 2, -1, 2, 3]), torch.tensor([-1, -1, -1, -1, 3, 1])]
    places = places if batch_dim is not None else [BATCH] * 3
    x = xs[0] if x_dim is None else torch.stack(xs, x_dim)
    batch = BATCH if batch_dim is None else torch.stack(places, batch_dim)
    weight = numbers.normal(4, 2)

    def f(x, batch):
        return graph_sum(x, batch, 4)

    def loss(x, batch):
        return (f(x, batch).square() * weight).sum()

    expected = torch.stack([f(*args) for args in zip(xs, places)])
    torch.testing.assert_close(torch.vmap(f, (x_dim, batch_dim))(x, batch), expected, **EXACT)
    x.requires_grad_()
    grad = torch.autograd.grad(torch.vmap(loss, (x_dim, batch_dim))(x, batch).sum(), x)[0]
    loop = [r.detach().requires_grad_() for r in xs]
    loop = [torch.autograd.grad(loss(r, b), r)[0] for r, b in zip(loop, places)]
    torch.testing.assert_close(grad, sum(loop) if x_dim is None else torch.stack(loop, x_dim), **EXACT)


def test_vmap_of_nothing():
    out = torch.vmap(lambda x: graph_sum(x, torch.empty(0, dtype=torch.long), 0))(torch.zeros(3, 0, 2))
    assert out.shape == (3, 0, 2)


def test_compile_without_graph_breaks():
    torch.compiler.reset()

    def f(x, batch):
        return graph_sum(x.cos(), batch, 4).sin()

    x = Numbers(2).normal(6, 2).requires_grad_()
    out, expected = torch.compile(f, fullgraph=True, backend="aot_eager")(x, BATCH), f(x, BATCH)
    torch.testing.assert_close(out, expected, **EXACT)
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (out, expected)]
    torch.testing.assert_close(*grads, **EXACT)


def test_nothing_but_padding():
    x = torch.ones(3, 2, requires_grad=True)
    out = graph_sum(x, torch.full((3,), -1), 0)
    assert out.shape == (0, 2)
    out.sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("graph", [2, 3, 100])
def test_a_graph_too_many_is_refused(graph):
    with pytest.raises((IndexError, RuntimeError), match="index"):
        graph_sum(torch.ones(2, 3), torch.tensor([0, graph]), 2)


@examples(40)
@given(batches, st.integers(1, 3), st.integers(0, 100))
def test_each_node_takes_the_row_of_its_graph(case, channels, seed):
    """Forward and gradient, against the transposed matrix; also under vmap."""
    num_graphs, batch = case
    numbers, graph = Numbers(seed), torch.tensor(batch, dtype=torch.long)
    y, weight = numbers.normal(2, num_graphs, channels).requires_grad_(), numbers.normal(2, len(batch), channels)
    together = torch.func.vmap(graph_rows, in_dims=(0, None))(y, graph)
    (of_all,) = torch.autograd.grad((together * weight).sum(), y)
    for r in range(2):
        own = y[r].detach().requires_grad_()
        out, expected = graph_rows(own, graph), dense(batch, num_graphs).t() @ own
        torch.testing.assert_close(out, expected, **EXACT)
        torch.testing.assert_close(together[r], expected, **EXACT)
        grads = [torch.autograd.grad((o * weight[r]).sum(), own)[0] for o in (out, expected)]
        torch.testing.assert_close(*grads, **EXACT)
        torch.testing.assert_close(of_all[r], grads[0], **EXACT)
