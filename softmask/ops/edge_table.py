"""Neighbours as a table, a row a node: for graphs of few neighbours each whose edges carry numbers."""

from typing import NamedTuple

import torch
from torch import Tensor

from softmask.ops.segments import side_by_side


class EdgeTable(NamedTuple):
    """The edges into every node, side by side, padded to the most that any node has.

    Args:
        source: ``[nodes, places]``, where each edge comes from; 0 where there is none.
        back: ``[nodes, places]``, the place of the same edge, turned round, in the row of its source.
        there: ``[nodes, places]``, whether there is an edge.
        attr: ``[nodes, places, channels]``, what the edges carry; zero where there is none.
    """

    source: Tensor
    back: Tensor
    there: Tensor
    attr: Tensor


def as_edge_table(edge_index: Tensor, edge_attr: Tensor, num_nodes: int) -> EdgeTable:
    """Brings PyG's form to a table. Every edge must have its counterpart the other way; self loops are left out."""
    keep = edge_index[0] != edge_index[1]
    (source, target), attr = edge_index[:, keep], edge_attr[keep]
    order = torch.argsort(target * max(num_nodes, 1) + source, stable=True)
    source, target, attr = source[order], target[order], attr[order]
    count = torch.bincount(target, minlength=num_nodes)
    first = count.cumsum(0) - count
    place = torch.arange(len(target), device=target.device) - first[target]
    # Edges are in the order (target, source); in the order (source, target) each stands where its counterpart is.
    turned = torch.argsort(source * max(num_nodes, 1) + target, stable=True)
    if not (torch.equal(source[turned], target) and torch.equal(target[turned], source)):
        raise ValueError("an edge has no counterpart the other way; edge features need undirected graphs")
    shape = (num_nodes, int(count.max()) if num_nodes and len(count) else 0)
    sources, back = (torch.zeros(shape, dtype=torch.long, device=source.device) for _ in range(2))
    sources[target, place], back[target, place] = source, place[turned]
    there = torch.zeros(shape, dtype=torch.bool, device=source.device)
    there[target, place] = True
    carried = attr.new_zeros(*shape, attr.size(-1))
    carried[target, place] = attr
    return EdgeTable(sources, back, there, carried)


def from_sources(x: Tensor, table: EdgeTable) -> Tensor:
    """The rows of x at the sources of all edges, ``[nodes, places, channels]``, zero where there is no edge.

    The gradient goes back along the same edges turned round, in a fixed order: no node is written to twice.
    """
    return _from_sources(x, table.source, table.back, table.there)


@torch.library.custom_op("softmask::from_sources", mutates_args=())
def _from_sources(x: Tensor, source: Tensor, back: Tensor, there: Tensor) -> Tensor:
    if x.size(0) == 0:
        return x.new_zeros(*source.shape, x.size(1))
    return torch.where(there.unsqueeze(-1), x[source], 0)


@_from_sources.register_fake
def _(x, source, back, there):
    return x.new_empty(*source.shape, x.size(1))


@torch.library.custom_op("softmask::to_sources", mutates_args=())
def _to_sources(y: Tensor, source: Tensor, back: Tensor, there: Tensor) -> Tensor:
    """The transpose: every node sums what the edges that leave it hold in their targets' rows."""
    if y.size(0) == 0:
        return y.new_zeros(0, y.size(2))
    return torch.where(there.unsqueeze(-1), y[source, back], 0).sum(dim=1)


@_to_sources.register_fake
def _(y, source, back, there):
    return y.new_empty(y.size(0), y.size(2))


def _context(ctx, inputs, output):
    ctx.save_for_backward(*inputs[1:])


def _gather_backward(ctx, grad):
    return _to_sources(grad, *ctx.saved_tensors), None, None, None


def _scatter_backward(ctx, grad):
    return _from_sources(grad, *ctx.saved_tensors), None, None, None


_from_sources.register_autograd(_gather_backward, setup_context=_context)
_to_sources.register_autograd(_scatter_backward, setup_context=_context)


def _flat(info, in_dims, values, source, back, there):
    """Replicas side by side are one graph: replica r owns the nodes from r * nodes on."""
    replicas = info.batch_size
    values, source, back, there = (
        side_by_side(t, dim, replicas) for t, dim in zip((values, source, back, there), in_dims)
    )
    first = torch.arange(replicas, device=source.device).reshape(-1, 1, 1) * values.size(1)
    return (t.flatten(0, 1) for t in (values, source + first, back, there))


@_from_sources.register_vmap
def _(info, in_dims, x, source, back, there):
    out = _from_sources(*_flat(info, in_dims, x, source, back, there))
    return out.unflatten(0, (info.batch_size, -1)), 0


@_to_sources.register_vmap
def _(info, in_dims, y, source, back, there):
    out = _to_sources(*_flat(info, in_dims, y, source, back, there))
    return out.unflatten(0, (info.batch_size, -1)), 0
