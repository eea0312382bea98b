"""Two studies over the same folds, side by side."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmask.baselines.registry import title_of
from softmask.errors import SettingError
from softmask.study.figures import NO_EPOCHS
from softmask.study.record import Record
from softmask.study.significance import Comparison, compare_scores


@dataclass(frozen=True)
class StudyComparison:
    """Two studies compared by one of their figures.

    Args:
        name_a, name_b: the models; or, where those are called the same, the studies, by the names of their folders.
        figure: ``"paper"`` or ``"fair"``.
        label, label_b: how that figure comes about in each, such as "epoch chosen on the test folds".
        metric: ``"accuracy"`` or ``"mean absolute error"``.
        mean_a, mean_b: the figure itself.
        comparison: the difference and what it may rest on.
    """

    name_a: str
    name_b: str
    figure: str
    label: str
    label_b: str
    metric: str
    mean_a: float
    mean_b: float
    comparison: Comparison

    def sentence(self) -> str:
        """What the evidence says and what it does not, in plain words."""
        accuracy = self.metric == "accuracy"
        said = self.comparison.sentence(self.name_a, self.name_b, accuracy, "%" if accuracy else "")
        labels = {self.name_a: self.label, self.name_b: self.label_b}
        flattered = [name for name, label in labels.items() if label != NO_EPOCHS]
        if self.figure == "paper" and len(flattered) == 2:
            said += (
                f" Both figures have the {self.label}, which flatters each of them, and not always by the same amount; "
                "the fair figures are the ones to decide by."
            )
        elif self.figure == "paper" and flattered:
            said += (
                f" The figure of {flattered[0]} has the {labels[flattered[0]]}, which flatters it and not the other; "
                "the fair figures are the ones to decide by."
            )
        return said


def compare_studies(a: Record, b: Record, figure: str | None = None) -> StudyComparison:
    """Compares two finished studies over the same data and the same folds, score by score.

    Args:
        a: one study.
        b: the other.
        figure: which of their figures, such as ``"fair"``; by default the most honest one that both have.
    """
    name_a, name_b = a.folder.name, b.folder.name
    if name_a == name_b:
        name_a, name_b = str(a.folder), str(b.folder)
    names = f"{name_a} and {name_b}"
    model_a, model_b = (" / ".join(dict.fromkeys(map(title_of, r.question.get("settings", ())))) for r in (a, b))
    for record, name in ((a, name_a), (b, name_b)):
        if record.result is None:
            raise SettingError(f"{name} is not finished; run its command again, and it goes on where it stopped")
    _same_data(a.question, b.question, names)
    if a.question["metric"] != b.question["metric"]:
        raise SettingError(
            f"{names} cannot be compared: their metrics are {a.question['metric']} and {b.question['metric']}"
        )
    _same_folds(a.splits, b.splits, names)
    if figure is None:
        both = (a.result or {})["figures"].keys() & (b.result or {})["figures"].keys()
        figure = next((f for f in ("fair", "holdout", "paper") if f in both), "fair")
    first, second = _figure(a, name_a, figure), _figure(b, name_b, figure)
    scores = [f["scores"] for f in (first, second)]
    if len(a.splits) > 1 and all(run["test"] == a.splits[0]["test"] for run in a.splits):
        # Given folds are the same in every run: more runs are not more folds.
        scores = [np.array(s).mean(axis=0, keepdims=True) for s in scores]
    if model_a != model_b:
        name_a, name_b = model_a, model_b
    return StudyComparison(
        name_a=name_a,
        name_b=name_b,
        figure=figure,
        label=first["label"],
        label_b=second["label"],
        metric=a.question["metric"],
        mean_a=first["mean"],
        mean_b=second["mean"],
        comparison=compare_scores(scores[0], scores[1], _test_share(a)),
    )


def _test_share(record: Record) -> float:
    """The share of the test part among the graphs that take part at all."""
    shares = []
    for split in record.splits:
        for fold, test in enumerate(split["test"]):
            others = [len(split[part][fold]) for part in ("train", "validation") if part in split]
            shares.append(len(test) / (len(test) + sum(others) if "train" in split else record.question["graphs"]))
    return float(np.mean(shares))


def _same_data(a: dict[str, Any], b: dict[str, Any], names: str) -> None:
    if a["data_hash"] == b["data_hash"]:
        return
    if a["data"] != b["data"]:
        raise SettingError(f"{names} cannot be compared: they are over different sets, {a['data']} and {b['data']}")
    start = f"{names} cannot be compared: both name {a['data']}, but "
    if a["task"] != b["task"]:
        raise SettingError(f"{start}one is a {a['task']} and the other a {b['task']}; run both over the same target")
    raise SettingError(
        f"{start}its graphs or targets differed (hash {a['data_hash'][:12]} and {b['data_hash'][:12]}); run both over "
        "the same files and the same targets"
    )


def _same_folds(a: list[dict[str, Any]], b: list[dict[str, Any]], names: str) -> None:
    """Refuses splits of which not every part holds the same graphs in both studies."""
    start = f"{names} cannot be compared: "
    same = "; give both the same seed, runs and folds, or the same fold files"
    if len(a) != len(b):
        raise SettingError(f"{start}{len(a)} and {len(b)} runs{same}")
    if not a:
        raise SettingError(f"{start}they have no splits.json to tell whether their folds are the same")
    for run, (mine, other) in enumerate(zip(a, b, strict=True)):
        if len(mine["test"]) != len(other["test"]):
            raise SettingError(f"{start}{len(mine['test'])} and {len(other['test'])} folds in run {run}{same}")
        # A holdout names its training part too; of folds it is the rest.
        for part in ("test", "train"):
            for fold, (ids, others) in enumerate(zip(mine.get(part, ()), other.get(part, ()), strict=False)):
                if not np.array_equal(np.sort(ids, axis=None), np.sort(others, axis=None)):
                    raise SettingError(f"{start}fold {fold} of run {run} does not {part} on the same graphs{same}")


def _figure(record: Record, name: str, figure: str) -> dict[str, Any]:
    figures = (record.result or {})["figures"]
    if figure not in figures:
        has = ", ".join(figures) or "none"
        raise SettingError(
            f"{name} has no figure {figure!r} (it has: {has}); compare by one that both studies have, or run it with "
            "--protocol both"
        )
    return figures[figure]
