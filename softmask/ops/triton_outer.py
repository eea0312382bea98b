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

# Entries of a node's matrix that a program holds at a time, and its warps.
_ENTRIES, _WARPS = 1024, 4


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    """The outer products of ``a[v, p]`` and ``b[v, p]``, summed over the places p: ``[nodes, m, n]``, in a's type.

    They are added in float32 (in float64 for float64 arguments).

    Args:
        a: ``[nodes, places, m]``.
        b: ``[nodes, places, n]``.
    """
    a, b = a.contiguous(), b.contiguous()
    (nodes, places, m), n = a.shape, b.size(2)
    out = a.new_empty(nodes, m, n)
    if out.numel():
        rows, width = _tile(m, n)
        grid = (nodes, triton.cdiv(m, rows))
        _sums[grid](a, b, out, places, m, n, WIDE=_wide(a), ROWS=rows, WIDTH=width, num_warps=_WARPS)
    return out


def outer_sum_backward(grad: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of :func:`outer_sum` for a and b, in one pass over that of its result."""
    grad, a, b = grad.contiguous(), a.contiguous(), b.contiguous()
    (nodes, places, m), n = a.shape, b.size(2)
    grad_a, grad_b = torch.empty_like(a), torch.empty_like(b)
    if grad.numel() == 0:
        return grad_a.zero_(), grad_b.zero_()
    rows, width = _tile(m, n)
    abreast = triton.next_power_of_2(max(places, 1))
    _gradients[(nodes,)](
        *(grad, a, b, grad_a, grad_b, places, m, n),
        WIDE=_wide(a),
        ROWS=rows,
        WIDTH=width,
        PLACES=abreast,
        num_warps=_WARPS,
    )
    return grad_a, grad_b


def _tile(m: int, n: int) -> tuple[int, int]:
    """How many rows of a matrix a program holds at a time, and how wide they are."""
    width = triton.next_power_of_2(n)
    return max(min(_ENTRIES // width, triton.next_power_of_2(m)), 1), width


def _wide(a: Tensor) -> tl.dtype:
    return tl.float64 if a.dtype == torch.float64 else tl.float32


@triton.jit
def _sums(a, b, out, places, m, n, WIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A program has some rows of a node's matrix."""
    node = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, WIDTH], dtype=WIDE)
    for place in range(places):
        left = tl.load(a + (node * places + place) * m + i, i < m, 0).to(WIDE)
        right = tl.load(b + (node * places + place) * n + j, j < n, 0).to(WIDE)
        total += left[:, None] * right[None, :]
    inside = (i < m)[:, None] & (j < n)[None, :]
    tl.store(out + (node * m + i[:, None]) * n + j[None, :], total.to(out.dtype.element_ty), inside)


@triton.jit
def _gradients(
    grad, a, b, grad_a, grad_b, places, m, n,
    WIDE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """A program has a node and goes along the rows of its matrix."""
    node = tl.program_id(0).to(tl.int64)
    p, j = tl.arange(0, PLACES), tl.arange(0, WIDTH)
    at_b = (node * places + p[:, None]) * n + j[None, :]
    in_b = (p < places)[:, None] & (j < n)[None, :]
    right = tl.load(b + at_b, in_b, 0).to(WIDE)
    total = tl.zeros([PLACES, WIDTH], dtype=WIDE)
    # Two tiles are under way while one is worked on.
    near = _rows(grad, node, 0, m, n, ROWS, WIDTH)
    after = _rows(grad, node, ROWS, m, n, ROWS, WIDTH)
    for begin in range(0, m, ROWS):
        g = near.to(WIDE)
        near, after = after, _rows(grad, node, begin + 2 * ROWS, m, n, ROWS, WIDTH)
        i = begin + tl.arange(0, ROWS)
        at_a = (node * places + p[:, None]) * m + i[None, :]
        in_a = (p < places)[:, None] & (i < m)[None, :]
        left = tl.load(a + at_a, in_a, 0).to(WIDE)
        of_a = tl.sum(g[None, :, :] * right[:, None, :], 2)
        tl.store(grad_a + at_a, of_a.to(grad_a.dtype.element_ty), in_a)
        total += tl.sum(g[None, :, :] * left[:, :, None], 1)
    tl.store(grad_b + at_b, total.to(grad_b.dtype.element_ty), in_b)


@triton.jit
def _rows(matrix, node, begin, m, n, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Some rows of a node's matrix, zero beyond its ends."""
    i, j = begin + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    inside = (i < m)[:, None] & (j < n)[None, :]
    return tl.load(matrix + (node * m + i[:, None]) * n + j[None, :], inside, 0)
