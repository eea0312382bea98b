"""Kinds of atoms, and what a model does with them."""

import numpy as np
import pytest

from softmask.data.catalog import open_data
from softmask.data.convert import from_smiles
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.explain.atom_kinds import KINDS, atom_kinds, kind_markdown, kind_statistics
from softmask.explain.explanation import Explanation
from softmask.explain.subject import node_labels

STORE = open_data("qm9-sample")

# Written by hand; heavy atoms in the order of the SMILES.
BY_HAND = {
    "CC#N": ["alkyl C", "nitrile C", "nitrile N"],
    "NC=O": ["amide N", "carbonyl C", "carbonyl O"],
    "c1ccccc1O": ["aromatic C"] * 6 + ["hydroxyl O"],
    "C1=CCN1": ["alkene or imine C", "alkene or imine C", "alkyl C", "amine N"],
    "COC(F)=N": ["alkyl C", "ether or ester O", "alkene or imine C", "F", "imine N"],
    "C#CC": ["alkyne C", "alkyne C", "alkyl C"],
    "c1cocn1": ["aromatic C", "aromatic C", "aromatic O", "aromatic C", "aromatic N"],
    "C[NH3+]": ["alkyl C", "ammonium N"],
    "C[N+](C)(C)[O-]": ["alkyl C", "ammonium N", "alkyl C", "alkyl C", "other O"],
}


@pytest.mark.parametrize("smiles", BY_HAND)
def test_kinds_of_heavy_atoms(smiles):
    assert [kind for _, kind in atom_kinds(from_smiles([smiles]), 0)] == BY_HAND[smiles]


def test_kinds_follow_the_nodes_of_the_graph():
    """On molecules with hydrogens: the element is that of the node, and a hydrogen is named by its only neighbour."""
    for g in range(0, 1000, 50):
        named = atom_kinds(STORE, g)
        labels, data = node_labels(STORE, g), STORE[g]
        assert [element for element, _ in named] == labels
        source, target = data.edge_index
        for v, (element, kind) in enumerate(named):
            assert kind in KINDS or kind == f"other {element}"
            if element == "H":
                (holder,) = source[target == v].tolist()
                assert kind == f"H on {labels[holder]}"
            if kind == "hydroxyl O":
                assert "H" in [labels[u] for u in source[target == v].tolist()]


def test_statistics_against_a_loop():
    numbers = [3, 40, 41, 500, 7]
    rng = np.random.default_rng(0)
    said, effects = [], []
    for g in numbers:
        n = STORE[g].num_nodes
        said.append(Explanation(STORE[g], "", rng.random((n, 3)), rng.random(n), 0.0))
        effects.append(rng.normal(size=n))
    found = kind_statistics(STORE, said, numbers, effects)
    assert found["molecules"] == 5
    by_kind: dict[str, list] = {}
    for g, s, change in zip(numbers, said, effects):
        for v, (_, kind) in enumerate(atom_kinds(STORE, g)):
            best = abs(change[v]) == np.abs(change).max()
            by_kind.setdefault(kind, []).append((g, s.masks[v].mean(), s.importance[v], change[v], best))
    assert set(found["kinds"]) == set(by_kind)
    for kind, rows in by_kind.items():
        graphs, mask, importance, change, best = map(np.array, zip(*rows))
        row = found["kinds"][kind]
        assert (row["atoms"], row["molecules"]) == (len(rows), len(set(graphs)))
        wanted = [mask.mean(), importance.mean(), np.abs(change).mean(), change.mean(), best.sum() / len(set(graphs))]
        assert [row[k] for k in ("mask", "importance", "effect", "change", "first")] == pytest.approx(wanted, rel=1e-5)
    assert sum(row["atoms"] for row in found["elements"].values()) == sum(len(s.importance) for s in said)
    effects_in_order = [row["effect"] for row in found["kinds"].values()]
    assert effects_in_order == sorted(effects_in_order, reverse=True)
    text = kind_markdown(found, "mu", "D")
    assert "Which atoms carry mu: 5 molecules" in text
    assert "| effect, D | change, D |" in text
    assert all(f"| {kind} | {row['atoms']} | {row['molecules']} |" in text for kind, row in found["kinds"].items())


def test_other_graphs_are_refused():
    with pytest.raises(SettingError, match="has no molecules"):
        kind_statistics(motif(num_graphs=2, seed=0), [], [], [])
