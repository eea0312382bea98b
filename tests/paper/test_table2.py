import json

import numpy as np
import torch

from softmask.data.catalog import open_data
from softmask.paper.table2 import OTHERS, bond_features, markdown, rows


def test_the_recipe():
    found = rows()
    assert [r.variant for r in found] == ["smg-jk", "m-smg-jk"]
    for row in found:
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
    text = markdown(tmp_path)
    assert text.count("\n| ") == 12
    assert "of 24 figures are at or below the paper's" in text
    assert all(other in text for other in OTHERS)
    assert "| 0.0934 |" in text
