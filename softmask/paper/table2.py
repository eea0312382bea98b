"""Table 2 of the paper: mean absolute errors on the 12 targets of QM9, of our rows and of the other systems'."""

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from softmask.baselines.registry import baseline_settings
from softmask.errors import SettingError, nearest
from softmask.paper.baseline_regression import BaselineRegression
from softmask.paper.published import OURS, published
from softmask.paper.regression import GeometricRegression, Regression
from softmask.study.record import read_json
from softmask.study.settings import Settings

GEOMETRIC = "geometric"


@cache
def _recipe() -> dict[str, Any]:
    return tomllib.loads(files("softmask.paper").joinpath("table2.toml").read_text(encoding="utf-8"))


def rows(
    quick: bool = False, variants: Sequence[str] = (), epochs: int | None = None, systems: Sequence[str] = ()
) -> list[Regression]:
    """The rows of the table that can be measured: ours, and those of the systems that the paper compares with. Only
    some of them, if any are named.

    Args:
        quick: a small version.
        variants: of ours, only these; and none of the systems, if none is named.
        epochs: train for fewer epochs than the recipe; the rate then falls sooner, to the same at the end.
        systems: of the systems, only these, as ``--model`` has them; and none of ours, if none is named.
    """
    recipe = _recipe()
    own, theirs, ratios = recipe[GEOMETRIC], recipe["baselines"], tuple(recipe["ratios"])
    named = (*variants, *(system.lower() for system in systems))
    ours, others = [*recipe["variants"], GEOMETRIC], list(other_systems().values())
    for what, asked, known in (("variant", variants, ours), ("model", named[len(variants) :], others)):
        if unknown := [name for name in asked if name not in known]:
            raise SettingError(f"table2 has no {what} {unknown[0]!r}; {nearest(unknown[0].lower(), known)}")
    wanted = [name for name in (*ours, *others) if name in named or not named]
    found: list[Regression] = []
    for variant in recipe["variants"]:
        if variant in wanted:
            settings, whole = _settings(Settings(variant=variant, **recipe["settings"]), recipe["quick"], quick, epochs)
            found.append(Regression(variant, settings, ratios, whole))
    if GEOMETRIC in wanted:
        kept = {name: own[name] for name in ("num_radial", "cutoff", "loss", "readouts", "references")}
        settings, whole = _settings(Settings(**own["settings"]), own["quick"], quick, epochs)
        found.append(GeometricRegression(GEOMETRIC, settings, ratios, whole, **kept))
    for model, asked in zip(others, theirs["systems"].values()):
        if model in wanted:
            kept = {name: asked[name] for name in ("loss", "precision")}
            settings, whole = _settings(baseline_settings(**asked["settings"]), theirs["quick"], quick, epochs)
            found.append(BaselineRegression(model, settings, ratios, whole, **kept))
    return found


def _settings(whole: Settings, small: dict[str, Any], quick: bool, epochs: int | None) -> tuple[Settings, int]:
    """The settings of a row, and how many epochs the recipe has."""
    settings = replace(whole, **small) if quick else whole
    recipe = settings.epochs
    if epochs is not None and epochs != recipe:
        if epochs > recipe:
            raise SettingError(f"--epochs {epochs}: this recipe has {recipe}, and only fewer can be asked for")
        every = max(1, round(settings.decay_every * epochs / recipe))
        falls = (recipe / settings.decay_every) / (epochs / every)
        settings = replace(settings, epochs=epochs, decay_every=every, decay=settings.decay**falls)
    return settings, recipe


def markdown(out: Path) -> str:
    """The table as Markdown, from the result files: a row a target."""
    found = {r["variant"]: r for r in map(read_json, sorted((out / "table2").glob("*-seed*.json")))}
    others = other_systems()
    measured = {row: found[model] for row, model in others.items() if model in found}
    table, units = published()["table2"]["mae"], published()["table2"]["units"]
    theirs = [variant for variant, printed in OURS.items() if printed in table]
    ours = [variant for variant in theirs if variant in found]
    heads: list[str] = []
    for variant in theirs:
        heads += [f"{OURS[variant]}, here{_star(found[variant])}"] if variant in found else []
        heads.append(f"{OURS[variant]}, in the paper")
    heads += [f"geometric soft-mask, ours{_star(found[v])}" for v in found if v == GEOMETRIC]
    for other in others:
        heads += [f"{other}, here{_star(measured[other])}"] if other in measured else []
        heads.append(f"{other}, in the paper")
    lines = [f"| target, unit | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    reached = first = beyond = ahead = 0
    missed: dict[str, list[str]] = {}
    for target, unit in units.items():
        cells: list[str] = []
        best = np.inf
        for variant in theirs:
            there = table[OURS[variant]][target]
            if variant in found:
                here = found[variant]["test_mae"][target]
                cells.append(_measured(here))
                reached += here <= there
                if here > there:
                    missed.setdefault(OURS[variant], []).append(f"{target} (+{here / there - 1:.0%})")
                best = min(best, here)
            cells.append(_short(there))
        quoted = [table[other][target] for other in others]
        here_too = {other: record["test_mae"][target] for other, record in measured.items()}
        if GEOMETRIC in found:
            here = found[GEOMETRIC]["test_mae"][target]
            cells.append(_measured(here))
            best = min(best, here)
            # First of the whole table: of all that the paper prints.
            beyond += here <= min(row[target] for row in table.values())
        first += bool(best <= min(quoted))
        ahead += bool(here_too) and bool(best <= min(here_too.values()))
        for other, there in zip(others, quoted):
            cells += [_measured(here_too[other])] if other in measured else []
            cells.append(_short(there))
        lines.append(f"| {target}, {unit} | {' | '.join(cells)} |")
    said = ""
    if ours or GEOMETRIC in found:
        said = f"Our best row is at or below the quoted DTNN, MPNN and PPGNN on {first} of {len(units)} targets"
        said += f", and at or below {' and '.join(measured)} as measured here on {ahead}. " if measured else ". "
    if ours:
        above = "; ".join(f"{name} on {', '.join(targets)}" for name, targets in missed.items())
        above = f", and above are {above}" if above else ""
        said = f"{reached} of {len(ours) * len(units)} figures are at or below the paper's{above}. " + said
    lines += ["", said + "Mean absolute errors on the test part; the epoch is chosen by the validation part."]
    if short := [f"{_name(v)} {_share(record)}" for v, record in found.items() if _star(record)]:
        lines += ["", f"\\* fewer epochs than the recipe has, and so not what it gives: {'; '.join(short)}."]
    if GEOMETRIC in found:
        lines += ["", _about(found[GEOMETRIC], beyond, len(units))]
    if times := [_time(v, r) for v, r in found.items() if r["seconds_an_epoch"]]:
        lines += ["", f"An epoch of all targets took {'; '.join(times)}."]
    missing = [OURS[variant] for variant in theirs if variant not in found]
    missing += [other for other in others if other not in measured]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    if sets := sorted({str(r["data"]) for r in found.values()} - {"qm9"}):
        said = f"Made on {', '.join(sets)}: this shows that the recipe works, and its numbers mean nothing."
        lines = [f"**{said}**", "", *lines]
    return "\n".join(lines) + "\n"


def other_systems() -> dict[str, str]:
    """The rows of the paper's that are other systems', and the model that stands for each, as ``--model`` has it."""
    return {row: asked["settings"]["model"] for row, asked in _recipe()["baselines"]["systems"].items()}


def _name(variant: str) -> str:
    """What a row is called in a sentence."""
    return OURS.get(variant) or next((row for row, model in other_systems().items() if model == variant), variant)


def _star(record: dict[str, Any]) -> str:
    return "\\*" if record["cut"] or record["epochs"]["trained"] < record["epochs"]["of"] else ""


def _share(record: dict[str, Any]) -> str:
    """How many epochs a row had, and how many it was to have."""
    trained, asked, whole = record["epochs"]["trained"], record["settings"]["epochs"], record["epochs"]["of"]
    return f"{trained} of {whole}" + (f", cut where it was to have {asked}" if record["cut"] and asked < whole else "")


def _time(variant: str, record: dict[str, Any]) -> str:
    name, device = _name(variant), record["provenance"]["device"]
    each, whole = record["seconds_an_epoch"], record["epochs"]["of"]
    return f"{each:.1f} s for {name} on {device}, {each * whole / 60:.0f} minutes for the recipe's {whole}"


def _about(record: dict[str, Any], beyond: int, targets: int) -> str:
    """What must be known to read the geometric row."""
    by_readout: dict[str, list[str]] = {}
    for target, readout in record["readouts"].items():
        by_readout.setdefault(readout, []).append(target)
    kinds = "; ".join(f"{readout}: {', '.join(names)}" for readout, names in by_readout.items())
    alone = record.get("constant_mae", {})
    without = ", ".join(f"{target} {_short(alone[target])}" for target in record["references"] if target in alone)
    return (
        "The geometric soft-mask model is ours, not the paper's, and first of all that the paper prints on "
        f"{beyond} of {targets} targets. It sees the positions of all atoms, as DTNN and PPGNN do in their own papers, "
        "where the paper's SMG rows see bonds and their lengths. Readouts by target: "
        f"{kinds}. From {', '.join(record['references'])} what is linear in the atoms is subtracted before training, "
        "fitted on the training part alone; that leaves errors and their units as they are."
        + (f" With nothing learned beside it, the errors would be: {without}." if without else "")
    )


def _measured(value: float) -> str:
    """Three digits, the last ones too if they are zero."""
    return f"{value:#.3g}".rstrip(".")


def _short(value: Any) -> str:
    return f"{value:.3g}"
