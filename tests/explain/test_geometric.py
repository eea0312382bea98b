"""Explanations of models that see where atoms are."""

import numpy as np
import pytest
import torch

from softmask import load_model
from softmask.data.catalog import open_data
from softmask.data.convert import from_data
from softmask.explain import explain, node_importance, predict_kept, shut_one, threshold_curve
from softmask.explain.subgraph import induced
from softmask.paper.table2 import rows

STORE = open_data("qm9-sample").select(range(50))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    out = tmp_path_factory.mktemp("table2")
    (row,) = rows(quick=True, variants=["geometric"])
    row.run(STORE, out, "cpu")
    return lambda target: load_model(row.model_path(out, target), "cpu")


def test_masks_and_importance_over_all_pairs(kept):
    model = kept("mu")
    said = explain(model, STORE)
    assert len(said) == 50
    assert [s.predicted for s in said] == pytest.approx(model.predict(STORE).tolist())
    for s in said[:5]:
        n = len(s.importance)
        pairs = torch.tensor([[u, v] for u in range(n) for v in range(n) if u != v]).t()
        weight = node_importance(torch.from_numpy(s.masks), pairs, jk=True)
        np.testing.assert_allclose(s.importance, (weight / weight.max()).numpy(), rtol=1e-9)


@pytest.mark.parametrize("target", ["mu", "gap", "r2", "U0"])
def test_atoms_that_are_shut_are_as_good_as_removed(kept, target):
    """The model on what is left, masks computed there, is the model on the smaller molecule, references included."""
    model = kept(target)
    rng = np.random.default_rng(0)
    graphs = list(STORE)[:6]
    stays = [rng.permutation(g.num_nodes) < g.num_nodes - 2 for g in graphs]
    said = predict_kept(model, graphs, [s[None] for s in stays], masks_anew=True)
    smaller = from_data([induced(g, np.flatnonzero(s)) for g, s in zip(graphs, stays)])
    np.testing.assert_allclose(np.concatenate(said)[:, 0], model.predict(smaller), rtol=1e-5, atol=1e-5)


def test_the_curve_begins_at_the_prediction(kept):
    for target in ("mu", "U0"):
        model = kept(target)
        said = explain(model, STORE.select(range(4)))
        curve = threshold_curve(model, said, [0, 2])
        assert [c[0, 0] for c in curve] == pytest.approx([s.predicted for s in said], rel=1e-6)
        # Nothing left: no dipole, and no energy but the mean of what was learned.
        assert all(abs(c[1, 0]) < 0.1 for c in curve)


def test_one_atom_shut_out_at_a_time(kept):
    """Against one call for each atom."""
    model = kept("U0")
    said = explain(model, STORE.select([0, 7, 20]))
    for s, change in zip(said, shut_one(model, said)):
        n = len(s.importance)
        assert change.shape == (n, 1)
        for v in range(0, n, 3):
            keep = np.ones((1, n), dtype=bool)
            keep[0, v] = False
            assert predict_kept(model, [s.data], [keep])[0][0, 0] - s.predicted == pytest.approx(change[v, 0], abs=1e-5)
