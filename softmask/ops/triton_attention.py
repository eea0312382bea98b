"""Triton kernels of the attention-weighted sum, for CUDA (and for the CPU under ``TRITON_INTERPRET=1``).

As those of :mod:`softmask.ops.triton_sums`: they add in a fixed order (no atomics), never wait for the host, and their
launch shapes follow from the shapes of the arguments alone, so that they can be captured in a CUDA graph.
"""
# A kernel's arguments are pointers and numbers; only those known at compile time are annotated.
# mypy: allow-incomplete-defs

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from softmask.ops.triton_sums import _accumulator, _at_rows, _multiprocessors

Rows = tuple[Tensor, Tensor, Tensor, Tensor | None]

# What a launch computes: the sums, the gradient of the targets' scores, or those of x and of the sources' scores.
_SUM, _TARGET, _SOURCE = 0, 1, 2


class AttentionConfig(NamedTuple):
    """How the work is cut into programs, each of one head.

    Threads side by side, 16 bytes each, make a row; a program has as many rows abreast as its threads make.

    Args:
        warps: warps of a program.
        near: neighbours of a light row loaded at a time.
        hub: a row of more neighbours than this is a hub, on which a whole program works.
    """

    warps: int = 4
    near: int = 4
    hub: int = 32


def attend(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    start: Tensor,
    end: Tensor,
    col: Tensor,
    base: Tensor | None = None,
    weight: Tensor | None = None,
    slope: float = 0.2,
    itself: bool = False,
    hubs: bool = True,
    config: AttentionConfig | None = None,
) -> tuple[Tensor, Tensor]:
    r"""The sum over neighbours weighted by attention, row by row of the neighbour lists, in one pass (the softmax is
    corrected whenever a larger score turns up). Weights and sums are float32 (float64 for float64 input).

    Args:
        x: ``[nodes, heads, channels]``.
        source: ``[nodes, heads]``, score of a node as a neighbour.
        target: ``[nodes, heads]``, score of a node that has neighbours.
        start: ``[nodes]``, where each node's row begins in ``col``; see :class:`softmask.ops.Neighbours`.
        end: ``[nodes]``, where it ends.
        col: ``[edges]``, sources of the edges into a node.
        base: ``[nodes]``, added to the entries of ``col`` in a node's row.
        weight: ``[edges]``, how often each entry of ``col`` counts; a node may then be its own neighbour.
        slope: of LeakyReLU below zero; positive.
        itself: every node is its own neighbour, once.
        hubs: whether long rows are expected. Right either way.
        config: how to cut the work.

    Returns:
        The sums ``[nodes, heads, channels]`` in the type of ``x``, and the logarithms of the softmax's denominators
        ``[nodes, heads]``, 0 for a node without neighbours.
    """
    x, source, target = x.contiguous(), source.contiguous(), target.contiguous()
    out = torch.empty_like(x)
    log_total = x.new_empty(x.shape[:2], dtype=_wide(x))
    tensors = (x, source, target, log_total, log_total, x, out, log_total)
    _launch(_SUM, tensors, (start, end, col, weight), base, slope, itself, hubs, config)
    return out, log_total


def attend_backward(
    grad: Tensor,
    x: Tensor,
    source: Tensor,
    target: Tensor,
    log_total: Tensor,
    rows: Rows,
    turned: Rows,
    base: Tensor | None = None,
    slope: float = 0.2,
    itself: bool = False,
    hubs: bool = True,
    config: AttentionConfig | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of :func:`attend` for x, source and target.

    Args:
        grad: ``[nodes, heads, channels]``, gradient of the sums.
        x: as for :func:`attend`.
        source: likewise.
        target: likewise.
        log_total: the second result of :func:`attend`.
        rows: start, end, col and weight of the graph.
        turned: the same of the graph with all edges turned round.
        base: as for :func:`attend`.
        slope: likewise.
        itself: likewise.
        hubs: likewise.
        config: likewise.
    """
    grad, x, source, target = grad.contiguous(), x.contiguous(), source.contiguous(), target.contiguous()
    grad_x, grad_source, grad_target = torch.empty_like(x), torch.empty_like(source), torch.empty_like(target)
    log_total, delta = log_total.contiguous(), torch.empty_like(log_total)
    tensors = (x, source, target, log_total, delta, grad)
    _launch(_TARGET, (*tensors, grad_x, grad_target), rows, base, slope, itself, hubs, config)
    _launch(_SOURCE, (*tensors, grad_x, grad_source), turned, base, slope, itself, hubs, config)
    return grad_x, grad_source, grad_target


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _launch(
    what: int,
    tensors: tuple[Tensor, ...],
    rows: Rows,
    base: Tensor | None,
    slope: float,
    itself: bool,
    hubs: bool,
    config: AttentionConfig | None,
) -> None:
    x = tensors[0]
    nodes, heads, channels = x.shape
    if nodes == 0 or heads == 0:
        return
    start, end, col = (t.contiguous() for t in rows[:3])
    times = rows[3]
    config = config or AttentionConfig()
    width = max(triton.next_power_of_2(channels), 1)
    abreast = min(max(32 * config.warps * (16 // x.element_size()) // width, 1), 64)
    scan = 256
    # Hub programs walk over all rows in steps of `scan`; four a multiprocessor leave room for light rows.
    hub_programs = min(triton.cdiv(nodes, scan), 4 * _multiprocessors(x.device)) if hubs else 0
    with torch.cuda.device_of(x):
        _attention_kernel[(hub_programs + triton.cdiv(nodes, abreast), heads)](
            *tensors, start, end, col, start if base is None else base.contiguous(),
            start if times is None else times.contiguous(), nodes, hub_programs,
            WHAT=what, HEADS=heads, CHANNELS=channels, SLOPE=slope, ITSELF=itself, BASE=base is not None,
            TIMES=times is not None, ACC=_accumulator(x), WIDTH=width, ROWS=abreast, NEAR=config.near,
            HUBS=hubs, HUB=config.hub, FAR=max(abreast * config.near, 16), SCAN=scan,
            num_warps=config.warps,
        )  # fmt: skip


@triton.jit
def _attention_kernel(
    x, source, target, log_total, delta, grad, out, score_out, start, end, col, base, times,
    nodes, hub_programs,
    WHAT: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr, SLOPE: tl.constexpr, ITSELF: tl.constexpr,
    BASE: tl.constexpr, TIMES: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    NEAR: tl.constexpr, HUBS: tl.constexpr, HUB: tl.constexpr, FAR: tl.constexpr, SCAN: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    if HUBS and program < hub_programs:
        for block in range(program * SCAN, nodes, hub_programs * SCAN):
            row = block + tl.arange(0, SCAN)
            degree = _at_rows(end, row, nodes) - _at_rows(start, row, nodes)
            hub = tl.min(tl.where(degree > HUB, row, nodes), 0)
            while hub < nodes:
                one = hub + tl.arange(0, 1)
                _some_rows(
                    x, source, target, log_total, delta, grad, out, score_out, start, end, col, base, times, nodes, one,
                    WHAT, HEADS, CHANNELS, SLOPE, ITSELF, BASE, TIMES, ACC, WIDTH, FAR, False, HUB,
                )  # fmt: skip
                hub = tl.min(tl.where((degree > HUB) & (row > hub), row, nodes), 0)
    else:
        row = (program - hub_programs) * ROWS + tl.arange(0, ROWS)
        _some_rows(
            x, source, target, log_total, delta, grad, out, score_out, start, end, col, base, times, nodes, row,
            WHAT, HEADS, CHANNELS, SLOPE, ITSELF, BASE, TIMES, ACC, WIDTH, NEAR, HUBS, HUB,
        )  # fmt: skip


@triton.jit
def _some_rows(
    x, source, target, log_total, delta, grad, out, score_out, start, end, col, base, times, nodes, row,
    WHAT: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr, SLOPE: tl.constexpr, ITSELF: tl.constexpr,
    BASE: tl.constexpr, TIMES: tl.constexpr, ACC: tl.constexpr, WIDTH: tl.constexpr, STEP: tl.constexpr,
    LIGHT: tl.constexpr, HUB: tl.constexpr,
):  # fmt: skip
    """Works on some rows together, `STEP` neighbours of each at a time; with `LIGHT` hubs are left out."""
    first = _at_rows(start, row, nodes)
    degree = (_at_rows(end, row, nodes) - first).to(tl.int32)
    ok = row < nodes
    if LIGHT:
        ok &= degree <= HUB
    count = tl.where(ok, degree + ITSELF, 0)
    origin = tl.zeros_like(first)
    if BASE:
        origin = _at_rows(base, row, nodes)
    channel = tl.arange(0, WIDTH)
    at = row.to(tl.int64) * HEADS + tl.program_id(1)
    row_at = at[:, None] * CHANNELS + channel[None, :]
    row_ok = ok[:, None] & (channel < CHANNELS)[None, :]
    if WHAT == 0:
        own = tl.load(target + at, mask=ok, other=0).to(ACC)
        # Below any score, and yet a number: the difference of two of them is 0.
        top = tl.full(own.shape, -1e29, ACC)
        total = tl.zeros_like(own)
        sums = tl.zeros([own.shape[0], WIDTH], ACC)
        for j in range(0, tl.max(count, 0), STEP):
            place, there = _neighbours_at(col, row, first, degree, count, origin, j, TIMES, HEADS, STEP)
            score = _leaky(_scores(own, source, place, there, ACC), SLOPE)
            higher = tl.maximum(top, tl.max(score, 1))
            weight = tl.exp(score - higher[:, None])
            if TIMES:
                weight *= _counts(times, first, degree, count, j, STEP, ACC)
            shrink = tl.exp(top - higher)
            part = _at_places(x, place, there, channel, CHANNELS, ACC)
            sums = sums * shrink[:, None] + tl.sum(part * weight[:, :, None], 1)
            total = total * shrink + tl.sum(weight, 1)
            top = higher
        full = total != 0
        total = tl.where(full, total, 1.0)
        tl.store(out + row_at, (sums / total[:, None]).to(out.dtype.element_ty), mask=row_ok)
        tl.store(score_out + at, tl.where(full, top + tl.log(total), 0.0), mask=ok)
    elif WHAT == 1:
        own = tl.load(target + at, mask=ok, other=0).to(ACC)
        own_total = tl.load(log_total + at, mask=ok, other=0)
        own_grad = tl.load(grad + row_at, mask=row_ok, other=0).to(ACC)
        mean = tl.zeros_like(own)  # of the products of the gradient with the neighbours' rows
        steep_mean = tl.zeros_like(own)  # the same with LeakyReLU's derivative
        steepness = tl.zeros_like(own)
        for j in range(0, tl.max(count, 0), STEP):
            place, there = _neighbours_at(col, row, first, degree, count, origin, j, TIMES, HEADS, STEP)
            score = _scores(own, source, place, there, ACC)
            product = tl.sum(_at_places(x, place, there, channel, CHANNELS, ACC) * own_grad[:, None, :], 2)
            weight = tl.exp(_leaky(score, SLOPE) - own_total[:, None])
            if TIMES:
                weight *= _counts(times, first, degree, count, j, STEP, ACC)
            steep = weight * _steepness(score, SLOPE)
            mean += tl.sum(weight * product, 1)
            steep_mean += tl.sum(steep * product, 1)
            steepness += tl.sum(steep, 1)
        tl.store(delta + at, mean, mask=ok)
        tl.store(score_out + at, (steep_mean - mean * steepness).to(score_out.dtype.element_ty), mask=ok)
    else:
        own = tl.load(source + at, mask=ok, other=0).to(ACC)
        own_x = tl.load(x + row_at, mask=row_ok, other=0).to(ACC)
        sums = tl.zeros_like(own_x)
        change = tl.zeros_like(own)
        for j in range(0, tl.max(count, 0), STEP):
            place, there = _neighbours_at(col, row, first, degree, count, origin, j, TIMES, HEADS, STEP)
            score = _scores(own, target, place, there, ACC)
            total = tl.load(log_total + place, mask=there, other=0)
            weight = tl.exp(_leaky(score, SLOPE) - total)
            if TIMES:
                weight *= _counts(times, first, degree, count, j, STEP, ACC)
            part = _at_places(grad, place, there, channel, CHANNELS, ACC)
            product = tl.sum(part * own_x[:, None, :], 2) - tl.load(delta + place, mask=there, other=0)
            sums += tl.sum(part * weight[:, :, None], 1)
            change += tl.sum(weight * _steepness(score, SLOPE) * product, 1)
        tl.store(out + row_at, sums.to(out.dtype.element_ty), mask=row_ok)
        tl.store(score_out + at, change.to(score_out.dtype.element_ty), mask=ok)


@triton.jit
def _leaky(score, SLOPE: tl.constexpr):
    return tl.where(score > 0, score, score * SLOPE)


@triton.jit
def _steepness(score, SLOPE: tl.constexpr):
    # A choice between two plain numbers would be one between two of float32.
    return tl.where(score > 0, tl.full(score.shape, 1, score.dtype), tl.full(score.shape, SLOPE, score.dtype))


@triton.jit
def _neighbours_at(
    col, row, first, degree, count, origin, j, TIMES: tl.constexpr, HEADS: tl.constexpr, STEP: tl.constexpr
):
    """Places of this head of the rows' neighbours from the j-th on, and which of them there are.

    A row of more neighbours than its list has is its own last neighbour. In its list a row counts with weights only.
    """
    step = j + tl.arange(0, STEP)[None, :]
    listed = step < tl.minimum(degree, count)[:, None]
    node = origin[:, None] + tl.load(col + first[:, None] + step, mask=listed, other=0)
    there = step < count[:, None]
    if not TIMES:
        there &= (node != row[:, None]) | (step == degree[:, None])
    return tl.where(listed, node, row[:, None].to(tl.int64)) * HEADS + tl.program_id(1), there


@triton.jit
def _counts(times, first, degree, count, j, STEP: tl.constexpr, ACC: tl.constexpr):
    """How often the rows' neighbours from the j-th on count; one that is not in the list, once."""
    step = j + tl.arange(0, STEP)[None, :]
    listed = step < tl.minimum(degree, count)[:, None]
    return tl.load(times + first[:, None] + step, mask=listed, other=1).to(ACC)


@triton.jit
def _scores(own, other, place, there, ACC: tl.constexpr):
    # Minus infinity makes the weight of an absent neighbour 0. (A choice by `there` in its place is more than the
    # compiler of triton 3.6 can take, in float64.)
    return own[:, None] + tl.load(other + place, mask=there, other=float("-inf")).to(ACC)


@triton.jit
def _at_places(rows, place, there, channel, CHANNELS: tl.constexpr, ACC: tl.constexpr):
    channels = channel[None, None, :]
    inside = there[:, :, None] & (channels < CHANNELS)
    return tl.load(rows + place[:, :, None] * CHANNELS + channels, mask=inside, other=0).to(ACC)
