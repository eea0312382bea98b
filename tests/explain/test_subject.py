import numpy as np
import pytest
import torch
from explain.pages import explained
from torch_geometric.data import Data

from softmask.data.pyg import from_data
from softmask.data.smiles import from_smiles
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.explain.explanation import Explanation
from softmask.explain.subject import check_drawable, node_labels, subjects


def _set(*nodes):
    said = [explained(n, seed) for seed, n in enumerate(nodes)]
    return from_data([s.data for s in said]), said


def test_graphs_are_placed_and_cut_to_their_most_important_nodes():
    store, said = _set(12, 30)
    small, large = subjects(store, said, [0, 1], size=15)
    assert not small.cut
    assert (small.nodes, small.whole, len(small.edges)) == (12, 12, 11)
    assert large.cut
    assert (large.nodes, large.whole) == (15, 30)
    kept = large.explanation.data.nodes.numpy()
    assert int(said[1].importance.argmax()) in kept
    assert len(large.edges) == 14, "a piece of a path hangs together"
    assert np.array_equal(large.explanation.masks, said[1].masks[kept])
    ends = said[1].data.edge_index.t().tolist()
    assert len(large.edges) == sum(u < v and u in kept and v in kept for u, v in ends)
    assert large.place.shape == (15, 2)
    assert large.degree.tolist() == [sum(u == v for u, _ in ends) for v in kept], "in the whole graph"


def test_too_large_graphs_are_refused_with_a_way_out():
    store, _ = _set(5, 6000)
    check_drawable(store, [0])
    check_drawable(store, [0, 1], size=500)
    with pytest.raises(SettingError, match=r"graph 1 has 6,000 nodes and 5,999 edges, too many .* --size 500"):
        check_drawable(store, [0, 1])
    with pytest.raises(SettingError, match="from 1 to 5000"):
        check_drawable(store, [0], size=10_000)
    ends = torch.combinations(torch.arange(400)).t()
    dense = from_data([Data(edge_index=torch.cat([ends, ends.flip(0)], 1), num_nodes=400)])
    with pytest.raises(SettingError, match="79,800 edges"):
        check_drawable(dense, [0])


def test_labels_in_words():
    labels = [Data(x=torch.tensor([[0], [6]]), edge_index=torch.zeros(2, 0, dtype=torch.long))]
    assert node_labels(from_data(labels), 0) == ["0", "6"]
    assert node_labels(from_data(labels, name="MUTAG"), 0) == ["C", "Br"]
    two = [Data(x=torch.tensor([[0, 3], [6, 1]]), edge_index=torch.zeros(2, 0, dtype=torch.long))]
    assert node_labels(from_data(two), 0) == ["0/3", "6/1"]
    assert node_labels(motif(2, seed=0), 1) is None
    pytest.importorskip("rdkit")
    assert node_labels(from_smiles(["CCO", "ClC#N"]), 1) == ["Cl", "C", "N"]


@pytest.mark.real
def test_labels_of_mutag_are_its_elements(real_set):
    """Nitro groups: an atom called N with two neighbours called O, which have no other, is in most of the molecules."""
    from softmask.data.catalog import open_data

    store = open_data(str(real_set("MUTAG")))
    with_nitro = 0
    for g in range(len(store)):
        names, ends = node_labels(store, g), store[g].edge_index.t().tolist()
        near = [[names[v] for u, v in ends if u == w] for w in range(len(names))]
        with_nitro += any(names[w] == "N" and near[w].count("O") == 2 for w in range(len(names)))
        # What the names say must agree with the atoms' bonds.
        assert all(len(near[w]) == 1 for w in range(len(names)) if names[w] in ("F", "Cl", "Br", "I"))
        assert all(len(near[w]) <= 4 for w in range(len(names)))
    assert with_nitro > 150


def _molecule(store, g):
    data = store[g]
    n = data.num_nodes
    return Explanation(data, store.info["names"][g], np.full((n, 2), 0.5), np.ones(n), 0.0)


def test_molecules_are_placed_as_chemists_draw_them():
    pytest.importorskip("rdkit")
    store = from_smiles(["c1ccccc1C#N", "CC=O"])
    ring, chain = subjects(store, [_molecule(store, g) for g in (0, 1)], [0, 1])
    kinds = {tuple(e): k for e, k in zip(ring.edges.tolist(), ring.bonds.tolist())}
    assert sorted(kinds.values()) == [1, 3] + [12] * 6
    length = np.linalg.norm(ring.place[ring.edges[:, 0]] - ring.place[ring.edges[:, 1]], axis=1)
    assert np.ptp(length) < 0.01 * length.mean()
    assert chain.labels == ["C", "C", "O"]
    assert sorted(chain.bonds.tolist()) == [1, 2]


def test_a_name_that_is_no_molecule_is_drawn_as_a_graph():
    pytest.importorskip("rdkit")
    from dataclasses import replace

    store = from_smiles(["CCO", "CCC"])
    store = replace(store, info={**store.info, "names": ["CCO", "<b>not a molecule"]})
    said: list[str] = []
    (one,) = subjects(store, [_molecule(store, 1)], [1], on_trouble=said.append)
    assert one.bonds is None
    assert np.isfinite(one.place).all()
    assert len(said) == 1
    assert "drawn as a graph" in said[0]
