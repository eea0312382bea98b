import json
import re
from pathlib import Path

import pytest

from softmask.baselines import BASELINES
from softmask.data.catalog import TU_SETS, open_data
from softmask.errors import SettingError
from softmask.paper.baselines import cells, gather, markdown
from softmask.study import Local

LARGE = ("COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K")


def test_the_recipe_has_all_systems_on_the_small_sets_and_some_on_the_large():
    found = cells()
    assert {c.name for c in found} == set(TU_SETS)
    for name in TU_SETS:
        systems = [c.variant for c in found if c.name == name]
        assert systems[0] == "smg-jk"
        assert len(systems) == len(set(systems))
        if name not in LARGE:
            assert set(systems[1:]) == set(BASELINES)
        else:
            assert {"gin", "gat", "topk", "wl", "labels-mlp", "degrees-mlp"} <= set(systems)
    for cell in found:
        # The same folds for all: they are compared with one another.
        assert (cell.seed, cell.runs, cell.folds, cell.protocol) == (0, 1, 10, "both")
        assert cell.settings.model == ("soft-mask" if cell.variant == "smg-jk" else cell.variant)
    by = {(c.name, c.variant): c for c in found}
    assert by["IMDB-BINARY", "gin"].settings.readout == "mean"
    assert by["MUTAG", "gin"].settings.readout == "sum"


def test_some_of_it():
    assert {c.name for c in cells(["MUTAG"])} == {"MUTAG"}
    assert [c.variant for c in cells(["MUTAG"], ["gin", "wl"])] == ["gin", "wl"]
    with pytest.raises(SettingError, match="no set 'CORA'"):
        cells(["CORA"])
    with pytest.raises(SettingError, match="no system 'gni'"):
        cells(systems=["gni"])


@pytest.mark.real
def test_the_quick_form_on_mutag(real_set, tmp_path):
    systems = ["smg-jk", "gin", "sagpool", "wl", "labels-mlp", "degrees-mlp"]
    store = open_data(real_set("MUTAG"))
    for cell in cells(systems=systems, quick=True):
        cell.study(store, tmp_path).run(Local(["cpu"]))
    table = gather(tmp_path)
    assert set(table) == {("MUTAG", s) for s in systems}
    text = markdown(tmp_path)
    for system, title, way, quoted in (("gin", "GIN", "fleet", "89.4"), ("sagpool", "SAGPool", "one by one", "")):
        result = json.loads((tmp_path / "baselines" / "MUTAG" / system / "result.json").read_text())
        paper, fair = (result["figures"][name] for name in ("paper", "fair"))
        shown = [f"{100 * f['mean']:.1f} ± {100 * f['std']:.1f}" for f in (paper, fair)]
        assert f"| MUTAG | {title} | {way} | {shown[0]} | {shown[1]} | {quoted}" in text
    assert "SMG-JK is" in text or "SMG-JK and GIN" in text
    assert "labels with a small perceptron" in text


def _made_up(folder, system, scores):
    place = folder / "baselines" / "MUTAG" / system
    place.mkdir(parents=True)
    settings = {"variant": "smg-jk"} | ({} if system == "smg-jk" else {"model": system})
    question = {"data": "MUTAG", "data_hash": "0", "task": "classification", "metric": "accuracy", "graphs": 20}
    (place / "study.json").write_text(json.dumps(question | {"settings": [settings], "hash": "0"}))
    (place / "splits.json").write_text(json.dumps([{"seed": 0, "test": [[2 * i, 2 * i + 1] for i in range(10)]}]))
    mean = sum(scores) / len(scores)
    figure = {"scores": [scores], "mean": mean, "std": 0.05, "label": "epoch chosen on the test folds"}
    result = {"figures": {"paper": figure, "fair": figure}, "ways": ["fleet"]}
    (place / "result.json").write_text(json.dumps(result))


def test_what_differs_and_what_is_refused_is_said(tmp_path):
    """GIN at its quoted figure, GK twenty points above; ECC was refused."""
    _made_up(tmp_path, "gin", [0.894 + d for d in (0.05, -0.05) * 5])
    _made_up(tmp_path, "smg-jk", [0.894 + d for d in (0.04, -0.06, 0.03, -0.06, 0.05, -0.05, 0.03, -0.06, 0.03, -0.05)])
    _made_up(tmp_path, "gk", [1.0158 + d for d in (0.05, -0.05) * 5])
    cells(["MUTAG"], ["ecc"])[0].refuse(tmp_path, "ECC needs edge labels")
    text = markdown(tmp_path)
    assert "| MUTAG | GIN | fleet | 89.4 ± 5.0 | 89.4 ± 5.0 | 89.4 |" in text
    assert "GIN on MUTAG:" not in text
    assert "- GK on MUTAG: +20.0 points (12.6 standard errors); known to differ: " in text
    assert "- ECC on MUTAG: ECC needs edge labels" in text
    assert re.search(r"- MUTAG: SMG-JK is 1\.\d+ percentage points lower \(worse\) than GIN", text)
    assert "epoch chosen on the test folds" in text


def test_the_table_under_results_is_made_from_the_studies_beside_it():
    results = Path(__file__).parents[2] / "results"
    assert (results / "baselines.md").read_text() == markdown(results)
