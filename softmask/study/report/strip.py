"""The score of every fold as a dot, one row a run, with the mean of each run and of all."""

from typing import Any

import numpy as np

from softmask.study.report.axis import Axis
from softmask.study.report.svg import element, label, text
from softmask.study.report.unit import Unit

WIDTH = 420
LEFT, RIGHT, TOP = 54, 356, 36
ROW, RADIUS = 26, 3.4


def strip_chart(name: str, figure: dict[str, Any], unit: Unit, x: Axis) -> str:
    """The chart as an ``<svg>``.

    Args:
        name: of the figure, for those who cannot see the chart.
        figure: with ``scores`` by run and fold, and their ``mean``.
        unit: how scores are written.
        x: the axis of scores, in the unit; the same for charts that are compared.
    """
    scores = [np.array(row, dtype=float) for row in figure["scores"]]
    row = ROW if len(scores) > 3 else 2 * ROW  # few runs have room for dots that lie side by side
    bottom = TOP + row * len(scores)
    about = f"{name}: {unit.title} of every fold, one row a run; mean {unit.quantity(figure['mean'])}"
    parts = [element("title", text(about))]
    for tick in x.ticks:
        along = float(x.place(tick, LEFT, RIGHT))
        parts.append(element("line", x1=along, x2=along, y1=TOP, y2=bottom, class_="grid"))
        parts.append(label(along, bottom + 17, x.tick_label(tick), text_anchor="middle", class_="tick"))
    parts.append(element("line", x1=LEFT, x2=RIGHT, y1=bottom, y2=bottom, class_="axis"))
    parts.append(label(RIGHT + 8, TOP - 5, "mean", class_="tick"))
    for run, values in enumerate(scores):
        parts += _row(run, values, unit, x, TOP + row * (run + 0.5), row / 2 - RADIUS - 1)
    if np.isfinite(figure["mean"]):
        at = float(x.place(unit.factor * figure["mean"], LEFT, RIGHT))
        parts.append(element("line", x1=at, x2=at, y1=TOP - 6, y2=bottom, class_="mark"))
        anchor = "start" if at < LEFT + 60 else "end" if at > RIGHT - 60 else "middle"
        words = f"mean {unit.quantity(figure['mean'])}"
        parts.append(label(at, TOP - 12, words, text_anchor=anchor, class_="mark-label"))
    parts.append(label((LEFT + RIGHT) / 2, bottom + 36, unit.title, text_anchor="middle", class_="axis-title"))
    size = f"0 0 {WIDTH} {bottom + 44}"
    return element("svg", *parts, viewBox=size, role="img", aria_label=about, class_="chart strip")


def _row(run: int, values: np.ndarray, unit: Unit, x: Axis, middle: float, room: float) -> list[str]:
    parts = [
        label(LEFT - 8, middle + 4, f"run {run + 1}", text_anchor="end", class_="tick"),
        element("line", x1=LEFT, x2=RIGHT, y1=middle, y2=middle, class_="row"),
    ]
    there = np.flatnonzero(np.isfinite(values))
    along = x.place(unit.factor * values, LEFT, RIGHT)
    for fold, aside in zip(there, _aside(along[there], room)):
        said = f"run {run + 1}, fold {fold + 1}: {unit.quantity(float(values[fold]))}"
        spot = {"cx": float(along[fold]), "cy": middle + aside, "r": RADIUS}
        parts.append(element("circle", element("title", text(said)), **spot, class_="fold"))
    if len(there):
        mean = float(values[there].mean())
        at = float(x.place(unit.factor * mean, LEFT, RIGHT))
        parts.append(element("line", x1=at, x2=at, y1=middle - 9, y2=middle + 9, class_="run-mean"))
        parts.append(label(RIGHT + 8, middle + 4, unit.number(mean), class_="tick"))
    return parts


def _aside(along: np.ndarray, room: float) -> list[float]:
    """How far each dot steps off the row so that it does not cover another, as far as there is room."""
    step = 2 * RADIUS
    steps = [0.0] + [sign * k * step / 2 for k in range(1, int(2 * room / step) + 1) for sign in (-1, 1)]
    chosen = [0.0] * len(along)
    placed: list[int] = []
    for i in np.argsort(along, kind="stable"):
        near = [j for j in placed if abs(along[j] - along[i]) < step]

        def clear(s: float, i: int = int(i), near: list[int] = near) -> bool:
            return all(np.hypot(along[j] - along[i], chosen[j] - s) >= step for j in near)

        chosen[i] = next((s for s in steps if clear(s)), 0.0)
        placed.append(int(i))
    return chosen
