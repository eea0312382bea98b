"""Table 1 as Markdown, from the result files."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from softmask.paper.published import OURS, QUICK, best_other, published, table1_accuracy, title
from softmask.paper.table1 import cells, gather, own_rows, row_names, tuning_spans, tunings
from softmask.study.record import read_json

# The row that asks whether the SUM readout converges where the paper takes the MEAN.
_SUM = "m-smg-jk-sum"

Table = dict[tuple[str, str], dict[str, Any]]


class _Score(NamedTuple):
    """Accuracies in per cent: the mean over runs of the mean over folds, their deviation and the mean's error."""

    mean: float
    deviation: float
    error: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.1f} ± {self.deviation:.1f}"


def markdown(out: Path) -> str:
    """The whole table, and how it compares."""
    table = gather(out)
    lines = [
        "| set | variant | ours, paper's protocol\\* | runs | plain, same runs | in the paper | ours, fair | runs | "
        "best other system |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, variant), row in table.items():
        if not row["paper"]:
            continue
        ours, fair = _score(row["paper"]), _score(row["fair"]) if row["fair"] else None
        in_paper = ""
        if variant in OURS:
            theirs, deviation = table1_accuracy(variant, name)
            in_paper = f"{100 * theirs:.1f} ± {100 * deviation:.1f}"
        plain = _plain(table, name, variant)
        cells_ = [
            *(name, row_names()[variant], str(ours), str(ours.runs), "" if plain is None else f"{plain.mean:.1f}"),
            *(in_paper, *(("", "") if fair is None else (str(fair), str(fair.runs))), _other(name)),
        ]
        lines.append(f"| {' | '.join(cells_)} |")
    parts = [
        "\n".join(lines),
        "\\* epoch chosen on the test folds, as in the paper; ± is the standard deviation over folds, averaged over "
        "runs. Rows of our own are compared with the plain variant on the same runs, hence on the same folds. The "
        "paper's protocol has one epoch for all folds, the fair one an epoch for each, and may so be the higher. The "
        "best other system is quoted from the paper.",
    ]
    if any(row["folds"] != 10 for row in table.values()):
        return "\n\n".join([QUICK, *parts]) + "\n"
    parts += [_reached(table), _first(table), _ahead_of_us(table, out), _attributes(table), _converges(table)]
    parts += [_tuned(table, out)]
    parts += [_precisions(table), _time(table, out), _missing(table), _missing_fair(table), _missing_own(table)]
    return "\n\n".join(filter(None, parts)) + "\n"


def summary(out: Path) -> str:
    """A row for each set: our figures under the paper's protocol, the paper's own in brackets; what is first or level
    with the first of all, at one decimal, as the paper prints its own rows, in bold.
    """
    table = gather(out)
    lines = [f"| set | {' | '.join(OURS.values())} | best of ours beyond the paper | best other system |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, made in _by_set(table).items():
        counted = _counted(table, name, made)
        most = max(*(round(made[v].mean, 1) for v in counted), _theirs(name))

        def shown(variant: str) -> str:
            mean = made[variant].mean  # noqa: B023
            return f"**{mean:.1f}**" if variant in counted and round(mean, 1) >= most else f"{mean:.1f}"  # noqa: B023

        printed = {v: f"({100 * table1_accuracy(v, name)[0]:.1f})" for v in OURS}
        cells_ = [f"{shown(v)} {printed[v]}" if v in made else printed[v] for v in OURS]
        # Whether SUM converges is a question, not a way to be better.
        best = max((v for v in made if v not in {*OURS, _SUM}), key=lambda v: made[v].mean, default=None)
        cells_.append("" if best is None else f"{shown(best)} ({_about(table, name, best, made[best])})")
        lines.append(f"| {name} | {' | '.join(cells_)} | {_other(name)} |")
    said = [_reached(table), _first(table), _ahead_of_us(table, out), _attributes(table)]
    said += [_time(table, out), _missing(table), _missing_fair(table)]
    return "\n".join([*lines, "", *(f"- {sentences}" for sentences in said if sentences)]) + "\n"


def _score(runs: dict[int, list[float]]) -> _Score:
    scores = 100 * np.array(list(runs.values()))
    deviation, error = (float(scores.std(axis=1, ddof=ddof).mean()) for ddof in (0, 1))
    return _Score(float(scores.mean()), deviation, error / np.sqrt(scores.shape[1]), len(scores))


def _by_set(table: Table) -> dict[str, dict[str, _Score]]:
    found: dict[str, dict[str, _Score]] = {}
    for (name, variant), row in table.items():
        if row["paper"]:
            found.setdefault(name, {})[variant] = _score(row["paper"])
    return found


def _plain(table: Table, name: str, variant: str) -> _Score | None:
    """Of a row of our own, the plain variant in the same runs."""
    if variant in OURS:
        return None
    plain = next(row["settings"]["variant"] for row in own_rows() if row["variant"] == variant)
    runs = table.get((name, plain), {"paper": {}})["paper"]
    same = {seed: runs[seed] for seed in table[name, variant]["paper"] if seed in runs}
    return _score(same) if len(same) == len(table[name, variant]["paper"]) else None


def _counted(table: Table, name: str, made: dict[str, _Score]) -> list[str]:
    """The rows that may be called first: the paper's, and those of ours that have as many runs as the plain variant.
    One that has fewer would be measured against a mean by the luck of its folds.
    """
    plain = {row["variant"]: row["settings"]["variant"] for row in own_rows()}
    runs = {variant: len(table[name, variant]["paper"]) for variant in made}
    return [v for v in made if v in OURS or runs[v] >= runs.get(plain[v], 1)]


def _about(table: Table, name: str, variant: str, score: _Score) -> str:
    plain = _plain(table, name, variant)
    there = "" if plain is None else f", plain there {plain.mean:.1f}"
    return f"{row_names()[variant]}; {score.runs} {'run' if score.runs == 1 else 'runs'}{there}"


def _other(name: str) -> str:
    other, accuracy = best_other(name)
    return f"{other} {100 * accuracy:.1f}"


def _theirs(name: str) -> float:
    """The first of all rows of the paper's table, at one decimal."""
    best = max(best_other(name)[1], *(table1_accuracy(variant, name)[0] for variant in OURS))
    return round(100 * best, 1)


def _reached(table: Table) -> str:
    """Which of the paper's cells are reached, and what of the others."""
    below, counted, above = [], 0, 0
    for name, made in _by_set(table).items():
        for variant in (v for v in OURS if v in made):
            theirs, ours = 100 * table1_accuracy(variant, name)[0], made[variant]
            counted += 1
            above += round(ours.mean, 1) >= round(theirs, 1)
            if ours.mean < theirs - ours.error:
                tuned = made.get(f"{variant}-tuned")
                said = "not tuned yet" if tuned is None else f"tuned {tuned.mean:.1f}"
                below.append(f"{name} {OURS[variant]} ({ours.mean:.1f}, in the paper {theirs:.1f}; {said})")
    text = (
        f"{counted - len(below)} of {counted} cells reach the paper's figure minus one standard error of our mean over "
        f"folds, {above} of them the figure itself, at one decimal"
    )
    return f"{text}; below are {', '.join(below)}." if below else f"{text}."


def _first(table: Table) -> str:
    """On which sets we are first among all rows of the paper's table."""
    alone, beyond, others, clear, by_set, fewer = [], [], [], 0, _by_set(table), False
    for name, made in by_set.items():
        counted = _counted(table, name, made)
        fewer = fewer or len(counted) < len(made)
        best = max((made[v] for v in counted), key=lambda score: score.mean)
        paper = max((made[v] for v in OURS if v in made), key=lambda score: score.mean, default=None)
        ahead = round(best.mean, 1) - _theirs(name)
        clear += ahead > best.error
        of_others = round(best.mean, 1) - round(100 * best_other(name)[1], 1)
        others += [f"{name} ({_ahead(of_others)})"] if of_others >= 0 else []
        if paper is not None and round(paper.mean, 1) >= _theirs(name):
            alone.append(f"{name} ({_ahead(round(paper.mean, 1) - _theirs(name))})")
        elif ahead >= 0:
            beyond.append(f"{name} ({_ahead(ahead)})")
    with_own = f", and with rows of our own on {', '.join(beyond)}" if beyond else ""
    left = " Rows of our own with fewer runs than the plain variant are not counted." if fewer else ""
    return (
        f"Our best row is first among all rows of the paper's table, the paper's own SMG included, or level with the "
        f"first, on {len(alone) + len(beyond)} of {len(by_set)} sets, at one decimal, as the paper prints its rows: "
        f"with the paper's variants on {', '.join(alone) or 'none'}{with_own}. On {clear} of them it is ahead by more "
        f"than one standard error. Beside the quoted rows of other systems alone it is so on {len(others)}: "
        f"{', '.join(others)}. The best of several rows is itself chosen by what they reach on the test folds.{left}"
    )


def _ahead_of_us(table: Table, out: Path) -> str:
    """Which other systems, as measured here and not as quoted, have more than our best row on the same folds."""
    ours: dict[str, float] = {}
    for (name, _), row in table.items():
        if 0 in row["paper"]:
            ours[name] = max(ours.get(name, 0.0), round(100 * float(np.mean(row["paper"][0])), 1))
    ahead: dict[str, list[str]] = {}
    for path in sorted((out / "baselines").glob("*/*/result.json")):
        name, system = path.parts[-3:-1]
        theirs = 100 * read_json(path)["figures"].get("paper", {"mean": 0.0})["mean"]
        if name in ours and round(theirs, 1) > ours[name]:
            ahead.setdefault(name, []).append(f"{title(system)} {theirs:.1f}")
    said = "; ".join(f"on {name} {', '.join(systems)}, our best {ours[name]:.1f}" for name, systems in ahead.items())
    return f"Of the other systems, measured here on the folds of seed 0, some are ahead of us: {said}." if ahead else ""


def _ahead(points: float) -> str:
    return f"+{points:.1f}" if points > 0.05 else "level"


def _attributes(table: Table) -> str:
    using = {row["variant"]: row["name"] for row in own_rows() if row["settings"].get("attributes")}
    named = [using[variant] for variant in using if any(v == variant for _, v in table)]
    if not named:
        return ""
    return (
        f"{' and '.join(named)}: the model sees the continuous attributes of nodes, which the paper's own rows do not."
    )


def _converges(table: Table) -> str:
    """What M-SMG-JK with the SUM readout does on the sets where the paper takes the MEAN."""
    said = []
    for name, variant in table:
        runs = table[name, variant]["paper"]
        if variant == _SUM and runs and (mean := _plain(table, name, variant)) is not None:
            ours = _score(runs)
            verdict = "it does" if ours.mean >= mean.mean - mean.error else "nor does it"
            said.append(f"{verdict} here on {name} ({ours.mean:.1f} in its best epoch, with MEAN {mean.mean:.1f})")
    if not said:
        return ""
    return f"M-SMG-JK with the SUM readout does not converge on REDDIT, the paper says; {'; '.join(said)}."


def _precisions(table: Table) -> str:
    made = [precision for row in table.values() for precision in row["precisions"]]
    counts = ", ".join(f"{made.count(kind)} in {kind}" for kind in dict.fromkeys(sorted(made)))
    return f"Of the {len(made)} studies, {counts} arithmetic."


def _tuned(table: Table, out: Path) -> str:
    """What the tunings chose."""
    chosen = tunings(out)
    said = [f"{name} {row_names()[v]} ({chosen[name, v]})" for name, v in table if (name, v) in chosen]
    if not said:
        return ""
    return (
        f"Chosen by tuning: {'; '.join(said)}. The validation parts are of folds drawn by another seed, but of the "
        "same graphs: a graph of a test fold here may have been one to choose by there."
    )


def _time(table: Table, out: Path) -> str:
    """Sentences on how long all studies took; where some ran at the same time, it is counted once."""
    paper = {key: row for key, row in table.items() if key[1] in OURS}
    own = {key: row for key, row in table.items() if key[1] not in OURS}

    def took(rows: Iterable[dict[str, Any]], more: Iterable[tuple[str, float, float]] = ()) -> str:
        return _minutes([*(span for row in rows for span in row["spans"]), *more])

    by_runs: dict[int, list[dict[str, Any]]] = {}
    for row in paper.values():
        by_runs.setdefault(max(len(row["paper"]), len(row["fair"])), []).append(row)
    shares = [
        f"{len(rows)} with {runs} {'run' if runs == 1 else 'runs'} of ten folds {took(rows)}"
        for runs, rows in sorted(by_runs.items())
    ]
    on_cpu = [f"{name} {row_names()[v]}" for (name, v), row in own.items() if any(d == "cpu" for d, *_ in row["spans"])]
    where = f" (on the cpu {', '.join(on_cpu)})" if on_cpu else ""
    said = (
        f"{len(paper)} of the paper's 30 cells took {took(paper.values())}, several of them at once: "
        f"{' and '.join(shares)}. The aim was an hour for one run of all, fair figures included."
    )
    if own:
        all_took = took(table.values(), tuning_spans(out))
        said += f" With {len(own)} of our own and all tuning it was {all_took}{where}."
    return f"{said} Time in which several were trained at once counts once; compilation is included."


def _minutes(spans: Iterable[tuple[str, float, float]]) -> str:
    total: dict[str, float] = {}
    until: dict[str, float] = {}
    for device, begin, end in sorted(spans):
        total[device] = total.get(device, 0.0) + max(0.0, end - max(begin, until.get(device, 0.0)))
        until[device] = max(until.get(device, 0.0), end)
    times = {device: round(seconds / 60) for device, seconds in total.items()}
    return " and ".join(f"{n} {'minute' if n == 1 else 'minutes'} on one {device}" for device, n in times.items())


def _missing(made: Collection[tuple[str, str]]) -> str:
    """A line that says which of the paper's cells have not been run."""
    rest = []
    for name in published()["table1"]["accuracy"]["SMG"]:
        lacking = [printed for variant, printed in OURS.items() if (name, variant) not in made]
        if len(lacking) == len(OURS):
            rest.append(name)
        elif lacking:
            rest.append(f"{name} ({', '.join(lacking)})")
    return f"Not run yet: {', '.join(rest)}." if rest else ""


def _missing_fair(table: Table) -> str:
    """Which of the paper's cells have no fair figure yet."""
    rest: dict[str, list[str]] = {}
    for name, variant in table:
        if variant in OURS and not table[name, variant]["fair"]:
            rest.setdefault(name, []).append(OURS[variant])
    named = "; ".join(f"{name} ({', '.join(variants)})" for name, variants in rest.items())
    return f"Fair figures not run yet: {named}." if rest else ""


def _missing_own(made: Collection[tuple[str, str]]) -> str:
    """The same for rows of our own."""
    rest: dict[str, list[str]] = {}
    for cell in cells():
        if cell.variant not in OURS and (cell.name, cell.variant) not in made:
            rest.setdefault(row_names()[cell.variant], []).append(cell.name)
    named = "; ".join(f"{name} ({', '.join(sets)})" for name, sets in rest.items())
    return f"Of our own rows not run yet: {named}." if rest else ""
