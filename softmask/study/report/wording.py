"""The sentences of a report. Every report says the same, so they are made once."""

from typing import Any

import numpy as np

from softmask.baselines.registry import SOFT_MASK, title_of, way_of
from softmask.study.figures import NO_EPOCHS
from softmask.study.record import Record
from softmask.study.report.models import group_models, rows_where
from softmask.study.report.ranking import rank_settings
from softmask.study.report.settings_words import in_words, show
from softmask.study.report.unit import MISSING, Unit, unit_of

TROUBLES = 20  # said in a report
WAYS = {
    "fleet": "as a fleet: all models in one program",
    "one by one": "one model after the other, on batches as PyG has them",
    "once": "without epochs: one fit for each training part, its settings chosen inside that part",
}
NAMES = {"paper": "Paper protocol", "fair": "Fair protocol", "holdout": "Holdout", "select": "Choice of settings"}


def name_of(figure: str) -> str:
    """What a figure or a role is called in a heading."""
    return NAMES.get(figure, figure.capitalize())


def figures_of(record: Record) -> dict[str, dict[str, Any]]:
    """The figures of a study by name, those that can be defended first; none while it is not finished."""
    figures = (record.result or {}).get("figures") or {}
    return {name: figures[name] for name in sorted(figures, key=lambda name: name == "paper")}


def model(record: Record) -> str:
    """The models of the study's settings, as they are written in the paper."""
    return " / ".join(dict.fromkeys(title_of(s) for s in record.question["settings"]))


def data(question: dict[str, Any]) -> str:
    """The set, and what is learned of it where that has a name: ``molecules (logS)``."""
    targets = question.get("targets")
    if not isinstance(targets, list) or not targets:
        return str(question["data"])
    return f"{question['data']} ({show(targets) if len(targets) < 4 else f'{len(targets)} targets'})"


def title(record: Record) -> str:
    """What the study is about: ``SMG-JK on NCI1``."""
    return f"{model(record)} on {data(record.question)}"


def way(record: Record) -> str:
    """How the models trained."""
    ways = dict.fromkeys(way_of(str(s.get("model", SOFT_MASK))) for s in record.question["settings"])
    return "; ".join(WAYS[name] for name in ways)


def only_once(record: Record) -> bool:
    """Whether no model of the study has epochs."""
    return all(map(has_no_epochs, record.question["settings"]))


def has_no_epochs(settings: dict[str, Any]) -> bool:
    """Whether the model of some settings, as a record has them, trains once."""
    return way_of(str(settings.get("model", SOFT_MASK))) == "once"


def answer(record: Record) -> str:
    """The answer of the study in one sentence, with the label that says how its epoch was chosen.

    Of several figures it is the first: fair (or holdout) rather than paper.
    """
    if record.result is None:
        return f"This study is not finished: {progress(record)} so far, and there is no figure yet."
    unit, figures = unit_of(record), figures_of(record)
    if not figures:
        return _chosen(record, unit)
    name, figure = next(iter(figures.items()))
    value, spread = (
        unit.quantity(figure["mean"]),
        plus_minus(figure, unit).replace("±", ", standard deviation over folds"),
    )
    if value == MISSING:
        return f"{title(record)} has no figure, as a fold gave no number ({name}: {figure['label']}); see the troubles."
    lost = diverged(figure)
    if lost and figure["mean"] == 0:
        return f"{title(record)} has no figure: it diverged in {lost} ({name}: {figure['label']}); see the troubles."
    if record.classes:
        said = f"predicts the class of {value} of the graphs it was not trained on"
    else:
        said = f"is off by {value} on average on graphs it was not trained on"
    warning = "; an optimistic figure" if name == "paper" and figure["label"] != NO_EPOCHS else ""
    wrong = f"; it diverged in {lost}, and graphs without an output count as wrong" if lost else ""
    return f"{title(record)} {said} ({name}: {figure['label']}{spread}{warning}){wrong}."


def diverged(figure: dict[str, Any]) -> str:
    """In which share of its folds the training of a figure diverged: ``3 of 10 folds``; nothing if in none."""
    folds, lost = sum(len(row) for row in figure["scores"]), figure.get("diverged", 0)
    return "" if not lost else f"all {count(folds, 'fold')}" if lost == folds else f"{lost} of {count(folds, 'fold')}"


def how(figure: dict[str, Any]) -> str:
    """How a figure came about: its label, and whether it diverged."""
    return figure["label"] + (f"; diverged in {lost}" if (lost := diverged(figure)) else "")


def gap(record: Record) -> str | None:
    """How much better paper looks than fair, in one plain sentence; None without both figures."""
    figures = figures_of(record)
    if "paper" not in figures or "fair" not in figures:
        return None
    unit = unit_of(record)
    paper, fair = (np.nan if (mean := figures[name]["mean"]) is None else mean for name in ("paper", "fair"))
    optimism = paper - fair if record.classes else fair - paper
    values = f"{unit.quantity(paper)} against {unit.quantity(fair)}"
    if not np.isfinite(optimism):
        return "The optimism gap cannot be given: a figure is not a number."
    if diverged(figures["paper"]) or diverged(figures["fair"]):
        return "The optimism gap cannot be given: a training diverged."
    if only_once(record):
        return "Paper and fair are the same figure here: the model has no epochs to choose from."
    if optimism <= 0:
        return f"Optimism gap: none here, the paper figure looks no better than the fair one ({values})."
    return (
        f"Optimism gap: the paper figure looks {unit.difference(optimism)} better than the fair one ({values}). "
        "It chose its epoch on the folds it reports, and its models trained on the validation parts too."
    )


def plus_minus(figure: dict[str, Any], unit: Unit) -> str:
    """The deviation over folds as ``± 1.6``; nothing where there is one fold only."""
    spread = unit.number(figure.get("std"))
    return "" if spread == MISSING or _folds(figure) < 2 else f"± {spread}"


def spread_note(figure: dict[str, Any]) -> str:
    """What the mean and the deviation of a figure are taken over."""
    runs, folds = len(figure["scores"]), _folds(figure)
    if folds < 2:
        return f"mean over {count(runs, 'run')} of one split"
    over = f"{count(runs, 'run')} of {folds} folds"
    return f"mean over {over}; ± is the standard deviation over folds" + (", averaged over runs" if runs > 1 else "")


def chosen_epochs(figure: dict[str, Any]) -> list[int]:
    """The epoch that each run of a figure chose, where the run chose one for all its folds."""
    return [int(run["epoch"]) for run in figure.get("runs", ()) if run.get("epoch") is not None]


def progress(record: Record) -> str:
    """How much of a study is recorded."""
    return f"{count(models(record), 'model')} recorded in {count(len(record.jobs), 'finished job')}"


def models(record: Record) -> int:
    """How many models the study trained, or how many of them the record holds so far."""
    if record.result is not None and "models" in record.result:
        return int(record.result["models"])
    roles = set(record.metrics["role"].astype(str))
    return sum(len(group_models(record, rows_where(record, role=role))[0]) for role in roles)


def troubles(record: Record) -> list[str]:
    """What went wrong on the way: each thing once, with the first models that it befell, and of very many the first."""
    by_job = [trouble for job in record.jobs.values() for trouble in job.get("troubles") or ()]
    befell: dict[str, list[str]] = {}
    for trouble in dict.fromkeys(str(t) for t in [*((record.result or {}).get("troubles") or ()), *by_job]):
        model, colon, what = trouble.partition(": ")
        befell.setdefault(what if colon else trouble, []).append(model if colon else "")
    said = []
    for what, models in befell.items():
        more = f"; and {len(models) - 3} more models" if len(models) > 4 else ""
        named = "; ".join(models[:3] if more else models)
        said.append(f"{named}{more}: {what}" if named else what)
    left = len(said) - TROUBLES
    return said if left <= 0 else [*said[:TROUBLES], f"and {left} more, in the study's result.json and jobs"]


def times(record: Record) -> str:
    """Wall time and device time."""
    jobs = sum(float(job.get("wall_s") or 0) for job in record.jobs.values())
    if record.result is None:
        return f"jobs {duration(jobs)} so far"
    wall, device = record.result.get("wall_s"), record.result.get("device_s")
    parts = [f"wall {duration(wall)}"] if wall is not None else []
    parts += [f"device {duration(device)}"] if device is not None else []
    return ", ".join(parts) or f"jobs {duration(jobs)}"


def duration(seconds: float) -> str:
    """Seconds as people say them: ``1 min 52 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def count(number: int, thing: str) -> str:
    """``1 run``, ``10 runs``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _folds(figure: dict[str, Any]) -> int:
    return max((len(row) for row in figure["scores"]), default=0)


def _chosen(record: Record, unit: Unit) -> str:
    ranked = rank_settings(record)
    best = next((r for r in ranked if r.chosen), None)
    if best is None:
        return f"This study is finished and has no figure: {progress(record)}."
    words = in_words(record, best.setting)
    where = f"number {best.setting + 1} of {count(len(record.question['settings']), 'setting')}" + (
        f" ({words})" if words else ""
    )
    score = f"validation {unit.metric} of {unit.quantity(best.mean)}"
    return f"On {record.question['data']}, {where} is chosen, with a {score}; the test graphs were not looked at."
