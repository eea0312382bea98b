"""Graphs of about one size in batches of their own, for models of all pairs of nodes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor
from torch.nn import Module

from softmask.fleet.pairs import fewest_pairs, places_in, works_on_pairs
from softmask.ops.pair_blocks import num_pairs

# Each class is a program of its own, to be compiled and captured; one more must save this share of the pairs of places.
_CLASSES, _WORTH = 3, 0.1


class SizeClass(NamedTuple):
    """Graphs of about one size.

    Args:
        least, most: nodes of the smallest and of the largest.
        batch_size: the most graphs in a batch.
        batches: into how many batches all graphs of the set would be dealt.
    """

    least: int
    most: int
    batch_size: int
    batches: int

    def members(self, part: np.ndarray | Sequence[int], sizes: Tensor) -> np.ndarray:
        """Those of some graphs that are of this size."""
        ids = np.asarray(part, dtype=np.int64)
        nodes = sizes.cpu().numpy()[ids]
        return ids[(nodes >= self.least) & (nodes <= self.most)]


def classes_for(model: Module, sizes: Tensor, batch_size: int) -> list[SizeClass]:
    """The classes of a set for a model: :func:`size_classes` where it works on all pairs of nodes, in blocks; else one,
    so that every batch has large graphs and small ones.
    """
    if works_on_pairs(model):
        return size_classes(sizes, batch_size, places_in(model))
    return [SizeClass(0, int(sizes.max()), batch_size, -(-len(sizes) // batch_size))]


def size_classes(sizes: Tensor, batch_size: int, whole: int) -> list[SizeClass]:
    """Classes whose batches, of one class each, need few pairs of places; from the largest graphs to the smallest.

    Where every batch has graphs of all sizes, each must have a place for the largest of all. A batch of large graphs
    has fewer of them, so that none has more pairs than one of all sizes would have. The classes follow from the set
    alone, not from how it is split.

    Args:
        sizes: ``[graphs]``, numbers of nodes.
        batch_size: the most graphs in a batch.
        whole: in multiples of how many the places of a graph come.
    """
    size = np.sort(sizes.cpu().numpy())[::-1]
    places = -(-np.maximum(size, 1) // whole) * whole
    room = num_pairs(fewest_pairs(places[:: -(-len(size) // batch_size)]))

    def made(first: int, last: int) -> tuple[SizeClass, int]:
        """The class of the graphs `first` to `last` (excluded), and the pairs of places of all its batches."""
        batch = batch_size
        while True:
            batches = -(-(last - first) // batch)
            pairs = num_pairs(fewest_pairs(places[first:last:batches]))
            if pairs <= room or batch == 1:
                return SizeClass(int(size[last - 1]), int(size[first]), batch, batches), pairs * batches
            batch = max(min(batch - 1, batch * room // pairs), 1)

    # Cuts behind the 1, 2, 4, ... largest graphs and all that are as large, since sizes have a long tail.
    counts = [2**k for k in range(len(size).bit_length())]
    cuts = sorted({0, len(size), *(int((size >= size[count - 1]).sum()) for count in counts)})
    classes = {(a, b): made(a, b) for a in cuts for b in cuts if a < b}
    # The best that ends at each cut, of one class, of two, and so on.
    best: list[dict[int, tuple[int, list[SizeClass]]]] = [{0: (0, [])}]
    for _ in range(_CLASSES):
        found: dict[int, tuple[int, list[SizeClass]]] = {}
        for (a, b), (last, pairs) in classes.items():
            if a in best[-1]:
                before, others = best[-1][a]
                if b not in found or before + pairs < found[b][0]:
                    found[b] = (before + pairs, [*others, last])
        best.append(found)
    pairs, chosen = best[1][len(size)]
    for found in best[2:]:
        if len(size) in found:
            fewer, more = found[len(size)]
            if fewer <= (1 - _WORTH) ** (len(more) - len(chosen)) * pairs:
                pairs, chosen = fewer, more
    return chosen


def evenly(classes: Sequence[SizeClass], steps: Sequence[int]) -> list[int]:
    """Whose batch each step of an epoch takes, where there are so many steps of each: every class is spread evenly.

    When the n-th batch of a class comes, before or after which of the others, depends on the set alone.
    """
    times = [((n + 0.5) / c.batches, k) for k, c in enumerate(classes) for n in range(steps[k])]
    return [k for _, k in sorted(times)]
