"""Nodes computed as one row as long as no layer has told them apart: batches by the rounds of colour refinement."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.fleet.quotient import Quotient, edges_of, mixed
from softmask.ops.levels import LayerRounds, Levels, Lists, Round

# Batches of so many nodes are kept, about 1 kB for each.
_KEPT = 2**18


class LevelledBatch(NamedTuple):
    """One batch of one replica.

    Args:
        x: the input of its first classes.
        levels: all its classes.
        graphs: ``[1, slots]``, graph ids, -1 for an empty slot.
    """

    x: Tensor
    levels: Levels
    graphs: Tensor


class StoreLevels:
    """The colours of all nodes of a store after 0, 1, 2, ... rounds of colour refinement, and batches by them.

    At first nodes of equal input have one colour, of whatever graph they are. In every round they keep it if as many
    neighbours of each have any colour. A soft-mask layer sums over neighbours twice, for its masks and for its output,
    so that the masks of layer k follow from the colours after 2k - 1 rounds, its output from those after 2k.

    Args:
        store: undirected graphs, on the CPU.
        x: the input of all nodes.
        layers: how many soft-mask layers the model has.
        quotient: what the store is the store of, if its nodes stand for several.
    """

    def __init__(self, store: GraphStore, x: Tensor, layers: int, quotient: Quotient | None = None):
        self.x = x
        # Plain numpy from here on: a batch takes some dozens of small operations, each of which costs torch more.
        self.size = None if quotient is None else quotient.size.numpy()
        self.weight = None if quotient is None else quotient.weight.numpy()
        row, source = edges_of(store, loops=quotient is not None)
        self.source = source.numpy()
        self.row_ptr = torch.searchsorted(row, torch.arange(store.num_nodes + 1)).numpy()
        self.node_ptr = store.node_ptr.numpy()
        colour = torch.zeros(store.num_nodes, dtype=torch.int64)
        for column in x.reshape(x.size(0), -1).unbind(1):
            colour = _refined(colour, torch.unique(column.double(), return_inverse=True)[1])
        colours = [colour]
        for _ in range(2 * layers):
            hashed = mixed(colour)
            seen = hashed[source] if quotient is None else hashed[source] * quotient.weight.long()
            colour = _refined(colour, torch.zeros_like(hashed).index_add_(0, row, seen))
            colours.append(colour)
        # [rounds + 1, nodes]
        self.colour = torch.stack(colours).int().numpy()
        self._kept: dict[bytes, LevelledBatch] = {}
        self._room = _KEPT

    def batch(self, graphs: Tensor) -> LevelledBatch:
        """The graphs with these numbers ``[1, slots]`` as one batch, -1 for none."""
        ids = graphs.squeeze(0).numpy()
        size = np.where(ids >= 0, self.node_ptr[ids + 1] - self.node_ptr[ids], 0)
        last = size.cumsum()
        slot = np.repeat(np.arange(ids.size), size)
        nodes = slot.size
        node = np.arange(nodes) + (self.node_ptr[ids] - last + size)[slot]
        # In the order of the last colours, in which the nodes of any class of any level stand side by side.
        order = np.argsort(self.colour[-1][node])
        place, where = np.empty_like(order), np.empty(self.colour.shape[1], dtype=np.int64)
        place[order] = np.arange(nodes)
        where[node] = place
        node, slot = node[order], slot[order]
        colour = self.colour[:, node]
        begins = np.ones(colour.shape, dtype=bool)
        np.not_equal(colour[:, 1:], colour[:, :-1], out=begins[:, 1:])
        # [levels, nodes], the class of every node in each level. The first node of a class speaks for it.
        label = begins.cumsum(axis=1) - 1
        first = [np.flatnonzero(row) for row in begins]
        rounds = self._rounds(where, node, label, first)
        weights = (None, None) if self.size is None else (_tensor(self.size[node[place]]), _tensor(self.size[node]))
        offset, graph = _tensor(_from_zero(size)), _tensor(slot)
        readouts = [
            Lists(_tensor(row[place]), offset, graph, _tensor(np.append(begin, nodes)), *weights)
            for row, begin in zip(label[2::2], first[2::2])
        ]
        layers = map(LayerRounds, rounds[::2], rounds[1::2])
        x = self.x.index_select(0, _tensor(node[first[0]]))
        return LevelledBatch(x, Levels(tuple(layers), tuple(readouts)), graphs)

    def kept_batch(self, graphs: Tensor) -> LevelledBatch:
        """The same, kept for the next time: what is evaluated does not change from epoch to epoch."""
        key = graphs.numpy().tobytes()
        if key in self._kept:
            return self._kept[key]
        batch = self.batch(graphs)
        self._room -= batch.levels.graphs[-1].source.numel()
        if self._room >= 0:
            self._kept[key] = batch
        return batch

    def _rounds(self, where: np.ndarray, node: np.ndarray, label: np.ndarray, first: list[np.ndarray]) -> list[Round]:
        """The rounds between the levels, all lists made at once and then cut.

        Args:
            where: the place in the batch of every node of the store.
            node: the node of the store at each place.
            label: ``[levels, places]``, the class at each place.
            first: for each level, the first place of each class.
        """
        rows = [f.size for f in first]
        below = np.repeat(np.arange(len(first) - 1), rows[1:])
        speaker = node[np.concatenate(first[1:])]
        start = self.row_ptr[speaker]
        degree = self.row_ptr[speaker + 1] - start
        offset = _from_zero(degree)
        row = np.repeat(np.arange(speaker.size), degree)
        entry = np.arange(row.size) + (start - offset[:-1])[row]
        source = label.reshape(-1)[where[self.source[entry]] + (below * label.shape[1])[row]]
        weight = None if self.weight is None else self.weight[entry]
        # Numbered through all levels, so that one sort turns the lists of all of them.
        begin, begin_t = _from_zero(rows[1:]), _from_zero(rows[:-1])
        key = source + begin_t[below][row]
        # A sort of 16-bit numbers counts, which takes a tenth of the time.
        turn = np.argsort(key.astype(np.uint16 if begin_t[-1] <= 2**16 else np.int64), kind="stable")
        offset_t = _from_zero(np.bincount(key, minlength=begin_t[-1]))
        row_t, weight_t = row[turn], None if weight is None else weight[turn]
        rounds = []
        for level, count in enumerate(rows[1:]):
            # Finer classes are numbered in the order of the coarser ones: each of those has a run of them.
            own = Lists(
                _tensor(label[level][first[level + 1]]),
                torch.arange(count + 1),
                torch.arange(count),
                _tensor(np.append(label[level + 1][first[level]], count)),
            )
            of = offset[begin[level] : begin[level + 1] + 1]
            of_t = offset_t[begin_t[level] : begin_t[level + 1] + 1]
            entries = slice(of[0], of[-1])
            around = Lists(
                *(_tensor(source[entries]), _tensor(of - of[0])),
                *(_tensor(row_t[entries] - begin[level]), _tensor(of_t - of[0])),
                *(None if w is None else _tensor(w[entries]) for w in (weight, weight_t)),
            )
            rounds.append(Round(own, around))
        return rounds

    def share(self, graphs: Tensor) -> float:
        """The share of the work of the matrix products that is left in a batch of these graphs ``[slots]``."""
        layers = self.batch(graphs.unsqueeze(0)).levels.layers
        # A layer's maps take 8 d^2 operations for each row of its input, and its perceptron 4 d^2 for each mask.
        left = sum(2 * (first.own.offset_t.numel() - 1) + first.own.source.numel() for first, _ in layers)
        ids = graphs[graphs >= 0].numpy()
        nodes = int((self.node_ptr[ids + 1] - self.node_ptr[ids]).sum())
        return left / max(3 * len(layers) * nodes, 1)


def _refined(colour: Tensor, by: Tensor) -> Tensor:
    """Colours that tell apart what either does, numbered in the order of the first."""
    kinds, value = torch.unique(by, return_inverse=True)
    return torch.unique(colour * kinds.numel() + value, return_inverse=True)[1]


def _from_zero(counts: np.ndarray | list[int]) -> np.ndarray:
    """Where each begins, and the last ends, if so many of each stand end to end."""
    return np.concatenate([[0], np.cumsum(counts)])


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)
