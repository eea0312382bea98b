"""Masks on molecules: the picture shows the right atoms in the right colours, and is an SVG whatever it is given."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.data.catalog import open_data
from softmask.data.convert import from_smiles
from softmask.data.synthetic import motif
from softmask.errors import DataError, SettingError
from softmask.explain.molecule import atom_order, has_molecules, mask_colour, molecule_svg, store_molecule_svg

pytest.importorskip("rdkit")

SVG = "{http://www.w3.org/2000/svg}"


def _panels(text):
    root = ElementTree.fromstring(text)
    return [panel for panel in root.iter(f"{SVG}svg") if panel.get("class", "").startswith("layer-")]


def _fills(panel):
    """The colour of each atom's mark, by the atom's number."""
    marks = {m.get("class"): m.get("fill") for m in panel.iter(f"{SVG}rect") if m.get("class", "").startswith("atom-")}
    return [marks[f"atom-{i}"] for i in range(len(marks))]


@pytest.mark.parametrize("dark", [False, True])
def test_every_atom_has_its_colour_in_every_layer(dark):
    masks = np.random.default_rng(0).random((10, 3))
    panels = _panels(molecule_svg("OC(=O)c1ccccc1[NH3+]", masks, dark=dark))
    assert len(panels) == 3
    for k, panel in enumerate(panels):
        assert _fills(panel) == [mask_colour(m, dark) for m in masks[:, k]]


def test_colours_are_those_of_the_other_pictures():
    matplotlib = pytest.importorskip("matplotlib")
    from softmask.explain.draw import COLOURS

    for mask in np.linspace(0, 1, 33):
        ours = [int(mask_colour(mask)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        np.testing.assert_allclose(ours, matplotlib.colormaps[COLOURS](mask)[:3], atol=0.02)
    assert mask_colour(0, dark=True) == "#14171a"
    # Towards 1 the colour leaves the page's, without turning back: seen by its green, which the eye sees best.
    for dark in (False, True):
        green = np.array([int(mask_colour(m, dark)[3:5], 16) for m in np.linspace(0, 1, 20)])
        assert (np.diff(green) * (1 if dark else -1) >= 0).all()


def test_hydrogens_are_drawn_if_they_have_masks():
    heavy, all_atoms = (molecule_svg("CCO", np.full((n, 1), 0.5)) for n in (3, 9))
    assert len(_fills(_panels(heavy)[0])) == 3
    assert len(_fills(_panels(all_atoms)[0])) == 9
    with pytest.raises(SettingError, match="masks of 4 atoms for CCO, which has 3, and 9 with hydrogens"):
        molecule_svg("CCO", np.full((4, 1), 0.5))


@given(st.text(max_size=60), st.lists(st.text(max_size=8), min_size=2, max_size=2))
def test_any_title_gives_valid_xml(title, names):
    text = molecule_svg("CO", np.full((2, 2), 0.3), title, names)
    words = [t.text for t in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert {"mask", "0", "0.5", "1"} <= set(words)


def test_a_long_title_stays_in_the_picture():
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    root = ElementTree.fromstring(molecule_svg("CO", np.full((2, 2), 0.3), "CCNC(=O)CCON " * 6 + "predicted 2.856"))
    wide, font = float(root.get("width")), FontProperties(family="DejaVu Sans")  # wider than most
    for line in [t for t in root.iter(f"{SVG}text") if t.get("font-size") == "13"]:
        half = TextPath((0, 0), line.text, size=13, prop=font).get_extents().width / 2
        assert half <= float(line.get("x")) <= wide - half


def test_markup_in_a_title_stays_text():
    text = molecule_svg("C", np.ones((1, 1)), '<script>alert(1)</script> & "x" <b>')
    assert "<script" not in text
    assert "id=" not in re.sub("gradientUnits", "", text)  # pictures on one page share one name space
    root = ElementTree.fromstring(text)
    assert root.find(f"{SVG}title").text == '<script>alert(1)</script> & "x" <b>'


def test_bad_input():
    for masks, words in (
        (np.ones(3), "shape"),
        (np.ones((3, 0)), "shape"),
        (np.full((3, 1), 1.5), "from 0 to 1"),
        (np.full((3, 1), np.nan), "from 0 to 1"),
    ):
        with pytest.raises(SettingError, match=words):
            molecule_svg("CCO", masks)
    with pytest.raises(SettingError, match="1 names for 2 layers"):
        molecule_svg("CCO", np.ones((3, 2)), layer_names=["a"])
    with pytest.raises(DataError, match="cannot read the SMILES 'C\\('"):
        molecule_svg("C(", np.ones((1, 1)))
    store = motif(num_graphs=2, seed=0)
    assert not has_molecules(store)
    with pytest.raises(DataError, match="no SMILES"):
        store_molecule_svg(store, 0, np.ones((3, 1)))


def _bonds(store, graph):
    data = store[graph]
    label = data.edge_label if "edge_label" in data else data.edge_attr
    return {(u, v): int(k) for (u, v), k in zip(data.edge_index.t().tolist(), label[:, 0])}


def test_atoms_of_qm9_are_those_of_its_smiles():
    """Elements, bonds and positions: what RDKit draws at a place is the atom whose mask is shown there."""
    from rdkit import Chem

    store = open_data("qm9-sample")
    assert has_molecules(store)
    z = store.node_attr[:, 5].long()
    for graph in range(0, store.num_graphs, 5):
        order = atom_order(store, graph)
        molecule = Chem.AddHs(Chem.MolFromSmiles(store.info["names"][graph]))
        first = int(store.node_ptr[graph])
        assert sorted(order) == list(range(int(store.sizes[graph])))
        assert [a.GetAtomicNum() for a in molecule.GetAtoms()] == z[first + order].tolist()
        bonds = _bonds(store, graph)
        assert len(bonds) == 2 * molecule.GetNumBonds()
        for bond in molecule.GetBonds():
            u, v = order[bond.GetBeginAtomIdx()], order[bond.GetEndAtomIdx()]
            assert bonds[u, v] == int(bond.GetBondType())
            assert float((store.pos[first + u] - store.pos[first + v]).norm()) < 2.3  # Angstrom


@given(st.integers(0, 199), st.randoms(use_true_random=False))
def test_any_order_of_the_atoms_is_found(graph, random):
    """A molecule whose nodes are shuffled is drawn with every mask on an atom of the same kind, equally bonded."""
    from softmask.data.convert import from_data

    store = open_data("qm9-sample").select([graph])
    data = store[0]
    place = list(range(data.num_nodes))
    random.shuffle(place)
    place = torch.tensor(place)
    back = torch.argsort(place)
    data.x, data.pos, data.edge_index = data.x[back], data.pos[back], place[data.edge_index]
    shuffled = from_data([data], names=store.info["names"])
    order = atom_order(shuffled, 0)
    plain = atom_order(store, 0)
    assert shuffled.node_attr[order].equal(store.node_attr[plain])
    ours, theirs = _bonds(shuffled, 0), _bonds(store, 0)
    for i in range(len(order)):
        for j in range(len(order)):
            assert ours.get((order[i], order[j])) == theirs.get((plain[i], plain[j]))


def test_molecules_from_smiles_are_in_order():
    smiles = ["c1ccccc1O", "[H][H]", "CC(=O)[O-].[Na+]", "[2H]C"]
    store = from_smiles(smiles)
    for graph in range(len(smiles)):
        n = int(store.sizes[graph])
        assert atom_order(store, graph).tolist() == list(range(n))
        masks = np.linspace(0, 1, n).reshape(n, 1)
        panel = _panels(store_molecule_svg(store, graph, masks, title=smiles[graph]))[0]
        assert _fills(panel) == [mask_colour(m) for m in masks[:, 0]]
    with pytest.raises(SettingError, match="needs \\[2, layers\\]"):
        store_molecule_svg(store, 1, np.ones((3, 1)))
