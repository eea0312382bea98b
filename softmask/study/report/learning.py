"""Learning curves as a chart: mean lines with bands, their names at their ends, and the chosen epochs."""

import json
from dataclasses import dataclass, field

import numpy as np

from softmask.study.report.axis import Axis
from softmask.study.report.curves import Curve
from softmask.study.report.svg import element, label, text

# A chart is drawn narrow, so that it is still readable on a phone; wide screens put two beside each other.
WIDTH, HEIGHT = 420, 272
LEFT, RIGHT, TOP, BOTTOM = 46, 324, 44, 228
GAP = 15  # between two lines of text
LETTER = 7.6  # the most that a bold letter of a label takes on average, in the widest of the usual fonts


@dataclass(frozen=True)
class Lines:
    """What one chart shows.

    Args:
        title: of the vertical axis, with the unit.
        about: one sentence for those who cannot see the chart.
        curves: by part (``train``, ``validation``, ``test``), in the axis' unit.
        marks: epochs to be marked: the first as a line with `mark_label`, more as ticks beside it.
        mark_label: who chose it.
        behind: faint lines without bands or names, such as the settings that were not chosen.
    """

    title: str
    about: str
    curves: dict[str, Curve]
    marks: list[int] = field(default_factory=list)
    mark_label: str = ""
    behind: list[Curve] = field(default_factory=list)


def learning_chart(lines: Lines, x: Axis, y: Axis) -> str:
    """The chart as an ``<svg>``; values for a read-out are in its attribute ``data-read``."""
    parts = [element("title", text(lines.about)), *_frame(lines.title, x, y)]
    for curve in lines.behind:
        parts.append(element("path", d=_path(_xy(curve.epochs, curve.mean, x, y)), class_="behind"))
    for part, curve in lines.curves.items():
        parts.append(element("path", d=_band(curve, x, y), class_=f"band {part}"))
    parts += _marks(lines, x)
    for part, curve in lines.curves.items():
        places = _xy(curve.epochs, curve.mean, x, y)
        if np.isfinite(curve.mean).sum() == 1:
            [(left, up)] = places[np.isfinite(curve.mean)]
            parts.append(element("circle", cx=left, cy=up, r=3, class_=f"dot {part}"))
        parts.append(element("path", d=_path(places), class_=f"line {part}"))
    parts += _names(lines.curves, y)
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=lines.about,
        class_="chart learning",
        data_read=_read(lines, x),
    )


def _frame(title: str, x: Axis, y: Axis) -> list[str]:
    parts = [label(4, 14, title + (" (logarithmic)" if y.log else ""), class_="axis-title")]
    for tick in y.ticks:
        up = float(y.place(tick, BOTTOM, TOP))
        parts.append(element("line", x1=LEFT, x2=RIGHT, y1=up, y2=up, class_="grid"))
        parts.append(label(LEFT - 6, up + 4, y.tick_label(tick), text_anchor="end", class_="tick"))
    for tick in x.ticks:
        along = float(x.place(tick, LEFT, RIGHT))
        parts.append(element("line", x1=along, x2=along, y1=BOTTOM, y2=BOTTOM + 4, class_="axis"))
        parts.append(label(along, BOTTOM + 17, x.tick_label(tick), text_anchor="middle", class_="tick"))
    parts.append(element("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis"))
    parts.append(label((LEFT + RIGHT) / 2, BOTTOM + 36, "epoch", text_anchor="middle", class_="axis-title"))
    return parts


def _marks(lines: Lines, x: Axis) -> list[str]:
    if not lines.marks:
        return []
    main, *others = lines.marks
    at = float(x.place(main, LEFT, RIGHT))
    parts = [element("line", x1=at, x2=at, y1=TOP - 7, y2=BOTTOM, class_="mark")]
    for epoch in sorted(set(others)):
        along = float(x.place(epoch, LEFT, RIGHT))
        parts.append(element("line", x1=along, x2=along, y1=TOP - 7, y2=TOP, class_="rug"))
    half = LETTER * len(lines.mark_label) / 2
    middle = min(max(at, half), WIDTH - half)
    parts.append(label(middle, TOP - 11, lines.mark_label, text_anchor="middle", class_="mark-label"))
    return parts


def _names(curves: dict[str, Curve], y: Axis) -> list[str]:
    """The name of each line at its end, moved apart where lines end close together."""
    ends = []
    for part, curve in curves.items():
        last = curve.mean[np.isfinite(curve.mean)][-1]
        ends.append((float(y.place(last, BOTTOM, TOP)), part))
    ends.sort()
    places: list[float] = []
    for up, _ in ends:
        places.append(max(up, places[-1] + GAP) if places else up)
    if places and (over := places[-1] - BOTTOM) > 0:
        places[-1] -= over
        for k in range(len(places) - 2, -1, -1):
            places[k] = min(places[k], places[k + 1] - GAP)
    parts = []
    for place, (up, part) in zip(places, ends):
        parts.append(element("path", d=f"M{RIGHT + 1} {up:.1f} {RIGHT + 7} {place:.1f}", class_=f"leader {part}"))
        parts.append(label(RIGHT + 10, place + 4, part, class_=f"name {part}"))
    return parts


def _xy(epochs: np.ndarray, values: np.ndarray, x: Axis, y: Axis) -> np.ndarray:
    return np.stack([x.place(epochs, LEFT, RIGHT), y.place(values, BOTTOM, TOP)], axis=1)


def _path(places: np.ndarray) -> str:
    """A line through places; it breaks where there is none."""
    path, pen = [], "M"
    for along, up in places:
        if np.isfinite(up):
            path.append(f"{pen}{along:.1f} {up:.1f}")
        pen = " " if np.isfinite(up) else "M"
    return "".join(path)


def _band(curve: Curve, x: Axis, y: Axis) -> str:
    there = np.isfinite(curve.mean) & np.isfinite(curve.std)
    epochs, mean, std = curve.epochs[there], curve.mean[there], curve.std[there]
    over, under = _xy(epochs, mean + std, x, y), _xy(epochs, mean - std, x, y)
    return _path(np.concatenate([over, under[::-1]])) + "Z" if len(epochs) else ""


def _read(lines: Lines, x: Axis) -> str:
    """What the page's script shows under the pointer: places, epochs and values, all as drawn."""
    epochs = sorted({int(e) for curve in lines.curves.values() for e in curve.epochs})
    values = {}
    for part, curve in lines.curves.items():
        known = {int(e): float(f"{v:.4g}") for e, v in zip(curve.epochs, curve.mean) if np.isfinite(v)}
        values[part] = [known.get(e) for e in epochs]
    places = [round(float(v), 1) for v in x.place(np.array(epochs), LEFT, RIGHT)]
    return json.dumps({"epochs": epochs, "at": places, "span": [TOP, BOTTOM], "values": values}, separators=(",", ":"))
