import json

import numpy as np
import pytest

from softmask.data.catalog import open_data
from softmask.errors import SettingError
from softmask.paper.figure3 import MODELS, claims, fits, gather, markdown, plot, reached


def test_the_recipe():
    found = fits()
    assert len(found) == 6 * 4
    assert {f.model for f in found} == set(MODELS)
    for fit in found:
        assert fit.settings.layers == (1 if fit.model == "SMG, one layer" else 3)
        assert fit.settings.variant == ("smg-jk" if fit.model == "SMG-JK" else "smg")
    with pytest.raises(SettingError, match="no set 'MUTAG'"):
        fits(["MUTAG"])


def _made_up(ends, name="REDDIT-BINARY"):
    made = {}
    for model, end in zip(MODELS, ends):
        curves = np.linspace(0.5, end, 40)[None, :].repeat(2, axis=0)
        curves[:, -4:] = end
        made[model] = {"train_accuracy": curves.tolist(), "largest_class": 0.5, "settings": {"layers": 3}}
    return {name: made}


def test_the_claims_are_answered_by_the_ends_of_the_curves():
    held = {claim: holds for claim, _, holds, _ in claims(_made_up((0.6, 0.8, 0.9, 0.95)))}
    assert list(held.values()) == [True, True, True]
    held = {claim: holds for claim, _, holds, _ in claims(_made_up((0.9, 0.8, 0.7, 0.95)))}
    assert list(held.values()) == [False, False, False]
    # On COLLAB the paper says the opposite of layers.
    assert [c[2] for c in claims(_made_up((0.6, 0.8, 0.9, 0.95), "COLLAB"))] == [True, False]
    assert reached(_made_up((0.6, 0.8, 0.9, 0.95))["REDDIT-BINARY"]["GAT"]) == pytest.approx(0.6)


@pytest.mark.real
@pytest.mark.slow
def test_the_quick_form_on_real_sets(real_set, tmp_path):
    for fit in fits(quick=True):
        fit.run(open_data(real_set(fit.name)), tmp_path, "cpu")
        record = json.loads(fit.path(tmp_path).read_text())
        assert np.shape(record["train_accuracy"]) == (2, 3)
        assert not fit.path(tmp_path).with_suffix("").exists(), "no snapshot is left"
    assert set(gather(tmp_path)) == {"PROTEINS", "REDDIT-BINARY"}
    assert markdown(tmp_path).count("GAT fails to fit REDDIT") == 1
    for path in plot(tmp_path):
        assert path.stat().st_size > 10_000
