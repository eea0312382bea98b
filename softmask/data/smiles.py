"""Molecules given as SMILES strings to a GraphStore and back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from softmask.data.pyg import from_data
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError


def from_smiles(smiles: Sequence[str], y: Sequence[Any] | None = None, **info: Any) -> GraphStore:
    """Packs molecules given as SMILES: heavy atoms labelled by atomic number, bonds by kind (1, 2, 3; 12
    aromatic).

    The strings themselves are kept as the names of the graphs, so that :func:`to_smiles` gives them back.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        raise DataError("SMILES need RDKit: pip install 'softmask[smiles]'") from None
    data = []
    with rdBase.BlockLogs():
        for row, text in enumerate(smiles):
            molecule = Chem.MolFromSmiles(text)
            if molecule is None:
                raise DataError(f"molecule {row}: RDKit cannot read the SMILES {text!r}")
            if molecule.GetNumAtoms() == 0:
                raise DataError(f"molecule {row}: the SMILES {text!r} has no atoms")
            atoms = torch.tensor([[a.GetAtomicNum()] for a in molecule.GetAtoms()])
            bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondType())) for b in molecule.GetBonds()]
            table = torch.tensor(bonds + [(v, u, k) for u, v, k in bonds], dtype=torch.long).reshape(-1, 3)
            data.append(Data(x=atoms, edge_index=table[:, :2].t(), edge_attr=table[:, 2:]))
    store = from_data(data, names=list(smiles), **info)
    return store if y is None else with_targets(store, y)


def to_smiles(store: GraphStore) -> list[str]:
    """The SMILES a store was made from."""
    names = store.info.get("names")
    if names is None:
        raise DataError(f"{store!r} was not made from SMILES")
    return list(names)
