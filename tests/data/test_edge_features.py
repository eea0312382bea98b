"""What a model sees of an edge: as described, unseen labels told, descriptions from strangers refused."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from softmask.data.convert import from_data
from softmask.data.edge_features import EdgeFeatures
from softmask.data.features import UnseenFeatureWarning
from softmask.data.synthetic import motif
from softmask.errors import FeatureError


def _store(labels, attr=None):
    """A path through as many edges as there are labels, both ways."""
    n = len(labels)
    one_way = torch.stack([torch.arange(n), torch.arange(1, n + 1)])
    data = Data(edge_index=torch.cat([one_way, one_way.flip(0)], dim=1), num_nodes=n + 1)
    data.edge_label = torch.tensor(list(labels) * 2).reshape(2 * n, -1)
    if attr is not None:
        data.edge_attr = torch.tensor(list(attr) * 2, dtype=torch.float32).reshape(2 * n, -1)
    return from_data([data])


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(-100, 100, width=32)), min_size=1, max_size=12))
def test_against_numpy(edges):
    labels, numbers = zip(*edges)
    store = _store(labels, numbers)
    features = EdgeFeatures.of(store)
    kinds = sorted(set(labels))
    assert features.channels == len(kinds) + 1
    found = features(store).numpy()
    label, attr = store.edge_label[:, 0].numpy(), store.edge_attr[:, 0].double().numpy()
    np.testing.assert_array_equal(found[:, :-1], label[:, None] == np.array(kinds))
    std = attr.std() if len(set(attr)) > 1 else 1.0
    np.testing.assert_allclose(found[:, -1], (attr - attr.mean()) / std, atol=1e-4)
    assert EdgeFeatures.from_json(features.to_json()) == features


def test_an_unseen_label_is_a_zero_vector_with_a_warning():
    features = EdgeFeatures.of(_store([1, 2]))
    with pytest.warns(UnseenFeatureWarning, match=r"2 edges have a label that no training graph had \(7; first in g"):
        found = features(_store([2, 7]))
    assert sorted(found.tolist()) == [[0, 0], [0, 0], [0, 1], [0, 1]]


def test_graphs_that_do_not_fit():
    with pytest.raises(FeatureError, match="no labels or attributes"):
        EdgeFeatures.of(motif(num_graphs=2, seed=0))
    none = Data(
        edge_index=torch.zeros(2, 0, dtype=torch.long), num_nodes=2, edge_label=torch.zeros(0, 1, dtype=torch.long)
    )
    with pytest.raises(FeatureError, match="no edges"):
        EdgeFeatures.of(from_data([none]))
    directed = Data(edge_index=torch.tensor([[0], [1]]), num_nodes=2, edge_label=torch.tensor([[1]]))
    with pytest.raises(FeatureError, match="undirected"):
        EdgeFeatures.of(from_data([directed]))
    features = EdgeFeatures.of(_store([1, 2], [0.5, 1.5]))
    with pytest.raises(FeatureError, match="1 labels an edge; these graphs have 0"):
        features(dataclasses.replace(_store([1], [1.0]), edge_label=None))
    with pytest.raises(FeatureError, match="1 attributes an edge; these graphs have 0"):
        features(_store([1]))
    # More than the model knows of is no harm where it knows of none.
    assert EdgeFeatures.of(_store([1, 2]))(_store([1, 2], [0.5, 1.5])).shape == (4, 2)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"values": [[2, 1]], "mean": [], "std": []},
        {"values": [[1, 1]], "mean": [], "std": []},
        {"values": [[2**40]], "mean": [], "std": []},
        {"values": [], "mean": [], "std": []},
        {"values": [], "mean": [0.0], "std": []},
        {"values": [], "mean": [0.0], "std": [0.0]},
        {"values": [], "mean": [0.0], "std": [float("nan")]},
        {"values": 3, "mean": [], "std": []},
        {"values": [["x"]], "mean": [], "std": []},
    ],
)
def test_bad_descriptions(fields):
    with pytest.raises(FeatureError):
        EdgeFeatures.from_json(fields)
