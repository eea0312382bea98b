"""Masks by kinds of atoms: which elements and functional groups a model uses, as numbers over many molecules."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.explain.explanation import Explanation
from softmask.explain.molecule import atom_order, has_molecules, laid_out

KINDS: dict[str, str] = {
    "H on C": "[#1][#6]",
    "H on N": "[#1][#7]",
    "H on O": "[#1][#8]",
    "carbonyl C": "[CX3]=[OX1]",
    "nitrile C": "[CX2]#[NX1]",
    "alkyne C": "[CX2]#[#6]",
    "aromatic C": "c",
    "alkene or imine C": "[CX3]",
    "alkyl C": "[CX4]",
    "nitrile N": "[NX1]#[#6]",
    "aromatic N": "n",
    "amide N": "[NX3][CX3]=[OX1]",
    "imine N": "[NX2]=*",
    "amine N": "[NX3]",
    "ammonium N": "[NX4]",
    "carbonyl O": "[OX1]=[#6]",
    "hydroxyl O": "[OX2H]",
    "aromatic O": "o",
    "ether or ester O": "[OX2]([#6])[#6]",
    "F": "[#9]",
}
"""Kinds of atoms as SMARTS, whose first atom is the one that is meant. An atom is of the first kind that fits it."""


def atom_kinds(store: GraphStore, graph: int) -> list[tuple[str, str]]:
    """Element and kind of every atom of a molecule, in the order of the graph's nodes.

    Args:
        store: molecules with their SMILES, such as QM9.
        graph: which of them.
    """
    order = atom_order(store, graph)
    molecule = laid_out(store.info["names"][graph], len(order))
    found: list[str | None] = [None] * len(order)
    for kind, pattern in _patterns().items():
        for atom, *_ in molecule.GetSubstructMatches(pattern, maxMatches=10_000, uniquify=False):
            found[atom] = found[atom] or kind
    symbols = [atom.GetSymbol() for atom in molecule.GetAtoms()]
    named: list[tuple[str, str]] = [("", "")] * len(order)
    for node, symbol, fits in zip(order.tolist(), symbols, found):
        named[node] = (symbol, fits or f"other {symbol}")
    return named


@cache
def _patterns() -> dict[str, Any]:
    from rdkit import Chem

    return {kind: Chem.MolFromSmarts(smarts) for kind, smarts in KINDS.items()}


def kind_statistics(
    store: GraphStore,
    explanations: Iterable[Explanation],
    numbers: Sequence[int],
    effects: Iterable[np.ndarray],
) -> dict[str, Any]:
    """What the masks and the predictions make of the kinds of atoms, over many molecules, as plain JSON.

    Args:
        store: the set the molecules are from.
        explanations: of the molecules `numbers` of the set.
        numbers: the molecules.
        effects: for each of them ``[atoms]``, how the prediction changes when that atom alone is shut out
            (:func:`~softmask.explain.faithfulness.shut_one`).

    Returns:
        ``elements`` and ``kinds``: by name, ``atoms`` and ``molecules`` (how many there are), ``masks`` (the mean of
        each layer), ``mask`` (over layers), ``importance``, ``effect`` (the mean size of the change, in the target's
        unit), ``change`` (the mean change with its sign) and ``first`` (the share of molecules that have such an atom,
        in which one of them has the largest effect of all atoms).
    """
    if not has_molecules(store):
        raise SettingError(f"{store.info.get('name', 'the set')} has no molecules: its graphs have no SMILES that fit")
    rows: dict[str, list[Any]] = {name: [] for name in ("element", "kind", "molecule", "masks", "importance", "change")}
    leads: list[np.ndarray] = []
    for place, (number, said, change) in enumerate(zip(numbers, explanations, effects, strict=True)):
        named = atom_kinds(store, number)
        rows["element"] += [element for element, _ in named]
        rows["kind"] += [kind for _, kind in named]
        rows["molecule"] += [place] * len(named)
        rows["masks"].append(said.masks)
        rows["importance"].append(said.importance)
        rows["change"].append(change)
        leads.append(np.arange(len(change)) == np.abs(change).argmax())
    if not leads:
        raise SettingError("no molecules were given")
    masks, importance, change, lead = map(np.concatenate, (rows["masks"], rows["importance"], rows["change"], leads))
    molecule = np.array(rows["molecule"])

    def group(names: list[str]) -> dict[str, Any]:
        array, found = np.array(names), {}
        for name in dict.fromkeys(sorted(names)):
            at = array == name
            own = len(np.unique(molecule[at]))
            found[name] = {
                "atoms": int(at.sum()),
                "molecules": own,
                "masks": masks[at].mean(axis=0).round(6).tolist(),
                "mask": _round(masks[at].mean()),
                "importance": _round(importance[at].mean()),
                "effect": _round(np.abs(change[at]).mean()),
                "change": _round(change[at].mean()),
                "first": _round(lead[at].sum() / own),
            }
        return dict(sorted(found.items(), key=lambda item: -item[1]["effect"]))

    return {"molecules": len(leads), "elements": group(rows["element"]), "kinds": group(rows["kind"])}


def kind_markdown(found: dict[str, Any], target: str, unit: str) -> str:
    """The statistics as Markdown: elements, and kinds of atoms, those of the largest effect first.

    Args:
        found: of :func:`kind_statistics`.
        target: the name of what is predicted.
        unit: of the target; empty if it is not known.
    """
    inside, both = (f", {unit}", f" (both in {unit})") if unit else ("", "")
    lines = [
        f"Which atoms carry {target}: {found['molecules']:,} molecules. *Effect* is the mean size of the change of the "
        f"prediction when one such atom is shut out, *change* the same with its sign{both}; *first* is the share of "
        "the molecules with such an atom in which one of them has the largest effect. *Mask* is the mean over layers "
        "and channels, from 0 to 1; *importance* is relative to the largest of the molecule.",
    ]
    for title, rows in (("element", found["elements"]), ("kind of atom", found["kinds"])):
        heads = [title, "atoms", "molecules", f"effect{inside}", f"change{inside}", "first", "mask", "importance"]
        lines += ["", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for name, row in rows.items():
            cells = [
                name,
                f"{row['atoms']:,}",
                f"{row['molecules']:,}",
                f"{row['effect']:.3g}",
                f"{row['change']:+.3g}",
            ]
            cells += [f"{100 * row['first']:.0f} %", f"{row['mask']:.3f}", f"{row['importance']:.3f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _round(value: Any) -> float:
    return float(f"{float(value):.6g}")
