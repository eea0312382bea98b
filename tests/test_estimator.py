import networkx as nx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks

from softmask import SoftMaskClassifier, SoftMaskRegressor, load_model
from softmask.data.features import UnseenFeatureWarning
from softmask.data.synthetic import hierarchy, motif
from softmask.errors import DataError, FeatureError, SettingError

QUICK = {"hidden": 8, "layers": 2, "epochs": 3}


@pytest.fixture(scope="module")
def store():
    return motif(num_graphs=40, seed=0)


@pytest.fixture(scope="module")
def graphs(store):
    return [store[g] for g in range(len(store))]


@pytest.fixture(scope="module")
def y(store):
    return np.array(["house", "other"])[store.y.numpy()]


@pytest.mark.parametrize("kind", [SoftMaskClassifier, SoftMaskRegressor])
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_valid_tag_types,
    ],
)
def test_scikit_learns_checks_that_make_sense_for_graphs(kind, check):
    check(kind.__name__, kind())


def test_clone_and_set_params():
    clf = SoftMaskClassifier(hidden=16).set_params(lr=0.1)
    again = clone(clf)
    assert again.get_params() == clf.get_params()
    assert not hasattr(again, "trained_")


@pytest.mark.filterwarnings("ignore::softmask.data.features.UnseenFeatureWarning")
def test_it_learns():
    clf = SoftMaskClassifier(hidden=32, epochs=30, lr=2e-3, dropout=0.0, batch_size=32)
    clf.fit(hierarchy(num_graphs=200, seed=1))
    new = hierarchy(num_graphs=100, seed=2)
    truth = np.asarray(new.info["classes"])[new.y.numpy()]
    assert clf.score(new, truth) >= 0.9


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "bc"],
        [False, True],
        [-1, 1],
        [10**12, 3],
        [0.5, 1.5],
        [np.int8(3), np.int8(5)],
        ["a,b", 'c"d\ne'],
    ],
    ids=str,
)
def test_labels_come_back_as_given(graphs, store, labels, tmp_path):
    given = np.asarray(labels)[store.y.numpy()]
    clf = SoftMaskClassifier(**QUICK).fit(graphs, given)
    predicted = clf.predict(graphs)
    assert predicted.dtype == given.dtype
    assert set(predicted.tolist()) <= set(given.tolist())
    clf.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.predict(graphs).dtype == given.dtype
    np.testing.assert_array_equal(loaded.predict(graphs), predicted)


def test_probabilities_and_masks(graphs, y):
    clf = SoftMaskClassifier(**QUICK, variant="m-smg").fit(graphs, y)
    probabilities = clf.predict_proba(graphs)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(clf.classes_[probabilities.argmax(axis=1)], clf.predict(graphs))
    masks = clf.masks(graphs)
    assert len(masks) == len(graphs)
    for data, layers in zip(graphs, masks):
        assert [m.shape for m in layers] == [(data.num_nodes, 8)] * 2
        assert all(((m > 0) & (m < 1)).all() for m in layers)
    single = clf.masks(graphs[3:4])[0]
    np.testing.assert_allclose(single[1], masks[3][1], atol=1e-6)


def test_the_model_sees_one_graph_as_it_sees_it_among_others(graphs, y):
    clf = SoftMaskClassifier(**QUICK).fit(graphs, y)
    together = clf.predict_proba(graphs)
    for g in (0, 17, 39):
        np.testing.assert_allclose(clf.predict_proba([graphs[g]])[0], together[g], atol=1e-6)


@pytest.mark.filterwarnings("ignore::softmask.data.features.UnseenFeatureWarning")
def test_cross_val_score_and_grid_search(graphs, y, store):
    scores = cross_val_score(SoftMaskClassifier(**QUICK), graphs, y, cv=2)
    assert scores.shape == (2,)
    search = GridSearchCV(SoftMaskClassifier(**QUICK), {"hidden": [4, 8]}, cv=2).fit(graphs, y)
    assert search.best_params_["hidden"] in (4, 8)
    assert cross_val_score(SoftMaskRegressor(**QUICK), store, store.sizes.double().numpy(), cv=2).shape == (2,)


def test_same_seed_same_model_and_another_seed_another(graphs, y):
    first, again, other = (SoftMaskClassifier(**QUICK, seed=s).fit(graphs, y) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.predict_proba(graphs), again.predict_proba(graphs))
    assert not np.allclose(first.predict_proba(graphs), other.predict_proba(graphs))


def test_fit_leaves_the_global_random_state_alone(graphs, y):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    SoftMaskClassifier(**QUICK).fit(graphs, y)
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


def test_regression_in_the_targets_own_unit(graphs, store, tmp_path):
    sizes = 1e4 + store.sizes.double().numpy()
    reg = SoftMaskRegressor(hidden=16, epochs=60, lr=5e-3, dropout=0.0).fit(graphs, sizes)
    predicted = reg.predict(graphs)
    assert predicted.shape == sizes.shape
    assert np.abs(predicted - sizes).mean() < sizes.std()
    reg.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(load_model(tmp_path / "m.safetensors").predict(graphs), predicted)
    two = SoftMaskRegressor(**QUICK).fit(graphs, np.stack([sizes, -sizes], axis=1))
    assert two.predict(graphs).shape == (40, 2)
    column = SoftMaskRegressor(**QUICK).fit(graphs, sizes[:, None])
    column.save(tmp_path / "c.safetensors")
    assert column.predict(graphs).shape == load_model(tmp_path / "c.safetensors").predict(graphs).shape == (40, 1)


def test_networkx_graphs_and_smiles():
    rings, paths = [nx.cycle_graph(n) for n in range(4, 10)], [nx.path_graph(n) for n in range(4, 10)]
    clf = SoftMaskClassifier(hidden=8, epochs=60, lr=0.02).fit(rings + paths, ["ring"] * 6 + ["path"] * 6)
    assert clf.predict([nx.cycle_graph(12), nx.path_graph(12)]).tolist() == ["ring", "path"]
    pytest.importorskip("rdkit")
    reg = SoftMaskRegressor(**QUICK).fit(["CCO", "CCC", "c1ccccc1"], [1.0, 2.0, 3.0])
    assert reg.predict(["CCCC"]).shape == (1,)


def test_unseen_labels_and_degrees_are_said_to_be_so(graphs, y):
    clf = SoftMaskClassifier(**QUICK).fit(graphs, y)
    with pytest.warns(UnseenFeatureWarning, match="neighbours"):
        clf.predict([nx.star_graph(200)])
    pytest.importorskip("rdkit")
    chem = SoftMaskClassifier(**QUICK).fit(["CCO", "CCC", "CO", "CC"], [1, 0, 1, 0])
    with pytest.warns(UnseenFeatureWarning, match="label"):
        chem.predict(["CCBr"])


def test_labels_in_an_array_of_objects(graphs, y):
    clf = SoftMaskClassifier(**QUICK).fit(graphs, y.astype(object))
    assert set(clf.predict(graphs)) <= {"house", "other"}


def test_numpy_numbers_as_parameters(graphs, y, tmp_path):
    clf = SoftMaskClassifier(hidden=np.int64(8), layers=np.int32(2), epochs=1, lr=np.float32(1e-3), seed=np.int64(3))
    clf.fit(graphs, y).save(tmp_path / "m.safetensors")
    assert load_model(tmp_path / "m.safetensors").get_params()["seed"] == 3


def test_ctrl_c_is_pythons_own_in_the_library(graphs, y):
    def interrupt(epoch, metrics):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SoftMaskClassifier(**QUICK).fit(graphs, y, on_epoch=interrupt)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", 1] * 20, "all numbers or all strings"),
        (["a", None] * 20, "all numbers or all strings"),
        ([0.5, float("nan")] * 20, "finite"),
        (np.linspace(0, 1, 40), "SoftMaskRegressor"),
        (np.zeros((40, 2)), "shape"),
    ],
)
def test_labels_that_could_not_come_back_are_refused(graphs, labels, words):
    with pytest.raises(DataError, match=words):
        SoftMaskClassifier(**QUICK).fit(graphs, labels)


def test_bad_input(graphs, y, store):
    with pytest.raises(NotFittedError):
        SoftMaskClassifier().predict(graphs)
    with pytest.raises(SettingError, match="two classes"):
        SoftMaskClassifier(**QUICK).fit(graphs, ["a"] * 40)
    with pytest.raises(DataError, match="40 graphs but 3"):
        SoftMaskClassifier(**QUICK).fit(graphs, ["a", "b", "a"])
    with pytest.raises(DataError, match="no graphs"):
        SoftMaskClassifier(**QUICK).fit([], [])
    with pytest.raises(DataError, match="put it into a list"):
        SoftMaskClassifier(**QUICK).fit(graphs[0], [0])
    with pytest.raises(SettingError, match="seed"):
        SoftMaskClassifier(**QUICK, seed=-1).fit(graphs, y)
    with pytest.raises(SettingError, match="device"):
        SoftMaskClassifier(**QUICK, device="meta").fit(graphs, y)
    with pytest.raises(SettingError, match="no nodes"):
        SoftMaskClassifier(**QUICK).fit([nx.Graph(), nx.Graph(), nx.Graph()], [0, 1, 1])
    with pytest.raises(DataError, match="got"):
        SoftMaskClassifier(**QUICK).fit([graphs[0], "CCO"], [0, 1])
    with pytest.raises(DataError, match="finite"):
        SoftMaskRegressor(**QUICK).fit(graphs, [float("nan")] * 40)
    with pytest.raises(SettingError, match="variant"):
        SoftMaskClassifier(variant="gcn").fit(graphs, y)
    with pytest.raises(SettingError, match="hidden"):
        SoftMaskClassifier(hidden=0).fit(graphs, y)
    with pytest.raises(SettingError, match="device"):
        SoftMaskClassifier(**QUICK, device="abacus").fit(graphs, y)
    with pytest.raises(FeatureError, match="attributes"):
        SoftMaskClassifier(**QUICK, attributes=True).fit(graphs, y)
    pytest.importorskip("rdkit")
    chem = SoftMaskClassifier(**QUICK).fit(["CCO", "CCC", "CO", "CC"], [1, 0, 1, 0])
    with pytest.raises(FeatureError, match="labels"):
        chem.predict(graphs)
