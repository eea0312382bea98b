"""What the edges of a store carry, as batches need it: by the place of an edge in its node's row."""

from typing import NamedTuple

import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.ops.edge_table import EdgeTable


class StoreEdges(NamedTuple):
    """What the edges of a store carry.

    Args:
        x: ``[edges, channels]``, in the order of the store's ``col``.
        back: ``[edges]``, the place of the same edge, turned round, in the row of its source.
        places: the most neighbours of any node.
    """

    x: Tensor
    back: Tensor
    places: int

    @classmethod
    def of(cls, store: GraphStore, x: Tensor) -> "StoreEdges":
        """Finds the counterpart of every edge."""
        if store.directed:
            raise SettingError("edge features need undirected graphs: some edge has no counterpart the other way")
        if x.size(0) != store.num_edges:
            raise SettingError(f"the edges have {x.size(0)} rows of features; there are {store.num_edges} of them")
        source, target = store.edges()
        nodes = max(store.num_nodes, 1)
        order = torch.argsort(target * nodes + source, stable=True)
        # In both orders the edge between a pair of nodes stands at the same place, once from each side.
        turned = torch.argsort(source * nodes + target, stable=True)
        back = torch.empty_like(order)
        back[order] = turned - store.row_ptr[target[turned]]
        return cls(x, back, int(store.row_ptr.diff().max()) if store.num_nodes else 0)

    def table(self, store: GraphStore, start: Tensor, end: Tensor, first: Tensor) -> EdgeTable:
        """The edges of a batch: rows `start` to `end` of every node, whose graph begins at node `first`."""
        at = start.unsqueeze(-1) + torch.arange(self.places, device=start.device)
        there = at < end.unsqueeze(-1)
        at = torch.where(there, at, 0)
        source = torch.where(there, first.unsqueeze(-1) + store.col[at], 0)
        own = torch.arange(start.size(-1), device=start.device).unsqueeze(-1)
        there = there & (source != own)  # self loops are not counted
        return EdgeTable(source, self.back[at], there, torch.where(there.unsqueeze(-1), self.x[at], 0))
