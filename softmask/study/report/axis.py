"""Axes of charts: from values to places, with ticks at round numbers."""

import math
from dataclasses import dataclass

import numpy as np

LOG_ABOVE = 30  # values that differ by more than this factor are drawn on a logarithmic axis


@dataclass(frozen=True)
class Axis:
    """A scale from values to places in a chart.

    Args:
        low, high: the values at its ends.
        ticks: round values between them.
        log: whether equal factors, not equal differences, are equally far apart.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, values: np.ndarray | float, start: float, end: float) -> np.ndarray:
        """Where values lie between `start` and `end`; those off the axis at its nearer end."""
        values = np.clip(np.asarray(values, dtype=float), self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            values, low, high = np.log(values), math.log(low), math.log(high)
        return start + np.asarray(values - low) / (high - low) * (end - start)

    def tick_label(self, tick: float) -> str:
        """A tick as text, all ticks of a linear axis with the same digits after the point."""
        if self.log:
            return f"{tick:,.0f}" if tick >= 1 else f"{tick:g}"
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        if round(step, digits) != round(step, 10):  # steps of 2.5
            digits += 1
        return f"{tick:,.{digits}f}"


def linear(low: float, high: float, about: int = 5, whole: bool = False) -> Axis:
    """An axis that begins and ends at ticks.

    Args:
        low: the least value to be shown.
        high: the greatest.
        about: how many steps are wanted.
        whole: no ticks between whole numbers.
    """
    if not high > low:
        low, high = low - max(abs(low) * 0.1, 1e-9), high + max(abs(high) * 0.1, 1e-9)
    raw = (high - low) / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(s * size for s in (1, 2, 5, 10) if s * size >= raw * 0.999)
    if whole:
        step = max(step, 1.0)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(k * step, 12) for k in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def epochs_axis(last: int) -> Axis:
    """From 0 to the last epoch, which need not be a tick: a curve should end at the end of its axis."""
    axis = linear(0, max(last, 1), about=6, whole=True)
    return Axis(0, max(last, 1), tuple(t for t in axis.ticks if t <= max(last, 1)))


def fitting(means: np.ndarray, low: np.ndarray, high: np.ndarray, percent: bool = False) -> Axis:
    """An axis for mean lines with bands between `low` and `high`; logarithmic where the means span orders of magnitude.

    Args:
        means: what must be shown, all finite.
        low: the lower ends of the bands, all finite.
        high: their upper ends.
        percent: nothing lies below 0 or above 100.
    """
    if percent:
        return linear(max(0.0, float(low.min())), min(100.0, float(high.max())))
    least, most = float(means.min()), float(means.max())
    if least > 0 and most / least > LOG_ABOVE:
        return _logarithmic(least, most)
    bottom = float(low.min())
    return linear(max(0.0, bottom) if least >= 0 else bottom, float(high.max()))


def _logarithmic(low: float, high: float) -> Axis:
    low, high = low / 1.15, high * 1.15
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = math.ceil(len(decades) / 7)
    marks = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [m * 10.0**d for d in decades if d % every == 0 for m in marks]
    return Axis(low, high, tuple(t for t in ticks if low <= t <= high), log=True)
