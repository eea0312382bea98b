"""Molecules given as SMILES strings to a GraphStore and back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from softmask.data.pyg import from_data
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError

ATOM_FEATURES = ("aromatic", "sp", "sp2", "sp3", "hydrogens", "charge", "ring")
"""The columns of ``node_attr`` beside the element, which is the label: 1 or 0, and two small whole numbers."""


class SmilesError(DataError):
    """A SMILES that is no molecule; the message says why."""


def from_smiles(smiles: Sequence[str], y: Sequence[Any] | None = None, **info: Any) -> GraphStore:
    """Packs molecules given as SMILES: heavy atoms labelled by atomic number, with :data:`ATOM_FEATURES` as their
    attributes; bonds labelled by kind (1, 2, 3; 12 aromatic).

    The strings themselves are kept as the names of the graphs, so that :func:`to_smiles` gives them back.
    """
    graphs = []
    for row, text in enumerate(smiles):
        try:
            graphs.append(smiles_graph(text))
        except SmilesError as error:
            raise DataError(f"molecule {row}: {error}") from None
    store = from_data(graphs, names=list(smiles), **info)
    return store if y is None else with_targets(store, y)


def smiles_graph(smiles: str) -> Data:
    """One molecule as a graph, as :func:`from_smiles` packs it.

    Raises:
        SmilesError: if it is none; says why.
    """
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        raise DataError("SMILES need RDKit: pip install 'softmask[smiles]'") from None
    smiles = smiles.strip()
    with rdBase.BlockLogs():
        # RDKit stops at a space or at a letter that is none of ASCII's, and would give half of the molecule.
        spaces = smiles.partition(" |")[0].split()  # in bars: an extension of SMILES, which may follow a space
        molecule = Chem.MolFromSmiles(smiles) if smiles.isascii() and len(spaces) < 2 else None
        if molecule is None:
            raise SmilesError(f"RDKit cannot read the SMILES {_short(smiles)}{_problem(smiles)}")
    if molecule.GetNumAtoms() == 0:
        raise SmilesError(f"the SMILES {_short(smiles)} has no atoms")
    kinds = Chem.HybridizationType
    atoms = list(molecule.GetAtoms())
    features = [
        (
            a.GetIsAromatic(),
            *((kind := a.GetHybridization()) == kinds.SP, kind == kinds.SP2, kind == kinds.SP3),
            *(a.GetTotalNumHs(), a.GetFormalCharge(), a.IsInRing()),
        )
        for a in atoms
    ]
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondType())) for b in molecule.GetBonds()]
    table = torch.tensor(bonds + [(v, u, k) for u, v, k in bonds], dtype=torch.long).reshape(-1, 3)
    return Data(
        x=torch.tensor(features, dtype=torch.float32),
        node_label=torch.tensor([[a.GetAtomicNum()] for a in atoms]),
        edge_index=table[:, :2].t(),
        edge_attr=table[:, 2:],
    )


def to_smiles(store: GraphStore) -> list[str]:
    """The SMILES a store was made from."""
    names = store.info.get("names")
    if names is None:
        raise DataError(f"{store!r} was not made from SMILES")
    return list(names)


def _problem(smiles: str) -> str:
    """What RDKit says of a string that has the form of a SMILES, but is no molecule."""
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(smiles, sanitize=False)
    found = [] if molecule is None else Chem.DetectChemistryProblems(molecule)
    return f": {found[0].Message()}" if found else ""


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
