import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from softmask.data.catalog import open_data
from softmask.data.splits import holdout
from softmask.errors import SettingError
from softmask.nn.geometric_readout import READOUTS
from softmask.paper.regression import bond_features
from softmask.paper.table2 import OTHERS, markdown, rows


def test_the_recipe():
    found = rows()
    assert [r.variant for r in found] == ["smg-jk", "m-smg-jk", "geometric"]
    for row in found[:2]:
        s = row.settings
        assert (s.layers, s.hidden, s.batch_size, s.epochs, s.lr, s.decay, s.decay_every) == (
            *(3, 64, 64, 500, 5e-4, 0.8, 30),
        )


def test_bond_features_are_the_kind_and_the_relative_length():
    store = open_data("qm9-sample").select(range(20))
    x = bond_features(store)
    assert x.shape == (store.num_edges, 5)
    assert (x[:, :4].sum(dim=1) == 1).all()
    source, target = store.edges()
    for g in range(20):
        mine = store.batch[target] == g
        length = (store.pos[source[mine]] - store.pos[target[mine]]).norm(dim=1)
        torch.testing.assert_close(x[mine, 4], length / length.max(), atol=1e-4, rtol=0)


def test_the_recipe_of_the_geometric_row():
    (row,) = rows(variants=["geometric"])
    targets = open_data("qm9-sample").info["targets"]
    assert list(row.readouts) == targets
    assert set(row.readouts.values()) <= set(READOUTS)
    assert set(row.references) <= set(targets)
    assert row.readouts["mu"] == "dipole"
    assert (row.ratios, row.seed) == (rows()[0].ratios, rows()[0].seed)
    with pytest.raises(SettingError, match="no variant 'gin'; it has smg-jk, m-smg-jk, geometric"):
        rows(variants=["gin"])


def test_the_geometric_row_learns_what_is_left_of_the_targets():
    """Targets less their reference, errors in the same unit; a dipole of zero is the output's zero."""
    store = open_data("qm9-sample").select(range(200))
    (row,) = rows(quick=True, variants=["geometric"])
    train = np.arange(150)
    lesson = row.lesson(store, train)
    assert torch.equal(lesson.store.y[:, 0], store.y[:, 0])
    energy = store.info["targets"].index("U0")
    assert lesson.store.y[:150, energy].std() < 0.1 < store.y[:, energy].std()
    mu = store.y[:150, 0]
    zero = (0 - mu.mean()) / mu.std(correction=0)
    assert lesson.buffers[0]["offset"][0] == pytest.approx(float(zero))
    assert all(b["offset"] == [0.0] for b in lesson.buffers[1:])
    assert all(sum(b["select"]) == 1 for b in lesson.buffers)


def test_the_quick_form(tmp_path):
    store = open_data("qm9-sample").select(range(120))
    for row in rows(quick=True):
        row.run(store, tmp_path, "cpu")
        record = json.loads(row.path(tmp_path).read_text())
        assert set(record["test_mae"]) == set(store.info["targets"])
        for i, name in enumerate(store.info["targets"]):
            chosen = int(np.argmin(record["curves"]["validation"][i]))
            assert record["test_mae"][name] == record["curves"]["test"][i][chosen]
        # In the target's own unit: no worse than ten times its spread.
        spread = (store.y - store.y.mean(dim=0)).abs().mean(dim=0)
        assert all(record["test_mae"][n] < 10 * spread[i] for i, n in enumerate(store.info["targets"]))
        assert row.done(store, tmp_path)
        assert not row.done(store, tmp_path / "elsewhere")
        with pytest.raises(SettingError, match="made with other data_hash; move it away"):
            row.done(store.select(range(100)), tmp_path)
        with pytest.raises(SettingError, match="made with other settings"):
            replace(row, settings=replace(row.settings, epochs=99)).done(store, tmp_path)
    text = markdown(tmp_path)
    assert text.count("\n| ") == 12
    assert "of 24 figures are at or below the paper's" in text
    assert "geometric soft-mask, ours" in text
    assert "It sees the positions of all atoms" in text
    assert all(f"| {name}, " in text for name in store.info["targets"])
    assert all(other in text for other in OTHERS)
    assert "| 0.0934 |" in text


def test_the_geometric_row_alone(tmp_path):
    """Its figures against the unit of the target, from a record that only it has."""
    store = open_data("qm9-sample").select(range(60))
    (row,) = rows(quick=True, variants=["geometric"])
    row.run(store, tmp_path, "cpu")
    record = json.loads(row.path(tmp_path).read_text())
    assert record["readouts"]["r2"] == "extent"
    assert len(record["references"]["r2"]) == 10
    text = markdown(tmp_path)
    assert "figures are at or below the paper's" not in text
    assert f"| U0, Ha | {record['test_mae']['U0']:.3g} |" in text
    assert "Made on qm9-sample" in text
    alone = record["constant_mae"]
    assert f"the errors would be: alpha {alone['alpha']:.3g}, r2 {alone['r2']:.3g}, " in text
    train, _, test = holdout(60, row.ratios, 0)
    gap = store.y[:, store.info["targets"].index("gap")].numpy()
    assert alone["gap"] == pytest.approx(np.abs(gap[test] - gap[train].mean()).mean())


def test_an_epoch_without_a_finite_error_is_not_chosen(tmp_path, monkeypatch):
    from softmask.paper import regression

    def broken(*given, **options):
        history, mean, std = train_in_waves(*given, **options)
        history.metric["validation"][:, 0] = np.nan
        return history, mean, std

    train_in_waves = regression.train_in_waves
    monkeypatch.setattr(regression, "train_in_waves", broken)
    row = rows(quick=True)[0]
    row.run(open_data("qm9-sample").select(range(60)), tmp_path, "cpu")
    record = json.loads(row.path(tmp_path).read_text())
    assert set(record["epoch"].values()) == {2}
