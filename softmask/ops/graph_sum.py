"""The sum over the nodes of each graph: definition, gradient, vmap rule, and the plain PyTorch implementation."""

from typing import Any

import torch
from torch import Tensor

from softmask.ops.segments import Segments, as_segments

try:
    from softmask.ops import triton_sums
except ImportError:  # without triton the plain implementation serves CUDA too
    triton_sums = None  # type: ignore[assignment]


def graph_sum(x: Tensor, batch: Tensor | Segments, num_graphs: int) -> Tensor:
    r"""Sums the nodes of each graph,

    .. math::
        \mathbf{y}_g = \sum_{v : \mathrm{batch}_v = g} \mathbf{x}_v .

    Args:
        x: ``[nodes, channels]``.
        batch: ``[nodes]``, the graph of each node; a negative entry marks padding, which belongs to no graph.
        num_graphs: how many graphs there are; one without nodes sums to zero.

    Returns:
        ``[graphs, channels]``, in float32 where ``x`` is of half precision: a sum over thousands of nodes needs it.
    """
    return _graph_sum(x, *as_segments(batch), num_graphs)


def _sum_dtype(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype


def _plain(x: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    # Padding is summed into one row more, which is cut off.
    row = torch.where(graph < 0, num_graphs, graph).long()
    out = x.new_zeros(num_graphs + 1, x.size(1), dtype=_sum_dtype(x)).index_add_(0, row, x.to(_sum_dtype(x)))
    return out[:num_graphs].clone()


@torch.library.custom_op("softmask::graph_sum", mutates_args=())
def _graph_sum(x: Tensor, graph: Tensor, first: Tensor | None, last: Tensor | None, num_graphs: int) -> Tensor:
    return _plain(x, graph, num_graphs)


@_graph_sum.register_kernel("cuda")
def _(x, graph, first, last, num_graphs):
    if triton_sums is None or first is None:
        return _plain(x, graph, num_graphs)
    return triton_sums.segment_sum(x, first, last, _sum_dtype(x))


@_graph_sum.register_fake
def _(x, graph, first, last, num_graphs):
    return x.new_empty(num_graphs, x.size(1), dtype=_sum_dtype(x))


@torch.library.custom_op("softmask::graph_spread", mutates_args=())
def _graph_spread(y: Tensor, graph: Tensor, first: Tensor | None, last: Tensor | None) -> Tensor:
    """The transpose of the sum: each node takes its graph's row, padding takes zero."""
    return _plain_spread(y, graph)


def _plain_spread(y: Tensor, graph: Tensor) -> Tensor:
    if y.size(0) == 0:  # nothing but padding
        return y.new_zeros(graph.size(0), y.size(1))
    return torch.where((graph < 0).unsqueeze(-1), 0, y[graph.clamp(min=0)])


@_graph_spread.register_kernel("cuda")
def _(y, graph, first, last):
    if triton_sums is None:
        return _plain_spread(y, graph)
    return triton_sums.segment_spread(y, graph)


@_graph_spread.register_fake
def _(y, graph, first, last):
    return y.new_empty(graph.size(0), y.size(1))


def _sum_context(ctx, inputs, output):
    x, graph, first, last, _ = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(graph, first, last)


def _sum_backward(ctx, grad):
    return _graph_spread(grad.to(ctx.dtype), *ctx.saved_tensors), None, None, None, None


def _spread_context(ctx, inputs, output):
    y, *segments = inputs
    ctx.num_graphs = y.size(0)
    ctx.save_for_backward(*segments)


def _spread_backward(ctx, grad):
    return _graph_sum(grad, *ctx.saved_tensors, ctx.num_graphs).to(grad.dtype), None, None, None


_graph_sum.register_autograd(_sum_backward, setup_context=_sum_context)
_graph_spread.register_autograd(_spread_backward, setup_context=_spread_context)


def _side_by_side(info: Any, in_dims: Any, rows: Tensor, segments: Segments, num_graphs: int) -> tuple[Tensor, Any]:
    """Replicas side by side are one batch: replica r owns the graphs from r * num_graphs on."""

    def batched(t: Tensor | None, dim: int | None) -> Tensor | None:
        if t is None:
            return None
        return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

    rows, graph, first, last = (batched(t, dim) for t, dim in zip((rows, *segments), in_dims))  # type: ignore[assignment]
    assert graph is not None
    replica = torch.arange(info.batch_size, device=rows.device).unsqueeze(1)
    nodes = graph.size(1)
    graph = torch.where(graph < 0, graph, graph + replica * num_graphs)
    ends = (None if t is None else (t + replica * nodes).reshape(-1) for t in (first, last))
    return rows.reshape(-1, rows.size(-1)), Segments(graph.reshape(-1), *ends)


@_graph_sum.register_vmap
def _(info, in_dims, x, graph, first, last, num_graphs):
    x, segments = _side_by_side(info, in_dims[:4], x, Segments(graph, first, last), num_graphs)
    out = _graph_sum(x, *segments, info.batch_size * num_graphs)
    return out.reshape(info.batch_size, num_graphs, out.size(-1)), 0


@_graph_spread.register_vmap
def _(info, in_dims, y, graph, first, last):
    num_graphs = y.size(-2) if in_dims[0] is None else y.movedim(in_dims[0], 0).size(1)
    y, segments = _side_by_side(info, in_dims, y, Segments(graph, first, last), num_graphs)
    out = _graph_spread(y, *segments)
    return out.reshape(info.batch_size, out.size(0) // info.batch_size, out.size(-1)), 0
