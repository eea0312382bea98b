"""From the importance of all nodes to a subgraph."""

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


def induced(data: Data, nodes: np.ndarray) -> Data:
    """The subgraph on some nodes as PyG ``Data``, renumbered in their order; ``nodes`` keeps their old numbers."""
    import torch

    kept = torch.as_tensor(nodes, dtype=torch.long)
    part = data.subgraph(kept)
    part.nodes = kept
    return part
