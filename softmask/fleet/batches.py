"""Which graphs go into which batch, and the batch itself, by index arithmetic on the store's device."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.fleet.edges import StoreEdges
from softmask.fleet.pairs import Layout, StorePairs, fewest_pairs
from softmask.fleet.quotient import Quotient
from softmask.ops import Neighbours, Segments
from softmask.ops.edge_table import EdgeTable
from softmask.ops.keyed import keyed_bits
from softmask.ops.pair_blocks import Blocks, PairBlocks, num_pairs, num_places


class Plan(NamedTuple):
    """How the graphs of one part are dealt into batches, for all replicas.

    The graphs of a replica, ordered by falling size, form groups of as many graphs as there are batches; every batch
    gets one graph of each group, a random one when shuffled. So each graph comes once an epoch, all batches are
    almost equally large, and the largest possible batch is known beforehand: shapes never change.

    Args:
        graphs: ``[replicas, most]``, graph ids by falling size, -1 behind the last.
        counts: ``[replicas]``, how many graphs each replica has.
        batches: ``[replicas]``, into how many batches they are dealt.
        steps: the most batches of any replica.
        slots: the most graphs of any batch.
        nodes: the most nodes of any batch, over all shuffles.
        padding: the share of nodes that are padding, in the mean over batches.
        layout: where the graphs of a batch stand, if they have places of their own; otherwise they stand end to end.
    """

    graphs: Tensor
    counts: Tensor
    batches: Tensor
    steps: int
    slots: int
    nodes: int
    padding: float
    layout: Layout | None = None

    @property
    def rows(self) -> int:
        """The nodes of a batch, or its pairs of places, if it has places."""
        return self.nodes if self.layout is None else num_pairs(self.layout.blocks)


def plan(parts: Sequence[np.ndarray | Sequence[int]], sizes: Tensor, batch_size: int) -> Plan:
    """Plans the batches of one part of every replica: at most `batch_size` graphs in each."""
    size = sizes.cpu().numpy()
    ids = [np.asarray(part, dtype=np.int64) for part in parts]
    ids = [part[np.argsort(-size[part], kind="stable")] for part in ids]
    # A replica may lack a part; it then has one batch, of no graphs.
    batches = [max(-(-len(part) // batch_size), 1) for part in ids]
    # The first graph of each group is its largest.
    nodes = max(int(size[part[::n]].sum()) for part, n in zip(ids, batches))
    most = max(1, *(len(part) for part in ids))
    graphs = np.full((len(ids), most), -1, dtype=np.int64)
    for row, part in zip(graphs, ids):
        row[: len(part)] = part
    used = np.array([size[part].sum() / n for part, n in zip(ids, batches)])
    return Plan(
        graphs=torch.from_numpy(graphs).to(sizes.device),
        counts=torch.tensor([len(part) for part in ids], device=sizes.device),
        batches=torch.tensor(batches, device=sizes.device),
        steps=max(batches),
        slots=max(1, *(-(-len(part) // n) for part, n in zip(ids, batches))),
        nodes=max(nodes, 1),
        padding=float(1 - used.mean() / max(nodes, 1)),
    )


def blocks_of(plans: Sequence[Plan], sizes: Tensor, whole: int = 1) -> Blocks:
    """Places for every slot of a batch, in blocks: so many that it holds the largest graph of its group in any plan,
    in multiples of `whole`.
    """
    size = sizes.cpu().numpy()
    largest = np.ones(max(plan.slots for plan in plans), dtype=np.int64)
    for plan in plans:
        graphs = plan.graphs.cpu().numpy()
        for row, count, batches in zip(graphs, plan.counts.tolist(), plan.batches.tolist()):
            heads = size[row[:count:batches]]
            largest[: len(heads)] = np.maximum(largest[: len(heads)], heads)
    return fewest_pairs(-(-largest // whole) * whole)


def with_layout(plans: Sequence[Plan], sizes: Tensor, whole: int = 1) -> list[Plan]:
    """The plans with places for every slot of a batch (:func:`blocks_of`).

    All of them get the same places, so that one compiled program serves them.
    """
    layout = Layout.of(blocks_of(plans, sizes, whole), sizes.device)
    slots, nodes = len(layout.first), num_places(layout.blocks)
    return [
        plan._replace(slots=slots, nodes=nodes, padding=1 - (1 - plan.padding) * plan.nodes / nodes, layout=layout)
        for plan in plans
    ]


def deal(plan: Plan, keys: Tensor | None = None) -> Tensor:
    """The graphs of every batch, ``[steps, replicas, slots]``, -1 for none; shuffled within groups by the keys."""
    replicas, most = plan.graphs.shape
    place = torch.arange(most, device=plan.graphs.device).expand(replicas, most)
    graphs = plan.graphs
    if keys is not None:
        group = place // plan.batches.unsqueeze(1)
        # Behind the last graph stands padding; it must stay there.
        group = torch.where(graphs < 0, most, group)
        # Stable: 32 bits repeat in a large group, and every machine must deal the same.
        order = ((group << 32) + keyed_bits(keys.unsqueeze(1), place)).argsort(dim=1, stable=True)
        graphs = graphs.gather(1, order)
    step = torch.arange(plan.steps, device=graphs.device).reshape(-1, 1, 1)
    slot = torch.arange(plan.slots, device=graphs.device)
    batches = plan.batches.reshape(1, -1, 1)
    source = slot * batches + step
    there = (step < batches) & (source < plan.counts.reshape(1, -1, 1))
    table = graphs.unsqueeze(0).expand(plan.steps, -1, -1)
    return torch.where(there, table.gather(2, source.clamp(max=most - 1)), -1)


class Batch(NamedTuple):
    """One batch of every replica, padded: the leading dimension is the replica.

    Args:
        x: the nodes' input, ``[replicas, nodes]`` tokens or ``[replicas, nodes, channels]``.
        neighbours: start, end and base ``[replicas, nodes]``; col is the store's own.
        segments: the slot of each node's graph, ``[replicas, nodes]``, -1 for padding, and where each slot's nodes
            begin and end, ``[replicas, slots]``; how many nodes each stands for, if the graphs are quotients.
        graphs: ``[replicas, slots]``, graph ids, -1 for an empty slot.
        edges: what the edges carry, ``[replicas, nodes, places]`` and so on, if they carry anything.
        pairs: positions ``[replicas, nodes, 3]`` and bonds, if the nodes are in space.
        pair_blocks: the places of the graphs, for a model of pairs of nodes without positions.
    """

    x: Tensor
    neighbours: Neighbours
    segments: Segments
    graphs: Tensor
    edges: EdgeTable | None = None
    pairs: PairBlocks | None = None
    pair_blocks: Blocks | None = None

    def in_dims(self) -> tuple[int, Neighbours, Segments, int | None, PairBlocks | None]:
        """How vmap takes x, neighbours, segments, edges and pairs: the store's own arrays are of all replicas."""
        shared = ("col", "col_t", "bits", "source", "offset", "weight", "weight_t", "entry")
        fields = self.neighbours._asdict().items()
        dims: Any = (0 if isinstance(t, Tensor) and name not in shared else None for name, t in fields)
        of_nodes: Any = (None if t is None else 0 for t in self.segments)
        pairs: Any = None if self.pairs is None else PairBlocks(0, 0, 0, None)  # type: ignore[arg-type]
        return 0, Neighbours(*dims), Segments(*of_nodes), None if self.edges is None else 0, pairs


def assemble(
    store: GraphStore,
    x: Tensor,
    graphs: Tensor,
    nodes: int,
    bitmaps: tuple[Tensor, Tensor] | None = None,
    hubs: bool | None = None,
    edges: StoreEdges | None = None,
    quotient: Quotient | None = None,
    pairs: StorePairs | None = None,
    layout: Layout | None = None,
    on_pairs: bool = False,
) -> Batch:
    """Builds one batch of every replica from graph ids ``[replicas, slots]``, padded to `nodes` nodes.

    `bitmaps` are those of the store (:func:`softmask.ops.bitmaps.bitmaps`), if it has any; `hubs` is False if no node
    has many neighbours; `edges` is what the edges carry; `quotient` is what the store is the store of, if it is one;
    `pairs` is where its nodes are, and `layout` the places of the slots: otherwise the graphs stand end to end.
    `on_pairs` is whether the model wants to know the blocks of these.
    """
    there = graphs >= 0
    ids = graphs.clamp(min=0)
    size = torch.where(there, store.node_ptr[ids + 1] - store.node_ptr[ids], 0)
    place = torch.arange(nodes, device=graphs.device).expand(graphs.size(0), nodes).contiguous()
    if layout is None:
        last = size.cumsum(dim=1)
        slot = torch.searchsorted(last, place, right=True)
        padding = slot >= graphs.size(1)
        slot = slot.clamp(max=graphs.size(1) - 1)
    else:
        last, slot = layout.first + size, layout.slot.expand_as(place)
        padding = place >= last.gather(1, slot)
    first = (last - size).gather(1, slot)
    node = store.node_ptr[ids].gather(1, slot) + place - first
    node = torch.where(padding, 0, node)

    def rows(ptr: Tensor) -> tuple[Tensor, Tensor]:
        start = ptr[node]
        return start, torch.where(padding, start, ptr[node + 1])

    transposed: tuple[Tensor | None, Tensor | None] = (None, None)
    if store.row_ptr_t is not None:
        transposed = rows(store.row_ptr_t)
    start, end = rows(store.row_ptr)
    dense: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None)
    if bitmaps is not None:
        dense = (bitmaps[0], bitmaps[1][node], torch.where(padding, 0, size.gather(1, slot)))
    weights: tuple[Tensor | None, Tensor | None] = (None, None)
    if quotient is not None:
        weights = (quotient.weight, quotient.weight_t)
    source, offset, entry = None, None, None
    if not (graphs.is_cuda or store.directed or torch.compiler.is_compiling()):
        # Every sum of every layer needs the list; on CUDA the kernels read the store's rows instead.
        base = first + torch.arange(graphs.size(0)).unsqueeze(1) * nodes
        rows_of_all = Neighbours(start.reshape(-1), end.reshape(-1), store.col, base.reshape(-1), weight=weights[0])
        source, offset, entry = rows_of_all.listed()
    lists = (start, end, store.col, first, *transposed, store.col_t, *dense, source, offset)
    neighbours = Neighbours(*lists, hubs, *weights, entry)
    count = None if quotient is None else quotient.size[node]
    segments = Segments(torch.where(padding, -1, slot), last - size, last, count)
    table = None if edges is None else edges.table(store, start, end, first)
    blocks = None
    if pairs is not None:
        assert layout is not None
        blocks = pairs.batch(ids, size, node, layout)
    # Made at once: torch 2.11 cannot compile a named tuple that is made of another.
    return Batch(x[node], neighbours, segments, graphs, table, blocks, layout.blocks if layout and on_pairs else None)
