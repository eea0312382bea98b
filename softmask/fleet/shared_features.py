"""Features of a set that no process reads whole: every rank looks at its share, window by window."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from softmask.data.features import Features, Kind
from softmask.data.store import GraphStore
from softmask.fleet.ranks import Ranks

# Graphs held in memory at once.
_WINDOW = 4096


def shared_features(
    store: GraphStore, graphs: np.ndarray | Sequence[int], ranks: Ranks, attributes: bool = False
) -> Features:
    """What ``Features.of(store.select(graphs), attributes=attributes)`` gives, up to rounding, on every rank.

    Args:
        store: the set, mapped into memory; of its arrays no more than a window is read at once.
        graphs: the graphs to train on.
        ranks: the processes that share the work.
        attributes: use the continuous node attributes beside the labels.
    """
    mine = np.array_split(np.sort(np.asarray(graphs)), ranks.world)[ranks.rank]

    def windows() -> Iterator[GraphStore]:
        return (store.select(mine[first : first + _WINDOW]) for first in range(0, len(mine), _WINDOW))

    own = [
        (f.kind, f.attributes, f.values, f.max_degree) for f in (Features.of(w, "auto", attributes) for w in windows())
    ]
    kinds, with_attributes, values, degrees = zip(*(seen for rank in ranks.gather(own) for seen in rank))
    # One window with a hub is enough: the degree is a number then, for all.
    kind: Kind = "scaled-degree" if "scaled-degree" in kinds else kinds[0]
    attributes = with_attributes[0]

    def tables() -> Iterator[Tensor]:
        for window in windows():
            parts = [window.degree().double().unsqueeze(-1)] if kind == "scaled-degree" else []
            if attributes:
                assert window.node_attr is not None
                parts.append(window.node_attr.double())
            yield torch.cat(parts, dim=1)

    mean = std = torch.zeros(0)
    if kind == "scaled-degree" or attributes:
        columns = int(kind == "scaled-degree")
        if attributes and store.node_attr is not None:
            columns += store.node_attr.size(1)
        mean, std = _moments(tables, columns, ranks)
    return Features(
        kind=kind,
        attributes=attributes,
        values=tuple(tuple(sorted(set().union(*column))) for column in zip(*values)),
        max_degree=max(degrees) if kind == "degree" else 0,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
    )


def _moments(tables: Callable[[], Iterator[Tensor]], columns: int, ranks: Ranks) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column over the tables of all ranks; the deviation of a constant one is 1."""
    none = torch.zeros(columns, dtype=torch.float64)
    total, rows, low, high = none.clone(), 0, none + torch.inf, none - torch.inf
    for table in tables():
        total += table.sum(dim=0)
        rows += len(table)
        if len(table):
            low, high = torch.minimum(low, table.amin(dim=0)), torch.maximum(high, table.amax(dim=0))
    all_rows = int(ranks.sum(torch.tensor(rows)))
    high, low = ranks.max(high), -ranks.max(-low)
    mean = ranks.sum(total) / all_rows
    squares = sum(((table - mean).square().sum(dim=0) for table in tables()), none)
    std = (ranks.sum(squares) / all_rows).sqrt()
    # Compared by the ends: the mean of a constant is often not quite that constant.
    constant = low == high
    return torch.where(constant, low, mean), torch.where(constant, 1.0, std)
