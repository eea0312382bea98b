import numpy as np
import pytest
import torch

from softmask.data.atom_references import atom_masses, element_counts, element_extents, subtract_references
from softmask.data.catalog import open_data
from softmask.data.synthetic import motif
from softmask.errors import DataError


@pytest.fixture(scope="module")
def store():
    return open_data("qm9-sample")


def test_counts_and_extents_of_one_molecule_by_hand(store):
    g = 3
    first, last = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
    number = store.node_attr[first:last, 5].numpy()
    pos = store.pos[first:last].double().numpy()
    mass = np.array([{1: 1.008, 6: 12.011, 7: 14.007, 8: 15.999, 9: 18.998}[int(z)] for z in number])
    np.testing.assert_allclose(atom_masses(store)[first:last].numpy(), mass)
    apart = pos - (mass[:, None] * pos).sum(axis=0) / mass.sum()
    square = (apart**2).sum(axis=1)
    for i, z in enumerate((1, 6, 7, 8, 9)):
        assert element_counts(store)[g, i] == (number == z).sum()
        assert float(element_extents(store)[g, i]) == pytest.approx(square[number == z].sum(), abs=1e-9)


def test_the_fit_sees_the_training_molecules_alone(store):
    train = np.arange(0, 1000, 2)
    of = {"U0": ["elements"], "r2": ["elements", "extents"]}
    rest, found = subtract_references(store, of, train)
    column = store.info["targets"].index("U0")
    table = element_counts(store).numpy()
    fit, *_ = np.linalg.lstsq(table[train], store.y[train, column].numpy(), rcond=None)
    np.testing.assert_allclose(rest.y[:, column].numpy(), store.y[:, column].numpy() - table @ fit, atol=1e-8)
    np.testing.assert_allclose(found["U0"], fit, atol=1e-8)
    # Another test part, the same coefficients.
    changed = store.y.clone()
    changed[1::2] = 0
    _, again = subtract_references(type(store)(**{**vars(store), "y": changed}), of, train)
    np.testing.assert_allclose(again["r2"], found["r2"], atol=1e-8)
    # Energies of atoms in Hartree: carbon has about -37.85.
    assert found["U0"][1] == pytest.approx(-37.9, abs=0.3)
    spread = rest.y.std(dim=0)
    assert spread[column] < 0.1
    assert spread[store.info["targets"].index("r2")] < 10
    untouched = [i for i, name in enumerate(store.info["targets"]) if name not in of]
    assert torch.equal(rest.y[:, untouched], store.y[:, untouched])


def test_bad_input():
    with pytest.raises(DataError, match="not molecules"):
        element_counts(motif(num_graphs=2, seed=0))
