"""All pairs of nodes of each graph, as dense blocks: for small graphs."""

from typing import NamedTuple

import torch
from torch import Tensor

Blocks = tuple[tuple[int, int], ...]
"""Each block: how many graphs, and how many places for nodes each of them has."""


class PairBlocks(NamedTuple):
    """Nodes in space, in blocks of graphs that have equally many places for nodes.

    The nodes of a graph stand at the first of its places, padding behind them; the graphs of a block, and the blocks,
    stand end to end. So all pairs of nodes within graphs are dense arrays whose shapes never change, and a sum over
    pairs needs no index at all.

    Args:
        pos: ``[nodes, 3]``, where the nodes are; anything for padding.
        weight: ``[nodes]``, their masses, which define the centre of a graph.
        kind: ``[pairs]``, how a pair is bonded, from 1 on; 0 for a pair that is not bonded. The pairs of a graph with
            ``n`` places are ``n * n``, row by row: place ``i * n + j`` belongs to the nodes ``i`` and ``j``.
        blocks: the static layout.
    """

    pos: Tensor
    weight: Tensor
    kind: Tensor
    blocks: Blocks


def num_places(blocks: Blocks) -> int:
    """Places for nodes in all blocks."""
    return sum(graphs * places for graphs, places in blocks)


def num_pairs(blocks: Blocks) -> int:
    """Ordered pairs of places within graphs, each place with itself included."""
    return sum(graphs * places**2 for graphs, places in blocks)


def split_nodes(x: Tensor, blocks: Blocks) -> list[Tensor]:
    """What belongs to the nodes, ``[nodes, ...]``, block by block: ``[graphs, places, ...]`` each."""
    # One split: its gradient is one concatenation, where that of slices would add whole arrays of zeros.
    parts = x.split([graphs * places for graphs, places in blocks])
    return [part.unflatten(0, shape) for part, shape in zip(parts, blocks)]


def split_pairs(x: Tensor, blocks: Blocks) -> list[Tensor]:
    """What belongs to the pairs, ``[pairs or more, ...]``, block by block: ``[graphs, places, places, ...]`` each."""
    sizes = [graphs * places**2 for graphs, places in blocks]
    parts = x.split([*sizes, x.size(0) - sum(sizes)])
    return [part.unflatten(0, (graphs, n, n)) for part, (graphs, n) in zip(parts, blocks)]


def one_block(batch: Tensor, batch_size: int) -> tuple[Blocks, Tensor]:
    """PyG's form of a batch as one block, and the place of each node in it, ``[nodes]``; padding is behind all graphs.

    Args:
        batch: ``[nodes]``, the graph of each node; a negative entry marks padding.
        batch_size: the number of graphs.
    """
    real = (batch >= 0).nonzero().squeeze(1)
    graph = batch[real]
    order = torch.argsort(graph, stable=True)
    count = torch.bincount(graph, minlength=batch_size)
    first = count.cumsum(0) - count
    rank = torch.empty_like(graph)
    rank[order] = torch.arange(len(graph), device=graph.device) - first[graph[order]]
    places = max(int(count.max()), 1) if batch_size else 1
    at = batch.new_full((len(batch),), batch_size * places)
    at[real] = graph * places + rank
    return ((batch_size, places),), at


def put(values: Tensor, at: Tensor, places: int) -> Tensor:
    """What belongs to nodes, ``[nodes, ...]``, at their places, ``[places, ...]``; zero where there is no node."""
    # All padding meets in one place behind the last, which is cut off.
    return values.new_zeros(places + 1, *values.shape[1:]).index_copy(0, at, values)[:-1]


def as_pair_blocks(
    pos: Tensor,
    batch: Tensor,
    batch_size: int,
    edge_index: Tensor,
    edge_kind: Tensor | None = None,
    weight: Tensor | None = None,
) -> tuple[PairBlocks, Tensor]:
    """Brings PyG's form to one block, and says where each node of it stands, ``[nodes]``.

    Args:
        pos: ``[nodes, 3]``.
        batch: ``[nodes]``, the graph of each node; a negative entry marks padding.
        batch_size: the number of graphs.
        edge_index: ``[2, edges]``, the bonds, each of them both ways.
        edge_kind: ``[edges]``, their kinds, from 1 on; all 1 if not given.
        weight: ``[nodes]``, masses; all 1 if not given.
    """
    blocks, at = one_block(batch, batch_size)
    room, places = num_places(blocks), blocks[0][1]
    kind = torch.zeros(num_pairs(blocks), dtype=torch.long, device=pos.device)
    source, target = (at[end] for end in edge_index)
    kinds = torch.ones_like(source) if edge_kind is None else edge_kind.long()
    inside = (source < room) & (target < room) & (source != target)
    pair = target * places + source % places
    kind[pair[inside]] = kinds[inside]
    weight = pos.new_ones(len(batch)) if weight is None else weight
    return PairBlocks(put(pos, at, room), put(weight, at, room), kind, blocks), at
