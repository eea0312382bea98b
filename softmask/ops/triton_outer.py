"""Triton kernels of the sum of outer products, for CUDA (and for the CPU under ``TRITON_INTERPRET=1``).

As those of :mod:`softmask.ops.triton_sums`: they add in a fixed order (no atomics), never wait for the host, and their
launch shapes follow from the shapes of the arguments alone, so that they can be captured in a CUDA graph.

A compiler, given the same sums, writes them as fast, but reads their gradient once for every place of a node.
"""
# A kernel's arguments are pointers and numbers; only those known at compile time are annotated.
# mypy: allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

# Entries of a node's matrix that a program writes at a time, and its warps: of several, the fastest on an H200 where
# the matrix is 128 by 64. The gradients were fastest with one warp and few rows, of which four tiles are under way.
_ENTRIES, _WARPS, _AHEAD = 4096, 4, 4
# The tensor cores multiply matrices of at least so many rows and columns.
_LEAST = 16
# A program goes through so many places of a node without asking whether there are more.
_UNROLLED = 8
# The largest number of float16.
_LARGEST = tl.constexpr(65504.0)


def outer_sum(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """The outer products of ``a[v, p]`` and ``b[v, p]``, summed over the places p: ``[nodes, m, n]``.

    They are added in float32. As float16, what is too large for it becomes its largest number.

    Args:
        a: ``[nodes, places, m]``, float32 or bfloat16.
        b: ``[nodes, places, n]``, likewise.
        dtype: of the result.
    """
    a, b = a.contiguous(), b.contiguous()
    (nodes, places, m), n = a.shape, b.size(2)
    out = a.new_empty(nodes, m, n, dtype=dtype)
    if out.numel():
        width = triton.next_power_of_2(n)
        rows = max(min(_ENTRIES // width, triton.next_power_of_2(m)), 1)
        abreast = min(triton.next_power_of_2(max(places, 1)), _UNROLLED)
        _sums[(nodes,)](a, b, out, places, m, n, PLACES=abreast, ROWS=rows, WIDTH=width, num_warps=_WARPS)
    return out


def outer_sum_backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of :func:`outer_sum` for a and b, in one pass over that of its result for every 16 places.

    They are products of matrices, which take a and b in the type of `grad` and add in float32.
    """
    grad, a, b = grad.contiguous(), a.contiguous(), b.contiguous()
    (nodes, places, m), n = a.shape, b.size(2)
    grad_a, grad_b = torch.empty_like(a), torch.empty_like(b)
    if grad.numel() == 0 or places == 0:
        return grad_a.zero_(), grad_b.zero_()
    width = max(triton.next_power_of_2(n), _LEAST)
    _gradients[nodes, triton.cdiv(places, _LEAST)](
        *(grad, a, b, grad_a, grad_b, places, m, n),
        PLACES=_LEAST,
        ROWS=_LEAST,
        WIDTH=width,
        num_warps=1,
        num_stages=_AHEAD,
    )
    return grad_a, grad_b


@triton.jit
def _sums(a, b, out, places, m, n, PLACES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A program has a node and goes along the rows of its matrix."""
    node = tl.program_id(0).to(tl.int64)
    j = tl.arange(0, WIDTH)
    for begin in range(0, m, ROWS):
        i = begin + tl.arange(0, ROWS)
        total = tl.zeros([ROWS, WIDTH], dtype=tl.float32)
        for first in range(0, places, PLACES):
            for k in tl.static_range(PLACES):
                place = first + k
                there = place < places
                left = tl.load(a + (node * places + place) * m + i, (i < m) & there, 0).to(tl.float32)
                right = tl.load(b + (node * places + place) * n + j, (j < n) & there, 0).to(tl.float32)
                total += left[:, None] * right[None, :]
        if out.dtype.element_ty == tl.float16:
            # What is no number must stay so: a training that has gone astray is known by it.
            total = tl.clamp(total, -_LARGEST, _LARGEST, propagate_nan=tl.PropagateNan.ALL)
        inside = (i < m)[:, None] & (j < n)[None, :]
        tl.store(out + (node * m + i[:, None]) * n + j[None, :], total.to(out.dtype.element_ty), inside)


@triton.jit
def _gradients(
    grad, a, b, grad_a, grad_b, places, m, n, PLACES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """A program has some places of a node and goes along the rows of its matrix."""
    node = tl.program_id(0).to(tl.int64)
    p, j = tl.program_id(1) * PLACES + tl.arange(0, PLACES), tl.arange(0, WIDTH)
    at_b = (node * places + p[:, None]) * n + j[None, :]
    in_b = (p < places)[:, None] & (j < n)[None, :]
    right = tl.load(b + at_b, in_b, 0).to(grad.dtype.element_ty)
    total = tl.zeros([PLACES, WIDTH], dtype=tl.float32)
    for begin in range(0, m, ROWS):
        i = begin + tl.arange(0, ROWS)
        inside = (i < m)[:, None] & (j < n)[None, :]
        g = tl.load(grad + (node * m + i[:, None]) * n + j[None, :], inside, 0)
        at_a = (node * places + p[:, None]) * m + i[None, :]
        in_a = (p < places)[:, None] & (i < m)[None, :]
        left = tl.load(a + at_a, in_a, 0).to(g.dtype)
        of_a = tl.dot(right, tl.trans(g))
        tl.store(grad_a + at_a, of_a.to(grad_a.dtype.element_ty), in_a)
        total = tl.dot(left, g, total)
    tl.store(grad_b + at_b, total.to(grad_b.dtype.element_ty), in_b)
