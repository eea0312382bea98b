"""Explanations of trained estimators: what they hold, and that they are faithful to the model."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.utils import subgraph as induced_edges

from softmask import SoftMaskClassifier, SoftMaskRegressor, load_model
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.convert import from_data, to_networkx
from softmask.data.synthetic import ba2motifs
from softmask.errors import FeatureError, SettingError
from softmask.explain import (
    Explanation,
    explain,
    fidelity,
    mask_auc,
    node_importance,
    predict_kept,
    removal_curve,
    stability,
    threshold_curve,
)
from softmask.explain.subgraph import connected, induced, nodes_of

STORE = ba2motifs(160, seed=0)


@pytest.fixture(scope="module")
def clf():
    model = SoftMaskClassifier(hidden=16, layers=3, epochs=20, batch_size=30, lr=5e-3, dropout=0.0, device="cpu")
    return model.fit(STORE.select(range(120)))


@pytest.fixture(scope="module")
def wide():
    """Multi-channel, two targets."""
    y = np.stack([STORE.sizes.double().numpy(), STORE.y.double().numpy()], axis=1)[:60]
    model = SoftMaskRegressor(variant="m-smg", hidden=8, layers=2, epochs=3, batch_size=16, device="cpu")
    return model.fit(STORE.select(range(60)), y + 0.0)


TEST = STORE.select(range(120, 160))


def test_it_says_what_the_model_says(clf):
    found = explain(clf, TEST)
    assert [e.predicted for e in found] == clf.predict(TEST).tolist()
    np.testing.assert_allclose([e.probabilities for e in found], clf.predict_proba(TEST), rtol=1e-6)
    assert [e.actual for e in found] == [STORE.info["classes"][c] for c in TEST.y]
    assert [e.name for e in found] == [str(g) for g in range(40)]
    assert found[0].classes == ["cycle", "house"]
    for g, (e, masks) in enumerate(zip(found, clf.masks(TEST), strict=True)):
        assert torch.equal(e.data.edge_index, TEST[g].edge_index)
        np.testing.assert_allclose(e.masks, np.concatenate(masks, axis=1), rtol=1e-6)
        own = node_importance(torch.from_numpy(e.masks), e.data.edge_index, jk=True).numpy()
        np.testing.assert_allclose(e.importance, own / own.max(), rtol=1e-6)
        assert e.importance.max() == 1.0
    assert repr(found[0]).startswith("Explanation('0', nodes=25, layers=3, predicted='")


def test_the_masks_find_the_motif_on_graphs_not_seen(clf):
    assert (clf.predict(TEST) == np.asarray(STORE.info["classes"])[TEST.y]).mean() > 0.9
    importance = np.concatenate([e.importance for e in explain(clf, TEST)])
    assert mask_auc(importance, TEST.node_role, TEST.batch) > 0.9
    assert mask_auc(importance, TEST.node_role, TEST.batch) > mask_auc(TEST.degree(), TEST.node_role, TEST.batch) + 0.1


def test_one_graph_gives_one_explanation(clf, tmp_path):
    graph = to_networkx(TEST)[0]
    whole = clf.explain(TEST)[0]
    for one in (TEST[0], graph):
        found = clf.explain(one)
        assert isinstance(found, Explanation)
        np.testing.assert_allclose(np.sort(found.importance), np.sort(whole.importance), rtol=1e-5)
    assert clf.explain([graph])[0].predicted == whole.predicted
    assert clf.explain(nx.path_graph(4)).actual is None
    clf.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(
        load_model(tmp_path / "m.safetensors").explain(TEST)[3].masks, clf.explain(TEST)[3].masks
    )


def test_molecules_keep_their_smiles():
    pytest.importorskip("rdkit")
    smiles = ["CCO", "CCN", "CCCO", "CCCN"]
    model = SoftMaskClassifier(hidden=4, layers=2, epochs=1, device="cpu").fit(smiles, [0, 1, 0, 1])
    assert model.explain("CCO").name == "CCO"
    assert [len(e.importance) for e in model.explain(smiles)] == [3, 3, 4, 4]


def test_targets_and_channels(wide):
    found = explain(wide, TEST, reduction="max")
    np.testing.assert_allclose([e.predicted for e in found], wide.predict(TEST), rtol=1e-6)
    assert found[0].probabilities is None
    assert found[0].classes is None
    np.testing.assert_allclose(found[2].masks[:, 1], wide.masks(TEST)[2][1].max(axis=1), rtol=1e-6)
    assert threshold_curve(wide, found, [0.0, 0.5])[0].shape == (2, 2)


def test_wrong_features_are_refused(clf):
    labelled = SoftMaskClassifier(hidden=4, layers=1, epochs=1, device="cpu")
    graphs = [nx.path_graph(n) for n in (3, 4, 5, 6)]
    for graph in graphs:
        nx.set_node_attributes(graph, 1, "label")
    labelled.fit(graphs, [0, 0, 1, 1])
    with pytest.raises(FeatureError, match="trained on node labels"):
        labelled.explain(TEST)


@given(st.lists(st.floats(0, 1), max_size=12), st.integers(0, 14), st.floats(0, 1))
def test_the_extracted_nodes(values, size, threshold):
    importance = np.array(values)
    kept = nodes_of(importance, size=size)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) == min(size, len(values))
    rest = np.setdiff1d(np.arange(len(values)), kept)
    assert not len(kept) or not len(rest) or importance[kept].min() >= importance[rest].max()
    assert nodes_of(importance, threshold=threshold).tolist() == [v for v, i in enumerate(values) if i >= threshold]


def test_subgraphs(clf):
    e = clf.explain(TEST[0])
    assert e.subgraph().tolist() == e.subgraph(threshold=0.5).tolist()
    part = induced(e.data, e.subgraph(size=5))
    assert part.num_nodes == 5
    assert part.nodes.tolist() == e.subgraph(size=5).tolist()
    assert torch.equal(part.edge_index, induced_edges(part.nodes, e.data.edge_index, relabel_nodes=True)[0])
    for wrong in ({"threshold": 0.5, "size": 3}, {"size": -1}, {"size": 2.5}, {"threshold": float("nan")}):
        with pytest.raises(SettingError):
            e.subgraph(**wrong)


# Faithful by construction: Theorem 1 on trained models.


def removed(model, data, x, masks, stays):
    """The network on the induced subgraph, with the masks that its nodes have in the whole graph."""
    kept = torch.from_numpy(np.flatnonzero(stays))
    edges, _ = induced_edges(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
    batch = torch.zeros(len(kept), dtype=torch.long)
    return model(x[kept], edges, batch, 1, masks=[m[kept] for m in masks])


@pytest.mark.parametrize("variant", ["smg", "smg-jk", "m-smg", "m-smg-jk"])
def test_shut_nodes_can_be_removed(variant):
    clf = SoftMaskClassifier(variant=variant, hidden=8, layers=3, epochs=5, lr=3e-3, device="cpu")
    clf.fit(STORE.select(range(60)))
    network = clf.trained_.model.double().eval()
    rng = np.random.default_rng(0)
    for data in TEST.select(range(6)):
        x = torch.nn.functional.one_hot(clf.trained_.features(from_data([data])), network.in_channels)
        with torch.no_grad():
            _, masks = network(x.double(), data.edge_index, return_masks=True)
            stays = rng.random(data.num_nodes) < 0.6
            shut = [m * torch.from_numpy(stays).unsqueeze(1) for m in masks]
            whole = network(x.double(), data.edge_index, masks=shut)
            alone = removed(network, data, x.double(), masks, stays)
        torch.testing.assert_close(whole, alone, rtol=1e-10, atol=1e-10)


def test_predict_kept_is_the_network_on_the_subgraph(clf):
    rng = np.random.default_rng(1)
    keep = [rng.random((3, n)) < [[1.0], [0.5], [-1.0]] for n in TEST.sizes.tolist()]
    held, anew = (predict_kept(clf, TEST, keep, masks_anew) for masks_anew in (False, True))
    np.testing.assert_allclose([p[0] for p in held], clf.predict_proba(TEST), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([p[0] for p in anew], clf.predict_proba(TEST), rtol=1e-5, atol=1e-6)
    network, tokens = clf.trained_.model, torch.split(clf.trained_.features(TEST), TEST.sizes.tolist())
    nothing = torch.softmax(network.head(torch.zeros(1, 48)), dim=1)[0].detach().numpy()
    for g in range(0, 40, 7):
        data, x = TEST[g], tokens[g]
        with torch.no_grad():
            _, masks = network(x, data.edge_index, return_masks=True)
            alone = torch.softmax(removed(network, data, x, masks, keep[g][1]), dim=1)[0]
            kept = torch.from_numpy(np.flatnonzero(keep[g][1]))
            edges, _ = induced_edges(kept, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes)
            fresh = torch.softmax(network(x[kept], edges), dim=1)[0]
        np.testing.assert_allclose(held[g][1], alone, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(anew[g][1], fresh, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(held[g][2], nothing, rtol=1e-5)
        np.testing.assert_allclose(anew[g][2], nothing, rtol=1e-5)


def test_models_that_look_at_edges():
    """Removing nodes takes their edges' features along."""
    store = open_data("qm9-sample").select(range(40))
    model = SoftMaskRegressor(hidden=4, layers=2, epochs=1, edges=True, device="cpu")
    model.fit(store, store.y[:, 0].numpy())
    found = model.explain(store)
    assert [e.predicted for e in found] == model.predict(store).tolist()
    for masks_anew in (False, True):
        keep = [np.ones((1, n), dtype=bool) for n in store.sizes.tolist()]
        same = np.concatenate(predict_kept(model, store, keep, masks_anew))[:, 0]
        np.testing.assert_allclose(same, model.predict(store), rtol=1e-4)
    trained, data = model.trained_, store[3]
    one = store.select([3])
    stays = np.arange(data.num_nodes) % 3 != 0
    kept = torch.from_numpy(np.flatnonzero(stays))
    carried = trained.edge_features(one)
    edges, carried = induced_edges(kept, data.edge_index, carried, relabel_nodes=True, num_nodes=data.num_nodes)
    with torch.no_grad():
        alone = trained.model(trained.features(one)[kept], edges, edge_attr=carried)
    said = predict_kept(model, one, [stays[None]], masks_anew=True)[0][0]
    np.testing.assert_allclose(said, alone[0].numpy() * trained.std + trained.mean, rtol=1e-4)


def test_many_graphs_are_cut_into_parts(clf, monkeypatch):
    import softmask.fleet.predict as module

    rng = np.random.default_rng(2)
    keep = [rng.random((2, n)) < 0.5 for n in TEST.sizes.tolist()]
    whole = predict_kept(clf, TEST, keep)
    monkeypatch.setattr(module, "_NODES", 60)
    np.testing.assert_allclose(predict_kept(clf, TEST, keep), whole, rtol=1e-4, atol=1e-6)


def test_threshold_curve_begins_with_the_prediction_and_ends_with_nothing(clf):
    found = explain(clf, TEST)
    curve = threshold_curve(clf, found, [0.0, 0.4, 1.1])
    assert len(curve) == 40
    np.testing.assert_allclose([c[0] for c in curve], clf.predict_proba(TEST), rtol=1e-5, atol=1e-6)
    assert np.ptp([c[2] for c in curve], axis=0).max() < 1e-6
    own = predict_kept(clf, TEST, [(e.importance >= 0.4)[None] for e in found])
    np.testing.assert_allclose([c[1] for c in curve], [p[0] for p in own], rtol=1e-6)


def test_removal_curve(clf):
    found = explain(clf, TEST)
    curve = removal_curve(clf, found, [0.0, 0.1, 1.0])
    assert curve.shape == (40, 3)
    assert curve[:, 0].max() < 1e-6
    p = clf.predict_proba(TEST)
    empty = threshold_curve(clf, found, [2.0])
    np.testing.assert_allclose(curve[:, 2], [abs(a - b[0]).sum() / 2 for a, b in zip(p, empty)], atol=1e-6)
    # A tenth of the importance, on whatever nodes, moves less than all of it.
    assert curve[:, 1].mean() < curve[:, 2].mean()
    with pytest.raises(SettingError, match="from 0 to 1"):
        removal_curve(clf, found, [1.5])


def test_fidelity_counts_changed_classes(clf):
    nodes = [e.subgraph(size=5) for e in explain(clf, TEST)]
    found = fidelity(clf, TEST, nodes)
    said = clf.predict_proba(TEST).argmax(axis=1)
    inside = [np.isin(np.arange(n), v) for n, v in zip(TEST.sizes.tolist(), nodes)]
    of, without = (
        np.array([p[0].argmax() for p in predict_kept(clf, TEST, [i[None] for i in choice], masks_anew=True)])
        for choice in (inside, [~i for i in inside])
    )
    assert found.plus == pytest.approx((without != said).mean())
    assert found.minus == pytest.approx((of != said).mean())
    assert found.sparsity == pytest.approx(0.8)
    everything = fidelity(clf, TEST, [np.arange(n) for n in TEST.sizes.tolist()])
    assert (everything.minus, everything.sparsity) == (0.0, 0.0)
    with pytest.raises(SettingError, match="nodes of 39 graphs"):
        fidelity(clf, TEST, nodes[1:])


def test_fidelity_of_numbers_is_how_far_they_move(wide):
    found = fidelity(wide, TEST, [np.arange(5) for _ in range(40)])
    assert found.plus > 0
    assert fidelity(wide, TEST, [np.arange(n) for n in TEST.sizes.tolist()]).minus == pytest.approx(0.0, abs=1e-9)


def test_stability_is_spearmans_correlation():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    models = [[rng.random(n) for n in (5, 8, 6)] for _ in range(3)]
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = np.mean([spearmanr(models[a][g], models[b][g]).statistic for a, b in pairs for g in range(3)])
    assert stability(models) == pytest.approx(expected)
    assert stability([models[0], [2 * g for g in models[0]]]) == pytest.approx(1.0)
    with pytest.raises(SettingError, match="at least two"):
        stability(models[:1])


def test_features_of_the_set_are_degrees(clf):
    """What the tests above rely on: tokens, so that a node's input does not change when its neighbours go."""
    assert Features.of(STORE).kind == clf.trained_.features.kind == "degree"


def test_a_connected_cut_grows_from_the_most_important_node():
    # A path 0 - 1 - 2 - 3, and 4 - 5 apart; 5 is important, but not near.
    importance, edges = np.array([0.1, 1.0, 0.2, 0.3, 0.0, 0.9]), np.array([[0, 1], [1, 2], [2, 3], [4, 5]])
    assert connected(importance, edges, 1).tolist() == [1]
    assert connected(importance, edges, 3).tolist() == [1, 2, 3]
    assert connected(importance, edges, 5).tolist() == [0, 1, 2, 3, 5], "the other part only when this one is used up"
    assert connected(importance, edges, 99).tolist() == list(range(6))
    assert connected(importance[:0], edges[:0], 3).tolist() == []


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(0, 999), st.integers(1, 12))
def test_a_connected_cut_has_as_few_parts_as_it_can(nodes, seed, size):
    graph = nx.gnp_random_graph(nodes, 0.2, seed=seed)
    importance = np.random.default_rng(seed).random(nodes)
    edges = np.array(graph.edges, dtype=np.int64).reshape(-1, 2)
    kept = connected(importance, edges, size)
    assert len(kept) == min(size, nodes)
    assert int(importance.argmax()) in kept
    parts = [set(part) for part in nx.connected_components(graph)]
    cut = [part & set(kept.tolist()) for part in parts]
    assert sum(bool(c) and c != part for c, part in zip(cut, parts)) <= 1, "only the last part begun is not whole"
    assert all(nx.is_connected(graph.subgraph(c)) for c in cut if c)
