"""Triton kernels of the graph sums, for CUDA (and for the CPU under ``TRITON_INTERPRET=1``).

Importing this module needs triton; whoever imports it guards for that. The kernels add in a fixed order (no
atomics), never wait for the host, and their launch shapes follow from the shapes of the arguments alone, so
that they can be captured in a CUDA graph.
"""
# A kernel's arguments are pointers and numbers; only those known at compile time are annotated.
# mypy: allow-incomplete-defs

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

# A mask is absent, one number a node, or one number a node and channel.
_NO_MASK, _NODE_MASK, _FULL_MASK = 0, 1, 2


class CsrConfig(NamedTuple):
    """How :func:`csr_sum` is cut into programs.

    Threads side by side, 16 bytes each, make a row; a program has as many rows abreast as its threads make.

    Args:
        warps: warps of a program.
        depth: light rows a thread works on.
        near: neighbours of a light row loaded at a time.
        hub: a row of more neighbours than this is a hub, on which a whole program works.
        far: neighbours of a hub loaded at a time by each thread.
    """

    warps: int = 4
    depth: int = 2
    near: int = 2
    hub: int = 32
    far: int = 8


class BitsConfig(NamedTuple):
    """How :func:`bits_sum` is cut: ``rows`` x ``channels`` of the result a program, ``columns`` a step."""

    rows: int = 64
    channels: int = 128
    columns: int = 32
    warps: int = 4
    stages: int = 2


def csr_sum(
    x: Tensor,
    mask: Tensor | None,
    start: Tensor,
    end: Tensor,
    col: Tensor,
    base: Tensor | None = None,
    hubs: bool = True,
    weight: Tensor | None = None,
    config: CsrConfig | None = None,
) -> Tensor:
    r"""The sum over neighbours, row by row of the neighbour lists,

    .. math::
        \mathbf{y}_v = \sum_{u \in \mathcal{N}(v) \setminus \{v\}} m_u \odot \mathbf{x}_u

    Light rows are taken a few at a time; the hubs among them are left to programs of their own, which come
    first in the launch, so that the longest rows do not start last. Sums are formed in float32 (float64 for
    float64 input).

    Args:
        x: ``[nodes, channels]``.
        mask: ``[nodes, 1]``, ``[nodes, channels]`` or ``None`` for 1.
        start: ``[nodes]``, where each node's row begins in ``col``; see :class:`softmask.ops.Neighbours`.
        end: ``[nodes]``, where it ends.
        col: ``[edges]``, sources of the edges into a node.
        base: ``[nodes]``, added to the entries of ``col`` in a node's row.
        hubs: whether long rows are expected. Right either way; without it the kernel takes fewer registers,
            but a row of thousands of neighbours holds up the rest.
        weight: ``[edges]``, how often each entry of ``col`` counts; with it, self loops count too.
        config: how to cut the work.

    Returns:
        ``[nodes, channels]`` in the type of ``x``.
    """
    x, mask, kind = _rows_and_mask(x, mask)
    nodes, channels = x.shape
    out = x.new_empty(nodes, channels)
    if out.numel() == 0:
        return out
    start, end, col = start.contiguous(), end.contiguous(), col.contiguous()
    base = None if base is None else base.contiguous()
    weight = None if weight is None else weight.contiguous()
    width = min(triton.next_power_of_2(channels), 256)
    config = config or CsrConfig()
    abreast = max(32 * config.warps * (16 // x.element_size()) // width, 1)
    rows = abreast * config.depth
    scan = 256
    # Hub programs walk over all rows in steps of `scan`; four a multiprocessor leave room for light rows.
    hub_programs = min(triton.cdiv(nodes, scan), 4 * _multiprocessors(x.device)) if hubs else 0
    grid = (hub_programs + triton.cdiv(nodes, rows), triton.cdiv(channels, width))
    with torch.cuda.device_of(x):
        _csr_kernel[grid](
            x, x if mask is None else mask, start, end, col, start if base is None else base,
            x if weight is None else weight, out,
            nodes, hub_programs,
            CHANNELS=channels, STRIDE=x.stride(0), BASE=base is not None, MASK=kind, WEIGHT=weight is not None,
            ACC=_accumulator(x), WIDTH=width, ROWS=rows, NEAR=config.near,
            HUBS=hubs, HUB=config.hub, ABREAST=abreast, FAR=config.far, SCAN=scan,
            num_warps=config.warps,
        )  # fmt: skip
    return out


def bits_sum(
    x: Tensor,
    mask: Tensor | None,
    bits: Tensor,
    bit_row: Tensor,
    base: Tensor,
    size: Tensor,
    replicas: int = 1,
    precision: str = "ieee",
    config: BitsConfig | None = None,
) -> Tensor:
    r"""The sum over neighbours as dense blocks on the tensor cores,

    .. math::
        \mathbf{Y} = \mathbf{A} \, (\mathbf{m} \odot \mathbf{X}), \qquad \mathbf{A} \in \{0, 1\}^{n \times n}

    with the adjacency matrix of each graph as rows of bits (see :func:`softmask.ops.bitmaps.bitmaps`). A
    float32 row is split into bfloat16 pieces, which the 0/1 matrix adds without loss: three carry all 24
    bits, two carry 16 at the price of one TF32 product, which would carry 11.

    What is no neighbour is multiplied by zero, so infinity or NaN in a row spreads beyond its neighbours, but
    never from one replica to another.

    Args:
        x: ``[nodes, channels]``, float32, bfloat16 or float16.
        mask: ``[nodes, 1]``, ``[nodes, channels]`` or ``None`` for 1.
        bits: ``[words]`` int32, bit c of a row (bit c % 32 of its word c // 32) is 1 if node c of the graph
            is a neighbour; bits from the number of nodes on are 0.
        bit_row: ``[nodes]``, first word of each node's row.
        base: ``[nodes]``, the first node of the node's graph.
        size: ``[nodes]``, number of nodes of the node's graph; 0 for padding.
        replicas: models side by side in ``x``, each with as many nodes; a graph lies within one of them.
        precision: of float32 input: ``"ieee"`` or ``"tf32"``.
        config: how to cut the work; by default chosen from the shape.

    Returns:
        ``[nodes, channels]`` in the type of ``x``.
    """
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"bits_sum takes float32, bfloat16 or float16, got {x.dtype}")
    x, mask, kind = _rows_and_mask(x, mask)
    mask = None if mask is None else mask.to(x.dtype)
    nodes, channels = x.shape
    if nodes % replicas:
        raise ValueError(f"{nodes} nodes are not {replicas} replicas of equally many")
    out = x.new_empty(nodes, channels)
    if out.numel() == 0:
        return out
    if bits.numel() == 0:
        return out.zero_()
    bits, bit_row, base, size = (t.contiguous() for t in (bits, bit_row, base, size))
    config = config or BitsConfig()
    width = max(min(triton.next_power_of_2(channels), config.channels), 16)
    tiles = triton.cdiv(nodes // replicas, config.rows)
    blocks = triton.cdiv(channels, width)
    with torch.cuda.device_of(x):
        _bits_kernel[(replicas * tiles * blocks,)](
            x, x if mask is None else mask, bits, bit_row, base, size, out,
            nodes // replicas, tiles, blocks,
            CHANNELS=channels, STRIDE=x.stride(0), MASK=kind, PIECES=_pieces(x.dtype, precision),
            ONE=0x3C00 if x.dtype == torch.float16 else 0x3F80,  # the bits of 1 in float16 and bfloat16
            WIDTH=width, ROWS=config.rows, HALVES=config.columns // 32,
            num_warps=config.warps, num_stages=config.stages,
        )  # fmt: skip
    return out


def segment_sum(x: Tensor, first: Tensor, last: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    r"""The sum of consecutive rows,

    .. math::
        \mathbf{y}_g = \sum_{v = \mathrm{first}_g}^{\mathrm{last}_g - 1} \mathbf{x}_v .

    Args:
        x: ``[nodes, channels]``.
        first: ``[graphs]``, where the rows of each graph begin.
        last: ``[graphs]``, where they end.
        dtype: of the result; by default that of ``x``.

    Returns:
        ``[graphs, channels]``.
    """
    x, first, last = x.contiguous(), first.contiguous(), last.contiguous()
    (nodes, channels), graphs = x.shape, first.numel()
    out = x.new_empty(graphs, channels, dtype=dtype or x.dtype)
    if out.numel() == 0:
        return out
    if nodes == 0:
        return out.zero_()
    split = _split(nodes, graphs, triton.cdiv(channels, 128), 8 * _multiprocessors(x.device))
    if split == 1:
        return _segments(x, first, last, out, 1)
    accumulator = torch.float64 if x.dtype == torch.float64 else torch.float32
    parts = _segments(x, first, last, x.new_empty(graphs * split, channels, dtype=accumulator), split)
    ends = torch.arange(0, graphs * split + 1, split, device=x.device)
    return _segments(parts, ends[:-1], ends[1:], out, 1)


@triton.jit
def _csr_kernel(
    x, mask, start, end, col, base, weight, out,
    nodes, hub_programs,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, BASE: tl.constexpr, MASK: tl.constexpr, WEIGHT: tl.constexpr,
    ACC: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, NEAR: tl.constexpr,
    HUBS: tl.constexpr, HUB: tl.constexpr, ABREAST: tl.constexpr, FAR: tl.constexpr, SCAN: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    if HUBS and program < hub_programs:
        step = tl.arange(0, ABREAST)[:, None] * FAR + tl.arange(0, FAR)[None, :]
        for block in range(program * SCAN, nodes, hub_programs * SCAN):
            row = block + tl.arange(0, SCAN)
            degree = _at_rows(end, row, nodes) - _at_rows(start, row, nodes)
            hub = tl.min(tl.where(degree > HUB, row, nodes), 0)
            while hub < nodes:
                first = tl.load(start + hub).to(tl.int64)
                count = (tl.load(end + hub) - first).to(tl.int32)
                origin = tl.zeros([], tl.int64)
                if BASE:
                    origin = tl.load(base + hub).to(tl.int64)
                total = tl.zeros([ABREAST, WIDTH], ACC)
                # The next neighbours' numbers are fetched before the rows of these are added.
                local = tl.load(col + first + step, mask=step < count, other=0)
                for j in range(0, count, ABREAST * FAR):
                    ahead = j + ABREAST * FAR + step
                    following = tl.load(col + first + ahead, mask=ahead < count, other=0)
                    source = origin + local
                    ok = j + step < count
                    if not WEIGHT:
                        ok &= source != hub
                    entry = first + j + step
                    total += _rows_sum(x, mask, weight, source, entry, ok, channel, CHANNELS, STRIDE, MASK, WEIGHT, ACC)
                    local = following
                at = hub.to(tl.int64) * CHANNELS + channel
                tl.store(out + at, tl.sum(total, 0).to(out.dtype.element_ty), mask=channel < CHANNELS)
                hub = tl.min(tl.where((degree > HUB) & (row > hub), row, nodes), 0)
    else:
        row = (program - hub_programs) * ROWS + tl.arange(0, ROWS)
        first = _at_rows(start, row, nodes)
        degree = (_at_rows(end, row, nodes) - first).to(tl.int32)
        light = row < nodes
        if HUBS:
            light &= degree <= HUB
            degree = tl.where(light, degree, 0)
        origin = tl.zeros([ROWS], tl.int64)
        if BASE:
            origin = _at_rows(base, row, nodes)
        total = tl.zeros([ROWS, WIDTH], ACC)
        for j in range(0, tl.max(degree, 0), NEAR):
            step = j + tl.arange(0, NEAR)
            ok = step[None, :] < degree[:, None]
            entry = first[:, None] + step[None, :]
            source = origin[:, None] + tl.load(col + entry, mask=ok, other=0)
            if not WEIGHT:
                ok &= source != row[:, None]
            total += _rows_sum(x, mask, weight, source, entry, ok, channel, CHANNELS, STRIDE, MASK, WEIGHT, ACC)
        at = row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
        real = channel < CHANNELS
        tl.store(out + at, total.to(out.dtype.element_ty), mask=light[:, None] & real[None, :])


@triton.jit
def _at_rows(array, row, nodes):
    return tl.load(array + row, mask=row < nodes, other=0).to(tl.int64)


@triton.jit
def _rows_sum(
    x, mask, weight, source, entry, ok, channel,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, MASK: tl.constexpr, WEIGHT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """The sum over the second axis of the masked rows `source` of x, weighted by those of `entry`.

    Warps are laid over the first axis before the second, so a thread has all numbers it adds.
    """
    channels = channel[None, None, :]
    inside = ok[:, :, None] & (channels < CHANNELS)
    part = tl.load(x + source[:, :, None] * STRIDE + channels, mask=inside, other=0).to(ACC)
    if MASK == 1:
        part *= tl.load(mask + source, mask=ok, other=0).to(ACC)[:, :, None]
    if MASK == 2:
        part *= tl.load(mask + source[:, :, None] * CHANNELS + channels, mask=inside, other=0).to(ACC)
    if WEIGHT:
        part *= tl.load(weight + entry, mask=ok, other=0).to(ACC)[:, :, None]
    return tl.sum(part, 1)


@triton.jit
def _bits_kernel(
    x, mask, bits, bit_row, base, size, out,
    nodes, tiles, blocks,
    CHANNELS: tl.constexpr, STRIDE: tl.constexpr, MASK: tl.constexpr, PIECES: tl.constexpr, ONE: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, HALVES: tl.constexpr,
):  # fmt: skip
    # The channel blocks of one tile of rows run side by side and share its rows of x in the L2 cache.
    tile = tl.program_id(0) // blocks
    channel = (tl.program_id(0) % blocks) * WIDTH + tl.arange(0, WIDTH)
    real = channel < CHANNELS
    # A tile never reaches into the next replica.
    origin = (tile // tiles) * nodes
    local = (tile % tiles) * ROWS + tl.arange(0, ROWS)
    row = origin + local
    count = tl.load(size + row, mask=local < nodes, other=0).to(tl.int32)
    first = tl.load(base + row, mask=local < nodes, other=0).to(tl.int32)
    word = bits + tl.load(bit_row + row, mask=local < nodes, other=0).to(tl.int64)
    words = (count + 31) // 32
    stop = tl.max(tl.where(count > 0, first + count, 0), 0)
    # A tile of padding alone has nothing to do: begin = stop, far from where begin + step would overflow.
    begin = tl.minimum(tl.min(tl.where(count > 0, first, 0x7FFFFFFF), 0), stop)
    half = tl.arange(0, HALVES)[None, :, None]
    side = tl.arange(0, 2)[None, None, :]
    step = tl.arange(0, 32 * HALVES)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    # The mask of the next columns is fetched while these are worked on; the compiler sees to x and the bits.
    following = tl.zeros([32 * HALVES], x.dtype.element_ty)
    if MASK == 1:
        following = tl.load(mask + begin + step, mask=step < stop - begin, other=0)
    for column in range(begin, stop, 32 * HALVES):
        weight = following
        if MASK == 1:
            ahead = column + 32 * HALVES + step
            following = tl.load(mask + ahead, mask=ahead < stop, other=0)
        # 32 bits of each row from this column on, cut from two neighbouring words. Outside the row's graph
        # (before its first column, past its last word) there are no words, and so no bits.
        skip = (column - first)[:, None, None]
        index = (skip >> 5) + half + side
        pair = tl.load(word[:, None, None] + index, mask=(index >= 0) & (index < words[:, None, None]), other=0)
        pair = pair.to(tl.uint32, bitcast=True)
        shift = (skip & 31).to(tl.uint32)
        window = tl.sum(tl.where(side == 0, pair >> shift, (pair << 1) << (31 - shift)), 2)
        bit = (window[:, :, None] >> tl.arange(0, 32).to(tl.uint32)[None, None, :]) & 1
        bit = tl.reshape(bit.to(tl.int32), [ROWS, 32 * HALVES])

        source = column + step
        ok = source < stop
        inside = ok[:, None] & real[None, :]
        part = tl.load(x + source.to(tl.int64)[:, None] * STRIDE + channel[None, :], mask=inside, other=0)
        if MASK == 2:
            at = source.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
            part = (part.to(tl.float32) * tl.load(mask + at, mask=inside, other=0).to(tl.float32)).to(part.dtype)
        if PIECES == 1:
            if MASK == 1:
                # One number a source may as well stand in the matrix: the product with x is then not rounded.
                matrix = tl.where(bit != 0, weight[None, :], tl.zeros([ROWS, 32 * HALVES], part.dtype))
            else:
                matrix = (bit * ONE).to(tl.int16).to(part.dtype, bitcast=True)
            total = tl.dot(matrix, part, total)
        else:
            if MASK == 1:
                part *= weight[:, None]
            matrix = (bit * ONE).to(tl.int16).to(tl.bfloat16, bitcast=True)
            for _ in tl.static_range(PIECES):
                piece = part.to(tl.bfloat16)
                total = tl.dot(matrix, piece, total)
                part -= piece.to(tl.float32)
    at = row.to(tl.int64)[:, None] * CHANNELS + channel[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(local < nodes)[:, None] & real[None, :])


@triton.jit
def _segment_kernel(
    x, first, last, out, split,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    channel = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    real = channel < CHANNELS
    begin = tl.load(first + program // split).to(tl.int64)
    stop = tl.load(last + program // split).to(tl.int64)
    share = tl.cdiv(stop - begin, split)
    begin += (program % split) * share
    count = (tl.minimum(begin + share, stop) - begin).to(tl.int32)
    total = tl.zeros([ROWS, WIDTH], ACC)
    for j in range(0, count, ROWS):
        step = j + tl.arange(0, ROWS)
        at = (begin + step)[:, None] * CHANNELS + channel[None, :]
        total += tl.load(x + at, mask=(step < count)[:, None] & real[None, :], other=0).to(ACC)
    at = program.to(tl.int64) * CHANNELS + channel
    tl.store(out + at, tl.sum(total, 0).to(out.dtype.element_ty), mask=real)


def _segments(x: Tensor, first: Tensor, last: Tensor, out: Tensor, split: int) -> Tensor:
    channels = x.size(1)
    # 128 channels of float32 are one 16-byte load a lane; 32 rows of them in flight.
    width = min(triton.next_power_of_2(channels), 128)
    rows = min(4096 // width, 128)
    with torch.cuda.device_of(x):
        _segment_kernel[(first.numel() * split, triton.cdiv(channels, width))](
            x,
            first,
            last,
            out,
            split,
            CHANNELS=channels,
            ACC=_accumulator(x),
            WIDTH=width,
            ROWS=rows,
            num_warps=4,
        )
    return out


def _split(nodes: int, graphs: int, blocks: int, programs: int) -> int:
    """Into how many parts to cut each graph: a power of two, from the mean size alone.

    Parts of 128 rows on average keep the largest graph (some ten times the mean) from running on alone at the
    end; few graphs are cut finer, down to 64 rows, until every multiprocessor has work.
    """
    mean = nodes / graphs
    split = 1
    while split < 512 and (mean >= 256 * split or (mean >= 128 * split and graphs * blocks * split < programs)):
        split *= 2
    return split


def _rows_and_mask(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, int]:
    # Rows may lie apart, as those of one half of a product do, but each must be in one piece and begin at 16 bytes.
    aligned = x.stride(1) == 1 and x.stride(0) % 8 == 0 and x.storage_offset() % 8 == 0
    x = x if aligned else x.contiguous()
    if mask is None:
        return x, None, _NO_MASK
    if mask.dim() != 2 or mask.size(0) != x.size(0) or mask.size(1) not in (1, x.size(1)):
        raise ValueError(f"the mask is {list(mask.shape)}; expected [{x.size(0)}, 1] or {list(x.shape)}")
    return x, mask.contiguous(), _NODE_MASK if mask.size(1) == 1 else _FULL_MASK


def _accumulator(x: Tensor) -> Any:
    return tl.float64 if x.dtype == torch.float64 else tl.float32


def _pieces(dtype: torch.dtype, precision: str) -> int:
    if precision not in ("ieee", "tf32"):
        raise ValueError(f"unknown precision {precision!r}; expected 'ieee' or 'tf32'")
    if dtype != torch.float32:
        return 1
    return 3 if precision == "ieee" else 2


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
