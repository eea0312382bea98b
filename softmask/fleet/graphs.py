"""The graphs of a fleet on its device, in the form that is quickest there."""

import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.store import GraphStore
from softmask.errors import DataError, SettingError
from softmask.fleet.batches import Batch, assemble
from softmask.fleet.edges import StoreEdges
from softmask.fleet.levels import LevelledBatch, StoreLevels
from softmask.fleet.order import by_degree
from softmask.fleet.pairs import Layout, StorePairs, works_on_pairs
from softmask.fleet.quotient import Quotient, quotient
from softmask.nn import GAT, SoftMaskGNN
from softmask.ops.bitmaps import bitmaps

# Measured on an H200: dense blocks win where at least this share of a graph's pairs of nodes are neighbours.
_DENSE = 1 / 6
_MANY_NEIGHBOURS = 64
# Fewer nodes are worth that each counts for several, if they are at most this share.
_FEWER = 0.8
# Lists beat bit matrices where a class has at most so many neighbours in the mean: IMDB has 4, COLLAB 22.
_SPARSE = 8


class Graphs:
    """The graphs of a store on a device, and the batches made of them.

    They are bit matrices where they are dense, quotients where nodes are equal, else lists, on CUDA in the order of
    the nodes' degrees; with :meth:`use_levels`, the colours of the nodes by rounds.

    Args:
        store, x, edge_x, merge, pairs: see :class:`softmask.fleet.Fleet`.
        model: for whose sums they are.
        device: where they live.
        dtype: of positions.
        compute: of what nodes and edges carry.
    """

    def __init__(
        self,
        store: GraphStore,
        x: Tensor,
        model: Module,
        device: torch.device,
        dtype: torch.dtype,
        compute: torch.dtype,
        edge_x: Tensor | None = None,
        merge: bool | None = None,
        pairs: StorePairs | None = None,
    ):
        self.store = store.to(device)
        self.x = x.to(device, compute) if x.is_floating_point() else x.to(device)
        self.model, self.compute, self.merge = model, compute, merge
        # Distances want float32, whatever the layers compute in.
        self.pairs = None if pairs is None else pairs.to(device, dtype)
        self.on_pairs = works_on_pairs(model)
        self.edges: StoreEdges | None = None
        # Attention has no sums over bit matrices.
        self.bitmaps = None if isinstance(model, GAT) else _bitmaps(self.store)
        self.levels: StoreLevels | None = None
        self.quotient = self._merged(edge_x is not None)
        if self.quotient is not None:
            self.store, self.x, self.bitmaps = self.quotient.store, self.quotient.x, None
        if edge_x is not None:
            self.edges = StoreEdges.of(self.store, edge_x.to(device, compute))
        elif device.type == "cuda" and self.bitmaps is None and pairs is None:
            self.store, order, edge = by_degree(self.store)
            self.x = self.x[order]
            if self.quotient is not None:
                _, _, size, *weights = self.quotient
                self.quotient = Quotient(self.store, self.x, size[order], *(w[edge] for w in weights))
        self.hubs = bool(self.store.row_ptr.diff().max() > _MANY_NEIGHBOURS)

    def _merged(self, edges: bool) -> Quotient | None:
        """The quotients of the graphs, where they are wanted and may be used; numbers of nodes as weights."""
        half_on_cpu = self.store.device.type == "cpu" and self.compute == torch.bfloat16
        sums_only = _sums_only(self.model)
        reasons = {
            "the graphs are directed": self.store.directed,
            "the edges carry something": edges,
            "the nodes are in space": self.pairs is not None,
            "the sums of bf16 on the CPU round weights": half_on_cpu,
            "the model does not say that its nodes meet in sums alone (sums_only)": not sums_only,
        }
        reason = next((why for why, holds in reasons.items() if holds), None)
        if self.merge and reason is not None:
            raise SettingError(f"equal nodes cannot be merged: {reason}; leave merge at None or False")
        if self.merge is False or reason is not None:
            return None
        made = quotient(self.store, self.x)
        if self.merge is None and made.store.num_nodes > _FEWER * self.store.num_nodes:
            return None
        if self.merge is None and self.bitmaps is not None and made.store.num_edges > _SPARSE * made.store.num_nodes:
            return None
        wide = torch.float64 if self.compute == torch.float64 else torch.float32
        return Quotient(made.store, made.x, *(t.to(wide) for t in made[2:]))

    def use_levels(self, first: Tensor) -> None:
        """From now on batches are in levels, where these are wanted and may be used; `first` is a batch to go by."""
        model = self.model
        if self.merge is False or self.edges is not None or self.pairs is not None or self.store.directed:
            return
        if self.store.device.type != "cpu" or type(model) is not SoftMaskGNN:
            return
        if self.compute == torch.bfloat16:  # its products are compiled anew for every number of rows
            return
        levels = StoreLevels(self.store, self.x, model.num_layers, self.quotient)
        self.share = levels.share(first)
        if self.merge or self.share <= _FEWER:
            self.levels = levels

    @property
    def nodes_computed(self) -> float:
        """Of how many rows the matrix products are for the whole set; with levels, in the mean over the products of the
        batch that :meth:`use_levels` was given.
        """
        return self.store.num_nodes * (1.0 if self.levels is None else self.share)

    @property
    def inputs(self) -> list[Tensor]:
        """All that a model sees of nodes and edges, beside the graphs themselves."""
        edges = [] if self.edges is None else [self.edges.x]
        return [self.x, *edges, *(() if self.pairs is None else self.pairs)]

    def batch(self, graphs: Tensor, nodes: int, layout: Layout | None, again: bool = False) -> Batch | LevelledBatch:
        """Batches of some graphs, ``[replicas, slots]``, padded to so many nodes; `again` says that the same ones come
        every epoch.
        """
        if self.levels is not None:
            return self.levels.kept_batch(graphs) if again else self.levels.batch(graphs)
        known = (self.bitmaps, self.hubs, self.edges, self.quotient, self.pairs)
        return assemble(self.store, self.x, graphs, nodes, *known, layout, self.on_pairs)


def _sums_only(model: Module) -> bool:
    """Whether a model says that its nodes meet in sums alone. What a class says holds for its own ``forward``: one that
    is derived from it and has another, say with a mean over nodes, must say so again.
    """
    classes = type(model).__mro__
    forward = next(i for i, c in enumerate(classes) if "forward" in vars(c))
    said = next((i for i, c in enumerate(classes) if "sums_only" in vars(c)), len(classes))
    return said <= forward and bool(getattr(model, "sums_only", False))


def _bitmaps(store: GraphStore) -> tuple[Tensor, Tensor] | None:
    """Bit matrices of the graphs, on CUDA, where the graphs are so dense that they beat neighbour lists."""
    if store.device.type != "cuda" or store.directed:
        return None
    if store.num_edges < _DENSE * float((store.sizes.double() ** 2).sum()):
        return None
    try:
        bits, bit_row = bitmaps(store.to("cpu"))
    except DataError:  # an edge stands twice
        return None
    return bits.to(store.device), bit_row.to(store.device)
