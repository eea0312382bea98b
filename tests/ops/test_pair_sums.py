"""The sums over pairs: the plain form, the operator that CUDA takes, and its kernels, which run on the GPU where there
is one, else in Triton's interpreter, in a process of their own, as in `test_triton_sums`.
"""

import numpy as np
import pytest
import torch
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter

from softmask.ops.pair_blocks import num_pairs, num_places
from softmask.ops.pair_sums import _pair_sums, _plain, pair_sums

if CUDA or INTERPRETED:
    from softmask.ops.triton_pairs import pair_sums as kernel
    from softmask.ops.triton_pairs import pair_sums_backward as kernel_backward

# bfloat16 in, bfloat16 out (which the interpreter cuts off instead of rounding); sums are float32.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
# More places than a program has nodes, fewer, one, and a block of no graphs.
BLOCKS = ((1, 6), (2, 3), (0, 5), (1, 1))


@outside
def test_in_the_interpreter():
    pytest.importorskip("triton", reason="triton is not installed")
    run_in_the_interpreter(__file__, "-k", "kernel")


def values(blocks, channels, replicas=2, dtype=torch.float64, seed=0, padding=3, vectors=True):
    """Filters, x, direction and vectors of some replicas; rubbish behind the last pair."""
    generator = torch.Generator().manual_seed(seed)
    nodes, pairs = num_places(blocks), num_pairs(blocks)
    shapes = [(pairs + padding, channels), (nodes, channels), (pairs, 3), (nodes, 3, channels)]
    drawn = [torch.randn(replicas, *s, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for s in shapes]
    return drawn if vectors else [*drawn[:3], None]


def loops(filters, x, direction, vectors, blocks):
    """The definition, pair by pair, in numpy; of one replica."""
    f, x, r, y = (None if t is None else t.detach().cpu().double().numpy() for t in (filters, x, direction, vectors))
    plain, along = np.zeros_like(x), np.zeros((len(x), 3, x.shape[1]))
    node = pair = 0
    for graphs, places in blocks:
        for _ in range(graphs):
            for v in range(node, node + places):
                for u in range(node, node + places):
                    plain[v] += f[pair] * x[u]
                    for k in range(3):
                        along[v, k] += f[pair] * (x[u] * r[pair, k] + (0 if y is None else y[u, k]))
                    pair += 1
            node += places
    return plain, along


def flat(blocks):
    return [size for block in blocks for size in block]


@pytest.mark.parametrize("vectors", [True, False])
def test_against_loops(vectors):
    inputs = values(BLOCKS, 3, replicas=1, vectors=vectors)
    expected = loops(*(None if t is None else t[0] for t in inputs), BLOCKS)
    for found in (
        pair_sums(*(None if t is None else t[0] for t in inputs), BLOCKS),
        tuple(t[0] for t in _pair_sums(*inputs, flat(BLOCKS))),
    ):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a.cpu().numpy(), b, atol=1e-12)


@pytest.mark.parametrize("vectors", [True, False])
def test_gradients(vectors):
    blocks = ((1, 3), (2, 2))
    inputs = [None if t is None else t.requires_grad_() for t in values(blocks, 2, replicas=2, vectors=vectors)]
    assert torch.autograd.gradcheck(lambda *t: _pair_sums(*t, flat(blocks)), inputs)
    assert torch.autograd.gradcheck(
        lambda *t: pair_sums(*t, blocks), [None if t is None else t[0].detach().requires_grad_() for t in inputs]
    )


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("turns", [True, False])
def test_the_operator_under_vmap(vectors, turns):
    """Replicas side by side, and gradients of directions only where they are wanted."""
    inputs = values(BLOCKS, 3, replicas=4, vectors=vectors)
    split = [None if t is None else t.unflatten(0, (2, 2)).requires_grad_() for t in inputs]
    split[2] = split[2].detach().requires_grad_(turns)
    wanted = [t for t in split if t is not None and t.requires_grad]
    dims = tuple(None if t is None else 0 for t in split)
    every = torch.vmap(lambda *t: _pair_sums(*t, flat(BLOCKS)), in_dims=dims)(*split)
    single = [[_plain(*(None if t is None else t[a, b] for t in split), BLOCKS) for b in range(2)] for a in range(2)]
    stacked = [torch.stack([torch.stack([one[k] for one in row]) for row in single]) for k in range(2)]
    weights = [torch.randn(t.shape, generator=torch.Generator().manual_seed(1), dtype=t.dtype).to(t) for t in every]
    for found, expected in zip(every, stacked, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(t, wanted, weights) for t in (every, stacked)]
    for found, expected in zip(*grads, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@kernels
@pytest.mark.parametrize(
    ("dtype", "channels", "vectors", "turns"),
    [
        (torch.float64, 1, True, True),
        (torch.float64, 5, False, False),
        (torch.float32, 5, True, True),
        (torch.bfloat16, 16, True, False),
    ],
)
def test_the_kernels(dtype, channels, vectors, turns):
    """Against the plain form, whose gradients torch makes; NaN wherever the kernels do not write."""
    inputs = values(BLOCKS, channels, dtype=dtype, vectors=vectors)
    exact = [None if t is None else t.double().requires_grad_() for t in inputs]
    made = [_plain(*(None if t is None else t[r] for t in exact), BLOCKS) for r in range(2)]
    expected = [torch.stack(t) for t in zip(*made)]
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype) for t in expected]
    leaves = [t for t in exact if t is not None]
    grads = list(torch.autograd.grad(expected, leaves, [w.double() for w in weights]))
    if not turns:
        del grads[2]
    torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
    try:
        found = kernel(*inputs, BLOCKS)
        back = kernel_backward(*weights, *inputs, BLOCKS, turns)
    finally:
        torch.use_deterministic_algorithms(False)
    back = [t for t in back if t.numel()]
    for a, b in zip((*found, *back), (*(t.detach() for t in expected), *grads), strict=True):
        assert a.shape == b.shape
        assert a.dtype == dtype
        assert torch.isfinite(a).all()
        assert (a.double() - b).norm() <= TOLERANCE[dtype] * max(float(b.norm()), 1e-3)


@kernels
def test_the_kernels_take_strided_input():
    inputs = values(BLOCKS, 4)
    strided = [t.transpose(1, -1).contiguous().transpose(1, -1) for t in inputs]
    weights = values(BLOCKS, 4, seed=1)[1::2]
    for a, b in zip(kernel(*strided, BLOCKS), kernel(*inputs, BLOCKS)):
        assert torch.equal(a, b)
    found = kernel_backward(*weights, *strided, BLOCKS, True)
    for a, b in zip(found, kernel_backward(*weights, *inputs, BLOCKS, True)):
        assert torch.equal(a, b)


@cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_gpu_computes_what_the_cpu_computes(dtype):
    """The function itself with its gradients, under vmap, at the sizes of QM9."""
    blocks = ((2, 29), (3, 23), (4, 17))
    inputs = values(blocks, 128, replicas=3, dtype=dtype)
    results = []
    for device, kind in (("cpu", torch.float64), ("cuda", dtype)):
        own = [t.to(device, kind).requires_grad_() for t in inputs]
        out = torch.vmap(lambda *t: pair_sums(*t, blocks))(*own)
        weights = [torch.linspace(-1, 1, t.numel(), dtype=torch.float64).reshape(t.shape).to(t) for t in out]
        results.append((*out, *torch.autograd.grad(out, own, weights)))
    for a, b in zip(*results, strict=True):
        assert (a - b.cpu().double()).norm() <= TOLERANCE[dtype] * a.norm()
