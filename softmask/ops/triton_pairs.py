"""Triton kernels of the sums over pairs, for CUDA (and for the CPU under ``TRITON_INTERPRET=1``).

As those of :mod:`softmask.ops.triton_sums`: they add in a fixed order (no atomics), never wait for the host, and their
launch shapes follow from the shapes of the arguments alone, so that they can be captured in a CUDA graph.

A compiler, given the same sums, makes a tile of all nodes of a graph, padded to a power of two, adds across threads,
and writes one more array of the filters' size for the gradient: six times as many instructions. Here a program keeps
the sums of a few nodes in registers while it goes along the others.
"""
# A kernel's arguments are pointers and numbers; only those known at compile time are annotated.
# mypy: allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmask.ops.pair_blocks import Blocks, num_pairs

# Nodes that a program works on, nodes of the other end that it loads at a time, and its warps.
_NODES, _ABREAST, _WARPS = 4, 2, 2


def pair_sums(
    filters: Tensor, x: Tensor, direction: Tensor, vectors: Tensor | None, blocks: Blocks
) -> tuple[Tensor, Tensor]:
    """:func:`softmask.ops.pair_sums.pair_sums` of many replicas, which are the first dimension of all arguments.

    Sums are float32 (float64 for float64 input), the results of the type of ``x``.
    """
    filters, x, direction = filters.contiguous(), x.contiguous(), direction.contiguous()
    vectors = None if vectors is None else vectors.contiguous()
    replicas, nodes, channels = x.shape
    plain = torch.empty_like(x)
    along = x.new_empty(replicas, nodes, 3, channels)
    tensors = (filters, x, direction, x if vectors is None else vectors, plain, along)
    for grid, *layout in _launches(blocks, replicas):
        _sums[grid](
            *tensors,
            *layout,
            *(nodes, filters.size(1), direction.size(1), channels),
            VECTORS=vectors is not None,
            WIDE=_wide(x),
            WIDTH=triton.next_power_of_2(channels),
            NODES=_NODES,
            ABREAST=_ABREAST,
            num_warps=_WARPS,
        )
    return plain, along


def pair_sums_backward(
    grad_plain: Tensor,
    grad_along: Tensor,
    filters: Tensor,
    x: Tensor,
    direction: Tensor,
    vectors: Tensor | None,
    blocks: Blocks,
    turns: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of :func:`pair_sums` for filters, x, direction and vectors, in one pass over the filters.

    That of the direction only if `turns`, and that of the vectors only if there are any; otherwise they are empty.
    """
    given = (grad_plain, grad_along, filters, x, direction)
    grad_plain, grad_along, filters, x, direction = (t.contiguous() for t in given)
    vectors = None if vectors is None else vectors.contiguous()
    replicas, nodes, channels = x.shape
    grad_filters, grad_x = torch.empty_like(filters), torch.empty_like(x)
    grad_direction = torch.zeros_like(direction) if turns else direction.new_empty(0)
    grad_vectors = x.new_empty(0) if vectors is None else torch.empty_like(vectors)
    # Behind the last pair stands padding.
    grad_filters[:, num_pairs(blocks) :] = 0
    inputs = (grad_plain, grad_along, filters, x, direction, x if vectors is None else vectors)
    for grid, *layout in _launches(blocks, replicas):
        _gradients[grid](
            *inputs,
            *(grad_filters, grad_x, grad_direction, grad_vectors),
            *layout,
            *(nodes, filters.size(1), direction.size(1), channels),
            VECTORS=vectors is not None,
            TURNS=turns,
            WIDE=_wide(x),
            WIDTH=triton.next_power_of_2(channels),
            NODES=_NODES,
            ABREAST=_ABREAST,
            num_warps=_WARPS,
        )
    return grad_filters, grad_x, grad_direction, grad_vectors


def _wide(x: Tensor) -> tl.dtype:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _launches(blocks: Blocks, replicas: int) -> list[tuple[tuple[int, int], int, int, int]]:
    """For every block the grid, where its nodes and its pairs begin, and how many places its graphs have."""
    made, node, pair = [], 0, 0
    for graphs, places in blocks:
        if graphs and places and replicas:
            made.append(((graphs * triton.cdiv(places, _NODES), replicas), node, pair, places))
        node, pair = node + graphs * places, pair + graphs * places**2
    return made


@triton.jit
def _sums(
    filters, x, direction, vectors, plain, along,
    first_node, first_pair, places, nodes, rows, pairs, channels,
    VECTORS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr, ABREAST: tl.constexpr,
):  # fmt: skip
    """A program has some nodes ``v`` of a graph and goes along all nodes ``u`` of it."""
    tiles = tl.cdiv(places, NODES)
    tile, graph, replica = tl.program_id(0) % tiles, tl.program_id(0) // tiles, tl.program_id(1).to(tl.int64)
    v = tile * NODES + tl.arange(0, NODES)
    c = tl.arange(0, WIDTH)[None, :]
    inside = (v[:, None] < places) & (c < channels)
    node = replica * nodes + first_node + graph * places
    pair = first_pair + graph * places * places + v * places
    # Rows of other nodes are loaded as tiles, once for every node here: a single row would go through shared memory.
    every = tl.zeros([NODES, WIDTH], dtype=tl.int32) + c
    filters += (replica * rows + pair)[:, None] * channels + c
    direction += (replica * pairs + pair) * 3
    s = tl.zeros([NODES, WIDTH], dtype=WIDE)
    t0 = tl.zeros([NODES, WIDTH], dtype=WIDE)
    t1 = tl.zeros([NODES, WIDTH], dtype=WIDE)
    t2 = tl.zeros([NODES, WIDTH], dtype=WIDE)
    for begin in range(0, places, ABREAST):
        for step in tl.static_range(ABREAST):
            u = begin + step
            there = inside & (u < places)
            near = (v < places) & (u < places)
            shown = (every < channels) & (u < places)
            f = tl.load(filters + u * channels, there, 0).to(WIDE)
            r0 = tl.load(direction + u * 3, near, 0).to(WIDE)[:, None]
            r1 = tl.load(direction + u * 3 + 1, near, 0).to(WIDE)[:, None]
            r2 = tl.load(direction + u * 3 + 2, near, 0).to(WIDE)[:, None]
            seen = f * tl.load(x + (node + u) * channels + every, shown, 0).to(WIDE)
            s += seen
            t0 += seen * r0
            t1 += seen * r1
            t2 += seen * r2
            if VECTORS:
                y = vectors + (node + u) * 3 * channels + every
                t0 += f * tl.load(y, shown, 0).to(WIDE)
                t1 += f * tl.load(y + channels, shown, 0).to(WIDE)
                t2 += f * tl.load(y + 2 * channels, shown, 0).to(WIDE)
    at = (node + v)[:, None] * channels + c
    tl.store(plain + at, s, inside)
    at = (node + v)[:, None] * 3 * channels + c
    tl.store(along + at, t0, inside)
    tl.store(along + at + channels, t1, inside)
    tl.store(along + at + 2 * channels, t2, inside)


@triton.jit
def _gradients(
    grad_plain, grad_along, filters, x, direction, vectors, grad_filters, grad_x, grad_direction, grad_vectors,
    first_node, first_pair, places, nodes, rows, pairs, channels,
    VECTORS: tl.constexpr, TURNS: tl.constexpr, WIDE: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
    ABREAST: tl.constexpr,
):  # fmt: skip
    """A program has some nodes ``u`` of a graph and goes along all nodes ``v`` that see them."""
    tiles = tl.cdiv(places, NODES)
    tile, graph, replica = tl.program_id(0) % tiles, tl.program_id(0) // tiles, tl.program_id(1).to(tl.int64)
    u = tile * NODES + tl.arange(0, NODES)
    c = tl.arange(0, WIDTH)[None, :]
    inside = (u[:, None] < places) & (c < channels)
    node = replica * nodes + first_node + graph * places
    pair = first_pair + graph * places * places + u
    every = tl.zeros([NODES, WIDTH], dtype=tl.int32) + c
    at_filters = (replica * rows + pair)[:, None] * channels + c
    at_direction = (replica * pairs + pair) * 3
    own = (node + u)[:, None] * channels + c
    x_u = tl.load(x + own, inside, 0).to(WIDE)
    own_vectors = (node + u)[:, None] * 3 * channels + c
    dx = tl.zeros([NODES, WIDTH], dtype=WIDE)
    if VECTORS:
        y0 = tl.load(vectors + own_vectors, inside, 0).to(WIDE)
        y1 = tl.load(vectors + own_vectors + channels, inside, 0).to(WIDE)
        y2 = tl.load(vectors + own_vectors + 2 * channels, inside, 0).to(WIDE)
        dy0 = tl.zeros([NODES, WIDTH], dtype=WIDE)
        dy1 = tl.zeros([NODES, WIDTH], dtype=WIDE)
        dy2 = tl.zeros([NODES, WIDTH], dtype=WIDE)
    for begin in range(0, places, ABREAST):
        for step in tl.static_range(ABREAST):
            v = begin + step
            there = inside & (v < places)
            near = (u < places) & (v < places)
            shown = (every < channels) & (v < places)
            g = grad_along + (node + v) * 3 * channels + every
            g0 = tl.load(g, shown, 0).to(WIDE)
            g1 = tl.load(g + channels, shown, 0).to(WIDE)
            g2 = tl.load(g + 2 * channels, shown, 0).to(WIDE)
            f = tl.load(filters + at_filters + v * places * channels, there, 0).to(WIDE)
            r = direction + at_direction + v * places * 3
            r0 = tl.load(r, near, 0).to(WIDE)[:, None]
            r1 = tl.load(r + 1, near, 0).to(WIDE)[:, None]
            r2 = tl.load(r + 2, near, 0).to(WIDE)[:, None]
            of_seen = (
                tl.load(grad_plain + (node + v) * channels + every, shown, 0).to(WIDE) + g0 * r0 + g1 * r1 + g2 * r2
            )
            dx += f * of_seen
            df = x_u * of_seen
            if VECTORS:
                dy0 += f * g0
                dy1 += f * g1
                dy2 += f * g2
                df += y0 * g0 + y1 * g1 + y2 * g2
            tl.store(grad_filters + at_filters + v * places * channels, df, there)
            if TURNS:
                seen = f * x_u
                dr = grad_direction + at_direction + v * places * 3
                tl.store(dr, tl.sum(seen * g0, 1), near)
                tl.store(dr + 1, tl.sum(seen * g1, 1), near)
                tl.store(dr + 2, tl.sum(seen * g2, 1), near)
    tl.store(grad_x + own, dx, inside)
    if VECTORS:
        tl.store(grad_vectors + own_vectors, dy0, inside)
        tl.store(grad_vectors + own_vectors + channels, dy1, inside)
        tl.store(grad_vectors + own_vectors + 2 * channels, dy2, inside)
