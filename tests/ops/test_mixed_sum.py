"""Sums of vectors times mixtures of matrices: the plain form and the operator that CUDA takes; and the kernels of its
sums of outer products. These run on the GPU where there is one, else in Triton's interpreter, in a process of their
own, as in `test_triton_sums`.
"""

import numpy as np
import pytest
import torch
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter

from softmask.ops.mixed_sum import _mixed_sum, mixed_sum

if CUDA or INTERPRETED:
    from softmask.ops.triton_outer import outer_sum as kernel
    from softmask.ops.triton_outer import outer_sum_backward as kernel_backward

# Replicas, nodes, places, matrices, m, n: sizes that are no power of two, one place, one matrix, and nothing at all.
SHAPES = [
    *[(2, 7, 4, 9, 16, 16), (1, 5, 3, 6, 20, 7), (2, 3, 1, 1, 3, 1), (1, 3, 8, 4, 6, 3)],
    *[(2, 0, 2, 3, 4, 5), (1, 4, 0, 2, 3, 2), (1, 4, 2, 0, 3, 2), (0, 3, 2, 2, 3, 2)],
]
# Of the kernels: bfloat16 in, bfloat16 out (which the interpreter cuts off instead of rounding); sums are float32.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# Of the sums, by what is multiplied and what is kept: float16 for float32 is what CUDA takes.
KEPT = [(torch.float32, torch.float32, 1e-5), (torch.float32, torch.float16, 1e-3), (torch.bfloat16,) * 2 + (2e-2,)]
# Nodes, places, m, n: more than a tile of entries, widths that are no power of two, one place, many, none, no nodes.
OUTER = [
    *[(3, 4, 128, 64), (2, 5, 70, 33), (4, 1, 3, 1), (2, 3, 1, 130)],
    *[(2, 19, 5, 6), (2, 0, 4, 3), (0, 2, 4, 3)],
]


@outside
def test_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    run_in_the_interpreter(__file__, "-k", "kernel")


def values(replicas, nodes, places, count, m, n, dtype=torch.float64, seed=0):
    """What is multiplied, and a gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        *[(replicas, nodes, places, count), (replicas, nodes, places, m)],
        *[(replicas, count, m, n), (replicas, nodes, n)],
    ]
    return [torch.randn(*s, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for s in shapes]


def plain(a, b, matrices):
    """The definition, for autograd."""
    return torch.einsum("rvpc,rvpm,rcmn->rvn", a, b, matrices)


def loops(a, b, matrices):
    """The definition: the matrix of every edge is formed."""
    a, b, matrices = (t.detach().cpu().double().numpy() for t in (a, b, matrices))
    out = np.zeros((*a.shape[:2], matrices.shape[3]))
    for r, v, p in np.ndindex(a.shape[:3]):
        out[r, v] += b[r, v, p] @ np.einsum("c,cmn->mn", a[r, v, p], matrices[r])
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_against_loops(shape):
    a, b, matrices, _ = values(*shape)
    expected = loops(a, b, matrices)
    np.testing.assert_allclose(_mixed_sum(a, b, matrices)[0].cpu().numpy(), expected, atol=1e-12)
    for r in range(shape[0]):
        np.testing.assert_allclose(mixed_sum(a[r], b[r], matrices[r]).cpu().numpy(), expected[r], atol=1e-12)


def test_gradcheck_and_opcheck():
    given = [t.requires_grad_() for t in values(2, 3, 2, 3, 4, 2)[:3]]
    assert torch.autograd.gradcheck(lambda *values: _mixed_sum(*values)[0], given)
    torch.library.opcheck(torch.ops.softmask.mixed_sum.default, given)


@pytest.mark.parametrize("dims", [(0, 0, 0), (1, None, 2), (None, 2, None)])
def test_vmap_is_a_loop(dims):
    """Also of the gradient."""
    given = [torch.stack([values(2, 5, 3, 4, 5, 2, seed=s)[k] for s in range(3)]) for k in range(3)]
    given = [t if dim is not None else t[0] for t, dim in zip(given, dims)]
    moved = [t if dim is None else t.movedim(0, dim) for t, dim in zip(given, dims)]

    def run(*values):
        return torch.func.vmap(_mixed_sum, in_dims=dims)(*values)[0]

    def looped(values):
        return torch.stack([plain(*(t if d is None else t[r] for t, d in zip(values, dims))) for r in range(3)])

    torch.testing.assert_close(run(*moved), looped(given))
    leaves, again = ([t.clone().requires_grad_() for t in ts] for ts in (moved, given))
    weight = torch.randn(3, 2, 5, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(DEVICE)
    found = torch.autograd.grad((run(*leaves) * weight).sum(), leaves)
    wanted = torch.autograd.grad((looped(again) * weight).sum(), again)
    for one, other, dim in zip(found, wanted, dims):
        torch.testing.assert_close(one if dim is None else one.movedim(dim, 0), other)


def outer(nodes, places, m, n, dtype):
    """What is multiplied, and a gradient of the result."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(nodes, places, m), (nodes, places, n), (nodes, m, n)]
    return [torch.randn(*s, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for s in shapes]


@kernels
@pytest.mark.parametrize(("dtype", "kept", "tolerance"), KEPT)
@pytest.mark.parametrize("shape", OUTER)
def test_the_kernel_against_numpy(shape, dtype, kept, tolerance):
    a, b, _ = outer(*shape, dtype)
    found = kernel(a, b, kept)
    assert found.dtype == kept
    expected = np.einsum("vpm,vpn->vmn", *(t.cpu().double().numpy() for t in (a, b)))
    np.testing.assert_allclose(found.cpu().double().numpy(), expected, atol=tolerance, rtol=tolerance)


@kernels
def test_the_kernel_saturates():
    a, b = torch.tensor([[[300.0, -300.0, 1.0]]], device=DEVICE), torch.tensor([[[300.0, 2.0]]], device=DEVICE)
    found = kernel(a, b, torch.float16)
    assert found.tolist() == [[[65504.0, 600.0], [-65504.0, -600.0], [300.0, 2.0]]]


@kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_kernel_hides_no_nan(dtype):
    a, b = torch.tensor([[[torch.nan, 1.0]]], device=DEVICE), torch.tensor([[[2.0]]], device=DEVICE)
    found = kernel(a, b, dtype)
    assert found.isnan().tolist() == [[[True], [False]]]


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("of_grad", list(TOLERANCE))
@pytest.mark.parametrize("shape", OUTER)
def test_the_kernel_of_the_gradient_against_autograd(shape, of_grad, dtype):
    """On a GPU float32 is multiplied as TF32."""
    a, b, grad = outer(*shape, dtype)
    grad = grad.to(of_grad)
    wide = [t.double().requires_grad_() for t in (a, b)]
    expected = torch.autograd.grad(torch.einsum("vpm,vpn->vmn", *wide), wide, grad.double())
    for found, wanted in zip(kernel_backward(grad, a, b), expected):
        # Sums of up to 130 products: the error of a sum grows with the size of what is added.
        tolerance = max(TOLERANCE[dtype], TOLERANCE[of_grad], 2e-3 if CUDA else 0.0)
        tolerance *= max(1.0, wanted.abs().max().item() if wanted.numel() else 1.0)
        torch.testing.assert_close(found.double(), wanted, atol=tolerance, rtol=tolerance)


@cuda
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-2), (torch.bfloat16, 3e-2)])
def test_on_a_gpu(dtype, tolerance):
    """The operator takes kernels and half precision there, and two calls give the same bits."""
    a, b, matrices, grad = values(2, 50, 4, 128, 64, 64, dtype=dtype)
    leaves = [t.requires_grad_() for t in (a, b, matrices)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    (out, sums), expected = _mixed_sum(*leaves), plain(*wide)
    assert out.dtype == dtype
    if dtype == torch.float32:
        # Values have 10 bits, gradients fewer.
        assert sums.dtype == torch.float16
        torch.testing.assert_close(out.double(), expected, atol=1e-3 * expected.abs().max().item(), rtol=0)
    assert torch.equal(out, _mixed_sum(*leaves)[0])
    alone = mixed_sum(*(t[0] for t in leaves))
    # Gradients may be as small as those of a mean over many graphs.
    grad = grad * 1e-9
    found, wanted = (torch.autograd.grad(y, x, grad.to(y.dtype)) for y, x in ((out, leaves), (expected, wide)))
    for one, other in zip((out, alone, *found), (expected, expected[0], *wanted)):
        # An error of what is multiplied goes with the largest of what is added.
        torch.testing.assert_close(one.double(), other, atol=tolerance * other.abs().max().item(), rtol=0)
