"""What a model sees of molecules in space beside features and positions: kinds of bonds and masses."""

from typing import NamedTuple

import torch
from torch import Tensor

from softmask.data.atom_references import atom_masses
from softmask.data.bonds import BOND_KINDS
from softmask.data.features import first_graph
from softmask.data.store import GraphStore
from softmask.errors import FeatureError


class Atoms(NamedTuple):
    """Atoms in space.

    Args:
        pos: ``[atoms, 3]``, in Angstrom.
        kind: ``[edges]``, the kinds of the bonds, from 1 on, in the order of the store's ``col``.
        mass: ``[atoms]`` float64, in dalton.
    """

    pos: Tensor
    kind: Tensor
    mass: Tensor

    @classmethod
    def of(cls, store: GraphStore) -> "Atoms":
        """Those of a store of molecules in space; refuses any other."""
        if store.pos is None or store.pos.size(1) != 3:
            raise FeatureError(
                "this model sees where atoms are, and these graphs have no positions in space; qm9 and qm9-sample have"
            )
        if store.edge_label is None:
            raise FeatureError(
                f"this model sees {', '.join(BOND_KINDS)} bonds; the edges of these graphs have no kind; "
                f"give one as edge_label: {', '.join(f'{number} {name}' for name, number in BOND_KINDS.items())}"
            )
        if store.directed:
            raise FeatureError("this model sees bonds, and some edge of these graphs has no counterpart the other way")
        hot = store.edge_label[:, :1] == torch.tensor([*BOND_KINDS.values()], device=store.device)
        unknown = ~hot.any(dim=1)
        if bool(unknown.any()):
            where = first_graph(store, store.edges()[1][unknown][:1])
            known = ", ".join(f"{number} ({name})" for name, number in BOND_KINDS.items())
            raise FeatureError(
                f"a bond is of kind {int(store.edge_label[unknown][0, 0])}, first in {where}; this model knows {known}"
            )
        return cls(store.pos, hot.int().argmax(dim=1) + 1, atom_masses(store))
