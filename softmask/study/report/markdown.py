"""A study as Markdown, for notes, pull requests and machines."""

import re
from collections.abc import Iterable
from typing import Any

from softmask.study.record import Record
from softmask.study.report import facts, wording
from softmask.study.report.ranking import rank_settings, times_chosen
from softmask.study.report.settings_words import settings_apart, show
from softmask.study.report.unit import unit_of


def markdown_report(record: Record) -> str:
    """The report of a study, finished or not, as Markdown (tables as GitHub has them)."""
    parts = [f"# {_safe(wording.title(record))}", _safe(wording.answer(record))]
    parts += _figures(record)
    if said := wording.gap(record):
        parts.append(_safe(said))
    if troubles := wording.troubles(record):
        parts += ["## Troubles", "\n".join(f"- {_safe(trouble)}" for trouble in troubles)]
    parts += _ranking(record)
    parts += ["## Settings", _table(("setting", "value"), facts.settings_rows(record))]
    parts += ["## Study", _table(("what", "value"), facts.study_rows(record))]
    if record.splits:
        parts += ["## Splits", _table(("run", "held out"), facts.splits_rows(record))]
    if rows := facts.provenance_rows(record):
        parts += ["## Environment", _table(("what", "value"), rows)]
    if command := facts.command(record):
        parts += ["## How to get it again", _code(command)]
    return "\n\n".join(parts) + "\n"


def _figures(record: Record) -> list[str]:
    unit, figures = unit_of(record), wording.figures_of(record)
    if not figures:
        return []
    rows = [(name, unit.number(f["mean"]), unit.number(f["std"]), wording.how(f)) for name, f in figures.items()]
    parts = ["## Figures", _table(("figure", unit.title, "std over folds", "how"), rows)]
    for name, figure in figures.items():
        parts.append(f"### {_safe(wording.name_of(name))}: {_safe(figure['label'])}")
        folds = range(1, max((len(row) for row in figure["scores"]), default=0) + 1)
        epochs = bool(wording.chosen_epochs(figure))
        head = ["run", *(f"fold {k}" for k in folds), "mean", "std", *(["epoch"] if epochs else [])]
        runs = []
        for number, (scores, run) in enumerate(zip(figure["scores"], figure["runs"]), 1):
            last = [run["epoch"]] if epochs else []
            runs.append([number, *map(unit.number, scores), unit.number(run["mean"]), unit.number(run["std"]), *last])
        parts += [_table(head, runs), _safe(f"{wording.spread_note(figure).capitalize()}.")]
    return parts


def _ranking(record: Record) -> list[str]:
    ranked, often, unit = rank_settings(record), times_chosen(record), unit_of(record)
    if not ranked:
        return []
    differing = settings_apart(record)[1]
    head = ["rank", "setting", *(n.replace("_", " ") for n in differing), f"validation {unit.title}", "std", "chosen"]
    rows = []
    for rank, r in enumerate(ranked, 1):
        values = [show(record.question["settings"][r.setting].get(name)) for name in differing]
        chosen = "yes" if r.chosen else wording.count(often[r.setting], "fold") if r.setting in often else ""
        rows.append([rank, r.setting + 1, *values, unit.number(r.mean), unit.number(r.std), chosen])
    return ["## Settings by validation", _table(head, rows)]


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell if cell == "---" else _safe(cell) for cell in line) + " |" for line in lines
    )


def _safe(value: Any) -> str:
    """Text that Markdown prints as it is, on one line."""
    words = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", " ".join(str(value).split()))
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _code(command: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", command)), default=0))
    return f"{fence}sh\n{command}\n{fence}"
