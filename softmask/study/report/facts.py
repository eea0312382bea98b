"""The tables that every report has beside its figures: settings, splits, environment."""

from typing import Any

from softmask.baselines.registry import SOFT_MASK, uses_of
from softmask.study.record import Record
from softmask.study.report import wording
from softmask.study.report.settings_words import settings_apart, show

Rows = list[tuple[str, str]]


def settings_rows(record: Record) -> Rows:
    """The settings that all models share."""
    same = settings_apart(record)[0]
    used = uses_of(str(same.get("model", SOFT_MASK)))
    return [(name.replace("_", " "), show(value)) for name, value in same.items() if used is None or name in used]


def splits_rows(record: Record) -> Rows:
    """How many graphs each part has; runs that are alike in this share a row."""
    alike: dict[str, list[int]] = {}
    for run, split in enumerate(record.splits):
        parts = [f"{name} {_sizes(part)}" for name, part in split.items() if isinstance(part, list)]
        alike.setdefault("; ".join(parts), []).append(run)
    rows = []
    for sizes, runs in alike.items():
        seeds = [int(s) for run in runs if (s := record.splits[run].get("seed")) is not None]
        seed = "" if len(seeds) < len(runs) else f" (split with seed{'s' if len(runs) > 1 else ''} {_span(seeds)})"
        rows.append((f"run{'s' if len(runs) > 1 else ''} {_span([run + 1 for run in runs])}", sizes + seed))
    return rows


def study_rows(record: Record) -> Rows:
    """What was asked."""
    question = record.question
    rows = [
        ("data", wording.data(question)),
        ("data hash", show(question.get("data_hash"))),
        ("graphs", show(question.get("graphs"))),
        ("task", f"{question['task']}, {question['metric']}"),
        ("protocol", show(question["protocol"])),
        ("runs", show(question.get("runs"))),
        ("folds", show(question.get("folds"))),
        ("retrainings per fold", show(question.get("repeats"))),
        ("seed", show(question.get("seed"))),
        ("trained", wording.way(record)),
        ("models", show(wording.models(record))),
        ("time", wording.times(record)),
    ]
    # Only the fair protocol retrains, and only what has weights to draw anew.
    has_fair = question["protocol"] in ("fair", "both") and not wording.only_once(record)
    return [row for row in rows if has_fair or row[0] != "retrainings per fold"]


def provenance_rows(record: Record) -> Rows:
    """Where it was made: commit, versions, device. The command stands by itself in a report."""
    rows = []
    for name, value in record.question.get("provenance", {}).items():
        if name == "versions":
            rows += [(f"{package}", show(v)) for package, v in value.items() if v is not None]
        elif name == "dirty":
            rows += [("source changed since the commit", show(value))] if value is not None else []
        elif name != "command":
            rows.append((name.replace("_", " "), show(value)))
    devices = dict.fromkeys(str(job["device"]) for job in record.jobs.values() if job.get("device"))
    return rows + ([("device of the jobs", ", ".join(devices))] if devices else [])


def command(record: Record) -> str:
    """The command that makes the study."""
    return str(record.question.get("provenance", {}).get("command") or "")


def _sizes(part: list[Any]) -> str:
    if not part or not isinstance(part[0], list):
        return wording.count(len(part), "graph")
    sizes = [len(fold) for fold in part]
    least, most = min(sizes), max(sizes)
    each = f"{least}" if least == most else f"{least} to {most}"
    return f"{wording.count(len(sizes), 'fold')} of {each} graphs, {sum(sizes):,} in all"


def _span(numbers: list[int]) -> str:
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
