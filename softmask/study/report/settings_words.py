"""Settings in words: which are the same in all models of a study, and which tell its settings apart."""

from typing import Any

from softmask.study.record import Record
from softmask.study.report.unit import MISSING


def settings_apart(record: Record) -> tuple[dict[str, Any], list[str]]:
    """The settings that are the same in all models, and the names of those that are not."""
    settings = record.question["settings"]
    names = list(dict.fromkeys(name for s in settings for name in s))
    same = {n: settings[0].get(n) for n in names if all(s.get(n) == settings[0].get(n) for s in settings)}
    return same, [name for name in names if name not in same]


def in_words(record: Record, setting: int) -> str:
    """What tells a setting apart from the others of the study: ``hidden 64, lr 0.001``."""
    values, differing = record.question["settings"][setting], settings_apart(record)[1]
    return ", ".join(f"{name.replace('_', ' ')} {show(values.get(name))}" for name in differing)


def show(value: Any) -> str:
    """A value of a setting or a fact as people read it."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, dict):
        return ", ".join(f"{k} {show(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(show(v) for v in value)
    return str(value)
