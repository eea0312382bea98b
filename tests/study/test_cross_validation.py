import numpy as np
import pytest

from softmask.data.convert import with_targets
from softmask.data.splits import stratified_folds
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.study.cross_validation import cross_validate
from softmask.study.settings import Settings

QUICK = Settings(hidden=8, layers=2, epochs=3, batch_size=16)


def test_every_graph_is_held_out_once_a_run():
    store = motif(num_graphs=30, seed=0)
    result = cross_validate(store, QUICK, folds=3, runs=2)
    assert result.metric.shape == (2, 3)
    assert result.curve.shape == (2, 3, 3)
    for run, folds in enumerate(result.folds):
        assert sorted(np.concatenate(folds).tolist()) == list(range(30))
        expected = stratified_folds(store.y.numpy(), 3, run)
        assert all((a == b[1]).all() for a, b in zip(folds, expected))


def test_a_run_does_not_depend_on_how_many_there_are():
    store = motif(num_graphs=30, seed=0)
    two = cross_validate(store, QUICK, folds=3, runs=2, seed=4)
    second = cross_validate(store, QUICK, folds=3, runs=1, seed=5)
    np.testing.assert_allclose(two.metric[1], second.metric[0])


def test_regression():
    store = motif(num_graphs=30, seed=0)
    sizes = with_targets(store, store.sizes.double().numpy())
    result = cross_validate(sizes, Settings(hidden=16, layers=2, epochs=60, lr=5e-3, dropout=0.0), folds=3)
    assert result.metric.mean() < np.abs(sizes.y.numpy() - sizes.y.numpy().mean()).mean()


def test_bad_input():
    store = motif(num_graphs=30, seed=0)
    with pytest.raises(SettingError, match="folds"):
        cross_validate(store, QUICK, folds=20)
    with pytest.raises(SettingError, match="runs"):
        cross_validate(store, QUICK, runs=0)
    with pytest.raises(SettingError, match="folds"):
        cross_validate(with_targets(store, ["rare"] + ["a"] * 15 + ["b"] * 14), QUICK, folds=3)
