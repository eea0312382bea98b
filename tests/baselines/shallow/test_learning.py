"""How shallow baselines learn: from the training graphs alone, by the seed, and with errors in words."""

import dataclasses
import json
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from baselines.shallow.random_graphs import molecules, store_of
from sklearn.svm import SVC

from softmask.baselines.shallow import SHALLOW, choice, cost
from softmask.baselines.shallow.cost import Cost
from softmask.baselines.shallow.histogram import degree_bins, histogram
from softmask.baselines.shallow.svm import PENALTIES, Kernels
from softmask.data.catalog import open_data
from softmask.data.splits import holdout, stratified_folds
from softmask.data.store import GraphStore
from softmask.errors import SettingError

TRAIN, TEST = np.arange(30), np.arange(30, 40)


def rings_and_trees() -> tuple[GraphStore, np.ndarray]:
    graphs, y = molecules(seed=0)
    return store_of(graphs, y=y.tolist()), y


def test_names():
    assert list(SHALLOW) == [baseline.name for baseline in SHALLOW.values()]
    assert {name for name, baseline in SHALLOW.items() if baseline.needs_labels} == {"pk"}
    assert all(baseline.cite for baseline in SHALLOW.values())


@pytest.mark.parametrize("name", ["wl", "gk", "rw", "fgsd", "awe", "degrees-logistic"])
def test_rings_are_told_from_trees(name):
    graphs, y = molecules(seed=0)
    scores = SHALLOW[name].prepare(store_of(graphs, labels=False)).fit(TRAIN, y[TRAIN], seed=0)(TEST)
    assert scores.shape == (10, 2)
    assert (scores.argmax(1) == y[TEST]).mean() >= 0.9


@pytest.mark.parametrize("name", ["labels-logistic", "labels-mlp"])
def test_structure_blind_baselines_see_no_edge(name):
    store, y = rings_and_trees()
    graphs, _ = molecules(seed=0)
    bare = store_of([nx.create_empty_copy(graph) for graph in graphs], y=y.tolist())
    some = np.arange(12)
    with_edges, without = (SHALLOW[name].prepare(s).fit(some, y[some], 0)(TEST) for s in (store, bare))
    np.testing.assert_array_equal(with_edges, without)


# labels-mlp differs from degrees-mlp in its columns only; dgk needs gensim and has a file of its own.
QUICK = [name for name in SHALLOW if name not in ("labels-mlp", "dgk")]


@pytest.mark.parametrize("name", QUICK)
def test_only_training_targets_are_seen_and_the_seed_decides(name):
    store, y = rings_and_trees()
    changed = dataclasses.replace(store, y=1 - store.y)
    some = np.arange(16)
    first = SHALLOW[name].prepare(store).fit(some, y[some], seed=5)(TEST)
    second = SHALLOW[name].prepare(changed).fit(some, y[some], seed=5)(TEST)
    np.testing.assert_array_equal(first, second)


def test_training_graphs_in_another_order_or_as_a_subset():
    store, y = rings_and_trees()
    prepared = SHALLOW["wl"].prepare(store)
    some = np.array([12, 3, 8, 1, 20, 25, 6, 7, 30, 31, 33, 34])
    scores = prepared.fit(some, y[some], seed=0)(some)
    assert (scores.argmax(1) == y[some]).mean() == 1


def test_classes_that_are_not_trained_on_never_win():
    store, y = rings_and_trees()
    target = np.where(y == 0, 1, 3)
    for name in ("wl", "labels-logistic"):
        scores = SHALLOW[name].prepare(store).fit(TRAIN, target[TRAIN], seed=0)(TEST)
        assert scores.shape == (10, 4)
        assert set(scores.argmax(1)) <= {1, 3}


def test_three_classes_take_the_largest_score():
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    rows = np.eye(3)[y] + 0.2 * random.standard_normal((60, 3))
    predict = Kernels([rows @ rows.T]).fit(np.arange(45), y[:45], seed=0)
    assert (predict(np.arange(45, 60)).argmax(1) == y[45:]).all()


def test_the_better_matrix_is_chosen_within_the_training_graphs():
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    noise, signal = random.standard_normal((60, 4)), (2 * y - 1)[:, None] + random.standard_normal((60, 2))
    grams = [rows @ rows.T for rows in (noise, signal)]
    both, good = (Kernels(g).fit(np.arange(40), y[:40], 0)(np.arange(60)) for g in (grams, grams[1:]))
    np.testing.assert_array_equal(both, good)


def test_a_rare_class_is_not_cut_away_where_some_are_chosen_on(monkeypatch):
    """Two graphs of a class are enough to choose on, and so they are among many of the others; without a rare class the
    choice is the plain one.
    """
    monkeypatch.setattr(choice, "MOST_TO_CHOOSE_ON", 45)
    y = np.repeat([0, 1, 2], [90, 2, 8])
    for seed in range(4):
        some = choice.some_to_choose_on(y, seed)
        assert len(set(some.tolist())) == len(some)
        count = np.bincount(y[some])
        assert abs(count[0] - 40) <= 1
        assert count[1:].tolist() == [2, 5]
        assert len(choice.inner_folds(y[some], seed)) == 2
    y = np.arange(100) % 3
    np.testing.assert_array_equal(choice.some_to_choose_on(y, 0), holdout(y, (0.45, 0.55), 0)[0])


def test_of_many_graphs_some_are_chosen_on_and_all_are_trained_on(monkeypatch):
    monkeypatch.setattr(choice, "MOST_TO_CHOOSE_ON", 48)
    random = np.random.default_rng(0)
    y = (np.arange(180) % 3 == 0).astype(np.int64)
    rows = [(2 * y - 1)[:, None] * strength + random.standard_normal((180, 3)) for strength in (0.4, 0.5)]
    grams, train, test = [r @ r.T for r in rows], np.arange(120), np.arange(120, 180)

    some = choice.some_to_choose_on(y[train], seed=3)
    np.testing.assert_array_equal(np.bincount(y[some]), [32, 16])
    scores = {}
    for inner, held in stratified_folds(y[some], 5, seed=3):
        for which, penalty in product(range(2), PENALTIES):
            among, across = some[inner], some[held]
            machine = SVC(C=penalty, kernel="precomputed").fit(grams[which][np.ix_(among, among)], y[among])
            right = machine.predict(grams[which][np.ix_(across, among)]) == y[across]
            scores[which, penalty] = scores.get((which, penalty), 0) + right.mean()
    which, penalty = max(scores, key=lambda key: round(scores[key], 9))
    machine = SVC(C=penalty, kernel="precomputed").fit(grams[which][np.ix_(train, train)], y[train])
    wanted = machine.decision_function(grams[which][np.ix_(test, train)])
    found = Kernels(grams).fit(train, y[train], seed=3)(test)
    np.testing.assert_allclose(found[:, 1], wanted, rtol=1e-9)


def test_kernel_ridge_is_ridge_regression_with_an_intercept():
    random = np.random.default_rng(1)
    rows = random.standard_normal((30, 3)) + 2
    target = rows @ np.array([1.0, -2.0, 0.5]) + 4 + 0.01 * random.standard_normal(30)
    found = Kernels([rows @ rows.T]).fit(np.arange(20), target[:20], seed=0)(np.arange(20, 30))
    centred, mean = rows - rows[:20].mean(0), target[:20].mean()
    forms = []
    for c in PENALTIES:
        square = centred[:20].T @ centred[:20] + np.eye(3) / c
        forms.append(centred[20:] @ np.linalg.solve(square, centred[:20].T @ (target[:20] - mean)) + mean)
    assert min(np.abs(found - form).max() for form in forms) < 1e-9
    assert np.abs(found - target[20:]).mean() < 0.1


@pytest.mark.parametrize("name", ["gk", "awe"])
def test_sampling_does_not_give_the_order_of_nodes_away(name):
    # One graph, many times; in class 1 its nodes stand in another order. There is nothing to learn.
    one = nx.gnp_random_graph(12, 0.3, seed=3)
    other = nx.relabel_nodes(one, dict(zip(range(12), np.random.default_rng(0).permutation(12).tolist())))
    ordered = nx.Graph()
    ordered.add_nodes_from(range(12))
    ordered.add_edges_from(other.edges)
    y = np.arange(60) % 2
    prepared = SHALLOW[name].prepare(store_of([(one, ordered)[kind] for kind in y], labels=False))
    scores = prepared.fit(np.arange(40), y[:40], seed=0)(np.arange(40, 60))
    assert (scores.argmax(1) == y[40:]).mean() < 0.8


@pytest.mark.parametrize("name", QUICK)
def test_numbers_are_learned_too(name):
    store, _ = rings_and_trees()
    target = store.sizes.numpy().astype(np.float64)
    found = SHALLOW[name].prepare(store).fit(TRAIN, target[TRAIN, None], seed=0)(TEST)
    assert found.shape == (10,)
    blind = np.abs(target[TEST] - target[TRAIN].mean()).mean()
    assert np.abs(found - target[TEST]).mean() < 1.2 * blind
    if name.startswith(("labels", "degrees")):
        assert np.abs(found - target[TEST]).mean() < 0.5 * blind


def test_several_targets_are_refused():
    store, _ = rings_and_trees()
    with pytest.raises(SettingError, match="2 targets at once"):
        SHALLOW["labels-logistic"].prepare(store).fit(TRAIN, np.zeros((30, 2)), seed=0)


def test_histogram_counts():
    graph = nx.star_graph(3)
    nx.set_node_attributes(graph, {0: 7, 1: 2, 2: 2, 3: 7}, "label")
    store = store_of([graph])
    assert histogram(store, degree=False).tolist() == [[4, 2, 2]]
    assert histogram(store, degree=True).tolist() == [[4, 2, 2, 0, 3, 0, 1]]


def test_histogram_takes_the_mean_of_attributes_in_a_set_without_labels():
    graphs = [nx.path_graph(2), nx.path_graph(3)]
    for graph in graphs:
        nx.set_node_attributes(graph, {v: [float(v), 1.0] for v in graph}, "attr")
    from softmask.data.networkx import from_networkx

    assert histogram(from_networkx(graphs), degree=False).tolist() == [[2, 0.5, 1], [3, 1, 1]]


def test_degree_bins_ascend_and_are_exact_below_sixteen():
    bins = degree_bins(np.arange(5000))
    assert bins[:17].tolist() == list(range(17))
    assert set(np.diff(bins)) == {0, 1}
    assert bins[32] == 24


def test_labels_are_asked_for():
    graphs, _ = molecules(seed=0)
    with pytest.raises(SettingError, match="has none; wl and rw also work without labels"):
        SHALLOW["pk"].prepare(store_of(graphs, labels=False))


def test_a_rare_class_is_named():
    store, y = rings_and_trees()
    rare = np.where(np.arange(30) == 4, 2, y[TRAIN])
    with pytest.raises(SettingError, match="class 2 has one graph to train on"):
        SHALLOW["wl"].prepare(store).fit(TRAIN, rare, seed=0)


def test_one_class_is_refused():
    store, _ = rings_and_trees()
    with pytest.raises(SettingError, match="nothing to tell apart"):
        SHALLOW["wl"].prepare(store).fit(TRAIN, np.zeros(30, dtype=np.int64), seed=0)


def one_large_graph(nodes: int) -> GraphStore:
    """A store of a few graphs without edges, one of them of so many nodes."""
    sizes = torch.tensor([3, nodes, 4])
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    rows = torch.zeros(int(ptr[-1]) + 1, dtype=torch.long)
    return GraphStore(ptr, rows, torch.zeros(0, dtype=torch.int32), info={"name": "huge"})


def many_graphs(count: int) -> GraphStore:
    ptr = torch.arange(count + 1)
    label = torch.zeros(count, 1, dtype=torch.int32)
    return GraphStore(
        ptr, torch.zeros(count + 1, dtype=torch.long), torch.zeros(0, dtype=torch.int32), node_label=label
    )


@pytest.mark.parametrize("name", ["wl", "gk", "rw", "pk", "fgsd", "awe", "dgk"])
def test_too_many_graphs_are_refused_with_the_figures(name):
    with pytest.raises(SettingError, match=rf"{name} on this set \(200000 graphs, .* minutes .* GB"):
        SHALLOW[name].prepare(many_graphs(200_000))


def test_a_graph_too_large_for_a_cubic_cost_is_refused():
    with pytest.raises(SettingError, match=r"fgsd on huge \(3 graphs, 60007 nodes"):
        SHALLOW["fgsd"].prepare(one_large_graph(60_000))


def test_what_is_refused_can_be_forced():
    store, _ = rings_and_trees()
    Cost(1e9, 1e9).check("wl", store, force=True)
    with pytest.raises(SettingError, match="1,000,000,000 minutes"):
        Cost(1e9, 1e9).check("wl", store, force=False)
    with pytest.raises(SettingError, match=r"13\.0 GB"):
        Cost(1, 13).check("wl", store, force=False)


@pytest.mark.parametrize(
    ("needed", "told"),
    [(Cost(1, 2), None), (Cost(1, 4), r"or the 3\.0 GB that are free"), (Cost(500, 2), "120 minutes or 12 GB")],
)
def test_no_more_than_the_memory_that_is_free(monkeypatch, needed, told):
    monkeypatch.setattr(cost, "free_memory", lambda device: 3 * 10**9)
    store, _ = rings_and_trees()
    assert needed.bearable == (told is None)
    if told is None:
        needed.check("wl", store, force=False)
    else:
        with pytest.raises(SettingError, match=told):
            needed.check("wl", store, force=False)


@pytest.mark.real
@pytest.mark.parametrize("name", ["wl", "gk", "rw", "dgk"])
def test_costs_are_about_those_of_the_records(real_set, name):
    record = Path(__file__).parents[3] / "results" / "baselines" / "NCI1" / name / "result.json"
    minutes = json.loads(record.read_text())["device_s"] / 60
    assert minutes / 3 < SHALLOW[name].cost(open_data(real_set("NCI1"))).minutes < minutes * 3


@pytest.mark.real
@pytest.mark.parametrize(("name", "least"), [("wl", 0.8), ("degrees-logistic", 0.75)])
def test_mutag_in_ten_folds(real_set, name, least):
    store = open_data(str(real_set("MUTAG")))
    y = store.y.numpy()
    prepared = SHALLOW[name].prepare(store)
    right = [prepared.fit(train, y[train], 0)(test).argmax(1) == y[test] for train, test in stratified_folds(y, 10, 0)]
    assert np.concatenate(right).mean() > least  # 0.665 of the graphs are of one class


class Stop(Exception):
    """The user pressed Ctrl-C."""


@pytest.mark.parametrize("name", ["wl", "gk", "rw", "pk", "fgsd", "awe"])
@pytest.mark.parametrize("while_", ["prepare", "fit"])
def test_kernels_can_be_stopped_at_any_time(name, while_):
    """While the matrix is computed, which may take hours, and while the machine is trained."""
    store, y = rings_and_trees()
    left = 3

    def pause():
        nonlocal left
        left -= 1
        if left == 0:
            raise Stop

    if while_ == "prepare":
        with pytest.raises(Stop):
            SHALLOW[name].prepare(store, pause=pause)
        return
    prepared = SHALLOW[name].prepare(store)
    with pytest.raises(Stop):
        prepared.fit(TRAIN, y[TRAIN], 0, pause)
