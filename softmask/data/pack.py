"""Edges and arrays of many graphs, end to end, to one GraphStore."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softmask.data.store import GraphStore


def from_edges(
    edge_indices: Sequence[Tensor],
    sizes: Sequence[int],
    arrays: dict[str, Tensor | None],
    info: dict[str, Any],
) -> GraphStore:
    """Packs graphs given by their edges (local node numbers) and arrays over all nodes and edges in turn."""
    size = torch.tensor(sizes, dtype=torch.long)
    node_ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    counts = torch.tensor([e.size(1) for e in edge_indices], dtype=torch.long)
    local = torch.cat(list(edge_indices), dim=1) if edge_indices else torch.zeros(2, 0, dtype=torch.long)
    first = torch.repeat_interleave(node_ptr[:-1], counts)
    source, target = local[0], local[1]

    def rows(row: Tensor, col: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.from_numpy(np.lexsort((col.numpy(), (row + first).numpy())))
        ptr = torch.searchsorted((row + first)[order], torch.arange(int(node_ptr[-1]) + 1))
        return ptr, col[order].to(torch.int32), order

    row_ptr, col, order = rows(target, source)
    row_ptr_t, col_t, _ = rows(source, target)
    directed = not (torch.equal(row_ptr, row_ptr_t) and torch.equal(col, col_t))
    arrays = dict(arrays)
    for name in ("edge_label", "edge_attr"):
        if (t := arrays.get(name)) is not None:
            arrays[name] = t[order]
    return GraphStore(
        node_ptr=node_ptr,
        row_ptr=row_ptr,
        col=col,
        row_ptr_t=row_ptr_t if directed else None,
        col_t=col_t if directed else None,
        info=info,
        **arrays,
    )
