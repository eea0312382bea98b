import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from softmask.errors import SettingError
from softmask.study.significance import compare_scores


def reference(a, b, runs, folds):
    """The test by another way: scipy's plain paired t-test, its t shrunk by the ratio of the two standard errors."""
    n = runs * folds
    plain = stats.ttest_rel(np.ravel(a), np.ravel(b))
    t = plain.statistic * np.sqrt((1 / n) / (1 / n + 1 / (folds - 1)))
    return t, stats.t.cdf(-abs(t), df=n - 1) * 2


@settings(deadline=None, max_examples=50)
@given(runs=st.integers(1, 5), folds=st.integers(2, 12), seed=st.integers(0, 2**31), shift=st.floats(-0.1, 0.1))
def test_agrees_with_an_independent_computation(runs, folds, seed, shift):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(0.7 + shift, 0.05, (runs, folds)), rng.normal(0.7, 0.05, (runs, folds))
    result = compare_scores(a, b, 1 / folds)
    t, p = reference(a, b, runs, folds)
    assert result.t == pytest.approx(t, rel=1e-9, abs=1e-12)
    assert result.p == pytest.approx(p, rel=1e-7)
    assert result.n == runs * folds
    assert result.degrees == result.n - 1
    assert result.difference == pytest.approx(a.mean() - b.mean(), abs=1e-12)
    assert result.interval == pytest.approx(
        stats.t.interval(0.95, result.degrees, result.difference, result.standard_error), abs=1e-12
    )
    # The interval leaves out zero exactly where p is below 0.05, and the order of the two only turns the sign.
    assert (result.interval[0] > 0 or result.interval[1] < 0) == (result.p < 0.05)
    turned = compare_scores(b, a, 1 / folds)
    assert (turned.difference, turned.t, turned.p) == pytest.approx((-result.difference, -result.t, result.p))


def test_a_case_worked_by_hand():
    # Differences 1, 2, 3, 6: mean 3, variance 14/3; (1/4 + 1/3) * 14/3 = 49/18, so t = 3 / (7 / sqrt(18)).
    result = compare_scores([[1, 2], [3, 6]], [[0, 0], [0, 0]], 0.25)
    assert result.standard_error == pytest.approx(7 / math.sqrt(18))
    assert result.t == pytest.approx(9 * math.sqrt(2) / 7)
    # Student's distribution of 3 degrees of freedom in closed form.
    x = result.t / math.sqrt(3)
    assert result.p == pytest.approx(1 - 2 / math.pi * (x / (1 + x * x) + math.atan(x)))


def scores_of_equal_models(rng, runs=10, folds=10, n=80):
    """Two models of equal worth by symmetry: each predicts y = x1 + x2 + noise from one of the two, by least squares.

    Returns the mean absolute errors of both, [runs, folds], by repeated cross validation of one drawn set.
    """
    x = rng.normal(size=(n, 2))
    y = x.sum(axis=1) + rng.normal(size=n)
    test = np.stack([np.array_split(rng.permutation(n), folds) for _ in range(runs)])
    train = np.ones((runs, folds, n), dtype=bool)
    np.put_along_axis(train, test, False, axis=2)
    xy, xx = train @ (x * y[:, None]), train @ (x * x)
    error = np.abs(y[test][..., None] - x[test] * (xy / xx)[:, :, None])
    return np.moveaxis(error.mean(axis=2), -1, 0)


def test_the_plain_test_rejects_far_too_often_and_the_corrected_one_does_not():
    rng = np.random.default_rng(0)
    drawn = [scores_of_equal_models(rng) for _ in range(400)]
    plain = np.mean([stats.ttest_rel(a.ravel(), b.ravel()).pvalue < 0.05 for a, b in drawn])
    corrected = np.mean([compare_scores(a, b, 0.1).p < 0.05 for a, b in drawn])
    assert plain > 0.3
    # 5 % asked for; three standard errors of 400 draws above it.
    assert corrected < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 400)
    # And it is not deaf: a clear difference is found nearly always.
    assert np.mean([compare_scores(a + 0.5, b, 0.1).p < 0.05 for a, b in drawn]) > 0.9


def test_the_same_scores_are_no_evidence():
    scores = np.random.default_rng(1).random((2, 5))
    result = compare_scores(scores, scores, 0.2)
    assert (result.difference, result.standard_error, result.t, result.p, result.interval) == (0, 0, 0, 1, (0, 0))
    assert "no evidence of any difference" in result.sentence("a", "b", True, "%")


def test_differences_that_are_all_the_same_cannot_be_judged():
    # In binary these differences are only almost equal.
    b = np.linspace(0.5, 0.9, 10)[None]
    result = compare_scores(b + 0.1, b, 0.1)
    assert result.difference == pytest.approx(0.1)
    assert result.standard_error == 0
    assert result.t == math.inf
    assert math.isnan(result.p)
    assert "no p-value" in result.sentence("a", "b", True, "%")
    assert json.loads(json.dumps(result.to_json(), allow_nan=False))["interval"] == [None, None]


def test_one_score_has_no_spread():
    result = compare_scores([[0.8]], [[0.7]], 0.1)
    assert (result.n, result.degrees) == (1, 0)
    assert all(math.isnan(v) for v in (result.standard_error, result.t, result.p, *result.interval))
    said = result.sentence("a", "b", True, "%")
    assert said.startswith("a is 10.0 percentage points higher (better) than b in the mean over 1 paired score.")
    assert "One score has no spread" in said


def test_one_score_that_is_the_same():
    assert "the same mean over 1 paired score" in compare_scores([[0.0]], [[0.0]], 0.1).sentence("a", "b", False)


def test_sentence_when_the_evidence_supports_a_difference():
    rng = np.random.default_rng(2)
    b = rng.normal(0.7, 0.01, (2, 10))
    said = compare_scores(b + rng.normal(0.05, 0.01, b.shape), b, 0.1).sentence("SMG-JK", "SMG", True, "%")
    assert said.startswith("SMG-JK is 5.")
    assert "percentage points higher (better) than SMG" in said
    assert "p < 0.001" in said
    assert "evidence supports that SMG-JK does better than SMG" in said
    assert "does not say" in said


def test_sentence_of_an_error_turns_better_and_worse():
    rng = np.random.default_rng(2)
    b = rng.normal(0.7, 0.01, (2, 10))
    said = compare_scores(b + rng.normal(0.05, 0.01, b.shape), b, 0.1).sentence("first", "second", False, "eV")
    assert "eV higher (worse) than second" in said
    assert "evidence supports that second does better than first" in said


def test_sentence_when_the_evidence_does_not_tell_them_apart():
    rng = np.random.default_rng(3)
    said = compare_scores(rng.normal(0.7, 0.05, (1, 10)), rng.normal(0.7, 0.05, (1, 10)), 0.1).sentence("a", "b", True)
    assert "does not tell the two apart" in said
    assert "does not say that they are equally good" in said


@settings(deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 2**31),
    shift=st.sampled_from([0.0, 1e-9, 0.01, 0.3]),
    spread=st.sampled_from([0.0, 1e-7, 0.05]),
    shape=st.sampled_from([(1, 1), (1, 2), (3, 10)]),
    unit=st.sampled_from(["", "%", "eV"]),
    higher=st.booleans(),
)
def test_no_sentence_claims_proof_or_shows_nan(seed, shift, spread, shape, unit, higher):
    rng = np.random.default_rng(seed)
    b = rng.random(shape)
    said = compare_scores(b + shift + spread * rng.normal(size=shape), b, 0.1).sentence("x", "y", higher, unit)
    assert "prove" not in said
    assert "nan" not in said
    assert "inf " not in said
    assert "-0.0 " not in said
    assert said.endswith(".")


@pytest.mark.parametrize(
    ("a", "b", "share", "message"),
    [
        ([[1, 2]], [[1, 2, 3]], 0.1, "cannot be paired"),
        ([1, 2], [1, 2], 0.1, r"\[runs, folds\]"),
        ([[]], [[]], 0.1, r"\[runs, folds\]"),
        ([[1, 2], [3]], [[1, 2], [3, 4]], 0.1, "not a table"),
        ([[1, 2]], [[1, "x"]], 0.1, "second scores are not a table"),
        ([[1, None]], [[1, 2]], 0.1, "nan in run 0, fold 1"),
        ([[1, 2]], [[math.inf, 2]], 0.1, "inf in run 0, fold 0"),
        ([[1, 2]], [[1, 3]], 0.0, "test_share"),
        ([[1, 2]], [[1, 3]], 1.0, "test_share"),
    ],
)
def test_scores_that_cannot_be_compared(a, b, share, message):
    with pytest.raises(SettingError, match=message):
        compare_scores(a, b, share)
