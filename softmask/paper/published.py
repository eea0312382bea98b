"""The figures that the paper prints."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from softmask.baselines.registry import BASELINES, title_of

OURS = {"smg": "SMG", "smg-jk": "SMG-JK", "m-smg-jk": "M-SMG-JK"}
"""The paper's names of the variants it reports."""

QUICK = "**The quick form: it shows that the recipe works; its numbers say nothing about the paper.**"
"""What stands above figures that are not to be compared with the paper's."""


@cache
def published() -> dict[str, Any]:
    """Tables 1 and 2 of the paper, by system."""
    return json.loads(files("softmask.paper").joinpath("published.json").read_text(encoding="utf-8"))


def table1_accuracy(variant: str, name: str) -> tuple[float, float]:
    """The paper's accuracy of a variant on a set, and its standard deviation over folds, as fractions."""
    table = published()["table1"]
    return table["accuracy"][OURS[variant]][name] / 100, table["std"][OURS[variant]][name] / 100


def best_other(name: str) -> tuple[str, float]:
    """The best of the other systems of Table 1 on a set, and its accuracy."""
    rows = published()["table1"]["accuracy"].items()
    others = {system: row[name] for system, row in rows if system not in OURS.values() and row[name] is not None}
    best = max(others, key=lambda system: others[system])
    return best, others[best] / 100


def title(system: str) -> str:
    """How a variant or a baseline is printed."""
    return title_of({"model": system} if system in BASELINES else {"variant": system})
