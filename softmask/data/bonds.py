"""The bonds of a molecule that is given by its SMILES and the positions of all its atoms."""

from typing import Any, NamedTuple

import numpy as np

from softmask.errors import DataError

BOND_KINDS = {"single": 1, "double": 2, "triple": 3, "aromatic": 12}
"""The numbers of the kinds of bonds in ``edge_label``: RDKit's, here as in :mod:`softmask.data.smiles`."""

HYBRIDISATIONS = ("none", "sp", "sp2", "sp3")

# In QM9, in Angstrom: bonds of heavy atoms are up to 2.19 long, 1.79 but for two; the atoms that a wrong order joins
# are 3.3 apart or more.
LONGEST_BOND = 2.3
# Heavy atoms nearer than this are bonded, where the bonds are found by geometry.
_BONDED = 1.8


class UnmatchedError(DataError):
    """The SMILES and the positions of a molecule do not belong together."""


class Bonds(NamedTuple):
    """Bonds by the numbers of their atoms, each once; hybridisation of each atom (of H: none)."""

    ends: np.ndarray  # [bonds, 2], the lower number first, ascending
    kind: np.ndarray  # [bonds]
    hybridisation: np.ndarray  # [atoms], an index into HYBRIDISATIONS


def match_bonds(smiles: str, element: np.ndarray, position: np.ndarray) -> Bonds:
    """Bonds between heavy atoms and their kinds from the SMILES, those of hydrogen from the positions.

    The heavy atoms of the SMILES stand for those of `element` in the same order, if elements and hydrogens agree and no
    bond would be too long; otherwise they are matched by geometry. Each H is bonded to the heavy atom next to it.

    Args:
        smiles: of the molecule, without explicit hydrogen atoms.
        element: ``[atoms]``, atomic numbers.
        position: ``[atoms, 3]`` in Angstrom.

    Raises:
        UnmatchedError: if they do not belong together; it says why.
    """
    from rdkit import Chem

    molecule = Chem.MolFromSmiles(smiles)
    if molecule is None:
        raise UnmatchedError("RDKit cannot read the SMILES")
    heavy, hydrogen = np.flatnonzero(element != 1), np.flatnonzero(element == 1)
    atoms = list(molecule.GetAtoms())
    wanted = [(a.GetAtomicNum(), a.GetTotalNumHs()) for a in atoms]
    if not atoms or sorted(z for z, _ in wanted) != sorted(element[heavy].tolist()):
        raise UnmatchedError("the heavy atoms of the SMILES are not those of the positions")
    holder = heavy[_distances(position[hydrogen], position[heavy]).argmin(axis=1)]
    held = np.bincount(holder, minlength=len(element))
    given = [(int(element[v]), int(held[v])) for v in heavy]
    bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondType())) for b in molecule.GetBonds()]
    if not {kind for *_, kind in bonds} <= set(BOND_KINDS.values()):
        raise UnmatchedError("it has a bond that is neither single, double, triple nor aromatic")
    apart = _distances(position[heavy], position[heavy])
    order: Any = range(len(heavy))
    if wanted != given or any(apart[u, v] > LONGEST_BOND for u, v, _ in bonds):
        order = _order_by_geometry(wanted, given, bonds, apart)
    place = [int(heavy[i]) for i in order]
    table = [(*sorted((place[u], place[v])), kind) for u, v, kind in bonds]
    table += [(*sorted((int(u), int(v))), BOND_KINDS["single"]) for u, v in zip(hydrogen, holder)]
    rows = np.array(sorted(table), dtype=np.uint8).reshape(-1, 3)
    hybridisation = np.zeros(len(element), dtype=np.uint8)
    for v, atom in zip(place, atoms):
        name = str(atom.GetHybridization()).lower()
        hybridisation[v] = HYBRIDISATIONS.index(name) if name in HYBRIDISATIONS else 0
    return Bonds(rows[:, :2], rows[:, 2], hybridisation)


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.sqrt(np.square(a[:, None] - b[None]).sum(axis=-1))


def _order_by_geometry(
    wanted: list[tuple[int, int]],
    given: list[tuple[int, int]],
    bonds: list[tuple[int, int, int]],
    apart: np.ndarray,
) -> list[int]:
    """For each heavy atom of the SMILES its place among the positions: neighbours, elements and hydrogens agree.

    Where several ways do, the one with the shortest double and triple bonds.
    """
    import networkx as nx
    from networkx.algorithms.isomorphism import GraphMatcher

    smiles, space = nx.Graph(), nx.Graph()
    for graph, atoms in ((smiles, wanted), (space, given)):
        graph.add_nodes_from((i, {"atom": atom}) for i, atom in enumerate(atoms))
    smiles.add_edges_from((u, v) for u, v, _ in bonds)
    space.add_edges_from(np.argwhere(np.triu(apart < _BONDED, k=1)).tolist())
    ways = [
        [way[i] for i in range(len(wanted))]
        for way in GraphMatcher(smiles, space, lambda a, b: a["atom"] == b["atom"]).isomorphisms_iter()
    ]
    if not ways:
        raise UnmatchedError("the bonds of the SMILES fit the positions in no order of the atoms")
    # Equal sums up to rounding are the symmetries of the molecule: the first in order then.
    return min(ways, key=lambda way: (round(sum(k * apart[way[u], way[v]] for u, v, k in bonds), 6), way))
