"""Edge features through the estimators: they are learned from, kept, and seen the same way in every form."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Data

from softmask import SoftMaskClassifier, SoftMaskRegressor
from softmask.data.convert import from_data, from_smiles, with_targets
from softmask.data.features import UnseenFeatureWarning
from softmask.errors import FeatureError, SettingError
from softmask.fleet import predict as module
from softmask.study.cross_validation import cross_validate
from softmask.study.settings import Settings


def _ring(n, kinds):
    """A ring whose edge i, both ways, is of kind kinds[i]."""
    here = torch.arange(n)
    one_way = torch.stack([here, (here + 1) % n])
    label = torch.tensor(kinds).reshape(-1, 1)
    return Data(edge_index=torch.cat([one_way, one_way.flip(0)], 1), edge_attr=torch.cat([label, label]), num_nodes=n)


@pytest.fixture(scope="module")
def rings():
    """Rings of several sizes, each once with one kind of edges and once with two: only the edges tell the classes."""
    sizes = list(range(4, 10)) * 3
    graphs = [_ring(n, [i % 2 * kind for i in range(n)]) for n in sizes for kind in (0, 1)]
    return with_targets(from_data(graphs), ["one", "two"] * len(sizes))


@pytest.fixture(scope="module")
def model(rings):
    return SoftMaskClassifier(hidden=8, layers=2, epochs=40, lr=1e-2, dropout=0, edges=True, device="cpu").fit(rings)


def test_what_only_the_edges_tell_is_learned(rings, model):
    y = ["one", "two"] * 18
    assert model.score(rings, y) == 1.0
    blind = SoftMaskClassifier(hidden=8, layers=2, epochs=5, device="cpu").fit(rings)
    np.testing.assert_allclose(blind.predict_proba(rings)[::2], blind.predict_proba(rings)[1::2], atol=1e-6)
    assert clone(model).get_params()["edges"] is True


def test_prediction_is_the_model_of_the_equations(rings, model, monkeypatch):
    """In batches of any size, and against PyG's form of the graph."""
    trained = model.trained_
    source, target = rings.edges()
    out, masks = trained.model(
        *(trained.features(rings), torch.stack([source, target]), rings.batch),
        return_masks=True,
        edge_attr=trained.edge_features(rings),
    )
    expected = torch.softmax(out.detach().double(), dim=1).numpy()
    for nodes in (1, 20, 10**6):
        monkeypatch.setattr(module, "_NODES", nodes)
        found = model.run(rings)
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
        for k, mask in enumerate(masks):
            np.testing.assert_allclose(np.concatenate([m[k] for m in found.masks]), mask.detach().numpy(), atol=1e-6)


def test_graphs_the_model_was_not_made_for(rings, model):
    with pytest.raises(FeatureError, match="labels an edge; these graphs have 0"):
        model.predict([Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)])
    with pytest.warns(UnseenFeatureWarning, match="edges have a label"):
        model.predict([_ring(4, [0, 1, 5, 0])])
    with pytest.raises(FeatureError, match="leave edges off"):
        SoftMaskClassifier(edges=True).fit([Data(edge_index=torch.zeros(2, 0).long(), num_nodes=2)] * 4, [0, 1, 0, 1])
    with pytest.raises(SettingError, match="norm"):
        SoftMaskClassifier(edges=True, norm=True).fit(rings)
    settings = Settings(edges=True)
    with pytest.raises(SettingError, match="edge features must be given"):
        settings.build(model.trained_.features, 2, "classification")


def test_in_cross_validation(rings):
    found = cross_validate(rings, Settings(hidden=8, layers=2, epochs=40, lr=1e-2, dropout=0, edges=True), folds=3)
    assert found.metric.mean() > 0.9


def test_bonds_of_smiles():
    """Ethane, ethene and ethyne are alike but for their bond and their hydrogens, and hydrogens are not looked at."""
    pytest.importorskip("rdkit")
    smiles, order = ["CC", "C=C", "C#C"] * 4, [1.0, 2.0, 3.0] * 4
    seeing = SoftMaskRegressor(hidden=8, layers=2, epochs=60, lr=1e-2, dropout=0, edges=True, device="cpu")
    assert np.abs(seeing.fit(smiles, order).predict(smiles) - order).max() < 0.3
    blind = SoftMaskRegressor(hidden=8, layers=2, epochs=3, device="cpu").fit(from_smiles(smiles, order))
    np.testing.assert_allclose(blind.predict(smiles), blind.predict(smiles)[0], atol=1e-6)
