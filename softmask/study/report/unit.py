"""How the metric of a study is written: accuracies in percent, errors in their own unit."""

import math
from dataclasses import dataclass

import numpy as np

from softmask.study.record import Record

MISSING = "-"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Unit:
    """A metric and how its values are written.

    Args:
        metric: its name, such as ``"accuracy"``.
        factor: what values are multiplied with before they are written.
        suffix: what stands behind a number in a sentence: ``" %"``.
        sign: what stands behind the name on an axis or over a table: ``"%"``.
        digits: after the point.
    """

    metric: str
    factor: float
    suffix: str
    sign: str
    digits: int

    def number(self, value: float | None) -> str:
        """The bare number, for a table whose head names the unit."""
        if value is None or not math.isfinite(value):
            return MISSING
        return f"{self.factor * value:.{self.digits}f}"

    def quantity(self, value: float | None) -> str:
        """The number with its unit, for a sentence."""
        number = self.number(value)
        return number if number == MISSING else number + self.suffix

    def difference(self, value: float) -> str:
        """A difference of two values: of accuracies, in percentage points."""
        return f"{self.number(value)} percentage points" if self.sign == "%" else self.quantity(value)

    @property
    def title(self) -> str:
        """The name with its unit, for axes and heads of tables."""
        return f"{self.metric}, {self.sign}" if self.sign else self.metric


def unit_of(record: Record) -> Unit:
    """The unit of a study's metric; for errors, with four significant digits of the study's own numbers."""
    metric = str(record.question["metric"])
    if record.classes:
        return Unit(metric, 100, " %", "%", 1)
    size = _typical(record)
    # Small errors (Hartree) would fill a table with zeros; a power of a thousand goes to the head instead.
    power = 3 * math.ceil(-math.log10(size) / 3) if size < 0.1 else 0
    raised = f"10{str(-power).translate(_RAISED)}"
    digits = min(max(3 - math.floor(math.log10(size * 10**power)), 0), 6)
    return Unit(
        metric, 10.0**power, f" \N{MULTIPLICATION SIGN} {raised}" if power else "", raised if power else "", digits
    )


def _typical(record: Record) -> float:
    figures = (record.result or {}).get("figures") or {}
    means = [abs(figure["mean"]) for figure in figures.values() if figure.get("mean")]
    if not means:
        values = [record.metrics[f"{part}_metric"] for part in ("test", "validation", "train")]
        means = [float(np.median(v[np.isfinite(v)])) for v in values if np.isfinite(v).any()]
    means = [mean for mean in means if math.isfinite(mean) and mean > 0]
    return min(means, default=1.0)
