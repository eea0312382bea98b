"""From the importance of all nodes to a subgraph."""

import heapq
from numbers import Integral, Real

import numpy as np
from torch_geometric.data import Data

from softmask.errors import SettingError


def nodes_of(importance: np.ndarray, threshold: float | None = None, size: int | None = None) -> np.ndarray:
    """The nodes that a threshold or a size leaves, in ascending order.

    Args:
        importance: ``[nodes]``.
        threshold: keeps nodes of at least this importance; 0.5 if neither is given.
        size: keeps that many of the largest importance (all, if there are fewer); of equals those of the smallest
            number.
    """
    if threshold is not None and size is not None:
        raise SettingError("give a threshold or a size, not both")
    if size is not None:
        if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
            raise SettingError(f"size={size!r}: must be a whole number, at least 0")
        return np.sort(np.argsort(-importance, kind="stable")[: int(size)])
    threshold = 0.5 if threshold is None else threshold
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or np.isnan(threshold):
        raise SettingError(f"threshold={threshold!r}: must be a number")
    return np.flatnonzero(importance >= threshold)


def connected(importance: np.ndarray, edges: np.ndarray, size: int) -> np.ndarray:
    """That many nodes that hang together, in ascending order: from the most important one on, always the most important
    neighbour of those that are in; from the most important one left, where there is no neighbour.

    Args:
        importance: ``[nodes]``.
        edges: ``[edges, 2]``, each edge once or twice.
        size: how many; all, if there are fewer.
    """
    around: list[list[int]] = [[] for _ in importance]
    for u, v in edges.tolist():
        around[u].append(v)
        around[v].append(u)
    kept: set[int] = set()
    # Of equals the smallest number comes first.
    starts = iter(np.argsort(-importance, kind="stable").tolist())
    seen: list[tuple[float, int]] = []
    while len(kept) < min(size, len(importance)):
        node = heapq.heappop(seen)[1] if seen else next(starts)
        if node not in kept:
            kept.add(node)
            for other in around[node]:
                heapq.heappush(seen, (-float(importance[other]), other))
    return np.array(sorted(kept), dtype=np.int64)


def induced(data: Data, nodes: np.ndarray) -> Data:
    """The subgraph on some nodes as PyG ``Data``, renumbered in their order; ``nodes`` keeps their old numbers."""
    import torch

    kept = torch.as_tensor(nodes, dtype=torch.long)
    part = data.subgraph(kept)
    part.nodes = kept
    return part
