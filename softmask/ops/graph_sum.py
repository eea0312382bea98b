"""The sum over the nodes of each graph: definition, gradient, vmap rule, and the plain PyTorch implementation."""

from typing import Any

import torch
from torch import Tensor


def graph_sum(x: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    r"""Sums the nodes of each graph,

    .. math::
        \mathbf{y}_g = \sum_{v : \mathrm{batch}_v = g} \mathbf{x}_v .

    Args:
        x: ``[nodes, channels]``.
        batch: ``[nodes]``, the graph of each node; a negative entry marks padding, which belongs to no graph.
        num_graphs: how many graphs there are; one without nodes sums to zero.

    Returns:
        ``[graphs, channels]``.
    """
    return _graph_sum(x, batch, num_graphs)


@torch.library.custom_op("softmask::graph_sum", mutates_args=())
def _graph_sum(x: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    # Padding is summed into one row more, which is cut off.
    row = torch.where(batch < 0, num_graphs, batch).long()
    out = x.new_zeros(num_graphs + 1, x.size(1)).index_add_(0, row, x)
    return out[:num_graphs].clone()


@_graph_sum.register_fake
def _(x, batch, num_graphs):
    return x.new_empty(num_graphs, x.size(1))


@torch.library.custom_op("softmask::graph_spread", mutates_args=())
def _graph_spread(y: Tensor, batch: Tensor) -> Tensor:
    """The transpose of the sum: each node takes its graph's row, padding takes zero."""
    if y.size(0) == 0:  # nothing but padding
        return y.new_zeros(batch.size(0), y.size(1))
    return torch.where((batch < 0).unsqueeze(-1), 0, y[batch.clamp(min=0)])


@_graph_spread.register_fake
def _(y, batch):
    return y.new_empty(batch.size(0), y.size(1))


def _sum_backward(ctx, grad):
    return _graph_spread(grad, ctx.saved_tensors[0]), None, None


def _spread_backward(ctx, grad):
    return _graph_sum(grad, ctx.saved_tensors[0], ctx.num_graphs), None


def _sum_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])


def _spread_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.num_graphs = inputs[0].size(0)


_graph_sum.register_autograd(_sum_backward, setup_context=_sum_context)
_graph_spread.register_autograd(_spread_backward, setup_context=_spread_context)


def _side_by_side(info: Any, in_dims: Any, rows: Tensor, batch: Tensor, num_graphs: int) -> tuple[Tensor, Tensor]:
    """Replicas side by side are one batch: replica r owns the graphs from r * num_graphs on."""
    rows = rows.expand(info.batch_size, *rows.shape) if in_dims[0] is None else rows.movedim(in_dims[0], 0)
    batch = batch.expand(info.batch_size, *batch.shape) if in_dims[1] is None else batch.movedim(in_dims[1], 0)
    first = torch.arange(info.batch_size, device=batch.device).unsqueeze(1) * num_graphs
    batch = torch.where(batch < 0, batch, batch + first)
    return rows.reshape(-1, rows.size(-1)), batch.reshape(-1)


@_graph_sum.register_vmap
def _(info, in_dims, x, batch, num_graphs):
    x, batch = _side_by_side(info, in_dims, x, batch, num_graphs)
    out = _graph_sum(x, batch, info.batch_size * num_graphs)
    return out.reshape(info.batch_size, num_graphs, out.size(-1)), 0


@_graph_spread.register_vmap
def _(info, in_dims, y, batch):
    num_graphs = y.size(-2) if in_dims[0] is None else y.movedim(in_dims[0], 0).size(1)
    y, batch = _side_by_side(info, in_dims, y, batch, num_graphs)
    out = _graph_spread(y, batch)
    return out.reshape(info.batch_size, out.size(0) // info.batch_size, out.size(-1)), 0
