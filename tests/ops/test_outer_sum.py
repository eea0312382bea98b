"""The sum of outer products: the plain form, the operator that CUDA takes, and its kernels, which run on the GPU where
there is one, else in Triton's interpreter, in a process of their own, as in `test_triton_sums`.
"""

import numpy as np
import pytest
import torch
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter

from softmask.ops.outer_sum import _outer_sum, _plain, outer_sum

if CUDA or INTERPRETED:
    from softmask.ops.triton_outer import outer_sum as kernel
    from softmask.ops.triton_outer import outer_sum_backward as kernel_backward

# bfloat16 in, bfloat16 out (which the interpreter cuts off instead of rounding); sums are float32.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
# Nodes, places, m, n: more than a tile of entries, widths that are no power of two, one place, none, and no nodes.
SHAPES = [(3, 4, 128, 64), (2, 5, 70, 33), (4, 1, 3, 1), (2, 3, 1, 130), (2, 0, 4, 3), (0, 2, 4, 3)]


@outside
def test_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    run_in_the_interpreter(__file__, "-k", "kernel")


def values(nodes, places, m, n, dtype=torch.float64, seed=0):
    """What is multiplied, and a gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(nodes, places, m), (nodes, places, n), (nodes, m, n)]
    return [torch.randn(*s, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for s in shapes]


def loops(a, b):
    """The definition, place by place, in numpy."""
    a, b = (t.detach().cpu().double().numpy() for t in (a, b))
    out = np.zeros((len(a), a.shape[2], b.shape[2]))
    for v in range(len(a)):
        for p in range(a.shape[1]):
            out[v] += np.outer(a[v, p], b[v, p])
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_against_loops(shape):
    a, b, _ = values(*shape)
    for form in (outer_sum, _plain, _outer_sum):
        np.testing.assert_allclose(form(a, b).cpu().numpy(), loops(a, b), atol=1e-12)


def test_gradcheck_and_opcheck():
    a, b = (t.requires_grad_() for t in values(2, 3, 4, 2)[:2])
    assert torch.autograd.gradcheck(_outer_sum, (a, b))
    torch.library.opcheck(torch.ops.softmask.outer_sum.default, (a, b))


@pytest.mark.parametrize("dims", [(0, 0), (1, None), (None, 2)])
def test_vmap_is_a_loop(dims):
    """Also of the gradient."""
    given = [torch.stack([values(2, 3, 4, 5, seed=s)[k] for s in range(3)]) for k in range(2)]
    given = [t if dim is not None else t[0] for t, dim in zip(given, dims)]
    moved = [t if dim is None else t.movedim(0, dim) for t, dim in zip(given, dims)]

    def run(a, b):
        return torch.func.vmap(_outer_sum, in_dims=dims)(a, b)

    expected = torch.stack([_plain(*(t if d is None else t[r] for t, d in zip(given, dims))) for r in range(3)])
    torch.testing.assert_close(run(*moved), expected)
    leaves = [t.clone().requires_grad_() for t in moved]
    weight = torch.randn(3, 2, 4, 5, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    found = torch.autograd.grad((run(*leaves) * weight).sum(), leaves)
    again = [t.clone().requires_grad_() for t in given]
    looped = torch.stack([_plain(*(t if d is None else t[r] for t, d in zip(again, dims))) for r in range(3)])
    wanted = torch.autograd.grad((looped * weight).sum(), again)
    for one, other, dim in zip(found, wanted, dims):
        torch.testing.assert_close(one if dim is None else one.movedim(dim, 0), other)


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_against_loops(shape, dtype):
    a, b, _ = values(*shape, dtype=dtype)
    found = kernel(a, b)
    assert found.dtype == dtype
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(found.cpu().double().numpy(), loops(a, b), atol=tolerance, rtol=tolerance)


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_the_gradient_against_autograd(shape, dtype):
    a, b, grad = values(*shape, dtype=dtype)
    wide = [t.double().requires_grad_() for t in (a, b)]
    expected = torch.autograd.grad(_plain(*wide), wide, grad.double())
    for found, wanted in zip(kernel_backward(grad, a, b), expected):
        # Sums of up to 130 products: the error of a sum grows with the size of what is added.
        tolerance = TOLERANCE[dtype] * max(1.0, wanted.abs().max().item() if wanted.numel() else 1.0)
        torch.testing.assert_close(found.double(), wanted, atol=tolerance, rtol=tolerance)


@cuda
def test_on_a_gpu():
    """The operator takes the kernels there, forward and backward."""
    a, b, grad = values(50, 4, 128, 64, dtype=torch.float32)
    leaves = [t.requires_grad_() for t in (a, b)]
    wide = [t.detach().double().requires_grad_() for t in (a, b)]
    out, expected = outer_sum(*leaves), _plain(*wide)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)
    found, wanted = (torch.autograd.grad(y, x, grad.to(y.dtype)) for y, x in ((out, leaves), (expected, wide)))
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one.double(), other, atol=1e-4, rtol=1e-4)
