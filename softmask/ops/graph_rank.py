"""The rank of each node in its graph: definition, vmap rule, and the implementation by sorting."""

import torch
from torch import Tensor

from softmask.ops.segments import Segments, as_segments, side_by_side


def graph_rank(score: Tensor, batch: Tensor | Segments, num_graphs: int) -> Tensor:
    r"""How many nodes of its graph stand before each node, if those with high scores come first,

    .. math::
        r_v = \big| \{ u : \mathrm{batch}_u = \mathrm{batch}_v, \; s_u > s_v \; \text{or} \; s_u = s_v, \, u < v \}
        \big|

    so that of nodes with one score the earlier comes first. It has no gradient.

    Args:
        score: ``[nodes]``; not a number stands before all numbers.
        batch: ``[nodes]``, the graph of each node; a negative entry marks a node that is not there.
        num_graphs: how many graphs there are.

    Returns:
        ``[nodes]``, int64; -1 for a node that is not there.
    """
    return _graph_rank(score.detach(), as_segments(batch).graph, num_graphs)


@torch.library.custom_op("softmask::graph_rank", mutates_args=())
def _graph_rank(score: Tensor, graph: Tensor, num_graphs: int) -> Tensor:
    # Fixed shapes, and nothing waits for the device. What is not there forms one group more, behind all graphs.
    group = torch.where(graph < 0, num_graphs, graph).long()
    order = score.argsort(descending=True, stable=True)
    group_there, by_group = group[order].sort(stable=True)
    order = order[by_group]
    size = group.new_zeros(num_graphs + 1).index_add_(0, group, torch.ones_like(group))
    place = torch.arange(group.numel(), device=group.device)
    rank = torch.empty_like(group).scatter_(0, order, place - (size.cumsum(0) - size)[group_there])
    return torch.where(graph < 0, -1, rank)


@_graph_rank.register_fake
def _(score, graph, num_graphs):
    return torch.empty(graph.shape, dtype=torch.int64, device=graph.device)


@_graph_rank.register_vmap
def _(info, in_dims, score, graph, num_graphs):
    """Replicas side by side are one batch, sorted at once: replica r owns the graphs from r * num_graphs on."""
    replicas = info.batch_size
    sides = (side_by_side(t, dim, replicas) for t, dim in zip((score, graph), in_dims))
    score, graph = (t for t in sides if t is not None)
    replica = torch.arange(replicas, device=graph.device).unsqueeze(1)
    graph = torch.where(graph < 0, graph, graph + replica * num_graphs)
    rank = _graph_rank(score.reshape(-1), graph.reshape(-1), replicas * num_graphs)
    return rank.reshape(graph.shape), 0
