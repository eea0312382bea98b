"""Which charts a study has, on which scales, and what their captions say."""

from dataclasses import dataclass, replace

import numpy as np

from softmask.study.record import Record
from softmask.study.report import wording
from softmask.study.report.axis import Axis, epochs_axis, fitting, linear
from softmask.study.report.curves import Curve, best_epochs, mean_curve
from softmask.study.report.learning import Lines, learning_chart
from softmask.study.report.models import rows_where
from softmask.study.report.ranking import rank_settings
from softmask.study.report.strip import strip_chart
from softmask.study.report.unit import Unit, unit_of

ROLES = ("fair", "paper", "select")
PARTS = ("train", "validation", "test")
BEHIND = 60  # other settings drawn behind the best one


@dataclass(frozen=True)
class Panel:
    """The charts of one role or figure, side by side, and the words under them."""

    name: str
    charts: list[str]
    caption: str


def learning_panels(record: Record) -> list[Panel]:
    """For every role the learning curves of metric and loss; the same quantity on the same scale in all of them."""
    unit = unit_of(record)
    present = dict.fromkeys(record.metrics["role"].astype(str))
    roles = [*(r for r in ROLES if r in present), *(r for r in present if r not in ROLES)]
    drawn = [(role, _lines(record, role, unit)) for role in roles]
    drawn = [(role, lines) for role, lines in drawn if all(line.curves for line in lines)]
    if not drawn:
        return []
    x = epochs_axis(int(max(c.epochs[-1] for _, lines in drawn for line in lines for c in line.curves.values())))
    axes = [_y_axis([lines[k] for _, lines in drawn], percent=k == 0 and record.classes) for k in (0, 1)]
    return [
        Panel(
            wording.name_of(role),
            [learning_chart(line, x, y) for line, y in zip(lines, axes)],
            _caption(record, role, lines[0]),
        )
        for role, lines in drawn
    ]


def strip_panels(record: Record) -> list[Panel]:
    """For every figure the scores of all folds, on one scale."""
    unit, figures = unit_of(record), wording.figures_of(record)
    scores = [float(s) for f in figures.values() for row in f["scores"] for s in row if s is not None]
    values = unit.factor * np.array([s for s in scores if np.isfinite(s)])
    if not len(values):
        return []
    x = linear(float(values.min()), float(values.max()))
    return [
        Panel(
            wording.name_of(name),
            [strip_chart(wording.name_of(name), _numbers(figures[name]), unit, x)],
            "A dot is one held-out fold, the short line the mean of its run, the dashed line the mean of all "
            f"({figures[name]['label']}).",
        )
        for name in figures
    ]


def _numbers(figure: dict) -> dict:
    scores = [[np.nan if s is None else s for s in row] for row in figure["scores"]]
    return figure | {"scores": scores, "mean": np.nan if figure["mean"] is None else figure["mean"]}


def _lines(record: Record, role: str, unit: Unit) -> tuple[Lines, Lines]:
    """The charts of metric and loss."""
    where: dict[str, object] = {"role": role}
    behind: list[int] = []
    if role == "select" and (ranked := rank_settings(record)):
        best = next((r for r in ranked if r.chosen), ranked[0])
        where["setting"] = best.setting
        behind = [r.setting for r in ranked if r.setting != best.setting][:BEHIND]
    marks, mark_label = _marks(record, role, where)
    return (
        _one(record, "metric", unit.title, unit.factor, where, behind, marks, mark_label),
        _one(record, "loss", "loss", 1.0, where, behind, marks, mark_label),
    )


def _one(
    record: Record,
    what: str,
    title: str,
    factor: float,
    where: dict[str, object],
    behind: list[int],
    marks: list[int],
    mark_label: str,
) -> Lines:
    curves = {}
    for part in PARTS:
        curve = mean_curve(record, f"{part}_{what}", **where)
        if curve is not None:
            curves[part] = _scaled(curve.thinned(marks[:1]), factor)
    faint = [mean_curve(record, f"validation_{what}", **{**where, "setting": setting}) for setting in behind]
    about = f"{wording.name_of(str(where['role']))}: {title} by epoch, {', '.join(curves)}"
    return Lines(
        title,
        about,
        curves,
        marks,
        mark_label,
        [_scaled(curve.thinned(points=90), factor) for curve in faint if curve is not None],
    )


def _scaled(curve: Curve, factor: float) -> Curve:
    return replace(curve, mean=factor * curve.mean, std=factor * curve.std)


def _marks(record: Record, role: str, where: dict[str, object]) -> tuple[list[int], str]:
    """The chosen epochs, the one to be named first."""
    if epochs := sorted(wording.chosen_epochs(wording.figures_of(record).get(role, {}))):
        middle = epochs[len(epochs) // 2]
        if len(epochs) == 1:
            return epochs, f"epoch {middle}, chosen on the test folds"
        return [middle, *epochs], f"epoch {middle} (median), chosen on the test folds"
    if role == "paper":  # not finished: nothing is chosen yet
        return [], ""
    told = [
        epoch for run in wording.figures_of(record).get(role, {}).get("runs", ()) for epoch in run.get("epochs", ())
    ]
    best = np.sort(told) if told else best_epochs(record, "validation_metric", **where)
    if not len(best):
        return [], ""
    middle = int(best[len(best) // 2])
    if len(best) == 1:
        return [middle], f"epoch {middle}, best on validation"
    return [middle, *map(int, best)], f"epoch {middle} (median), best on validation"


def _caption(record: Record, role: str, lines: Lines) -> str:
    several = len(lines.marks) > 1
    who = {
        "paper": "Who chose the epoch: the test folds. Each run takes the epoch at which the mean over its folds was "
        "best on the very folds it reports",
        "fair": "Who chooses the epoch: the validation parts, for every model by itself; the test fold is not asked. "
        "Marked is where the validation metric was best",
        "select": "Only the validation parts are looked at here. Marked is where the validation metric was best",
    }.get(role, "Marked is where the validation metric was best")
    parts = ["Lines are means over folds and runs, bands one standard deviation over folds."]
    if role == "select" and lines.behind:
        best = "the chosen setting" if record.result is not None else "the setting ranked first so far"
        parts[0] += f" In colour {best}, in grey the validation means of the others."
    if lines.marks:
        parts.append(who + ("; the line is the median, the short ticks above are the single ones." if several else "."))
    parts.append("Train is as seen while training, with dropout.")
    if role != "select" and len(np.unique(record.metrics["setting"][rows_where(record, role=role)])) > 1:
        parts.append("Every model has the settings that its fold chose.")
    longest = max(lines.curves.values(), key=lambda c: c.epochs[-1])
    if longest.complete < longest.epochs[-1]:
        parts.append(f"After epoch {longest.complete} fewer models train, and the means are over those.")
    total = int(longest.epochs[-1])
    if len(longest.epochs) < total:
        parts.append(f"Drawn are {len(longest.epochs)} of {total:,} epochs.")
    return " ".join(parts)


def _y_axis(lines: list[Lines], percent: bool) -> Axis:
    curves = [c for line in lines for c in line.curves.values()]
    faint = [c for line in lines for c in line.behind]
    means = np.concatenate([c.mean for c in curves + faint])
    low = np.concatenate([c.mean - c.std for c in curves] + [c.mean for c in faint])
    high = np.concatenate([c.mean + c.std for c in curves] + [c.mean for c in faint])
    means, low, high = (values[np.isfinite(values)] for values in (means, low, high))
    return fitting(means, low, high, percent)
