"""The maximum over the nodes of each graph: definition, gradient, vmap rule, and the plain PyTorch implementation."""

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.graph_sum import graph_sum
from softmask.ops.segments import Segments, as_segments, side_by_side


def graph_max(x: Tensor, batch: Tensor | Segments, num_graphs: int) -> Tensor:
    r"""The largest entry of each channel among the nodes of each graph,

    .. math::
        \mathbf{y}_g = \max_{v : \mathrm{batch}_v = g} \mathbf{x}_v .

    Nodes that share the maximum share its gradient.

    Args:
        x: ``[nodes, channels]``.
        batch: ``[nodes]``, the graph of each node; a negative entry marks a node that is not there.
        num_graphs: how many graphs there are; that of one without nodes is zero.

    Returns:
        ``[graphs, channels]``, in float32 where ``x`` is of half precision, as :func:`graph_sum` has it.
    """
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    return _graph_max(x.to(wide), as_segments(batch).graph, num_graphs)


@torch.library.custom_op("softmask::graph_max", mutates_args=())
def _graph_max(x: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    # What is not there goes into one row more, which is cut off; the row of a graph without nodes stays zero.
    row = torch.where(graph < 0, num_graphs, graph).long().unsqueeze(-1).expand_as(x)
    out = x.new_zeros(num_graphs + 1, x.size(1)).scatter_reduce_(0, row, x, "amax", include_self=False)
    return out[:num_graphs].clone()


@_graph_max.register_fake
def _(x, graph, num_graphs):
    return x.new_empty(num_graphs, x.size(1))


def _setup_context(ctx, inputs, output):
    x, graph, ctx.num_graphs = inputs
    ctx.save_for_backward(x, graph, output)


def _backward(ctx, grad):
    x, graph, out = ctx.saved_tensors
    # The row behind the last is that of nodes that are not there; no number equals it.
    row = torch.where(graph < 0, ctx.num_graphs, graph)
    at_top = (x == F.pad(out, (0, 0, 0, 1), value=torch.nan).index_select(0, row)).to(x.dtype)
    share = grad / graph_sum(at_top, graph, ctx.num_graphs).clamp(min=1)
    return at_top * F.pad(share, (0, 0, 0, 1)).index_select(0, row), None, None


_graph_max.register_autograd(_backward, setup_context=_setup_context)


@_graph_max.register_vmap
def _(info, in_dims, x, graph, num_graphs):
    """Replicas side by side are one batch: replica r owns the graphs from r * num_graphs on."""
    replicas = info.batch_size
    sides = (side_by_side(t, dim, replicas) for t, dim in zip((x, graph), in_dims))
    x, graph = (t for t in sides if t is not None)
    replica = torch.arange(replicas, device=x.device).unsqueeze(1)
    graph = torch.where(graph < 0, graph, graph + replica * num_graphs)
    out = _graph_max(x.reshape(-1, x.size(-1)), graph.reshape(-1), replicas * num_graphs)
    return out.reshape(replicas, num_graphs, out.size(-1)), 0
