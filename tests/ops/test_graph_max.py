import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples
from torch_geometric.nn import global_max_pool

from softmask.ops import Segments, graph_max

BATCH = torch.tensor([1, -1, 0, 1, 1, 3])


@examples(80)
@given(st.lists(st.integers(-1, 3), max_size=12), st.integers(0, 100), st.booleans())
def test_it_is_pygs_without_what_is_not_there(batch, seed, ties):
    """Forward and gradient, also where several nodes have the maximum; graphs in any order, without nodes."""
    numbers, batch = Numbers(seed), torch.tensor(batch, dtype=torch.long)
    x = numbers.normal(len(batch), 3)
    # Not at zero, where torch's scatter_reduce gives some of the gradient to the zeros that it begins with.
    x = (x.round() + 0.25 if ties else x).requires_grad_()
    weight, there = numbers.normal(4, 3), batch >= 0
    out, expected = graph_max(x, batch, 4), global_max_pool(x[there], batch[there], 4)
    torch.testing.assert_close(out, expected, **EXACT)
    assert torch.equal(graph_max(x, Segments(batch), 4), out)
    grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (out, expected)]
    torch.testing.assert_close(*grads, **EXACT)


def test_gradcheck_and_opcheck():
    x = Numbers(0).normal(6, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: graph_max(x, BATCH, 4), x)
    assert torch.autograd.gradgradcheck(lambda x: graph_max(x, BATCH, 4), x)
    torch.library.opcheck(torch.ops.softmask.graph_max.default, (x, BATCH, 4))


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (2, None), (None, 1)])
def test_vmap_is_a_loop(dims):
    numbers = Numbers(1)
    xs = [numbers.normal(6, 2) for _ in range(3)]
    batches = [BATCH, torch.tensor([0, 0, 2, -1, 2, 3]), torch.tensor([-1, -1, -1, -1, 3, 1])]
    rows = [[ts[0]] * 3 if dim is None else ts for ts, dim in zip((xs, batches), dims)]
    x, batch = (r[0] if dim is None else torch.stack(r, dim) for r, dim in zip(rows, dims))
    weight = numbers.normal(4, 2)

    def f(x, batch):
        return (graph_max(x, batch, 4).square() * weight).sum()

    expected = torch.stack([f(*pair) for pair in zip(*rows)])
    x.requires_grad_()
    out = torch.vmap(f, dims)(x, batch)
    torch.testing.assert_close(out, expected, **EXACT)
    (grad,) = torch.autograd.grad(out.sum(), x)
    loop = [r.detach().clone().requires_grad_() for r in rows[0]]
    loop = [torch.autograd.grad(f(r, b), r)[0] for r, b in zip(loop, rows[1])]
    torch.testing.assert_close(grad, sum(loop) if dims[0] is None else torch.stack(loop, dims[0]), **EXACT)


def test_half_precision_is_read_out_in_float32():
    x = Numbers(2).normal(6, 2).bfloat16().requires_grad_()
    out = graph_max(x, BATCH, 4)
    assert out.dtype == torch.float32
    assert torch.equal(out, graph_max(x.float(), BATCH, 4))
    assert torch.autograd.grad(out.sum(), x)[0].dtype == torch.bfloat16


def test_no_graphs():
    x = torch.ones(3, 2, requires_grad=True)
    out = graph_max(x, torch.full((3,), -1), 0)
    assert out.shape == (0, 2)
    assert torch.autograd.grad(out.sum(), x)[0].abs().sum() == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    x, batch = Numbers(3).normal(5000, 7).float(), torch.arange(5000) % 41 - 1
    results = []
    for device in ("cpu", "cuda"):
        there = x.to(device).requires_grad_()
        out = graph_max(there, batch.to(device), 40)
        results.append((out.cpu(), torch.autograd.grad(out.square().sum(), there)[0].cpu()))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b)
