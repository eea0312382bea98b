"""The other systems of Table 1, measured by the same study, beside the figures that the paper quotes."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from softmask.baselines.entry import IN_SPACE
from softmask.baselines.registry import BASELINES, baseline_settings, way_of
from softmask.errors import SettingError
from softmask.paper.published import QUICK, published, title
from softmask.paper.table1 import Cell, asked_for
from softmask.paper.table1 import cells as table1_cells
from softmask.paper.table2 import other_systems
from softmask.paper.worth import beside, fair_score, worth
from softmask.study.record import Record, read_json, read_record, write_json
from softmask.study.report.wording import diverged

_ERRORS = (
    "A standard error is that of our mean over ten folds: a third of the deviation behind ± (the root of nine), as if "
    "folds were independent. How uncertain the quoted figure is does not count."
)


@dataclass(frozen=True)
class SystemCell(Cell):
    """One study: a system on a set. Its `variant` is the name of the system: a baseline's, or a soft-mask variant's."""

    def folder(self, out: Path) -> Path:
        """Where its study lies."""
        return out / "baselines" / self.name / self.variant

    def refuse(self, out: Path, reason: str) -> None:
        """Notes why the system does not run on the set."""
        self.folder(out).mkdir(parents=True, exist_ok=True)
        write_json(self.folder(out) / "refused.json", {"data": self.name, "system": self.variant, "reason": reason})


@cache
def _recipe() -> dict[str, Any]:
    return tomllib.loads(files("softmask.paper").joinpath("baselines.toml").read_text(encoding="utf-8"))


def cells(sets: Sequence[str] = (), systems: Sequence[str] = (), quick: bool = False) -> list[Cell]:
    """The studies in the order of the recipe; of some sets or systems only, if any are named.

    SMG-JK, to compare with, is that of Table 1: the same study in the same folder.
    """
    recipe, systems = _recipe(), [system.lower() for system in systems]
    if molecular := [system for system in systems if system in other_systems().values()]:
        raise SettingError(f"{molecular[0]} is of another table: softmask reproduce table2 --model {molecular[0]}")
    found: list[Cell] = []
    for part in recipe["parts"]:
        for name in part["sets"]:
            if quick and name not in recipe["quick"]["sets"]:
                continue
            smg = table1_cells([name], [recipe["with_smg"]], quick)
            everywhere = [system for system, baseline in BASELINES.items() if IN_SPACE not in baseline.needs]
            named = everywhere if part["systems"] == "all" else part["systems"]
            protocol = part.get("protocol", recipe["protocol"])
            found += [c for c in smg[:1] if c not in found]
            found += [_cell(name, system, protocol, smg[0], quick) for system in named]
    # PPGNN, with vectors for all pairs of nodes, takes by far the longest.
    found.sort(key=lambda cell: (cell.settings.model == "ppgn", way_of(cell.settings.model) == "once"))
    return asked_for(found, sets, systems, "system", quick)


def _cell(name: str, system: str, protocol: str, smg: Cell, quick: bool) -> SystemCell:
    """The study of a baseline, over the folds of SMG-JK's first run."""
    recipe = _recipe()
    if system in recipe["settings_of_smg"]:
        settings = replace(smg.settings, model=system)
    else:
        settings = baseline_settings(system, **recipe["settings"].get(system, {}).get(name, {}))
    if name in recipe["readout"].get(system, ()):
        settings = replace(settings, readout="mean")
    cell = SystemCell(name, system, protocol, smg.seed, 1, settings)
    if not quick:
        return cell
    small = recipe["quick"]
    short = replace(settings, hidden=small["hidden"], epochs=min(settings.epochs, small["epochs"]))
    return replace(cell, settings=short, folds=small["folds"], graphs=small["graphs"])


def gather(out: Path) -> dict[tuple[str, str], Record | str]:
    """The finished studies by set and system, SMG-JK's of Table 1 among them; or, in words, why there is none."""
    table: dict[tuple[str, str], Record | str] = {}
    for path in sorted((out / "baselines").glob("*/*/refused.json")):
        told = read_json(path)
        table[told["data"], told["system"]] = str(told["reason"])
    for path in sorted((out / "baselines").glob("*/*/result.json")):
        record = read_record(path.parent)
        table[record.question["data"], path.parent.name] = record
    smg = _recipe()["with_smg"]
    # Those whose runs begin with seed 0, as those of the baselines do; the protocols may have a study each.
    for path in sorted((out / "table1").glob(f"*/{smg}/*-seed0-*/result.json")):
        record = read_record(path.parent)
        first = table.setdefault((record.question["data"], smg), record)
        assert isinstance(first, Record)
        assert first.result is not None
        assert record.result is not None
        if first is not record and first.splits == record.splits:
            figures = record.result["figures"] | first.result["figures"]
            table[record.question["data"], smg] = replace(first, result=first.result | {"figures": figures})
    return table


def markdown(out: Path) -> str:
    """The table, where it differs from the quoted figures, and what SMG-JK is worth: from the result files."""
    table = gather(out)
    recipe = _recipe()
    order = list(dict.fromkeys(name for part in recipe["parts"] for name in part["sets"]))
    names = sorted({name for name, system in table if system != recipe["with_smg"]}, key=order.index)
    systems = [recipe["with_smg"], *BASELINES]
    lines = [
        "| set | system | trained | runs | ours, paper's protocol* | ours, fair | quoted in the paper |",
        "|---|---|---|---|---|---|---|",
    ]
    notes: list[str] = []
    refused: list[str] = []
    for name in names:
        for system in systems:
            found = table.get((name, system))
            if isinstance(found, str):
                refused.append(f"- {title(system)} on {name}: {found}")
            elif found is not None:
                line, note = _row(name, system, found)
                lines.append(line)
                notes += note
    lines += [
        "",
        "\\* epoch chosen on the test folds, as in the paper, but for systems that train once and have no epochs; ± is "
        "the standard deviation over folds, averaged over runs. Quoted figures are those of the soft-mask paper's "
        "Table 1, which took them from many papers, with folds and settings of their own. SMG-JK is the study of "
        "[Table 1](table1.md), and all systems have the folds of its first run. For the fair figure, networks leave "
        "out a tenth of each training part, which chooses the epoch; what trains once learns from all of it. The "
        "paper's protocol has one epoch for all folds, the fair one an epoch for each, and may so be the higher.",
    ]
    if any(r.question.get("folds", 10) != 10 for r in table.values() if isinstance(r, Record)):
        return "\n".join([QUICK, "", *lines]) + "\n"
    pairs = {
        (n, system): (_made(table, n, recipe["with_smg"]), _made(table, n, system))
        for n in names
        for system in recipe["against"]
    }
    sections = {
        "## Where ours differs from the quoted figure by more than two standard errors": notes
        and [_ERRORS, "", *notes],
        "## Is SMG-JK better?": worth(pairs),
        "## Refused": refused,
        "## Not run yet": _missing(table),
    }
    for heading, said in sections.items():
        if said:
            lines += ["", heading, "", *said]
    return "\n".join(lines) + "\n"


def summary(out: Path) -> str:
    """What SMG-JK is worth, a row for each set that has a fair figure of it."""
    table, recipe = gather(out), _recipe()
    smg, against = recipe["with_smg"], recipe["against"]
    lines = [
        f"| set | SMG-JK | {' | '.join(map(title, against))} | best of all others |",
        f"|{'---|' * (len(against) + 3)}",
    ]
    without = []
    for name in dict.fromkeys(name for part in recipe["parts"] for name in part["sets"]):
        ours = _made(table, name, smg)
        if ours is None or ours.result is None or "fair" not in ours.result["figures"]:
            without.append(name)
            continue
        made = {system: record for system in BASELINES if (record := _made(table, name, system)) is not None}
        fair = {
            s: r.result["figures"]["fair"]["mean"]
            for s, r in made.items()
            if r.result and "fair" in r.result["figures"]
        }
        cells_ = [beside(ours, made[system]) if system in fair else "" for system in against]
        best = max(fair, key=lambda system: fair[system], default=None)
        cells_.append("" if best is None else f"{title(best)} {100 * fair[best]:.1f} (of {len(fair)})")
        lines.append(f"| {name} | {fair_score(ours):.1f} | {' | '.join(cells_)} |")
    said = (
        "Fair accuracies in per cent on the ten folds of seed 0. Better or worse is said where p is below 0.05 by the "
        "corrected resampled t-test; what is not told apart need not be equally good. The best of many is itself "
        "chosen by these figures."
    )
    if without:
        said += f" Without a fair figure of SMG-JK: {', '.join(without)}."
    if rest := _missing(table):
        said += f" Not run yet: {'; '.join(line.removeprefix('- ') for line in rest)}."
    return "\n".join([*lines, "", said]) + "\n"


def _row(name: str, system: str, record: Record) -> tuple[str, list[str]]:
    assert record.result is not None
    figures, quoted = record.result["figures"], _quoted(name, system)
    ways = ", ".join(record.result.get("ways", ("fleet",)))  # the first studies were fleets all, and do not say so
    shown = "" if quoted is None else f"{quoted[0]:.1f}" + ("" if quoted[1] is None else f" ± {quoted[1]:.1f}")
    runs = str(record.question.get("runs", len(record.splits)))
    cells_ = [name, title(system), ways, runs, *(_percent(figures.get(f)) for f in ("paper", "fair")), shown]
    line = f"| {' | '.join(cells_)} |"
    if quoted is None or "paper" not in figures or figures["paper"].get("diverged"):
        return line, []
    ours = 100 * np.array(figures["paper"]["scores"])
    error = ours.std(axis=1, ddof=1).mean() / np.sqrt(ours.shape[1])
    gap = ours.mean() - quoted[0]
    if abs(gap) <= 2 * error:
        return line, []
    reasons = _recipe()["differs"]
    why = [reasons.get(system, {}).get(key, "") for key in ("all", name)]
    told = "; known to differ: " + "; ".join(w for w in why if w) if any(why) else ""
    errors = f" ({abs(gap) / error:.1f} standard errors)" if error > 0 else ""
    return line, [f"- {title(system)} on {name}: {gap:+.1f} points{errors}{told}."]


def _made(table: dict[tuple[str, str], Record | str], name: str, system: str) -> Record | None:
    found = table.get((name, system))
    return found if isinstance(found, Record) else None


def _missing(table: dict[tuple[str, str], Record | str]) -> list[str]:
    """Which studies of the recipe there are not, set by set."""
    rest: dict[str, list[str]] = {}
    for cell in cells():
        if (cell.name, cell.variant) not in table:
            rest.setdefault(cell.name, []).append(title(cell.variant))
    return [f"- {name}: {', '.join(systems)}" for name, systems in rest.items()]


def _quoted(name: str, system: str) -> tuple[float, float | None] | None:
    """The paper's figure of the row that a system stands for, and its deviation, in percent."""
    row = BASELINES[system].row if system in BASELINES else system.upper()
    table = published()["table1"]
    if row is None or table["accuracy"][row][name] is None:
        return None
    return table["accuracy"][row][name], table["std"].get(row, {}).get(name)


def _percent(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    if lost := diverged(figure):
        lost = f"diverged in {lost}"
        if figure["mean"] == 0:
            return lost
    shown = f"{100 * figure['mean']:.1f}" + ("" if figure["std"] is None else f" ± {100 * figure['std']:.1f}")
    return ", ".join(filter(None, (shown, lost)))
