"""Pictures of masks: the graph once for every layer, each node coloured by its mask."""

import io
import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch_geometric.data import Data

from softmask.atomic import atomic_path
from softmask.errors import SettingError, SoftmaskError

PANEL = 2.4  # inches
# Lighter to darker in even steps, so the order of the weights survives a black-and-white printer, and a
# node with mask 0 is as white as the paper: it is out.
COLOURS = "Blues"
# Outlines of the roles; the first one is the background, the others stand out (Okabe and Ito's palette).
OUTLINES = (("#999999", 0.7), ("#D55E00", 1.5), ("#009E73", 1.5), ("#CC79A7", 1.5), ("#E69F00", 1.5))
EDGES = "#A8A8A8"
# Of the nodes' labels, where their letters do not fit into the marks; the most frequent label is a disc.
SHAPES = ("o", "s", "^", "D", "v", "P", "X")
LETTERS = 3  # of a label, at most, that are written into a mark
Engine = Literal["neato", "sfdp"]
# Marks may touch, as the picture sets their size itself. neato would put a small component into a ring of a larger one,
# where it looks like a part of it; sfdp keeps components apart by itself.
_LAYOUT = {"neato": {"overlap": "true", "pack": "20", "packmode": "graph"}, "sfdp": {"overlap": "scale"}}
# How often neato may try, and beyond how many edges nobody counts crossings.
_STARTS, _EDGES = 8, 500
# The largest part of an edge that the marks at its ends may hide, and what the bar and the gaps leave of a panel.
_HIDDEN, _FREE = 0.7, 0.94
_GAP = 7.0  # points, from a panel to the line before it
# One node in so many at most is "a few", and how large, in points, their marks are at least.
_FEW, _SEEN = 20, 6.0
_MOVES = 100  # rounds in which overlapping marks are moved apart
SFDP_ABOVE = 200  # nodes; neato's stress model grows with the square of their number


def draw_masks(
    data: Data,
    masks: Tensor | np.ndarray,
    path: str | Path,
    title: str = "",
    roles: Sequence[str] | None = None,
    predicted: Any = None,
    probability: float | None = None,
    actual: Any = None,
    engine: Engine | None = None,
    labels: Sequence[str] | None = None,
    place: np.ndarray | None = None,
) -> Path:
    """Draws one graph, layers from left to right, and writes the picture.

    The depth of a node's colour is its mask, from 0 (white) to 1 on the same scale in all layers.

    Args:
        data: one graph, such as ``store[i]``.
        masks: ``[nodes, layers]``, as :func:`node_masks` gives them for this graph.
        path: file to write, ``.svg`` or ``.png``; its folder is made if needed.
        title: a line above the picture.
        roles: names of the roles of ``data.node_role``; nodes are then outlined by their role, with a legend.
        predicted: predicted class or number, for the caption.
        probability: of the predicted class, for the caption.
        actual: class or number as given, for the caption.
        engine: which of Graphviz's programs places the nodes; by default neato, and sfdp from 200 nodes on.
        labels: a short text for each node. They are written into the marks where they fit; else a few different ones
            are told apart by shape, with a legend.
        place: ``[nodes, 2]``, where the nodes are, instead of Graphviz's places.

    Returns:
        The path that was written.
    """
    path = Path(path)
    if path.suffix.lower() not in (".svg", ".png"):
        raise SettingError(f"{path}: a picture is written as .svg or .png; give the file such a name")
    figure = _figure(data, masks, title, roles, predicted, probability, actual, engine, labels, place)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    with atomic_path(path) as spare:
        _save(figure, spare, path.suffix.lower()[1:])
    return path


def masks_svg(data: Data, masks: Tensor | np.ndarray, title: str = "", **options: Any) -> str:
    """The picture of :func:`draw_masks`, with its options, as an ``<svg>`` element to put into a page."""
    given: dict[str, Any] = dict.fromkeys(
        ("roles", "predicted", "probability", "actual", "engine", "labels", "place"), None
    )
    text = io.BytesIO()
    _save(_figure(data, masks, title, **(given | options)), text, "svg")
    written = text.getvalue().decode()
    return written[written.index("<svg") :].strip()


def _figure(
    data: Data,
    masks: Tensor | np.ndarray,
    title: str,
    roles: Sequence[str] | None,
    predicted: Any,
    probability: float | None,
    actual: Any,
    engine: Engine | None,
    labels: Sequence[str] | None,
    place: np.ndarray | None,
) -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SoftmaskError("pictures need matplotlib: pip install 'softmask[draw]'") from None
    table = _table(data, masks)
    role = _roles(data, roles)
    if labels is not None and len(labels) != len(table):
        raise SettingError(f"{len(labels)} labels for the {len(table)} nodes of the graph")
    edges = _edges(data)
    engine = engine or _engine(len(table))
    given = place is not None
    place = np.asarray(place, dtype=np.float64) if given else layout(len(table), edges, engine)
    if place.shape != (len(table), 2) or not np.isfinite(place).all():
        raise SettingError(f"places have shape {list(place.shape)}; this graph needs [{len(table)}, 2], finite")
    diameter = _diameter(place, edges)
    # Not in the crowd around a hub, whose edges would be covered.
    if not given and engine == "neato":
        place = _side_by_side(place, diameter)
    marking = _Marking.of([_clean(label) for label in labels or ()], diameter)

    # Not pyplot: it keeps figures and settings for the whole process.
    lines = _caption_lines(title, predicted, probability, actual, columns=round(15 * PANEL * table.shape[1]))
    text = 0.2 * (len(lines) + (roles is not None) + bool(marking.legend)) + 0.25
    size = (PANEL * table.shape[1] + 0.8, _height(_half(place)) + text)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    _panels(figure, table, place, edges, role, marking, diameter)
    if lines:
        heading = figure.suptitle("\n".join(lines), fontsize=9)
        heading.set_parse_math(False)  # a $ in a name is a $
    handles = [] if roles is None else _role_handles(roles, role)
    _legend(figure, handles + _shape_handles(marking))
    return figure


def _save(figure: Any, file: Any, kind: str) -> None:
    from matplotlib import rc_context

    # Text stays text in the SVG, and ids depend on the content alone.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "softmask"}):
        figure.savefig(file, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else {})


@dataclass(frozen=True, eq=False)
class _Marking:
    """How nodes are marked by their labels: letters inside the marks, or shapes (an index into ``legend``)."""

    letters: list[str] | None = None
    shape: np.ndarray | None = None
    legend: tuple[str, ...] = ()

    @classmethod
    def of(cls, labels: list[str], diameter: float) -> "_Marking":
        if not any(labels):
            return cls()
        if diameter >= 8 and max(map(len, labels)) <= LETTERS:
            return cls(letters=labels)
        names, index, times = np.unique(labels, return_inverse=True, return_counts=True)
        if len(names) > len(SHAPES):
            return cls()
        order = np.argsort(-times, kind="stable")
        return cls(shape=np.argsort(order)[index], legend=tuple(names[order].tolist()))


def layout(num_nodes: int, edges: np.ndarray, engine: Engine | None = None) -> np.ndarray:
    """Places for nodes: ``[nodes, 2]``, by Graphviz: neato, or sfdp for graphs of more than 200 nodes.

    Where neato lets edges cross, or puts nodes upon each other, it tries again from other places, and the layout with
    the fewest faults is taken.
    """
    engine = engine or _engine(num_nodes)
    if engine == "sfdp":
        # It draws from the C library's random numbers before it seeds them, so its first steps depend on whatever ran
        # before in this process: a layout of two nodes brings them into a known state. The first one of a process also
        # complains about a library that the wheel of pygraphviz lacks and that nothing here needs.
        with _quiet():
            _graphviz(2, np.array([[0, 1]]), engine)
        return _graphviz(num_nodes, edges, engine)
    best = _graphviz(num_nodes, edges, engine)
    fewest = faults(best, edges)
    for start in range(1, _STARTS):
        if fewest == 0:
            break
        other = _graphviz(num_nodes, edges, engine, start)
        if (found := faults(other, edges)) < fewest:
            best, fewest = other, found
    return best


def _engine(num_nodes: int) -> Engine:
    return "neato" if num_nodes <= SFDP_ABOVE else "sfdp"


def faults(place: np.ndarray, edges: np.ndarray) -> int:
    """How many pairs of edges cross, and how many nodes are closer to another than half the median edge is long."""
    from scipy.spatial import cKDTree

    edges = np.unique(np.sort(edges.reshape(-1, 2), axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    if not len(edges):
        return 0
    a, b = place[edges[:, 0]], place[edges[:, 1]]
    apart = cKDTree(place).query(place, k=2)[0][:, 1]
    close = int((apart < np.median(np.linalg.norm(a - b, axis=1)) / 2).sum())
    if len(edges) > _EDGES:
        return close
    # Two edges cross if the ends of each lie on different sides of the other.
    side_a, side_b = (_sides(a[:, None], b[:, None], ends[None]) for ends in (a, b))
    apart_by = side_a * side_b < 0
    shared = (edges[:, None, :, None] == edges[None, :, None, :]).any(axis=(2, 3))
    return close + int(np.triu(apart_by & apart_by.T & ~shared, 1).sum())


def _sides(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """On which side of the line from a to b lies c: the sign says."""
    u, v = b - a, c - a
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]


def _graphviz(num_nodes: int, edges: np.ndarray, engine: Engine, start: int | None = None) -> np.ndarray:
    try:
        import pygraphviz
    except ImportError:
        raise SoftmaskError("pictures need pygraphviz: pip install 'softmask[draw]'") from None
    graph = pygraphviz.AGraph(strict=True, directed=False)
    # Without a name a node needs no font.
    graph.graph_attr.update(_LAYOUT[engine] | ({} if start is None else {"start": str(start)}))
    graph.node_attr.update(shape="point", label="", width="0.1")
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(edges.tolist())
    graph.layout(prog=engine)
    places = (graph.get_node(v).attr["pos"].split(",")[:2] for v in range(num_nodes))
    return np.array([[float(c) for c in place] for place in places])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what libraries write to the standard error."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _panels(
    figure: Any,
    table: np.ndarray,
    place: np.ndarray,
    edges: np.ndarray,
    role: np.ndarray,
    marking: _Marking,
    diameter: float,
) -> None:
    from matplotlib.colors import to_rgb
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    layers = table.shape[1]
    axes = figure.subplots(1, layers, squeeze=False)[0]
    middle, half = (place.max(axis=0) + place.min(axis=0)) / 2, _half(place)
    # A few nodes that stand out must be large enough for their colour to be seen inside the outline.
    few = np.flatnonzero((role > 0) & ((role > 0).sum() <= max(1, len(role) / _FEW)) & (diameter < _SEEN))
    # Hubs are drawn last: their neighbours crowd around them.
    order = np.argsort(np.bincount(edges.reshape(-1), minlength=len(table)), kind="stable")
    # All edges are one path, so that where they lie over each other they get no darker than one.
    code = np.tile([Outline.MOVETO, Outline.LINETO], len(edges))
    thin = float(np.clip(8 / np.sqrt(max(len(edges), 1)), 0.2, 0.8))
    # Of a clique they fill the whole area, before which nodes should still be seen.
    pale = float(np.clip((2 * len(edges) / max(len(table), 1) - 6) / 12, 0.0, 0.5))
    colour_of_edges = tuple((1 - pale) * channel + pale for channel in to_rgb(EDGES))
    for k, ax in enumerate(axes):
        lines = PathPatch(Outline(place[edges].reshape(-1, 2), code), fill=False, zorder=1)
        lines.set(edgecolor=colour_of_edges, linewidth=thin, gid=f"layer-{k + 1}-edges")
        ax.add_patch(lines)
        shape = np.zeros(len(table), dtype=int) if marking.shape is None else marking.shape
        for s in np.unique(shape):
            here = order[shape[order] == s]
            colour, width = zip(*(OUTLINES[r % len(OUTLINES)] for r in role[here]))
            marks = ax.scatter(
                *(place[here, 0], place[here, 1], diameter**2),
                **{"c": table[here, k], "cmap": COLOURS, "vmin": 0.0, "vmax": 1.0, "zorder": 2, "marker": SHAPES[s]},
                **{"edgecolors": colour, "linewidths": np.array(width) * min(1.0, diameter / 6)},
            )
            marks.set_gid(f"layer-{k + 1}-nodes" + (f"-{s}" if marking.legend else ""))
            if len(over := few[shape[few] == s]):
                larger = ax.scatter(
                    *(place[over, 0], place[over, 1], _SEEN**2),
                    **{"c": table[over, k], "cmap": COLOURS, "vmin": 0.0, "vmax": 1.0, "zorder": 3, "linewidths": 1.2},
                    **{"edgecolors": [OUTLINES[r % len(OUTLINES)][0] for r in role[over]], "marker": SHAPES[s]},
                )
                larger.set_gid(f"layer-{k + 1}-larger" + (f"-{s}" if marking.legend else ""))
        for v, label in enumerate(marking.letters or ()):
            letters = ax.text(*place[v], label, ha="center", va="center_baseline", parse_math=False, zorder=3)
            # White from where the colour is so deep that black is harder to read.
            letters.set(fontsize=(0.62 if len(label) < 3 else 0.45) * diameter, color="w" if table[v, k] > 0.6 else "k")
        ax.set_title(f"layer {k + 1}", fontsize=9)
        ax.set_aspect("equal")
        ax.set_xlim(*(middle[0] + half[0] * sign for sign in (-1, 1)))
        ax.set_ylim(*(middle[1] + half[1] * sign for sign in (-1, 1)))
        ax.set_axis_off()
        if k:
            _divide(figure, ax, k)
    bar = figure.colorbar(marks, ax=axes, shrink=0.8, aspect=25, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("mask", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _divide(figure: Any, ax: Any, k: int) -> None:
    """A thin line before a panel: a component that lies apart must not read as a part of the next panel."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    at = ax.transAxes + ScaledTranslation(-_GAP / 72, 0, figure.dpi_scale_trans)
    line = Line2D([0, 0], [0, 1], transform=at, color=EDGES, linewidth=0.5, clip_on=False)
    line.set_gid(f"line-{k}")
    ax.add_artist(line)


def _half(place: np.ndarray) -> np.ndarray:
    """Half the width and height of a panel, with room for the outermost marks, also where all nodes lie in one line."""
    extent = np.ptp(place, axis=0)
    return extent / 2 + 0.06 * max(extent.max(), 1.0)


def _height(half: np.ndarray) -> float:
    """Of a panel, in inches."""
    return PANEL * float(np.clip(half[1] / half[0], 0.4, 1.4))


def _side_by_side(place: np.ndarray, diameter: float) -> np.ndarray:
    """The places with overlapping marks moved apart, little by little."""
    from scipy.spatial import cKDTree

    least, place = 1.02 * diameter / _points(place), place.copy()
    for _ in range(_MOVES):
        pairs = cKDTree(place).query_pairs(least, output_type="ndarray")
        if not len(pairs):
            break
        apart = place[pairs[:, 1]] - place[pairs[:, 0]]
        far = np.linalg.norm(apart, axis=1, keepdims=True)
        # Of nodes in one place, which way does not matter.
        way = np.where(far > 0, apart / np.where(far > 0, far, 1), [1.0, 0.0])
        move = way * (least - far) / 4
        np.add.at(place, pairs[:, 0], -move)
        np.add.at(place, pairs[:, 1], move)
    return place


def _points(place: np.ndarray) -> float:
    """How many points of a panel a unit of the places is."""
    half = _half(place)
    return _FREE * 72 * float(min(PANEL / half[0], _height(half) / half[1])) / 2


def _diameter(place: np.ndarray, edges: np.ndarray) -> float:
    """Of a node's mark, in points: smaller where there are many nodes, or where marks would hide edges or others."""
    most = 0.35 * 72 * PANEL / np.sqrt(len(place))
    if len(place) > 1:
        from scipy.spatial import cKDTree

        points = _points(place)
        apart = cKDTree(place).query(place, k=2)[0][:, 1]
        # The closest tenth must not make all the others too small to read.
        most = min(most, points * float(np.quantile(apart, 0.1)))
        if len(edges):
            lengths = np.linalg.norm(place[edges[:, 0]] - place[edges[:, 1]], axis=1)
            most = min(most, points * _HIDDEN * float(np.quantile(lengths, 0.1)))
    return float(np.clip(most, 2.2, 12.0))


def _role_handles(roles: Sequence[str], role: np.ndarray) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = []
    for r in np.unique(role):
        colour, width = OUTLINES[r % len(OUTLINES)]
        handle = Line2D([], [], linestyle="", marker="o", markersize=7, label=_clean(roles[r]))
        handle.set(markerfacecolor="white", markeredgecolor=colour, markeredgewidth=width)
        handles.append(handle)
    return handles


def _shape_handles(marking: _Marking) -> list[Any]:
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {
        "linestyle": "",
        "markersize": 6,
        "markerfacecolor": "white",
        "markeredgecolor": OUTLINES[0][0],
    }
    words = [f"label {w if len(w) <= 30 else w[:29] + chr(0x2026)}" for w in marking.legend]
    return [Line2D([], [], marker=shape, label=word, **look) for shape, word in zip(SHAPES, words)]


def _legend(figure: Any, handles: list[Any]) -> None:
    if not handles:
        return
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def caption(predicted: Any = None, probability: float | None = None, actual: Any = None) -> str:
    """What the model says of a graph in a few words: ``predicted 1 (probability 0.97), class 1``."""
    parts = []
    if predicted is not None:
        chance = "" if probability is None else f" (probability {probability:.2f})"
        parts.append(f"predicted {_figures(predicted)}{chance}")
    if actual is not None:
        number = predicted is not None and probability is None
        parts.append(f"{'actual' if number else 'class'} {_figures(actual)}")
    # Of classes; how far a number may be off is not known here.
    wrong = None not in (predicted, probability, actual) and _figures(predicted) != _figures(actual)
    return ", ".join(parts) + (": wrong" if wrong else "")


def _figures(value: Any) -> str:
    """A class as it is; numbers with four digits that count."""
    if isinstance(value, list | tuple | np.ndarray):
        few = ", ".join(_figures(v) for v in value[:4])
        return few if len(value) <= 4 else f"{few}, ..."
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _caption_lines(title: str, predicted: Any, probability: float | None, actual: Any, columns: int) -> list[str]:
    texts = [text for text in (title, caption(predicted, probability, actual)) if text]
    return [line for text in texts for line in textwrap.wrap(_clean(text), max(columns, 20))[:4]]


def _clean(text: Any) -> str:
    """One line of characters that XML allows."""
    line = " ".join(str(text).split())
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", line)


def _table(data: Data, masks: Tensor | np.ndarray) -> np.ndarray:
    table = np.asarray(masks.detach().cpu() if isinstance(masks, Tensor) else masks, dtype=np.float64)
    if not data.num_nodes:
        raise SettingError("the graph has no nodes to draw")
    if table.ndim != 2 or table.shape[0] != data.num_nodes or table.shape[1] == 0:
        shape = list(table.shape)
        raise SettingError(f"masks have shape {shape}; this graph needs [{data.num_nodes}, layers]")
    if not ((table >= 0) & (table <= 1)).all():
        raise SettingError("masks must be numbers from 0 to 1")
    return table


def _roles(data: Data, roles: Sequence[str] | None) -> np.ndarray:
    if roles is None:
        return np.zeros(data.num_nodes, dtype=np.int64)
    if data.get("node_role") is None:
        raise SettingError("roles were named, but the graph has no node_role")
    role = data.node_role.cpu().numpy().astype(np.int64).reshape(-1)
    if role.min() < 0 or role.max() >= len(roles):
        raise SettingError(f"node_role has the value {role.max()}, but {len(roles)} roles were named")
    return role


def _edges(data: Data) -> np.ndarray:
    """Each pair of neighbours once, without self loops."""
    ends = np.sort(data.edge_index.cpu().numpy().T, axis=1)
    return np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0).reshape(-1, 2)
