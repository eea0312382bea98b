import copy
from pathlib import Path

import numpy as np
import pytest

from softmask.errors import SettingError
from softmask.study.compare import compare_studies
from softmask.study.record import Record, read_record, write_json
from softmask.study.significance import compare_scores

RUNS, FOLDS, GRAPHS = 2, 5, 50


def study(name, seed=0, metric="accuracy", shift=0.0):
    rng = np.random.default_rng(seed)
    split = np.random.default_rng(99)
    figures = {}
    for figure, label in (("paper", "epoch chosen on the test folds"), ("fair", "epoch chosen on validation parts")):
        scores = rng.normal(0.7 + shift, 0.02, (RUNS, FOLDS))
        figures[figure] = {"label": label, "mean": float(scores.mean()), "scores": scores.tolist()}
    return Record(
        folder=Path("studies") / name,
        question={
            "data": "MUTAG",
            "data_hash": "0123456789abcdef",
            "task": "classification",
            "metric": metric,
            "graphs": GRAPHS,
        },
        splits=[
            {"seed": run, "test": [f.tolist() for f in np.array_split(split.permutation(GRAPHS), FOLDS)]}
            for run in range(RUNS)
        ],
        metrics={},
        jobs={},
        result={"figures": figures},
    )


def changed(record, change):
    record = copy.deepcopy(record)
    change(record)
    return record


def test_more_runs_over_given_folds_are_not_more_folds():
    a, b = study("one", 1, shift=0.1), study("two", 2)
    for record in (a, b):
        record.splits[1]["test"] = record.splits[0]["test"]
    result = compare_studies(a, b)
    scores = [np.array(r.result["figures"]["fair"]["scores"]).mean(axis=0, keepdims=True) for r in (a, b)]
    assert result.comparison == compare_scores(*scores, test_share=1 / FOLDS)
    assert result.figure == "fair"


@pytest.mark.parametrize("figure", ["paper", "fair"])
def test_compares_the_scores_of_the_figure(figure):
    a, b = study("one", 1, shift=0.1), study("two", 2)
    result = compare_studies(a, b, figure)
    scores = [np.array(r.result["figures"][figure]["scores"]) for r in (a, b)]
    assert result.comparison == compare_scores(*scores, test_share=1 / FOLDS)
    assert (result.name_a, result.name_b, result.figure, result.metric) == ("one", "two", figure, "accuracy")
    assert result.mean_a == pytest.approx(scores[0].mean())
    assert "one is " in result.sentence()
    assert "percentage points higher (better) than two" in result.sentence()
    assert ("epoch chosen on the test folds" in result.sentence()) == (figure == "paper")


def test_an_error_is_better_when_lower():
    a, b = study("one", 1, "mean absolute error", 0.1), study("two", 2, "mean absolute error")
    said = compare_studies(a, b, "fair").sentence()
    assert "higher (worse)" in said
    assert "percentage" not in said


def test_folds_in_another_order_of_ids_are_the_same_folds():
    other = changed(study("two", 2), lambda r: r.splits[0]["test"][0].reverse())
    compare_studies(study("one", 1), other, "fair")


def test_studies_of_the_same_name_are_told_apart_by_their_folders():
    a, b = study("x/same", 1), study("y/same", 2)
    result = compare_studies(a, b, "fair")
    assert (result.name_a, result.name_b) == (str(a.folder), str(b.folder))


def test_reads_what_a_study_wrote(tmp_path):
    for place, record in (("one", study("one", 1)), ("two", study("two", 2))):
        (tmp_path / place).mkdir()
        write_json(tmp_path / place / "study.json", record.question)
        write_json(tmp_path / place / "splits.json", record.splits)
        write_json(tmp_path / place / "result.json", record.result)
    result = compare_studies(read_record(tmp_path / "one"), read_record(tmp_path / "two"), "fair")
    assert result.comparison == compare_studies(study("one", 1), study("two", 2), "fair").comparison


def _swap(record):
    folds = record.splits[1]["test"]
    folds[2][0], folds[3][0] = folds[3][0], folds[2][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.question.update(data="NCI1", data_hash="f"), "different sets, MUTAG and NCI1"),
        (lambda r: r.question.update(data_hash="fedcba9876543210"), "targets differed .*0123456789ab and fedcba987654"),
        (
            lambda r: r.question.update(data_hash="f", task="regression"),
            "one is a classification .* over the same target",
        ),
        (lambda r: r.question.update(metric="mean absolute error"), "metrics are accuracy and mean absolute error"),
        (lambda r: r.splits.pop(), "2 and 1 runs"),
        (lambda r: r.splits[0]["test"].pop(), "5 and 4 folds in run 0"),
        (_swap, "fold 2 of run 1 does not test on the same graphs"),
        (lambda r: r.splits[0]["test"].reverse(), "fold 0 of run 0 does not test on the same graphs"),
        (lambda r: r.result["figures"].pop("fair"), r"two has no figure 'fair' \(it has: paper\)"),
        (lambda r: r.result["figures"].clear(), r"it has: none"),
        (lambda r: r.result["figures"]["fair"]["scores"][0].pop(), "not a table"),
        (lambda r: r.result["figures"]["fair"]["scores"].pop(), "cannot be paired"),
    ],
)
def test_what_differs_is_said(change, message):
    with pytest.raises(SettingError, match=message):
        compare_studies(study("one", 1), changed(study("two", 2), change), "fair")


def test_another_training_part_of_a_holdout_is_another_split():
    def train(last):
        return lambda r: [s.update(train=[[*range(40), last]] * FOLDS) for s in r.splits]

    a, b = study("one", 1), study("two", 2)
    compare_studies(changed(a, train(41)), changed(b, train(41)), "fair")
    with pytest.raises(SettingError, match="fold 0 of run 0 does not train on the same graphs"):
        compare_studies(changed(a, train(41)), changed(b, train(42)), "fair")


def test_unfinished_and_unsplit_studies_are_refused():
    done = study("one", 1)
    open_ = Record(**{**vars(study("two", 2)), "result": None})
    with pytest.raises(SettingError, match="two is not finished"):
        compare_studies(done, open_, "fair")
    empty = changed(done, lambda r: r.splits.clear())
    with pytest.raises(SettingError, match="no splits"):
        compare_studies(empty, empty, "fair")
    with pytest.raises(SettingError, match="no figure 'best'"):
        compare_studies(done, done, "best")
