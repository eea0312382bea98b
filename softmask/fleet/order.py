"""Nodes side by side that have as many neighbours: what a GPU works on in step should take as long."""

import torch
from torch import Tensor

from softmask.data.store import GraphStore


def by_degree(store: GraphStore) -> tuple[GraphStore, Tensor, Tensor]:
    """The graphs with their nodes in the order of falling degree; which node and which edge is now at each place.

    Nothing that is computed of a whole graph depends on the order of its nodes. The rows that a kernel takes together
    are then equally long, and the leaves of one hub lie together.

    Only what a fleet reads of the store is kept: the structure, the targets and the info.
    """
    degree = store.row_ptr.diff()
    # Both sorts are stable: by degree, and then graph by graph.
    order = torch.argsort(degree, descending=True, stable=True)
    order = order[torch.argsort(store.batch[order], stable=True)]
    place = torch.empty_like(order)
    place[order] = torch.arange(store.num_nodes, device=order.device)
    first = store.node_ptr[:-1][store.batch]
    within = (place - first).to(store.col.dtype)

    def moved(row_ptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        count = row_ptr.diff()
        renamed = within[torch.repeat_interleave(first, count) + col]
        ends = torch.cat([count.new_zeros(1), count[order].cumsum(0)])
        edge = torch.repeat_interleave(row_ptr[order] - ends[:-1], count[order]) + torch.arange(
            col.numel(), device=col.device
        )
        return ends, renamed[edge], edge

    row_ptr, col, edge = moved(store.row_ptr, store.col)
    turned: tuple[Tensor | None, Tensor | None] = (None, None)
    if store.row_ptr_t is not None and store.col_t is not None:
        turned = moved(store.row_ptr_t, store.col_t)[:2]
    return GraphStore(store.node_ptr, row_ptr, col, *turned, y=store.y, info=store.info), order, edge
