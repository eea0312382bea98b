"""A study on the terminal."""

from typing import TYPE_CHECKING, Any

import numpy as np

from softmask.study.record import Record
from softmask.study.report import wording
from softmask.study.report.ranking import rank_settings, times_chosen
from softmask.study.report.settings_words import settings_apart, show
from softmask.study.report.unit import Unit, unit_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOWN = 20  # settings of a tuning


def print_report(record: Record, console: "Console") -> None:
    """Prints the figures of a study fold by fold, their labels, the optimism gap, troubles and times.

    Args:
        record: the study, finished or not.
        console: where to print. Where its width does not hold every fold, the lowest, the middle and the highest
            fold of each run stand for them.
    """
    from rich.measure import Measurement
    from rich.text import Text

    def say(words: str, style: str = "") -> None:
        # As Text, so that a set called [red] is printed and not obeyed.
        console.print(Text(words, style=style), highlight=False)

    unit = unit_of(record)
    say(wording.answer(record), "bold")
    for name, figure in wording.figures_of(record).items():
        console.print()
        say(f"{wording.name_of(name)}: {unit.title}, by fold ({figure['label']})", "italic")
        table = _fold_table(figure, unit, every_fold=True)
        endless = console.options.update(width=10_000)
        if Measurement.get(console, endless, table).maximum > console.width:
            table = _fold_table(figure, unit, every_fold=False)
        console.print(table)
        value = f"{unit.quantity(figure['mean'])} {wording.plus_minus(figure, unit)}".rstrip()
        say(f"{name}: {value} ({wording.how(figure)})", "bold yellow" if name == "paper" else "bold green")
        say(f"  {wording.spread_note(figure)}", "dim")
    if ranked := rank_settings(record):
        console.print()
        more = f" (the first {SHOWN} of {len(ranked)})" if len(ranked) > SHOWN else ""
        say(f"Settings by validation {unit.title}{more}", "italic")
        console.print(_ranking_table(record, unit))
    if said := wording.gap(record):
        console.print()
        say(said)
    for trouble in wording.troubles(record):
        say(f"warning: {trouble}", "yellow")
    say(
        f"{wording.count(wording.models(record), 'model')}, trained {wording.way(record)}; {wording.times(record)}",
        "dim",
    )


def _fold_table(figure: dict[str, Any], unit: Unit, every_fold: bool) -> "Table":
    from rich.text import Text

    table = _table()
    folds = max((len(row) for row in figure["scores"]), default=0)
    epochs = bool(wording.chosen_epochs(figure))
    heads = [str(k + 1) for k in range(folds)] if every_fold else ["lowest", "median", "highest"]
    for head in ("run", *heads, "mean", "std", *(("epoch",) if epochs else ())):
        table.add_column(head, justify="right", no_wrap=True, style="bold" if head == "mean" else "")
    for number, (scores, run) in enumerate(zip(figure["scores"], figure["runs"]), 1):
        cells = scores if every_fold else _summary(scores)
        last = [str(run["epoch"])] if epochs else []
        row = [str(number), *map(unit.number, cells), unit.number(run["mean"]), unit.number(run["std"]), *last]
        table.add_row(*map(Text, row))
    return table


def _summary(scores: list[float]) -> list[float | None]:
    values = np.array([np.nan if s is None else s for s in scores], dtype=float)
    values = values[np.isfinite(values)]
    if not len(values):
        return [None, None, None]
    return [float(values.min()), float(np.median(values)), float(values.max())]


def _ranking_table(record: Record, unit: Unit) -> "Table":
    from rich.text import Text

    ranked, often = rank_settings(record), times_chosen(record)
    differing = settings_apart(record)[1]
    table = _table()
    for head in ("rank", "setting", *(n.replace("_", " ") for n in differing), "mean", "std", "chosen"):
        table.add_column(Text(head), justify="right")
    for rank, r in enumerate(ranked[:SHOWN], 1):
        values = [show(record.question["settings"][r.setting].get(name)) for name in differing]
        chosen = "yes" if r.chosen else wording.count(often[r.setting], "fold") if r.setting in often else ""
        row = [str(rank), str(r.setting + 1), *values, unit.number(r.mean), unit.number(r.std), chosen]
        table.add_row(*map(Text, row), style="bold green" if r.chosen else "")
    return table


def _table() -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    # Without a title: rich breaks one that is longer than its table is wide.
    return Table(box=SIMPLE_HEAD, padding=0)
