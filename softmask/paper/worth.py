"""Is the soft mask worth it: SMG-JK against other systems over the same folds, a sentence for each set, and a table."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from softmask.paper.published import title
from softmask.study.compare import StudyComparison, compare_studies
from softmask.study.figures import NO_EPOCHS
from softmask.study.record import Record

_LEVEL = 0.05


def worth(pairs: dict[tuple[str, str], tuple[Record | None, Record | None]]) -> list[str]:
    """What is said of SMG-JK and each other system on each set, by set and system: a sentence for each set, what the
    sentences mean, and the numbers.

    Args:
        pairs: the studies of SMG-JK and of the other; ``None`` for one that has not been run.
    """
    said, made = [], []
    for name in dict.fromkeys(name for name, _ in pairs):
        found: dict[str, list[str]] = {}
        for system in (s for n, s in pairs if n == name):
            ours, other = pairs[name, system]
            if ours is None or other is None:
                found.setdefault("was not compared with", []).append(title(system))
                continue
            made.append((name, compare_studies(_first(ours, len(other.splits)), other)))
            found.setdefault(_verdict(made[-1][1]), []).append(title(system))
        compared = [c for n, c in made if n == name]
        flattered = compared and compared[0].figure == "paper"
        by = ", with its epoch chosen on the test folds," if flattered else ""
        said.append(f"- {name}: SMG-JK{by} {'; it '.join(f'{v} {_all(s)}' for v, s in found.items())}.")
    return [*said, "", *_meaning([c for _, c in made]), "", *_table(made)] if made else said


def fair_score(ours: Record) -> float:
    """What SMG-JK reaches by the fair figure in its first run, in per cent."""
    result = _first(ours, 1).result
    assert result is not None
    return 100 * float(result["figures"]["fair"]["mean"])


def beside(ours: Record, other: Record) -> str:
    """The fair figure of another system, in per cent, and whether SMG-JK is better on the same folds."""
    found = compare_studies(_first(ours, len(other.splits)), other, "fair")
    words = {"cannot be told apart from": "not told apart", "does better than": "SMG-JK better"}
    return f"{100 * found.mean_b:.1f} ({words.get(_verdict(found), 'SMG-JK worse')})"


def _verdict(found: StudyComparison) -> str:
    p, difference = found.comparison.p, found.comparison.difference
    if not p < _LEVEL:
        return "cannot be told apart from"
    return "does better than" if difference > 0 else "does worse than"


def _all(systems: Sequence[str]) -> str:
    return systems[0] if len(systems) == 1 else f"{', '.join(systems[:-1])} and {systems[-1]}"


def _meaning(made: Sequence[StudyComparison]) -> list[str]:
    """What stands behind every sentence, said once."""
    fair = sum(found.figure == "fair" for found in made)
    by_paper = (
        "The others are by the paper's protocol, for want of a fair figure of SMG-JK; it flatters networks, and not "
        "what trains once. "
    )
    return [
        f"Better or worse is said where p is below {_LEVEL}, by the corrected resampled t-test over the ten test folds "
        "of seed 0, which both systems have: two equally good systems would differ as much in fewer than one of "
        f"{1 / _LEVEL:.0f} such comparisons. Of the {len(made)} comparisons here about {_LEVEL * len(made):.1f} would "
        "come out so by luck if all systems were equally good. It does not say that the difference is large enough to "
        "matter, nor that it holds on other data; and what cannot be told apart need not be equally good: any "
        "difference within the interval fits the scores.",
        "",
        f"{fair} of the {len(made)} are by fair figures. {by_paper if fair < len(made) else ''}Where SMG-JK has ten "
        "runs, it is the first that is paired: its figure here is another than in the table above.",
    ]


def _table(made: Sequence[tuple[str, StudyComparison]]) -> list[str]:
    lines = ["| set | against | figure | SMG-JK | the other | difference, points | 95 % interval | p |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for name, found in made:
        low, high = (f"{100 * end:+.1f}" for end in found.comparison.interval)
        p = "below 0.001" if found.comparison.p < 0.001 else f"{found.comparison.p:.3f}"
        figure = "paper's protocol" if found.figure == "paper" else found.figure
        if found.figure == "paper" and found.label_b == NO_EPOCHS:
            figure += ", SMG-JK alone"
        means = [f"{100 * mean:.1f}" for mean in (found.mean_a, found.mean_b, found.comparison.difference)]
        lines.append(f"| {name} | {found.name_b} | {figure} | {' | '.join(means)} | {low} to {high} | {p} |")
    return lines


def _first(record: Record, runs: int) -> Record:
    """A finished study as if it had had its first runs only, to be paired with one that has no more."""
    assert record.result is not None
    if len(record.splits) <= runs:
        return record
    figures = {}
    for name, figure in record.result["figures"].items():
        scores = figure["scores"][:runs]
        figures[name] = figure | {"scores": scores, "mean": float(np.mean(scores))}
    return replace(record, splits=record.splits[:runs], result=record.result | {"figures": figures})
