import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.data.splits import holdout, inner_validation, stratified_folds
from softmask.errors import SettingError


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(10, 40), min_size=2, max_size=5),
    folds=st.integers(2, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_graph_is_tested_once_and_classes_keep_their_shares(counts, folds, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    splits = stratified_folds(y, folds, seed)
    assert len(splits) == folds
    assert np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(len(y)))
    for train, test in splits:
        assert train.dtype == test.dtype == np.int64
        assert np.array_equal(np.union1d(train, test), np.arange(len(y)))
        assert not np.intersect1d(train, test).size
        for c, count in enumerate(counts):
            assert abs((y[test] == c).sum() - count / folds) < 1


def test_folds_are_those_of_the_authors():
    from sklearn.model_selection import StratifiedKFold

    y = np.arange(200) % 3
    reference = StratifiedKFold(n_splits=10, shuffle=True, random_state=7).split(np.zeros(200), y)
    for (train, test), (train_ref, test_ref) in zip(stratified_folds(y, 10, seed=7), reference, strict=True):
        assert np.array_equal(train, train_ref)
        assert np.array_equal(test, test_ref)


def test_splits_are_the_same_on_every_machine():
    """The digests were recorded once; another version of a library must not change the splits."""
    y = np.arange(100) % 3
    folds = np.concatenate([test for _, test in stratified_folds(y, 10, seed=0)])
    parts = np.concatenate(holdout(y, (0.7, 0.2, 0.1), seed=0))
    digests = [hashlib.sha256(a.astype("<i8").tobytes()).hexdigest()[:16] for a in (folds, parts)]
    assert digests == ["9eff54050b80388d", "c9b13eac8f879a2b"]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_forms_of_y_give_the_same_folds(kind):
    y = [0, 1] * 20
    for mine, reference in zip(stratified_folds(kind(y), 4), stratified_folds(np.array(y), 4), strict=True):
        assert np.array_equal(mine[1], reference[1])
    names = np.array(["a", "b"])[y]
    assert np.array_equal(stratified_folds(names, 4)[0][1], stratified_folds(y, 4)[0][1])


def test_another_seed_gives_other_folds():
    y = np.arange(100) % 2
    assert not np.array_equal(stratified_folds(y, seed=0)[0][1], stratified_folds(y, seed=1)[0][1])
    assert not np.array_equal(holdout(y, seed=0)[0], holdout(y, seed=1)[0])


def test_regression_folds_are_plain():
    y = torch.rand(25, 3, dtype=torch.float64)
    splits = stratified_folds(y, 4)
    assert sorted(len(test) for _, test in splits) == [6, 6, 6, 7]
    assert np.array_equal(np.sort(np.concatenate([test for _, test in splits])), np.arange(25))


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(20, 60), min_size=2, max_size=4),
    seed=st.integers(0, 2**32 - 1),
    ratios=st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.5), (0.9, 0.1), (0.25, 0.25, 0.5)]),
)
def test_holdout_parts_are_a_partition_with_the_shares_asked_for(counts, seed, ratios):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = holdout(y, ratios, seed)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y)))
    for part, share in zip(parts, ratios, strict=True):
        assert part.dtype == np.int64
        assert abs(len(part) - share * len(y)) <= 1
        for c, count in enumerate(counts):
            assert abs((y[part] == c).sum() - share * count) <= 2


def test_holdout_of_a_number_of_graphs():
    train, test = holdout(10, (0.8, 0.2), seed=3)
    assert (len(train), len(test)) == (8, 2)
    assert np.array_equal(np.union1d(train, test), np.arange(10))


@pytest.mark.parametrize(
    ("y", "folds", "message"),
    [
        (["b"] * 30 + ["rare"] * 4, 10, r"class rare has fewer graphs \(4\) than there are folds \(10\)"),
        (["b"] * 30 + ["rare"], 10, r"class rare .* leave the class out"),
        ([5] * 30, 10, "all 30 graphs are of class 5"),
        ([0, 1] * 5, 1, "folds=1"),
        ([0, 1] * 5, 2.5, "folds=2.5"),
        ([0, 1], 3, "3 folds of 2 graphs"),
        ([], 3, "no graphs"),
        ([[0, 1], [1, 0]], 2, "shape"),
        (np.zeros(3), 4, "4 folds of 3 graphs"),
    ],
)
def test_impossible_folds_say_why(y, folds, message):
    with pytest.raises(SettingError, match=message):
        stratified_folds(y, folds)


@pytest.mark.parametrize("seed", [-1, 2**32, 0.5])
def test_impossible_seeds(seed):
    for split in (stratified_folds, holdout):
        with pytest.raises(SettingError, match="seed"):
            split([0, 1] * 20, seed=seed)


@pytest.mark.parametrize(
    ("y", "ratios", "message"),
    [
        (10, (1.0,), "at least two"),
        (10, (0.5, 0.4), "add up to 1"),
        (10, (1.2, -0.2), "above 0"),
        (10, (float("nan"), 0.5), "above 0"),
        (3, (0.9, 0.05, 0.05), "a part would be empty"),
        ([0] * 20, (0.5, 0.5), "all 20 graphs"),
        ([0] * 99 + [1], (0.1, 0.9), "class 1 has 1 of 100 graphs"),
        (0, (0.5, 0.5), "empty"),
    ],
)
def test_impossible_holdouts_say_why(y, ratios, message):
    with pytest.raises(SettingError, match=message):
        holdout(y, ratios)


@settings(deadline=None, max_examples=50)
@given(
    counts=st.lists(st.integers(10, 40), min_size=2, max_size=8),
    folds=st.integers(2, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_validation_part_is_taken_from_the_training_part_with_every_class(counts, folds, seed):
    y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    outer = np.random.default_rng(seed).permutation(len(y))
    for share in (0.1, 0.2):
        # Of every class, as many graphs as the share needs to take one of them.
        ids = np.concatenate([outer[y[outer] == c][: max(count - folds, 10)] for c, count in enumerate(counts)])
        train, validation = inner_validation(y, ids, share, seed)
        assert train.dtype == validation.dtype == np.int64
        assert np.array_equal(np.sort(np.concatenate([train, validation])), np.sort(ids))
        assert (np.diff(train) > 0).all()
        assert (np.diff(validation) > 0).all()
        assert abs(len(validation) - share * len(ids)) <= 0.5 + 1e-9
        assert set(y[validation]) == set(y[train]) == set(y[ids])


def test_validation_part_follows_the_seed_and_not_the_order_of_the_ids():
    y = np.arange(100) % 3
    ids = np.arange(5, 95)
    first = inner_validation(y, ids, seed=4)[1]
    assert np.array_equal(first, inner_validation(torch.tensor(y), ids[::-1].copy(), seed=4)[1])
    assert not np.array_equal(first, inner_validation(y, ids, seed=5)[1])


def test_validation_part_for_regression_is_plain():
    y = torch.rand(50, 2)
    train, validation = inner_validation(y, np.arange(0, 50, 2), 0.2)
    assert (len(train), len(validation)) == (20, 5)
    assert np.array_equal(np.union1d(train, validation), np.arange(0, 50, 2))


@pytest.mark.parametrize(
    ("y", "ids", "share", "message"),
    [
        (["b"] * 60 + ["rare"] * 2, range(62), 0.1, "without every class: class rare has 2 of 62"),
        (["b"] * 60 + ["rare"] * 40, range(62), 0.1, "without every class: class rare has 2 of 62"),
        ([0, 1] * 20, range(40), 0.0, "share 0.0"),
        ([0, 1] * 20, range(40), 1.0, "share 1.0"),
        ([0, 1] * 20, range(40), float("nan"), "share nan"),
        ([0, 1] * 20, [], 0.1, "no graphs"),
        ([0, 1] * 20, range(0, 40, 2), 0.1, "all 20 graphs are of class 0"),
        (np.zeros(4), range(4), 0.1, "a part would be empty"),
    ],
)
def test_impossible_validation_parts_say_why(y, ids, share, message):
    with pytest.raises(SettingError, match=message):
        inner_validation(y, ids, share)
