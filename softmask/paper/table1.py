"""Table 1 of the paper: SMG, SMG-JK and M-SMG-JK on the ten TU sets."""

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from softmask.data.splits import holdout
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.paper import paper_settings
from softmask.paper.published import OURS, best_other, published, table1_accuracy
from softmask.study.ask import ask
from softmask.study.grid import read_grid
from softmask.study.record import read_json
from softmask.study.settings import Settings
from softmask.study.study import Study


@dataclass(frozen=True)
class Cell:
    """One study of the table: a variant on a set, some runs of it.

    Args:
        name: of the set.
        variant: ``smg``, ``smg-jk`` or ``m-smg-jk``, or the name of a row beyond the paper.
        protocol: ``paper``, ``fair`` or ``both``.
        seed: of the first run.
        runs: how many.
        settings: of the model; for a tuned cell, where its search begins.
        sample: how many settings of the paper's search a tuned cell chooses from; 0 for one that is not tuned.
        folds: 10, but for a quick look.
        graphs: at most so many, for a quick look.
    """

    name: str
    variant: str
    protocol: str
    seed: int
    runs: int
    settings: Settings
    sample: int = 0
    folds: int = 10
    graphs: int | None = None

    def folder(self, out: Path) -> Path:
        """Where its study lies."""
        place = f"{self.protocol}-seed{self.seed}-runs{self.runs}"
        return out / "table1" / self.name / self.variant / place

    def tuning(self, store: GraphStore, out: Path) -> Study | None:
        """The study that chooses the settings of a tuned cell, on validation parts of other folds; must come first."""
        if not self.sample:
            return None
        # The authors' own settings are always among them.
        grid = [self.settings, *read_grid("paper", self.name).sample(self.sample, self.seed, self.settings)]
        asked: dict[str, Any] = {
            "halving": True,
            "seed": self.seed + 1,
            "folder": out / "tune" / self.name / self.variant,
        }
        return ask(self._graphs(store), list(dict.fromkeys(grid)), "tune", folds=self.folds, **asked)

    def study(self, store: GraphStore, out: Path) -> Study:
        """Its study; of a tuned cell, with the settings that its tuning chose."""
        settings, tuning = self.settings, self.tuning(store, out)
        if tuning is not None:
            settings = tuning.question.settings[read_json(tuning.folder / "result.json")["chosen"]]
        asked: dict[str, Any] = {"folds": self.folds, "runs": self.runs, "repeats": 1, "seed": self.seed}
        return ask(self._graphs(store), settings, self.protocol, **asked, folder=self.folder(out))

    def _graphs(self, store: GraphStore) -> GraphStore:
        if self.graphs is None or store.num_graphs <= self.graphs:
            return store
        assert store.y is not None
        share = self.graphs / store.num_graphs
        return store.select(holdout(store.y.numpy(), (share, 1 - share), 0)[0])


@cache
def _recipe() -> dict[str, Any]:
    return tomllib.loads(files("softmask.paper").joinpath("table1.toml").read_text(encoding="utf-8"))


def row_names() -> dict[str, str]:
    """The variants of the table and how they are printed: the paper's, then ours beyond it."""
    return OURS | {row["variant"]: row["name"] for row in _own_rows()}


def _own_rows() -> list[dict[str, Any]]:
    """The rows that the paper does not have: beyond it, and its own with other settings."""
    return _recipe()["beyond"] + _recipe()["tuned"]


def cells(sets: Sequence[str] = (), variants: Sequence[str] = (), quick: bool = False) -> list[Cell]:
    """The studies of the table in the order of the recipe; of some sets or variants only, if any are named."""
    recipe = _recipe()
    small = recipe["quick"]
    parts = [part | {"variants": recipe["variants"]} for part in recipe["parts"]]
    parts += [part | {"variants": [part["variant"]]} for part in _own_rows()]
    if quick:
        parts = [{"sets": small["sets"], "variants": recipe["variants"]}, *parts[len(recipe["parts"]) :]]
        parts = [
            p | {"sets": [s for s in p["sets"] if s in small["sets"]], "protocol": "both", "runs": 1} for p in parts
        ]
    changed = {row["variant"]: row["settings"] for row in _own_rows()}
    found: list[Cell] = []
    next_seed: dict[tuple[str, str], int] = {}
    for part in parts:
        for name in part["sets"]:
            for variant in part["variants"]:
                readout = recipe["readout"].get(variant, {}).get(name, "sum")
                change = changed.get(variant, {"variant": variant})
                settings = replace(paper_settings(name), **({"readout": readout} | change))
                seed = next_seed.get((name, variant), 0)
                next_seed[name, variant] = seed + part["runs"]
                cell = Cell(name, variant, part["protocol"], seed, part["runs"], settings, part.get("sample", 0))
                if quick:
                    settings = replace(settings, hidden=small["hidden"], epochs=small["epochs"])
                    cell = replace(cell, settings=settings, folds=small["folds"], graphs=small["graphs"])
                found.append(cell)
    for what, named, known in (
        ("set", sets, {c.name for c in found}),
        ("variant", variants, {c.variant for c in found}),
    ):
        if unknown := set(named) - known:
            raise SettingError(f"the table has no {what} {sorted(unknown)[0]!r}; it has {', '.join(sorted(known))}")
    return [c for c in found if (not sets or c.name in sets) and (not variants or c.variant in variants)]


def gather(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the finished studies say, by set and variant in the paper's order: all runs made, none left out."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted((out / "table1").glob("*/*/*/result.json")):
        question, result = read_json(path.with_name("study.json")), read_json(path)
        key = question["data"], path.parents[1].name
        row = table.setdefault(key, {"paper": [], "fair": [], "spans": [], "troubles": 0})
        for figure in ("paper", "fair"):
            if figure in result["figures"]:
                row[figure] += result["figures"][figure]["scores"]
        begin = datetime.fromisoformat(question["provenance"]["date"]).timestamp()
        row["spans"].append((" and ".join(result["devices"]), begin, begin + result["device_s"]))
        row["troubles"] += len(result["troubles"])
    columns = list(published()["table1"]["accuracy"]["SMG"])
    return dict(
        sorted(table.items(), key=lambda item: (columns.index(item[0][0]), list(row_names()).index(item[0][1])))
    )


def markdown(out: Path) -> str:
    """The table as Markdown, from the result files."""
    table = gather(out)
    names = list(dict.fromkeys(name for name, _ in table))
    lines = [
        "| set | variant | ours, paper's protocol* | runs | in the paper | ours, fair | runs | best other system |",
        "|---|---|---|---|---|---|---|---|",
    ]
    reached, first, counted = 0, 0, 0
    for name in names:
        other, accuracy = best_other(name)
        best = 0.0
        for variant, printed in row_names().items():
            if (name, variant) not in table or not table[name, variant]["paper"]:
                continue
            row = table[name, variant]
            ours, fair = np.array(row["paper"]), np.array(row["fair"])
            best = max(best, ours.mean())
            in_paper = ""
            if variant in OURS:
                theirs, deviation = table1_accuracy(variant, name)
                counted += 1
                error = ours.std(axis=1).mean() / np.sqrt(ours.shape[1])
                reached += bool(ours.mean() >= theirs - error)
                in_paper = f"{100 * theirs:.1f} ± {100 * deviation:.1f}"
            cells_ = [
                *(name, printed, _percent(ours), str(len(ours)), in_paper),
                *((_percent(fair), str(len(fair))) if fair.size else ("", "")),
                f"{other} {100 * accuracy:.1f}",
            ]
            lines.append(f"| {' | '.join(cells_)} |")
        theirs_best = max(table1_accuracy(variant, name)[0] for variant in OURS)
        first += bool(best > 0 and round(100 * best, 1) >= round(100 * max(accuracy, theirs_best), 1))
    lines += [
        "",
        "\\* epoch chosen on the test folds, as in the paper; ± is the standard deviation over folds, averaged over "
        "runs.",
        "",
        f"{reached} of {counted} cells reach the paper's figure minus one standard error of the fold mean; our best "
        f"variant is first among all rows of the paper's table, or level with the first, on {first} of {len(names)} "
        "sets, at one decimal, as the paper prints its own rows.",
        "",
        _time(table),
        *_missing(table),
    ]
    return "\n".join(lines) + "\n"


def summary(out: Path) -> str:
    """A row for each set: our figures under the paper's protocol, the paper's own in brackets; what is first or level
    with the first of all, at one decimal, as the paper prints its own rows, in bold.
    """
    table = gather(out)
    beyond = {row["variant"]: row["name"] for row in _own_rows()}
    lines = [f"| set | {' | '.join(OURS.values())} | best of ours beyond the paper | best other system |"]
    lines += ["|---|---|---|---|---|---|"]
    for name in dict.fromkeys(name for name, _ in table):
        made = {v: round(100 * np.mean(row["paper"]), 1) for (n, v), row in table.items() if n == name and row["paper"]}
        theirs = {variant: round(100 * table1_accuracy(variant, name)[0], 1) for variant in OURS}
        other, accuracy = best_other(name)
        most = max(*made.values(), *theirs.values(), round(100 * accuracy, 1))

        def shown(value: float) -> str:
            return f"**{value:.1f}**" if value >= most else f"{value:.1f}"  # noqa: B023

        cells_ = [f"{shown(made[v])} ({theirs[v]:.1f})" if v in made else f"({theirs[v]:.1f})" for v in OURS]
        best = max((v for v in made if v in beyond), key=made.__getitem__, default=None)
        cells_.append("" if best is None else f"{shown(made[best])} ({beyond[best]})")
        lines.append(f"| {name} | {' | '.join(cells_)} | {other} {100 * accuracy:.1f} |")
    return "\n".join([*lines, "", _time(table), *_missing(table)]) + "\n"


def _time(table: dict[tuple[str, str], dict[str, Any]]) -> str:
    """A sentence on how long all studies took; where some ran at the same time, it is counted once."""
    total: dict[str, float] = {}
    until: dict[str, float] = {}
    for device, begin, end in sorted(span for row in table.values() for span in row["spans"]):
        total[device] = total.get(device, 0.0) + max(0.0, end - max(begin, until.get(device, 0.0)))
        until[device] = max(until.get(device, 0.0), end)
    runs = sum(max(len(row["paper"]), len(row["fair"])) for row in table.values())
    times = " and ".join(f"{seconds / 60:.0f} minutes on one {device}" for device, seconds in total.items())
    cells_ = sum(variant in OURS for _, variant in table)
    return (
        f"These {cells_} of the paper's 30 cells and {len(table) - cells_} of our own, {runs} cross validations in all "
        f"under one or both protocols, took {times}, compilation included."
    )


def _missing(made: Collection[tuple[str, str]]) -> list[str]:
    """A line that says which of the paper's cells have not been run."""
    rest = []
    for name in published()["table1"]["accuracy"]["SMG"]:
        lacking = [printed for variant, printed in OURS.items() if (name, variant) not in made]
        if len(lacking) == len(OURS):
            rest.append(name)
        elif lacking:
            rest.append(f"{name} ({', '.join(lacking)})")
    return ["", f"Not run yet: {', '.join(rest)}."] if rest else []


def _percent(scores: np.ndarray) -> str:
    return f"{100 * scores.mean():.1f} ± {100 * scores.std(axis=1).mean():.1f}"
