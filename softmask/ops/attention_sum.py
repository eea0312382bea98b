"""The attention-weighted sum over neighbours: definition, gradient, vmap rule, and the plain implementation."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.neighbours import Neighbours, replicas_beside
from softmask.ops.segments import side_by_side

try:
    from softmask.ops import triton_attention
except ImportError:  # without triton the plain implementation serves CUDA too
    triton_attention = None  # type: ignore[assignment]


def attention_sum(
    x: Tensor, source: Tensor, target: Tensor, neighbours: Neighbours, slope: float = 0.2, itself: bool = False
) -> Tensor:
    r"""Sums the neighbours' rows, weighted by the attention of `"Graph Attention Networks"
    <https://arxiv.org/abs/1710.10903>`_, in every head,

    .. math::
        \mathbf{y}_v = \sum_{u \in \mathcal{N}(v) \setminus \{v\}} \alpha_{uv} \mathbf{x}_u, \qquad
        \alpha_{uv} = \mathrm{softmax}_u \, \mathrm{LeakyReLU}(s_u + t_v)

    with multiplicity where an edge stands twice, and without self loops; each entry as often as its weight says, if the
    graph has weights. A node without neighbours gets zero.
    There are gradients for ``x``, ``source`` and ``target``, of first order only.

    Args:
        x: ``[nodes, heads, channels]``.
        source: :math:`s`, ``[nodes, heads]``; may be of higher precision than ``x``.
        target: :math:`t`, ``[nodes, heads]``, of the type of ``source``.
        neighbours: the graph.
        slope: of LeakyReLU below zero; positive.
        itself: every node is also its own neighbour, once, whether or not it has a self loop.

    Returns:
        ``[nodes, heads, channels]``.
    """
    if x.dim() != 3:
        raise ValueError(f"x has shape {list(x.shape)}; expected [nodes, heads, channels]")
    for name, score in (("source", source), ("target", target)):
        if score.shape != x.shape[:2]:
            raise ValueError(f"{name} has shape {list(score.shape)}; expected {list(x.shape[:2])}, as x has")
    if source.dtype != target.dtype:
        raise ValueError(f"source is {source.dtype} and target {target.dtype}; expected one type")
    if slope <= 0:
        raise ValueError(f"slope must be positive, got {slope}")
    n = neighbours
    lists = (n.start, n.end, n.col, n.base, n.start_t, n.end_t, n.col_t, n.source, n.offset)
    return _attention_sum(x, source, target, *lists, n.weight, n.weight_t, n.entry, n.hubs, slope, itself)[0]


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@torch.library.custom_op("softmask::attention_sum", mutates_args=())
def _attention_sum(
    x: Tensor,
    source: Tensor,
    target: Tensor,
    start: Tensor,
    end: Tensor,
    col: Tensor,
    base: Tensor | None,
    start_t: Tensor | None,
    end_t: Tensor | None,
    col_t: Tensor | None,
    listed: Tensor | None,
    offset: Tensor | None,
    weight: Tensor | None,
    weight_t: Tensor | None,
    entry: Tensor | None,
    hubs: bool | None,
    slope: float,
    itself: bool,
) -> tuple[Tensor, Tensor]:
    """The sums, and the logarithm of each softmax's denominator ``[nodes, heads]``, of which the weights follow."""
    lists = Neighbours(start, end, col, base, source=listed, offset=offset, weight=weight, entry=entry)
    return _plain(x, source, target, lists, slope, itself)


@torch.library.custom_op("softmask::attention_sum_backward", mutates_args=())
def _attention_sum_backward(
    grad: Tensor,
    x: Tensor,
    source: Tensor,
    target: Tensor,
    log_total: Tensor,
    start: Tensor,
    end: Tensor,
    col: Tensor,
    base: Tensor | None,
    start_t: Tensor | None,
    end_t: Tensor | None,
    col_t: Tensor | None,
    listed: Tensor | None,
    offset: Tensor | None,
    weight: Tensor | None,
    weight_t: Tensor | None,
    entry: Tensor | None,
    hubs: bool | None,
    slope: float,
    itself: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, source and target."""
    lists = Neighbours(start, end, col, base, start_t, end_t, col_t, source=listed, offset=offset)
    lists = lists._replace(weight=weight, weight_t=weight_t, entry=entry)
    return _plain_backward(grad, x, source, target, log_total, lists, slope, itself)


def _plain(
    x: Tensor, source: Tensor, target: Tensor, neighbours: Neighbours, slope: float, itself: bool
) -> tuple[Tensor, Tensor]:
    wide, dtype = _wide(x), x.dtype
    x, source, target = x.to(wide), source.to(wide), target.to(wide)
    col, offset, _ = neighbours.listed()
    degree, row = _rows(col, offset)
    times = _times(neighbours, wide)
    score = F.leaky_relu(_take(source, col) + _take(target, row), slope)
    own = F.leaky_relu(source + target, slope)
    top = (
        torch.segment_reduce(score, "max", lengths=degree, unsafe=True)
        if col.numel()
        else torch.full_like(own, -torch.inf)
    )
    if itself:
        top = torch.maximum(top, own)
    weight = (score - _take(top, row)).exp() * times
    total = _segment_sum(weight, degree)
    if itself:
        own = (own - top).exp()
        total = total + own
    full = total != 0
    total = torch.where(full, total, 1)
    out = _weighted_sum(x, col, offset, weight / _take(total, row))
    if itself:
        out += (own / total).unsqueeze(-1) * x
    return out.to(dtype), torch.where(full, top + total.log(), 0)


def _plain_backward(
    grad: Tensor,
    x: Tensor,
    source: Tensor,
    target: Tensor,
    log_total: Tensor,
    neighbours: Neighbours,
    slope: float,
    itself: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""With :math:`\delta_v = \sum_u \alpha_{uv} \, \mathbf{g}_v \cdot \mathbf{x}_u`,

    .. math::
        \frac{\partial}{\partial \mathbf{x}_u} = \sum_v \alpha_{uv} \mathbf{g}_v, \qquad
        \frac{\partial}{\partial (s_u + t_v)} = \alpha_{uv} \, (\mathbf{g}_v \cdot \mathbf{x}_u - \delta_v)
        \, \mathrm{LeakyReLU}^{\prime}(s_u + t_v) .
    """
    wide, dtypes = _wide(x), (x.dtype, source.dtype, target.dtype)
    grad, x, source, target = (t.to(wide) for t in (grad, x, source, target))
    col, offset, _ = neighbours.listed()
    degree, row = _rows(col, offset)
    weight, steepness = _weights(_take(source, col) + _take(target, row), _take(log_total, row), slope)
    weight = weight * _times(neighbours, wide)
    product = weight * _edge_products(grad, x, col, row, offset)
    delta = _segment_sum(product, degree)
    if itself:
        own, own_steepness = _weights(source + target, log_total, slope)
        own_product = own * (grad * x).sum(dim=-1)
        delta = delta + own_product
    change = (product - weight * _take(delta, row)) * steepness
    grad_target = _segment_sum(change, degree)
    grad_source = torch.zeros_like(grad_target).scatter_add_(0, col.unsqueeze(1).expand_as(change), change)
    # Weights in the order of the sources' rows, so that this is a sum over rows, too.
    turned = neighbours.transpose()
    back, back_offset, _ = turned.listed()
    _, back_row = _rows(back, back_offset)
    weight, _ = _weights(_take(source, back_row) + _take(target, back), _take(log_total, back), slope)
    grad_x = _weighted_sum(grad, back, back_offset, weight * _times(turned, wide))
    if itself:
        own_change = (own_product - own * delta) * own_steepness
        grad_target, grad_source = grad_target + own_change, grad_source + own_change
        grad_x += own.unsqueeze(-1) * grad
    return grad_x.to(dtypes[0]), grad_source.to(dtypes[1]), grad_target.to(dtypes[2])


def _rows(col: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """How many neighbours each row of a list has, and the row of each neighbour."""
    degree = torch.diff(offset, append=offset.new_full((1,), col.numel()))
    return degree, torch.repeat_interleave(degree, output_size=col.numel())


def _times(neighbours: Neighbours, dtype: torch.dtype) -> Tensor | float:
    """How often each neighbour of a list counts, ``[edges, 1]``."""
    if neighbours.weight is None:
        return 1.0
    return neighbours.weight[neighbours.listed()[2]].to(dtype).unsqueeze(-1)


def _weights(score: Tensor, log_total: Tensor, slope: float) -> tuple[Tensor, Tensor]:
    """The attention, and the derivative of LeakyReLU."""
    steepness = torch.full_like(score, slope).masked_fill_(score > 0, 1)
    return (F.leaky_relu(score, slope) - log_total).exp(), steepness


def _segment_sum(values: Tensor, degree: Tensor) -> Tensor:
    if values.numel() == 0:
        return values.new_zeros(degree.numel(), values.size(1))
    return torch.segment_reduce(values, "sum", lengths=degree, unsafe=True)


def _weighted_sum(x: Tensor, col: Tensor, offset: Tensor, weight: Tensor) -> Tensor:
    """For each row of a list the weighted sum of the rows of x that it names, without forming them all."""
    if col.numel() == 0 or x.numel() == 0:
        return torch.zeros_like(x, memory_format=torch.contiguous_format)
    weight = weight.t().contiguous()
    heads = [F.embedding_bag(col, x[:, h], offset, mode="sum", per_sample_weights=w) for h, w in enumerate(weight)]
    return torch.stack(heads, dim=1)


def _edge_products(a: Tensor, b: Tensor, col: Tensor, row: Tensor, offset: Tensor) -> Tensor:
    """For each neighbour in a list the inner product of its row of b with its list's row of a, in every head,
    ``[edges, heads]``, without forming these rows.
    """
    if col.numel() == 0 or a.numel() == 0:
        return a.new_zeros(col.numel(), a.size(1))
    # That is the gradient of the weights of embedding_bag, whose sums `_weighted_sum` takes.
    products = torch.ops.aten._embedding_bag_per_sample_weights_backward
    return torch.stack([products(a[:, h], b[:, h], col, offset, row, 0) for h in range(a.size(1))], dim=1)


def _take(rows: Tensor, index: Tensor) -> Tensor:
    """As ``rows[index]``, many times as fast on a CPU."""
    return rows.contiguous().index_select(0, index)


@_attention_sum.register_kernel("cuda")
def _(
    x, source, target, start, end, col, base, start_t, end_t, col_t, listed, offset, weight, weight_t, entry,
    hubs, slope, itself,
):  # fmt: skip
    if triton_attention is None:
        return _plain(x, source, target, Neighbours(start, end, col, base, weight=weight), slope, itself)
    return triton_attention.attend(x, source, target, start, end, col, base, weight, slope, itself, hubs is not False)


@_attention_sum_backward.register_kernel("cuda")
def _(
    grad, x, source, target, log_total, start, end, col, base, start_t, end_t, col_t, listed, offset, weight, weight_t,
    entry, hubs, slope, itself,
):  # fmt: skip
    if triton_attention is None:
        lists = Neighbours(start, end, col, base, start_t, end_t, col_t, weight=weight, weight_t=weight_t)
        return _plain_backward(grad, x, source, target, log_total, lists, slope, itself)
    rows = (start, end, col, weight)
    turned = (start, end, col, weight_t) if col_t is None else (start_t, end_t, col_t, None)
    scores = (source, target, log_total)
    return triton_attention.attend_backward(grad, x, *scores, rows, turned, base, slope, itself, hubs is not False)


@_attention_sum.register_fake
def _(x, source, *rest):
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(x.shape[:2], dtype=_wide(x))


@_attention_sum_backward.register_fake
def _(grad, x, source, target, *rest):
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, source, target))


def _setup_context(ctx, inputs, output):
    *tensors, ctx.hubs, ctx.slope, ctx.itself = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*tensors[:3], output[1], *tensors[3:])


def _backward(ctx, grad, _):
    grads = _attention_sum_backward(grad, *ctx.saved_tensors, ctx.hubs, ctx.slope, ctx.itself)
    return *grads, *[None] * 15


_attention_sum.register_autograd(_backward, setup_context=_setup_context)


@_attention_sum.register_vmap
def _(info, in_dims, *args):
    return _beside(_attention_sum, 3, info.batch_size, in_dims, args)


@_attention_sum_backward.register_vmap
def _(info, in_dims, *args):
    return _beside(_attention_sum_backward, 5, info.batch_size, in_dims, args)


def _beside(op, count, replicas, in_dims, args):
    """Replicas side by side are one large graph. The first `count` arguments are of the nodes."""
    values: list[Any] = [side_by_side(t, dim, replicas) for t, dim in zip(args[:count], in_dims)]
    nodes, dims = values[0].size(1), in_dims[count:]
    lists, of_replicas = (Neighbours(*t[:7])._replace(source=t[7], offset=t[8]) for t in (args[count:], dims))
    weight, weight_t, entry, *options = args[count + 9 :]
    if weight is not None and of_replicas.col is not None:
        raise ValueError("the weights belong to the store and are shared by all replicas")
    lists = lists._replace(weight=weight, weight_t=weight_t, entry=entry)
    flat = replicas_beside(lists, of_replicas, replicas, nodes)
    tensors = (t.reshape(replicas * nodes, *t.shape[2:]) for t in values)
    out = op(*tensors, *flat[:7], flat.source, flat.offset, flat.weight, flat.weight_t, flat.entry, *options)
    return tuple(t.reshape(replicas, nodes, *t.shape[1:]) for t in out), (0,) * len(out)
