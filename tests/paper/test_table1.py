import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from softmask.data.catalog import TU_SETS, open_data
from softmask.errors import SettingError
from softmask.paper import paper_settings
from softmask.paper.published import OURS, best_other, published, table1_accuracy
from softmask.paper.table1 import Cell, cells, gather
from softmask.paper.table1_report import markdown, summary
from softmask.study import Local
from softmask.study.settings import Settings

RESULTS = Path(__file__).parents[2] / "results"


def test_the_recipe_has_all_thirty_cells_with_seeds_from_0():
    found = cells()
    assert {(c.name, c.variant) for c in found if c.variant in OURS} == {(n, v) for n in TU_SETS for v in OURS}
    for name, variant in {(c.name, c.variant) for c in found}:
        for figure in ("paper", "fair"):
            made = [c for c in found if (c.name, c.variant) == (name, variant) and c.protocol in (figure, "both")]
            seeds = [s for c in made for s in range(c.seed, c.seed + c.runs)]
            assert seeds == list(range(len(seeds)))
            assert seeds or variant not in OURS
    for cell in found:
        mean = cell.variant in ("m-smg-jk", "m-smg-jk-tuned") and cell.name.startswith("REDDIT")
        assert cell.settings.readout == ("mean" if mean else "sum")
        assert cell.variant.startswith(cell.settings.variant)
        assert cell.settings.norm == ("norm" in cell.variant)
        assert cell.folds == 10
        assert cell.graphs is None


def test_cells_below_the_paper_by_more_than_a_standard_error_are_tuned():
    table = gather(Path(__file__).parents[2] / "results")
    below = set()
    for (name, variant), row in table.items():
        if variant in OURS:
            scores = np.array(list(row["paper"].values()))
            error = scores.std(axis=1, ddof=1).mean() / np.sqrt(10)
            if scores.mean() < table1_accuracy(variant, name)[0] - error:
                below.add((name, f"{variant}-tuned"))
    assert below <= {(c.name, c.variant) for c in cells() if c.sample}


@pytest.mark.real
def test_a_tuned_cell_takes_what_validation_parts_of_other_folds_chose(real_set, tmp_path):
    small = replace(paper_settings("MUTAG"), variant="smg", hidden=8, epochs=3)
    cell = Cell("MUTAG", "smg-tuned", "paper", 0, 1, small, sample=2, tune_folds=2, folds=3, graphs=60)
    store = open_data(real_set("MUTAG"))
    tuning = cell.tuning(store, tmp_path)
    assert tuning.question.protocol == "tune"
    assert tuning.question.folds == 2
    assert tuning.question.settings[0] == small
    assert len(tuning.question.settings) == 3
    assert all(s.variant == "smg" and s.epochs == 3 for s in tuning.question.settings)
    found = tuning.run(Local(["cpu"]))
    study = cell.study(store, tmp_path)
    assert study.question.settings == (tuning.question.settings[found.result["chosen"]],)
    assert study.question.splits_hash != tuning.question.splits_hash
    study.run(Local(["cpu"]))
    assert set(gather(tmp_path)) == {("MUTAG", "smg-tuned")}, "the tuning is no row of the table"


def test_some_of_it():
    assert {c.name for c in cells(["MUTAG"])} == {"MUTAG"}
    assert len(cells(["MUTAG"], ["smg"])) == 1
    with pytest.raises(SettingError, match="no set 'CORA'"):
        cells(["CORA"])
    with pytest.raises(SettingError, match="no variant 'gin'"):
        cells(variants=["gin"])
    with pytest.raises(SettingError, match="none of these variants on NCI1; smg-jk-edges is there on MUTAG"):
        cells(["NCI1"], ["smg-jk-edges"])


def test_the_printed_figures():
    """Typed in from the paper."""
    assert table1_accuracy("smg-jk", "REDDIT-BINARY") == pytest.approx((0.931, 0.0225))
    assert best_other("MUTAG") == ("FGSD", pytest.approx(0.9212))
    assert best_other("COLLAB") == ("GIN", pytest.approx(0.802))
    assert len(published()["table1"]["accuracy"]) == 19


@pytest.mark.real
def test_the_quick_form_on_real_sets(real_set, tmp_path):
    quick = cells(variants=["smg"], quick=True)
    for cell in quick:
        cell.study(open_data(real_set(cell.name)), tmp_path).run(Local(["cpu"]))
    table = gather(tmp_path)
    assert set(table) == {(c.name, "smg") for c in quick}
    for (name, _), row in table.items():
        result = json.loads((tmp_path / "table1" / name / "smg" / "both-seed0-runs1" / "result.json").read_text())
        assert row["paper"] == {0: result["figures"]["paper"]["scores"][0]}
        shown = f"| {name} | SMG | {100 * np.mean(row['paper'][0]):.1f} ± {100 * np.std(row['paper'][0]):.1f} | 1 |"
        assert shown in markdown(tmp_path)
    assert markdown(tmp_path).startswith("**The quick form")
    assert "cells reach" not in markdown(tmp_path)


def made_up(out, name, variant, scores, seed=0, protocol="paper", precision="bf16"):
    """A study of some runs, each with ten scores of folds."""
    folder = out / "table1" / name / variant / f"{protocol}-seed{seed}-runs{len(scores)}"
    folder.mkdir(parents=True)
    question = {"data": name, "seed": seed, "folds": 10, "provenance": {"date": "2026-01-01T00:00:00Z"}}
    (folder / "study.json").write_text(json.dumps(question))
    result = {"figures": {"paper": {"scores": scores}}, "device_s": 120.0, "troubles": []}
    (folder / "result.json").write_text(json.dumps(result | {"devices": ["cpu"], "precisions": [precision]}))


def around(mean, deviation=0.05):
    return [mean + deviation, mean - deviation] * 5


def test_a_cell_is_reached_within_one_standard_error(tmp_path):
    """SMG has 0.892 on MUTAG and 0.768 on PROTEINS; ten folds 0.05 away from their mean have an error of 0.0167."""
    made_up(tmp_path, "MUTAG", "smg", [around(0.892 - 0.0162)] * 2)
    made_up(tmp_path, "PROTEINS", "smg", [around(0.768 - 0.0172)])
    text = markdown(tmp_path)
    assert "| MUTAG | SMG | 87.6 ± 5.0 | 2 |  | 89.2 ± 6.2 |" in text
    assert "1 of 2 cells reach the paper's figure minus one standard error of our mean over folds, 0 of them" in text
    assert "below are PROTEINS SMG (75.1, in the paper 76.8; not tuned yet)." in text
    assert (
        "2 of the paper's 30 cells took 2 minutes on one cpu, several of them at once: 1 with 1 run of ten folds 2 "
        "minutes on one cpu and 1 with 2 runs of ten folds 2 minutes on one cpu."
    ) in text
    assert "epoch chosen on the test folds" in text
    made_up(tmp_path, "PROTEINS", "smg-tuned", [around(0.77)])
    assert "in the paper 76.8; tuned 77.0)" in markdown(tmp_path)


def test_first_is_so_among_all_rows_of_the_paper_at_one_decimal(tmp_path):
    """FGSD has 92.1 on MUTAG: 92.06 is printed alike, 92.04 is not. On COLLAB the paper's own SMG, 83.2, is first."""
    for accuracy, first in ((0.9206, "MUTAG (level)"), (0.9204, "none")):
        out = tmp_path / str(accuracy)
        made_up(out, "MUTAG", "smg", [around(accuracy)])
        made_up(out, "COLLAB", "smg", [around(0.831)])
        text = markdown(out)
        assert f"on {int(first != 'none')} of 2 sets" in text
        assert f"with the paper's variants on {first}. On 0 of them" in text
        # GIN has 80.2 there.
        others = "2: MUTAG (level), COLLAB (+2.9)." if first != "none" else "1: COLLAB (+2.9)."
        assert f"Beside the quoted rows of other systems alone it is so on {others}" in text
        assert ("**92.1** (89.2)" in summary(out)) == (first != "none")
        assert "| COLLAB | 83.1 (83.2) |" in summary(out)


def test_rows_of_our_own_are_beside_the_plain_variant_in_the_same_runs(tmp_path):
    """The plain variant has ten runs, of which the first was lucky."""
    made_up(tmp_path, "MUTAG", "smg-jk", [around(0.91)] + [around(0.89)] * 9)
    made_up(tmp_path, "MUTAG", "smg-jk-norm", [around(0.93)], precision="float32")
    assert "| MUTAG | SMG-JK, norm | 93.0 ± 5.0 | 1 | 91.0 |  |" in markdown(tmp_path)
    assert "| 93.0 (SMG-JK, norm; 1 run, plain there 91.0) |" in summary(tmp_path), "one lucky run is not first"
    assert "or level with the first, on 0 of 1 sets" in markdown(tmp_path)
    made_up(tmp_path, "MUTAG", "smg-jk-norm", [around(0.93)] * 9, seed=1)
    assert "**93.0** (SMG-JK, norm; 10 runs, plain there 89.2)" in summary(tmp_path)
    assert "and with rows of our own on MUTAG (+0.9)." in markdown(tmp_path)


def test_systems_that_are_ahead_of_us_on_the_same_folds_are_named(tmp_path):
    made_up(tmp_path, "MUTAG", "smg-jk", [around(0.91)] + [around(0.89)] * 9, precision="float32")
    for system, mean in (("gin", 0.92), ("gcn", 0.905)):
        folder = tmp_path / "baselines" / "MUTAG" / system
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({"figures": {"paper": {"mean": mean}}}))
    assert "some are ahead of us: on MUTAG GIN 92.0, our best 91.0." in markdown(tmp_path)
    assert "Fair figures not run yet: MUTAG (SMG-JK)." in markdown(tmp_path)
    made_up(tmp_path, "MUTAG", "smg-jk-norm", [around(0.93)])
    assert "ahead of us" not in markdown(tmp_path)
    assert "Of the 2 studies, 1 in bf16, 1 in float32 arithmetic." in markdown(tmp_path)
    assert "SMG-JK, norm (PROTEINS, NCI1" in markdown(tmp_path), "what has not been run is said"


def test_a_run_that_is_there_twice_is_refused(tmp_path):
    made_up(tmp_path, "MUTAG", "smg", [around(0.9)] * 2)
    made_up(tmp_path, "MUTAG", "smg", [around(0.9)], seed=1, protocol="both")
    with pytest.raises(SettingError, match="the run of seed 1 is there twice"):
        gather(tmp_path)


def test_the_studies_of_the_repository_are_those_of_the_recipe():
    recipe = {(c.name, c.variant, c.seed, c.protocol): c for c in cells() if not c.sample}
    for path in (RESULTS / "table1").glob("*/*/*/study.json"):
        question = json.loads(path.read_text())
        cell = recipe.get((question["data"], path.parents[1].name, question["seed"], question["protocol"]))
        if cell is not None:
            assert [Settings(**s) for s in question["settings"]] == [cell.settings]
            assert question["runs"] == cell.runs
        else:
            assert path.parents[1].name.endswith("-tuned")


@pytest.mark.real
@pytest.mark.parametrize("name", TU_SETS)
def test_the_studies_of_the_repository_are_of_the_graphs_as_they_are_read_now(real_set, name):
    """Otherwise the recipe would refuse to go on beside them."""
    now = open_data(real_set(name)).content_hash()
    paths = [*RESULTS.glob(f"*/{name}/*/study.json"), *RESULTS.glob(f"*/{name}/*/*/study.json")]
    assert {json.loads(path.read_text())["data_hash"] for path in paths} == {now}
