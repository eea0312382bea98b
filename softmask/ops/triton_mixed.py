"""Triton kernels of the sum of vectors times mixtures of matrices, for CUDA (and for the CPU under
``TRITON_INTERPRET=1``).

As those of :mod:`softmask.ops.triton_sums`: they add in a fixed order (no atomics), never wait for the host, and their
launch shapes follow from the shapes of the arguments alone, so that they can be captured in a CUDA graph.

For a node v and a matrix c, let :math:`\\mathbf{s}_{vc} = \\sum_p a_{vpc} \\mathbf{b}_{vp}`. There are hundreds of
times as many of these numbers as results: they are made where they are multiplied, forward and again backward.
"""
# A kernel's arguments are pointers and numbers; only those known at compile time are annotated.
# mypy: allow-incomplete-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class MixedConfig(NamedTuple):
    """How the work is cut into programs.

    Args:
        nodes: nodes of a program, forward and in the gradients of what belongs to nodes.
        splits: into how many parts the matrices are dealt there; their sums are added at the end.
        together: matrices that a program multiplies with at a time, forward.
        matrices: matrices whose gradient a program sums.
        nodes_at_a_time: nodes that it sums over at a time.
        warps: warps of a program.
        precision: of products of float32.
    """

    nodes: int = 64
    splits: int = 3
    together: int = 1
    matrices: int = 4
    nodes_at_a_time: int = 32
    warps: int = 8
    precision: str = "tf32"


def mixed_sum(a: Tensor, b: Tensor, matrices: Tensor, config: MixedConfig | None = None) -> Tensor:
    """See :func:`softmask.ops.mixed_sum.mixed_sum`; all arguments have the replicas first."""
    a, b, matrices = a.contiguous(), b.contiguous(), matrices.contiguous()
    config = config or MixedConfig()
    (replicas, nodes, _, count), n = a.shape, matrices.size(3)
    splits = max(min(config.splits, triton.cdiv(count, config.together)), 1)
    parts = a.new_zeros(splits, replicas, nodes, n, dtype=torch.float32)
    if parts.numel() and b.numel() and count:
        each = triton.cdiv(triton.cdiv(count, splits), config.together) * config.together
        grid = (triton.cdiv(nodes, config.nodes), replicas, splits)
        _sums[grid](a, b, matrices, parts, each, **_shape(a, b, matrices), **_cut(config, config.together))
    return parts.sum(dim=0).to(a.dtype)


def mixed_sum_backward(
    grad: Tensor, a: Tensor, b: Tensor, matrices: Tensor, config: MixedConfig | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of :func:`mixed_sum` for its arguments."""
    grad, a, b, matrices = grad.contiguous(), a.contiguous(), b.contiguous(), matrices.contiguous()
    config = config or MixedConfig()
    replicas, nodes, _, count = a.shape
    grad_a, grad_matrices = torch.zeros_like(a), torch.zeros_like(matrices)
    splits = max(min(config.splits, count), 1)
    parts = b.new_zeros(splits, *b.shape, dtype=torch.float32)
    if grad.numel() and b.numel() and count:
        shape = _shape(a, b, matrices)
        grid = (triton.cdiv(nodes, config.nodes), replicas, splits)
        _gradients[grid](
            *(grad, a, b, matrices, grad_a, parts, triton.cdiv(count, splits)), **shape, **_cut(config, None)
        )
        few = config._replace(nodes=config.nodes_at_a_time)
        pairs = (triton.cdiv(count, config.matrices), replicas)
        _gradients_of_matrices[pairs](grad, a, b, grad_matrices, **shape, **_cut(few, config.matrices))
    return grad_a, parts.sum(dim=0).to(b.dtype), grad_matrices


def _shape(a: Tensor, b: Tensor, matrices: Tensor) -> dict[str, int]:
    """What a kernel must know of its arguments."""
    _, count, m, n = matrices.shape
    return {
        **{"replicas": a.size(0), "nodes": a.size(1), "places": a.size(2), "count": count, "m": m, "n": n},
        # Products on the tensor cores have at least 16 rows and columns.
        **{"PLACES": triton.next_power_of_2(a.size(2))},
        **{"WIDTH": max(triton.next_power_of_2(m), 16), "OUT": max(triton.next_power_of_2(n), 16)},
    }


def _cut(config: MixedConfig, together: int | None) -> dict[str, int | str]:
    at_once = {} if together is None else {"TOGETHER": together}
    return {"NODES": config.nodes, "PRECISION": config.precision, "num_warps": config.warps, **at_once}


@triton.jit
def _rows(first, nodes, places, replica, PLACES: tl.constexpr, NODES: tl.constexpr):
    """Where some nodes of a replica and their places stand, and which of these there are: ``[PLACES, NODES]``."""
    v, p = first + tl.arange(0, NODES), tl.arange(0, PLACES)
    at = (replica * nodes + v[None, :]).to(tl.int64) * places + p[:, None]
    return at, (v < nodes)[None, :] & (p < places)[:, None]


@triton.jit
def _vectors(b, at, there, m, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)[None, None, :]
    return tl.load(b + at[:, :, None] * m + i, there[:, :, None] & (i < m), 0).to(tl.float32)


@triton.jit
def _mixed(
    a, vectors, at, there, first, end, count, TOGETHER: tl.constexpr, NODES: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """For some matrices the sums over places of the vectors, side by side: ``[NODES, TOGETHER * WIDTH]``."""
    c = first + tl.arange(0, TOGETHER)[None, None, :]
    mix = tl.load(a + at[:, :, None] * count + c, there[:, :, None] & (c < end), 0).to(tl.float32)
    return tl.reshape(tl.sum(mix[:, :, :, None] * vectors[:, :, None, :], 0), [NODES, TOGETHER * WIDTH])


@triton.jit
def _sums(
    a, b, matrices, parts, each, replicas, nodes, places, count, m, n,
    PLACES: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    NODES: tl.constexpr, TOGETHER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program has some nodes of a replica and a part of the matrices."""
    replica, part = tl.program_id(1), tl.program_id(2)
    v, o = tl.program_id(0) * NODES + tl.arange(0, NODES), tl.arange(0, OUT)
    at, there = _rows(tl.program_id(0) * NODES, nodes, places, replica, PLACES, NODES)
    vectors = _vectors(b, at, there, m, WIDTH)
    # Rows of all matrices that are multiplied with at a time, one below the other.
    k = tl.arange(0, TOGETHER * WIDTH)
    of, i = k // WIDTH, k % WIDTH
    begin, end = part * each, tl.minimum((part + 1) * each, count)
    total = tl.zeros([NODES, OUT], tl.float32)
    for first in range(begin, end, TOGETHER):
        mixed = _mixed(a, vectors, at, there, first, end, count, TOGETHER, NODES, WIDTH)
        row = ((replica * count + first + of) * m + i).to(tl.int64)
        inside = ((first + of < end) & (i < m))[:, None] & (o < n)[None, :]
        some = tl.load(matrices + row[:, None] * n + o[None, :], inside, 0)
        total = tl.dot(mixed.to(some.dtype), some, total, input_precision=PRECISION)
    out = ((part * replicas + replica) * nodes + v).to(tl.int64)
    tl.store(parts + out[:, None] * n + o[None, :], total, (v < nodes)[:, None] & (o < n)[None, :])


@triton.jit
def _gradients(
    grad, a, b, matrices, grad_a, parts, each, replicas, nodes, places, count, m, n,
    PLACES: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr, NODES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program has some nodes of a replica and a part of the matrices, of which it takes one after the other."""
    replica, part = tl.program_id(1), tl.program_id(2)
    v, i, o = tl.program_id(0) * NODES + tl.arange(0, NODES), tl.arange(0, WIDTH), tl.arange(0, OUT)
    at, there = _rows(tl.program_id(0) * NODES, nodes, places, replica, PLACES, NODES)
    vectors = _vectors(b, at, there, m, WIDTH)
    given = tl.load(
        grad + (replica * nodes + v).to(tl.int64)[:, None] * n + o[None, :], (v < nodes)[:, None] & (o < n)[None, :], 0
    )
    total = tl.zeros([PLACES, NODES, WIDTH], tl.float32)
    for c in range(part * each, tl.minimum((part + 1) * each, count)):
        row = ((replica * count + c) * m + i).to(tl.int64)
        turned = tl.load(matrices + row[None, :] * n + o[:, None], (i < m)[None, :] & (o < n)[:, None], 0)
        of_mixed = tl.dot(given, turned, input_precision=PRECISION)[None, :, :]
        tl.store(grad_a + at * count + c, tl.sum(of_mixed * vectors, 2).to(grad_a.dtype.element_ty), there)
        mix = tl.load(a + at * count + c, there, 0).to(tl.float32)
        total += mix[:, :, None] * of_mixed
    out = at + (part * replicas * nodes).to(tl.int64) * places
    i3 = i[None, None, :]
    tl.store(parts + out[:, :, None] * m + i3, total, there[:, :, None] & (i3 < m))


@triton.jit
def _gradients_of_matrices(
    grad, a, b, grad_matrices, replicas, nodes, places, count, m, n,
    PLACES: tl.constexpr, WIDTH: tl.constexpr, OUT: tl.constexpr,
    NODES: tl.constexpr, TOGETHER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program has some matrices of a replica and goes over its nodes."""
    first, replica = tl.program_id(0) * TOGETHER, tl.program_id(1)
    o = tl.arange(0, OUT)
    total = tl.zeros([TOGETHER * WIDTH, OUT], tl.float32)
    for begin in range(0, nodes, NODES):
        at, there = _rows(begin, nodes, places, replica, PLACES, NODES)
        vectors = _vectors(b, at, there, m, WIDTH)
        mixed = _mixed(a, vectors, at, there, first, count, count, TOGETHER, NODES, WIDTH)
        v = begin + tl.arange(0, NODES)
        given = tl.load(
            grad + (replica * nodes + v).to(tl.int64)[:, None] * n + o[None, :],
            (v < nodes)[:, None] & (o < n)[None, :],
            0,
        )
        total = tl.dot(tl.trans(mixed.to(given.dtype)), given, total, input_precision=PRECISION)
    k = tl.arange(0, TOGETHER * WIDTH)
    of, i = k // WIDTH, k % WIDTH
    row = ((replica * count + first + of) * m + i).to(tl.int64)
    inside = ((first + of < count) & (i < m))[:, None] & (o < n)[None, :]
    tl.store(grad_matrices + row[:, None] * n + o[None, :], total.to(grad_matrices.dtype.element_ty), inside)
