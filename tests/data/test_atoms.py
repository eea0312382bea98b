"""What a model of molecules in space takes, and what it refuses."""

import dataclasses

import pytest
import torch

from softmask.data.atoms import Atoms
from softmask.data.catalog import open_data
from softmask.data.pyg import from_data
from softmask.errors import FeatureError


@pytest.fixture
def store():
    return open_data("qm9-sample").select(range(3))


def test_kinds_are_numbered_from_1(store):
    kinds = {1: 1, 2: 2, 3: 3, 12: 4}
    assert Atoms.of(store).kind.tolist() == [kinds[k] for k in store.edge_label[:, 0].tolist()]


@pytest.mark.parametrize("strange", [0, 4, 7])
def test_an_unknown_kind_of_bond_is_not_taken_for_a_single_one(store, strange):
    label = store.edge_label.clone()
    label[-2:] = strange
    with pytest.raises(FeatureError, match=rf"of kind {strange}, first in graph 2, .*12 \(aromatic\)"):
        Atoms.of(dataclasses.replace(store, edge_label=label))


def test_bonds_one_way_are_refused(store):
    data = store[0]
    one = data.edge_index[0] < data.edge_index[1]
    data.edge_index = data.edge_index[:, one]
    data.edge_label, data.edge_attr = data.edge_label[one], data.edge_attr[one]
    with pytest.raises(FeatureError, match="no counterpart"):
        Atoms.of(from_data([data]))


def test_no_positions_in_space(store):
    for pos in (None, torch.zeros(store.num_nodes, 2)):
        with pytest.raises(FeatureError, match="no positions"):
            Atoms.of(dataclasses.replace(store, pos=pos))
