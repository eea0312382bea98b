"""Table 1 of the paper: SMG, SMG-JK and M-SMG-JK on the ten TU sets."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from softmask.data.splits import holdout
from softmask.data.store import GraphStore
from softmask.errors import SettingError, nearest
from softmask.paper import paper_settings
from softmask.paper.published import OURS, published
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
        tune_folds: in how many folds it chooses them.
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
    tune_folds: int = 10
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
        return ask(
            self._graphs(store), list(dict.fromkeys(grid)), "tune", folds=min(self.tune_folds, self.folds), **asked
        )

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
    return OURS | {row["variant"]: row["name"] for row in own_rows()}


def own_rows() -> list[dict[str, Any]]:
    """The rows that the paper does not have: beyond it, and its own with other settings."""
    return _recipe()["beyond"] + _recipe()["tuned"]


def cells(sets: Sequence[str] = (), variants: Sequence[str] = (), quick: bool = False) -> list[Cell]:
    """The studies of the table in the order of the recipe; of some sets or variants only, if any are named."""
    recipe = _recipe()
    small = recipe["quick"]
    parts = [part | {"variants": recipe["variants"]} for part in recipe["parts"]]
    parts += [part | {"variants": [part["variant"]]} for part in own_rows()]
    if quick:
        parts = [{"sets": small["sets"], "variants": recipe["variants"]}, *parts[len(recipe["parts"]) :]]
        parts = [
            p | {"sets": [s for s in p["sets"] if s in small["sets"]], "protocol": "both", "runs": 1} for p in parts
        ]
        # Of a row with more runs, the first.
        firsts = {(name, tuple(p["variants"])): p for p in reversed(parts) for name in p["sets"]}
        parts = [p | {"sets": [s for s in p["sets"] if firsts[s, tuple(p["variants"])] is p]} for p in parts]
    changed = {row["variant"]: row["settings"] for row in own_rows()}
    found: list[Cell] = []
    next_seed: dict[tuple[str, str, str], int] = {}
    for part in parts:
        for name in part["sets"]:
            for variant in part["variants"]:
                readout = recipe["readout"].get(variant, {}).get(name, "sum")
                change = changed.get(variant, {"variant": variant})
                settings = replace(paper_settings(name), **({"readout": readout} | change))
                figures = ("paper", "fair") if part["protocol"] == "both" else (part["protocol"],)
                seed = max(next_seed.get((name, variant, figure), 0) for figure in figures)
                next_seed |= {(name, variant, figure): seed + part["runs"] for figure in figures}
                search = {key: part[key] for key in ("sample", "tune_folds") if key in part}
                cell = Cell(name, variant, part["protocol"], seed, part["runs"], settings, **search)
                if quick:
                    settings = replace(settings, hidden=small["hidden"], epochs=small["epochs"])
                    cell = replace(cell, settings=settings, folds=small["folds"], graphs=small["graphs"])
                found.append(cell)
    return asked_for(found, sets, variants, "variant", quick)


def asked_for(
    found: Sequence[Cell], sets: Sequence[str], variants: Sequence[str], called: str, quick: bool
) -> list[Cell]:
    """The cells of some sets and variants only, if any are named; `called` is what a variant is called in the table.

    Raises:
        SettingError: if the table does not have what is named.
    """
    table = "quick form of the table" if quick else "table"
    for what, named, known in (
        ("set", sets, {c.name for c in found}),
        (called, variants, {c.variant for c in found}),
    ):
        if unknown := sorted(set(named) - known):
            hint = nearest(unknown[0].upper() if what == "set" else unknown[0].lower(), sorted(known))
            raise SettingError(f"the {table} has no {what} {unknown[0]!r}; {hint}")
    wanted = [c for c in found if (not sets or c.name in sets) and (not variants or c.variant in variants)]
    if not wanted:
        has = {v: ", ".join(dict.fromkeys(c.name for c in found if c.variant == v)) for v in variants}
        raise SettingError(
            f"the {table} has none of these {called}s on {', '.join(sets)}; "
            + "; ".join(f"{variant} is there on {names}" for variant, names in has.items())
        )
    return wanted


def gather(out: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the finished studies say, by set and variant in the paper's order: all runs made, none left out.

    Of each: the scores of every fold by figure and seed (``paper`` and ``fair``), on which device and when it was made
    (``spans``), in which precisions, by how many folds, and how many trainings had troubles.
    """
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted((out / "table1").glob("*/*/*/result.json")):
        question, result = read_json(path.with_name("study.json")), read_json(path)
        row = table.setdefault(
            (question["data"], path.parents[1].name),
            {"paper": {}, "fair": {}, "spans": [], "precisions": [], "folds": question["folds"], "troubles": 0},
        )
        for figure in ("paper", "fair"):
            scores = result["figures"].get(figure, {"scores": []})["scores"]
            made = dict(enumerate(scores, question["seed"]))
            if twice := sorted(made.keys() & row[figure].keys()):
                raise SettingError(
                    f"{path.parent}: the run of seed {twice[0]} is there twice; remove one of the folders"
                )
            row[figure] |= made
        row["spans"].append(_span(question, result))
        row["precisions"] += result["precisions"]
        row["troubles"] += len(result["troubles"])
    columns = list(published()["table1"]["accuracy"]["SMG"])
    return dict(
        sorted(table.items(), key=lambda item: (columns.index(item[0][0]), list(row_names()).index(item[0][1])))
    )


def tunings(out: Path) -> dict[tuple[str, str], str]:
    """The settings that each finished tuning chose, by set and variant, in words."""
    found = {}
    for path in sorted((out / "tune").glob("*/*/result.json")):
        question, result = read_json(path.with_name("study.json")), read_json(path)
        chosen = question["settings"][result["chosen"]]
        searched = (f"{key.replace('_', ' ')} {chosen[key]}" for key in read_grid("paper", question["data"]).values)
        found[question["data"], path.parent.name] = ", ".join(searched)
    return found


def tuning_spans(out: Path) -> list[tuple[str, float, float]]:
    """On which device the tunings ran, and from when to when."""
    return [
        _span(read_json(path.with_name("study.json")), read_json(path))
        for path in sorted((out / "tune").glob("*/*/result.json"))
    ]


def _span(question: dict[str, Any], result: dict[str, Any]) -> tuple[str, float, float]:
    begin = datetime.fromisoformat(question["provenance"]["date"]).timestamp()
    return " and ".join(result["devices"]), begin, begin + result["device_s"]
