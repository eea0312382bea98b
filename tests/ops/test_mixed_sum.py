"""The sum of vectors times mixtures of matrices: the plain form, the operator that CUDA takes, and its kernels, which
run on the GPU where there is one, else in Triton's interpreter, in a process of their own, as in `test_triton_sums`.
"""

import numpy as np
import pytest
import torch
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter

from softmask.ops.mixed_sum import _mixed_sum, _plain, mixed_sum

if CUDA or INTERPRETED:
    from softmask.ops.triton_mixed import MixedConfig
    from softmask.ops.triton_mixed import mixed_sum as kernel
    from softmask.ops.triton_mixed import mixed_sum_backward as kernel_backward

# Of a result's largest entry. TF32 has 10 bits, which the GPU cuts off; bfloat16 in, bfloat16 out.
TOLERANCE = {torch.float32: 4e-3 if CUDA else 1e-5, torch.bfloat16: 3e-2}
# Replicas, nodes, places, matrices, m, n: several blocks of nodes, sizes that are no power of two, one place, one
# matrix, and nothing at all.
SHAPES = [
    *[(2, 70, 4, 9, 64, 64), (1, 5, 3, 6, 20, 7), (2, 33, 1, 1, 3, 1), (1, 3, 8, 4, 16, 33)],
    *[(2, 0, 2, 3, 4, 5), (1, 4, 2, 0, 3, 2), (0, 3, 2, 2, 3, 2)],
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


def loops(a, b, matrices):
    """The definition: the matrix of every edge is formed."""
    a, b, matrices = (t.detach().cpu().double().numpy() for t in (a, b, matrices))
    out = np.zeros((*a.shape[:2], matrices.shape[3]))
    for r, v, p in np.ndindex(a.shape[:3]):
        out[r, v] += b[r, v, p] @ np.einsum("c,cmn->mn", a[r, v, p], matrices[r])
    return out


def close(found, wanted, dtype):
    """Errors are those of sums of products: they go with the largest."""
    largest = wanted.abs().max().item() if wanted.numel() else 0.0
    torch.testing.assert_close(found.double(), wanted.double(), atol=TOLERANCE[dtype] * max(largest, 1e-3), rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_against_loops(shape):
    a, b, matrices, _ = values(*shape)
    expected = loops(a, b, matrices)
    np.testing.assert_allclose(_mixed_sum(a, b, matrices).cpu().numpy(), expected, atol=1e-12)
    for r in range(shape[0]):
        np.testing.assert_allclose(mixed_sum(a[r], b[r], matrices[r]).cpu().numpy(), expected[r], atol=1e-12)


def test_gradcheck_and_opcheck():
    given = [t.requires_grad_() for t in values(2, 3, 2, 3, 4, 2)[:3]]
    assert torch.autograd.gradcheck(_mixed_sum, given)
    torch.library.opcheck(torch.ops.softmask.mixed_sum.default, given)


@pytest.mark.parametrize("dims", [(0, 0, 0), (1, None, 2), (None, 2, None)])
def test_vmap_is_a_loop(dims):
    """Also of the gradient."""
    given = [torch.stack([values(2, 5, 3, 4, 5, 2, seed=s)[k] for s in range(3)]) for k in range(3)]
    given = [t if dim is not None else t[0] for t, dim in zip(given, dims)]
    moved = [t if dim is None else t.movedim(0, dim) for t, dim in zip(given, dims)]

    def run(*values):
        return torch.func.vmap(_mixed_sum, in_dims=dims)(*values)

    def looped(values):
        return torch.stack([_plain(*(t if d is None else t[r] for t, d in zip(values, dims))) for r in range(3)])

    torch.testing.assert_close(run(*moved), looped(given))
    leaves, again = ([t.clone().requires_grad_() for t in ts] for ts in (moved, given))
    weight = torch.randn(3, 2, 5, 2, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(DEVICE)
    found = torch.autograd.grad((run(*leaves) * weight).sum(), leaves)
    wanted = torch.autograd.grad((looped(again) * weight).sum(), again)
    for one, other, dim in zip(found, wanted, dims):
        torch.testing.assert_close(one if dim is None else one.movedim(dim, 0), other)


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_against_loops(shape, dtype):
    a, b, matrices, _ = values(*shape, dtype=dtype)
    found = kernel(a, b, matrices)
    assert found.dtype == dtype
    close(found.cpu(), torch.from_numpy(loops(a, b, matrices)), dtype)


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernels_of_the_gradient_against_autograd(shape, dtype):
    a, b, matrices, grad = values(*shape, dtype=dtype)
    wide = [t.double().requires_grad_() for t in (a, b, matrices)]
    expected = torch.autograd.grad(_plain(*wide), wide, grad.double())
    for found, wanted in zip(kernel_backward(grad, a, b, matrices), expected):
        assert found.dtype == dtype
        close(found, wanted, dtype)


@kernels
@pytest.mark.parametrize(("splits", "together"), [(1, 4), (2, 2), (7, 1)])
def test_the_kernel_gives_the_same_however_the_work_is_cut(splits, together):
    a, b, w, grad = values(1, 20, 4, 9, 6, 5, dtype=torch.float32)
    config = MixedConfig(nodes=16, splits=splits, together=together, matrices=together, nodes_at_a_time=16, warps=4)
    close(kernel(a, b, w, config), _plain(a.double(), b.double(), w.double()), torch.float32)
    for found, wanted in zip(kernel_backward(grad, a, b, w, config), kernel_backward(grad, a, b, w)):
        close(found, wanted, torch.float32)


@cuda
def test_on_a_gpu():
    """The operator takes the kernels there, forward and backward, and two calls give the same bits."""
    a, b, matrices, grad = (t[0] for t in values(1, 50, 4, 128, 64, 64, dtype=torch.float32))
    leaves = [t.requires_grad_() for t in (a, b, matrices)]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    out, expected = mixed_sum(*leaves), _plain(*wide)
    close(out, expected, torch.float32)
    assert torch.equal(out, mixed_sum(*leaves))
    found, wanted = (torch.autograd.grad(y, x, grad.to(y.dtype)) for y, x in ((out, leaves), (expected, wide)))
    for one, other in zip(found, wanted):
        close(one, other, torch.float32)
