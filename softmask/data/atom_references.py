"""What of a molecule's properties follows from its atoms alone: taken off before a network learns the rest."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from softmask.data.molecules import ELEMENTS, NODE_FEATURES
from softmask.data.store import GraphStore
from softmask.errors import DataError

MASSES = {"H": 1.008, "C": 12.011, "N": 14.007, "O": 15.999, "F": 18.998}
"""Of the elements, in dalton."""


def atom_masses(store: GraphStore) -> Tensor:
    """``[atoms]`` float64."""
    return _elements(store) @ torch.tensor([MASSES[name] for name in ELEMENTS], dtype=torch.float64)


def element_counts(store: GraphStore, shown: Tensor | None = None) -> Tensor:
    """``[molecules, elements]`` float64: how many atoms of each element there are, of those `shown` (1 or 0 each)."""
    return _sums(store, _shown(store, shown) * _elements(store))


def element_extents(store: GraphStore, shown: Tensor | None = None) -> Tensor:
    """``[molecules, elements]`` float64: the squared distances from the centre of mass, summed by element.

    Only atoms that are `shown` (1 or 0 each) have mass and count.
    """
    if store.pos is None:
        raise DataError("these molecules have no positions")
    there = _shown(store, shown)
    mass, pos = there * atom_masses(store).unsqueeze(1), store.pos.double()
    centre = _sums(store, mass * pos) / _sums(store, mass).clamp(min=1e-12)
    square = (pos - centre[store.batch]).square().sum(dim=1, keepdim=True)
    return _sums(store, there * _elements(store) * square)


COLUMNS = {"elements": element_counts, "extents": element_extents}
"""What a reference may be linear in, by name."""


def subtract_references(
    store: GraphStore, of: Mapping[str, Iterable[str]], train: np.ndarray | Sequence[int]
) -> tuple[GraphStore, dict[str, list[float]]]:
    """Takes from targets what is linear in the atoms, fitted by least squares on the training molecules alone.

    The rest has the same unit, and an error of the rest is an error of the target: nothing is to be added back to
    compare them. All in float64: of a total energy of 400 Ha, a thousandth of one matters.

    Args:
        store: molecules, with the names of their targets in ``info``.
        of: for each target that has a reference, what it is linear in, of :data:`COLUMNS`.
        train: ids of the training molecules.

    Returns:
        The store with the rest as targets, and the coefficients by target.
    """
    assert store.y is not None
    y = store.y.clone()
    ids = torch.as_tensor(np.asarray(train))
    made: dict[str, Tensor] = {}
    found: dict[str, list[float]] = {}
    for target, names in of.items():
        for name in names:
            made.setdefault(name, COLUMNS[name](store))
        table = torch.cat([made[name] for name in names], dim=1)
        column = store.info["targets"].index(target)
        # An element that no training molecule has gets the smallest solution: zero.
        fit = torch.linalg.lstsq(table[ids], y[ids, column : column + 1], driver="gelsd").solution
        y[:, column] -= (table @ fit).squeeze(1)
        found[target] = fit.squeeze(1).tolist()
    return dataclasses.replace(store, y=y), found


def _elements(store: GraphStore) -> Tensor:
    if store.node_attr is None or store.node_attr.size(1) != len(NODE_FEATURES):
        raise DataError(
            "these graphs are not molecules: their nodes have no elements; give them node attributes as qm9 has them"
        )
    return store.node_attr[:, : len(ELEMENTS)].double()


def _shown(store: GraphStore, shown: Tensor | None) -> Tensor:
    """``[atoms, 1]`` float64."""
    if shown is None:
        return torch.ones(store.num_nodes, 1, dtype=torch.float64, device=store.device)
    return shown.to(store.device, torch.float64).reshape(-1, 1)


def _sums(store: GraphStore, x: Tensor) -> Tensor:
    return x.new_zeros(store.num_graphs, x.size(1)).index_add_(0, store.batch, x)
