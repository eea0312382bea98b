"""The nodes of each graph in blocks of so many rows, for products that go over all nodes of a graph."""

from typing import NamedTuple

import torch
from torch import Tensor

from softmask.ops.graph_sum import graph_sum
from softmask.ops.segments import Segments, as_segments, side_by_side


class Blocks(NamedTuple):
    """Graphs cut into blocks of equally many rows: graphs of all sizes have matrix products of one shape.

    A graph that is larger than a block has several, of which the last is not full, so that little is padding: less than
    a block a graph, where a row for every node of the largest graph would be mostly that.

    Args:
        node: ``[blocks * rows]``, the node of each row, -1 for padding.
        place: ``[nodes]``, the row of each node, -1 for padding.
        graph: the graph of each block; those behind the last belong to none.
        rows: how many rows a block has.
    """

    node: Tensor
    place: Tensor
    graph: Segments
    rows: int

    def gather(self, x: Tensor) -> Tensor:
        """The rows ``[nodes, channels]`` of all nodes as ``[blocks, rows, channels]``, zero where there is none."""
        return _taken(x, self.node, self.place).unflatten(0, (-1, self.rows))

    @property
    def real(self) -> Tensor:
        """``[blocks, rows]``, whether there is a node."""
        return (self.node >= 0).unflatten(0, (-1, self.rows))

    def of_graph(self, y: Tensor) -> Tensor:
        """What the graph of each block has, of ``[graphs, ...]``; those of no graph have that of any."""
        return y[self.graph.graph.clamp(min=0)]

    def sum(self, x: Tensor, num_graphs: int) -> Tensor:
        """The sum over the blocks of each graph, of ``[blocks, ...]`` which must be finite."""
        return graph_sum(x.flatten(1), self.graph, num_graphs).unflatten(1, x.shape[1:])


def as_blocks(batch: Tensor | Segments, num_graphs: int, rows: int) -> Blocks:
    """Cuts the graphs of a batch into blocks.

    Args:
        batch: the graph of each node. The nodes of a graph stand side by side; where the batch does not say where they
            begin and end, the graphs stand in their order, end to end, and padding behind them.
        num_graphs: how many graphs there are, at least one.
        rows: of each block.
    """
    graph, first, last, _ = as_segments(batch)
    if first is None or last is None:
        one = torch.ones(graph.size(0), 1, device=graph.device, dtype=torch.float64)
        last = graph_sum(one, graph, num_graphs).squeeze(-1).long().cumsum(0)
        first = torch.cat([last.new_zeros(1), last])[:-1]
    size = last - first
    count = -(-size // rows)
    end = count.cumsum(0)
    block = torch.arange(num_blocks(graph.size(0), num_graphs, rows), device=graph.device)
    # How many graphs have all of their blocks before this one.
    of = (block.unsqueeze(1) >= end).sum(dim=1)
    there, of = of < num_graphs, of.clamp(max=num_graphs - 1)
    within = (block - (end - count)[of]).unsqueeze(1) * rows + torch.arange(rows, device=graph.device)
    real = there.unsqueeze(1) & (within < size[of].unsqueeze(1))
    node = torch.where(real, first[of].unsqueeze(1) + within, -1).flatten()
    mine = graph.clamp(min=0)
    place = (end - count)[mine] * rows + torch.arange(graph.size(0), device=graph.device) - first[mine]
    blocks = Segments(torch.where(there, of, -1), end - count, end)
    return Blocks(node, torch.where(graph < 0, -1, place), blocks, rows)


def num_blocks(num_nodes: int, num_graphs: int, rows: int) -> int:
    """How many blocks there are: as many as some graphs with so many nodes take at the most, whatever their sizes."""
    return (num_nodes + num_graphs * (rows - 1)) // rows


@torch.library.custom_op("softmask::taken", mutates_args=())
def _taken(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    r"""Rows at other places: :math:`\mathbf{y}_i = \mathbf{x}_{\mathrm{source}_i}`, zero where the source is negative.

    Every row is taken at most once, and ``target`` says by which, so that the gradient takes rows too, instead of
    adding them up in any order.
    """
    if x.size(0) == 0:
        return x.new_zeros(source.size(0), x.size(1))
    return torch.where((source < 0).unsqueeze(-1), 0, x[source.clamp(min=0)])


@_taken.register_fake
def _(x, source, target):
    return x.new_empty(source.size(0), x.size(1))


def _context(ctx, inputs, output):
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx, grad):
    source, target = ctx.saved_tensors
    return _taken(grad, target, source), None, None


_taken.register_autograd(_backward, setup_context=_context)


@_taken.register_vmap
def _(info, in_dims, x, source, target):
    """Replicas side by side: each takes its own rows."""
    replicas = info.batch_size
    x, source, target = (side_by_side(t, dim, replicas) for t, dim in zip((x, source, target), in_dims))
    place = torch.arange(replicas, device=x.device).unsqueeze(1)

    def beside(rows: Tensor, size: int) -> Tensor:
        return torch.where(rows < 0, rows, rows + place * size).reshape(-1)

    sources = beside(source, x.size(1)), beside(target, source.size(1))
    return _taken(x.reshape(-1, x.size(-1)), *sources).unflatten(0, (replicas, -1)), 0
