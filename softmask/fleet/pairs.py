"""Batches for models of all pairs of nodes: the places of the graphs; where nodes lie in space, and their bonds."""

from inspect import signature
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.atoms import Atoms
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.ops.pair_blocks import Blocks, PairBlocks, num_pairs

# More blocks mean less padding and more launches.
_BLOCKS = 4
# Places of a slot come in multiples of this where matrices ``[channels, pairs]`` are multiplied: their rows then begin
# at whole 32 bytes, in half precision too, which tensor cores want. On six TU sets that is 1 to 3% more pairs, on
# molecules of QM9 4%; what it gains on a GPU is not measured.
WHOLE = 4


class Layout(NamedTuple):
    """The place of every graph of a batch, the same for all batches: its slot has room for the largest it may hold.

    Args:
        blocks: runs of slots with equally many places.
        first: ``[slots]``, the first place of each slot.
        slot: ``[nodes]``, the slot of each place.
        pair_slot, row, column: ``[pairs]``, the slot of each pair and its two places, counted from the slot's first.
    """

    blocks: Blocks
    first: Tensor
    slot: Tensor
    pair_slot: Tensor
    row: Tensor
    column: Tensor

    @classmethod
    def of(cls, blocks: Blocks, device: torch.device) -> "Layout":
        """The layout of some blocks."""
        graphs, places = (torch.tensor(t) for t in zip(*blocks))
        room = torch.repeat_interleave(places, graphs)
        slots = torch.arange(len(room))
        pair_slot = torch.repeat_interleave(slots, room**2)
        inside = torch.arange(num_pairs(blocks)) - ((room**2).cumsum(0) - room**2)[pair_slot]
        wide = room[pair_slot]
        arrays = (room.cumsum(0) - room, torch.repeat_interleave(slots, room), pair_slot, inside // wide, inside % wide)
        return cls(blocks, *(t.to(device) for t in arrays))


def works_on_pairs(model: Module) -> bool:
    """Whether a model wants its graphs in blocks, as ``pair_blocks``, to work on all pairs of their nodes."""
    return "pair_blocks" in signature(model.forward).parameters


def holds_pairs(model: Module) -> bool:
    """Whether a model has vectors for all pairs of nodes of a graph: one that wants blocks, or to know where nodes are,
    as ``pos``.
    """
    return works_on_pairs(model) or "pos" in signature(model.forward).parameters


def places_in(model: Module) -> int:
    """In multiples of how many the places of a slot come: a model with positions that multiplies matrices of pairs says
    so, as ``multiplies_pairs``.
    """
    return WHOLE if works_on_pairs(model) or getattr(model, "multiplies_pairs", False) else 1


def fewest_pairs(largest: np.ndarray, most: int = _BLOCKS) -> Blocks:
    """Runs of slots, at most so many, that pad slots of falling sizes to the fewest pairs of places."""
    sizes, counts = np.unique(np.maximum(largest, 1), return_counts=True)
    sizes, before = sizes[::-1], np.concatenate([[0], np.cumsum(counts[::-1])])
    n = len(sizes)
    # cost[b]: the fewest pairs of the first b sizes; cut[k][b]: where the last of k runs begins.
    cost = np.where(np.arange(n + 1) == 0, 0, np.iinfo(np.int64).max // 2)
    cuts: list[np.ndarray] = []
    for _ in range(min(most, n)):
        run = sizes[:, None].astype(np.int64) ** 2 * np.maximum(before[None, :] - before[:-1, None], 0)
        total = np.where(np.arange(n)[:, None] < np.arange(n + 1), cost[:-1, None] + run, np.iinfo(np.int64).max // 2)
        cuts.append(total.argmin(axis=0))
        cost = np.concatenate([[np.iinfo(np.int64).max // 2], total.min(axis=0)[1:]])
    blocks, end = [], n
    for cut in reversed(cuts):
        begin = int(cut[end])
        blocks.append((int(before[end] - before[begin]), int(sizes[begin])))
        end = begin
    return tuple(reversed(blocks))


class StorePairs(NamedTuple):
    """Where the nodes of a store are, and how the pairs of nodes within graphs are bonded.

    Args:
        pos: ``[nodes, 3]``.
        weight: ``[nodes]``, masses.
        kind: ``[pairs]`` uint8, the kind of bond of all ordered pairs, graph by graph, row by row; 0 for none.
        first: ``[graphs]``, the first pair of each graph.
    """

    pos: Tensor
    weight: Tensor
    kind: Tensor
    first: Tensor

    @classmethod
    def of(cls, store: GraphStore, kind: Tensor, weight: Tensor) -> "StorePairs":
        """From the kinds of the store's edges, ``[edges]`` from 1 on and ordered as ``col``, and its nodes' masses."""
        if store.pos is None or store.pos.size(1) != 3:
            raise SettingError("these graphs have no positions in space")
        if store.directed:
            raise SettingError("bonds need undirected graphs: some edge has no counterpart the other way")
        sizes = store.sizes
        first = (sizes**2).cumsum(0) - sizes**2
        _, target = store.edges()
        graph = store.batch[target]
        place = first[graph] + (target - store.node_ptr[graph]) * sizes[graph] + store.col
        kinds = torch.zeros(int((sizes**2).sum()), dtype=torch.uint8, device=store.device)
        kinds[place] = kind.to(torch.uint8)
        return cls(store.pos, weight, kinds, first)

    @classmethod
    def of_atoms(cls, store: GraphStore) -> "StorePairs":
        """Those of molecules in space; refuses any other graphs."""
        _, kind, mass = Atoms.of(store)
        return cls.of(store, kind, mass)

    def to(self, device: torch.device, dtype: torch.dtype) -> "StorePairs":
        """On another device; positions and masses in the type `dtype`."""
        placed = (self.pos.to(device, dtype), self.weight.to(device, dtype))
        return StorePairs(*placed, self.kind.to(device), self.first.to(device))

    def batch(self, ids: Tensor, size: Tensor, node: Tensor, layout: Layout) -> PairBlocks:
        """The pairs of a batch: graphs and their sizes ``[replicas, slots]``, and the node of each place."""
        wide = size[:, layout.pair_slot]
        there = (layout.row < wide) & (layout.column < wide)
        at = self.first[ids][:, layout.pair_slot] + layout.row * wide + layout.column
        kind = torch.where(there, self.kind[torch.where(there, at, 0)], 0)
        return PairBlocks(self.pos[node], self.weight[node], kind, layout.blocks)
