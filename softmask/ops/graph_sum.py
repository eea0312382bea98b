"""The sum over the nodes of each graph, and its transpose: definition, gradient, vmap rule, plain PyTorch."""

import torch
from torch import Tensor

from softmask.ops.levels import Lists, list_sum
from softmask.ops.segments import Segments, as_segments, side_by_side

try:
    from softmask.ops import triton_sums
except ImportError:  # without triton the plain implementation serves CUDA too
    triton_sums = None  # type: ignore[assignment]


def graph_sum(x: Tensor, batch: Tensor | Segments | Lists, num_graphs: int) -> Tensor:
    r"""Sums the nodes of each graph,

    .. math::
        \mathbf{y}_g = \sum_{v : \mathrm{batch}_v = g} \mathbf{x}_v .

    Args:
        x: ``[nodes, channels]``.
        batch: ``[nodes]``, the graph of each node; a negative entry marks padding, which belongs to no graph. Segments
            with weights count each node that often. Or lists of the rows of `x` that the nodes of each graph have.
        num_graphs: how many graphs there are; one without nodes sums to zero.

    Returns:
        ``[graphs, channels]``, in float32 where ``x`` is of half precision: a sum over thousands of nodes needs it.
    """
    if isinstance(batch, Lists):
        return list_sum(x.to(_sum_dtype(x)), batch)
    graph, first, last, weight = as_segments(batch)
    if weight is not None:
        # In the weight's own type: half precision does not hold every number of nodes.
        x = x * weight.unsqueeze(-1)
    return _graph_sum(x, graph, first, last, num_graphs)


def _sum_dtype(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype


def _plain(x: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    # Padding is summed into one row more, which is cut off. A graph too many must not land there: it is out of range.
    row = torch.where(graph < 0, num_graphs, graph + (graph >= num_graphs)).long()
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


def _spread(y: Tensor, graph: Tensor) -> Tensor:
    """The transpose of the sum: each node takes its graph's row, padding takes zero.

    No operator of its own, so that a compiler can fuse it with whatever takes the rows.
    """
    if y.size(0) == 0:  # nothing but padding
        return y.new_zeros(graph.size(0), y.size(1))
    return torch.where((graph < 0).unsqueeze(-1), 0, y[graph.clamp(min=0)])


def _sum_context(ctx, inputs, output):
    x, graph, *_ = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(graph)


def _sum_backward(ctx, grad):
    return _spread(grad.to(ctx.dtype), *ctx.saved_tensors), None, None, None, None


_graph_sum.register_autograd(_sum_backward, setup_context=_sum_context)


@_graph_sum.register_vmap
def _(info, in_dims, x, graph, first, last, num_graphs):
    """Replicas side by side are one batch: replica r owns the graphs from r * num_graphs on."""
    replicas = info.batch_size
    x, graph, first, last = (side_by_side(t, dim, replicas) for t, dim in zip((x, graph, first, last), in_dims))
    replica = torch.arange(replicas, device=x.device).unsqueeze(1)
    nodes = graph.size(1)
    graph = torch.where(graph < 0, graph, graph + replica * num_graphs)
    ends = (None if t is None else (t + replica * nodes).reshape(-1) for t in (first, last))
    out = _graph_sum(x.reshape(-1, x.size(-1)), graph.reshape(-1), *ends, replicas * num_graphs)
    return out.reshape(replicas, num_graphs, out.size(-1)), 0


def graph_rows(y: Tensor, batch: Tensor | Segments) -> Tensor:
    """Each node takes the row of its graph, ``[nodes, channels]`` of ``[graphs, channels]``; padding takes zero.

    The transpose of :func:`graph_sum`, which is its gradient: no sum depends on the order in which threads finish.
    """
    graph, first, last, _ = as_segments(batch)
    return _graph_rows(y, graph, first, last)


@torch.library.custom_op("softmask::graph_rows", mutates_args=())
def _graph_rows(y: Tensor, graph: Tensor, first: Tensor | None, last: Tensor | None) -> Tensor:
    return _spread(y, graph)


@_graph_rows.register_fake
def _(y, graph, first, last):
    return y.new_empty(graph.size(0), y.size(1))


def _rows_context(ctx, inputs, output):
    y, *segments = inputs
    ctx.num_graphs, ctx.dtype = y.size(0), y.dtype
    ctx.save_for_backward(*segments)


def _rows_backward(ctx, grad):
    return _graph_sum(grad, *ctx.saved_tensors, ctx.num_graphs).to(ctx.dtype), None, None, None


_graph_rows.register_autograd(_rows_backward, setup_context=_rows_context)


@_graph_rows.register_vmap
def _(info, in_dims, y, graph, first, last):
    """As for the sum."""
    replicas = info.batch_size
    y, graph, first, last = (side_by_side(t, dim, replicas) for t, dim in zip((y, graph, first, last), in_dims))
    replica = torch.arange(replicas, device=y.device).unsqueeze(1)
    nodes = graph.size(1)
    graph = torch.where(graph < 0, graph, graph + replica * y.size(1))
    ends = (None if t is None else (t + replica * nodes).reshape(-1) for t in (first, last))
    out = _graph_rows(y.reshape(-1, y.size(-1)), graph.reshape(-1), *ends)
    return out.reshape(replicas, nodes, out.size(-1)), 0
