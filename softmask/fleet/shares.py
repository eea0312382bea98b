"""The graphs of a set divided among the ranks, and read by each from the memory map, batch by batch."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.fleet.batches import Plan, deal
from softmask.fleet.predict import consecutive
from softmask.fleet.ranks import Ranks
from softmask.ops import Neighbours, Segments


def divide(plan: Plan, sizes: Tensor, world: int) -> Tensor:
    """The rank of every slot, ``[slots]``: largest first, each goes to the rank that has the fewest nodes so far.

    Slot ``s`` of a batch is always filled from the ``s``-th group of graphs by size (see
    :class:`~softmask.fleet.batches.Plan`), so to divide the slots is to divide the graphs, once for the whole training.
    """
    cost = torch.zeros(plan.slots * int(plan.batches[0]), dtype=torch.int64)
    # Beside its nodes a graph costs a little itself; so no rank is left without slots.
    cost[: int(plan.counts[0])] = sizes[plan.graphs[0]] + 1
    load = torch.zeros(world, dtype=torch.int64)
    rank = torch.zeros(plan.slots, dtype=torch.int64)
    for slot, nodes in enumerate(cost.reshape(plan.slots, -1).sum(dim=1)):
        rank[slot] = load.argmin()
        load[rank[slot]] += nodes
    return rank


class ShareBatch(NamedTuple):
    """A rank's graphs of one batch.

    Args:
        inputs: nodes, neighbours and segments; a graph stands at its slot of the whole batch.
        slots: of the rank's graphs.
        y: their targets.
        graphs: how many the whole batch has.
    """

    inputs: tuple[Tensor, Neighbours, Segments]
    slots: Tensor
    y: Tensor
    graphs: int


class Share:
    """The graphs of one part that a rank works on.

    Args:
        store: the set, mapped into memory. No more than two batches of its nodes and edges are read at once.
        y: classes ``[graphs]`` or targets ``[graphs, outputs]``.
        features: what the model sees of a node.
        plan: how the part is dealt into batches; the same on every rank.
        ranks: the processes.
        dtype: of the nodes' input, where that is not tokens.
    """

    def __init__(self, store: GraphStore, y: Tensor, features: Features, plan: Plan, ranks: Ranks, dtype: torch.dtype):
        self.store, self.y, self.features, self.plan = store, y, features, plan
        self.device, self.dtype = ranks.device, dtype
        self.mine = divide(plan, store.sizes, ranks.world) == ranks.rank

    def batches(self, keys: Tensor | None = None) -> Iterator[ShareBatch]:
        """All batches of an epoch, shuffled by the keys; the next one is read while this one is worked on."""
        coming: deque[Future[ShareBatch]] = deque()
        with ThreadPoolExecutor(1) as reader:
            for graphs in deal(self.plan, keys)[:, 0]:
                coming.append(reader.submit(self._read, graphs))
                if len(coming) > 1:
                    yield coming.popleft().result()
            yield coming.popleft().result()

    def _read(self, graphs: Tensor) -> ShareBatch:
        slots = (self.mine & (graphs >= 0)).nonzero().squeeze(1)
        part = self.store.select(graphs[slots])
        x = self.features(part)
        neighbours, graph, _ = consecutive(part, 0, part.num_graphs)
        if self.device.type == "cpu" and not part.directed:
            # Every sum of every layer needs the list.
            source, offset, _ = neighbours.listed()
            neighbours = neighbours._replace(source=source, offset=offset)
        size = torch.zeros_like(graphs).index_copy_(0, slots, part.sizes)
        last = size.cumsum(0)
        segments = Segments(slots[graph], last - size, last)
        return ShareBatch(
            (
                x.to(self.device, self.dtype) if x.is_floating_point() else x.to(self.device),
                Neighbours._make(_moved(neighbours, self.device)),
                Segments._make(_moved(segments, self.device)),
            ),
            slots.to(self.device),
            self.y[graphs[slots]].to(self.device),
            int((graphs >= 0).sum()),
        )


def _moved(values: Iterable[Any], device: torch.device) -> Iterator[Any]:
    return (value.to(device) if isinstance(value, Tensor) else value for value in values)
