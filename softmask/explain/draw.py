"""Pictures of masks: the graph once for every layer, each node coloured by its mask."""

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
Engine = Literal["neato", "sfdp"]
# Marks may touch, as the picture sets their size itself. neato would put a small component into a ring of a larger one,
# where it looks like a part of it; sfdp keeps components apart by itself.
_LAYOUT = {"neato": {"overlap": "true", "pack": "20", "packmode": "graph"}, "sfdp": {"overlap": "scale"}}
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
) -> Path:
    """Draws one graph, layers from left to right, and writes the picture.

    The depth of a node's colour is its mask, from 0 (white) to 1 on the same scale in all layers.

    Args:
        data: one graph, such as ``store[i]``.
        masks: ``[nodes, layers]``, as :func:`node_masks` gives them for this graph.
        path: file to write, ``.svg`` or ``.png``; its folder is made if needed.
        title: a line above the picture.
        roles: names of the roles of ``data.node_role``; nodes are then outlined by their role, with a legend.
        predicted: predicted class, for the caption.
        probability: its probability, for the caption.
        actual: class as given, for the caption.
        engine: which of Graphviz's programs places the nodes; by default neato, and sfdp from 200 nodes on.

    Returns:
        The path that was written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise SoftmaskError("pictures need matplotlib: pip install 'softmask[draw]'") from None
    path = Path(path)
    if path.suffix.lower() not in (".svg", ".png"):
        raise SettingError(f"{path}: a picture is written as .svg or .png; give the file such a name")
    table = _table(data, masks)
    role = _roles(data, roles)
    edges = _edges(data)
    place = layout(len(table), edges, engine)

    # Not pyplot: it keeps figures and settings for the whole process.
    lines = _caption_lines(title, predicted, probability, actual, columns=round(15 * PANEL * table.shape[1]))
    extent = np.ptp(place, axis=0) + 1e-9
    height = PANEL * float(np.clip(extent[1] / extent[0], 0.4, 1.4))
    text = 0.2 * (len(lines) + (roles is not None)) + 0.25
    size = (PANEL * table.shape[1] + 0.8, height + text)
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    _panels(figure, table, place, edges, role)
    if lines:
        heading = figure.suptitle("\n".join(lines), fontsize=9)
        heading.set_parse_math(False)  # a $ in a name is a $
    if roles is not None:
        _legend(figure, roles, role)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {path.parent}: {error.strerror}") from None
    kind = path.suffix.lower()[1:]
    # Text stays text in the SVG, and ids depend on the content alone.
    with atomic_path(path) as spare, rc_context({"svg.fonttype": "none", "svg.hashsalt": "softmask"}):
        figure.savefig(spare, format=kind, dpi=200, metadata={"Date": None} if kind == "svg" else {})
    return path


def layout(num_nodes: int, edges: np.ndarray, engine: Engine | None = None) -> np.ndarray:
    """Places for nodes: ``[nodes, 2]``, by Graphviz: neato, or sfdp for graphs of more than 200 nodes."""
    if engine is None:
        engine = "neato" if num_nodes <= SFDP_ABOVE else "sfdp"
    if engine == "sfdp":
        # It draws from the C library's random numbers before it seeds them, so its first steps depend on whatever ran
        # before in this process: a layout of two nodes brings them into a known state. The first one of a process also
        # complains about a library that the wheel of pygraphviz lacks and that nothing here needs.
        with _quiet():
            _graphviz(2, np.array([[0, 1]]), engine)
    return _graphviz(num_nodes, edges, engine)


def _graphviz(num_nodes: int, edges: np.ndarray, engine: Engine) -> np.ndarray:
    try:
        import pygraphviz
    except ImportError:
        raise SoftmaskError("pictures need pygraphviz: pip install 'softmask[draw]'") from None
    graph = pygraphviz.AGraph(strict=True, directed=False)
    # Without a name a node needs no font.
    graph.graph_attr.update(_LAYOUT[engine])
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


def _panels(figure: Any, table: np.ndarray, place: np.ndarray, edges: np.ndarray, role: np.ndarray) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    layers = table.shape[1]
    axes = figure.subplots(1, layers, squeeze=False)[0]
    diameter = _diameter(place)
    # Room for the marks of the outermost nodes, also where all nodes lie in one line.
    middle = (place.max(axis=0) + place.min(axis=0)) / 2
    half = np.ptp(place, axis=0) / 2 + max(np.ptp(place, axis=0).max(), 1.0) * (0.02 + 0.6 * diameter / (72 * PANEL))
    # Hubs are drawn last: their neighbours crowd around them.
    order = np.argsort(np.bincount(edges.reshape(-1), minlength=len(table)), kind="stable")
    colour, width = zip(*(OUTLINES[r % len(OUTLINES)] for r in role[order]))
    # All edges are one path, so that where they lie over each other they get no darker than one.
    code = np.tile([Outline.MOVETO, Outline.LINETO], len(edges))
    thin = float(np.clip(8 / np.sqrt(max(len(edges), 1)), 0.2, 0.8))
    for k, ax in enumerate(axes):
        lines = PathPatch(Outline(place[edges].reshape(-1, 2), code), fill=False, zorder=1)
        lines.set(edgecolor=EDGES, linewidth=thin, gid=f"layer-{k + 1}-edges")
        ax.add_patch(lines)
        marks = ax.scatter(
            *(place[order, 0], place[order, 1], diameter**2),
            **{"c": table[order, k], "cmap": COLOURS, "vmin": 0.0, "vmax": 1.0, "zorder": 2},
            **{"edgecolors": colour, "linewidths": np.array(width) * min(1.0, diameter / 6)},
        )
        marks.set_gid(f"layer-{k + 1}-nodes")
        ax.set_title(f"layer {k + 1}", fontsize=9)
        ax.set_aspect("equal")
        ax.set_xlim(*(middle[0] + half[0] * sign for sign in (-1, 1)))
        ax.set_ylim(*(middle[1] + half[1] * sign for sign in (-1, 1)))
        ax.set_axis_off()
    bar = figure.colorbar(marks, ax=axes, shrink=0.8, aspect=25, pad=0.02, ticks=[0, 0.5, 1])
    bar.set_label("mask", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _diameter(place: np.ndarray) -> float:
    """Of a node's mark, in points: smaller where there are many nodes, or where they are close to each other."""
    most = 0.35 * 72 * PANEL / np.sqrt(len(place))
    if len(place) > 1:
        from scipy.spatial import cKDTree

        apart = cKDTree(place).query(place, k=2)[0][:, 1] * 72 * PANEL / np.ptp(place, axis=0).max()
        # A few may touch: the closest tenth must not make all the others too small to read.
        most = min(most, float(np.quantile(apart, 0.1)))
    return float(np.clip(most, 2.2, 12.0))


def _legend(figure: Any, roles: Sequence[str], role: np.ndarray) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for r in np.unique(role):
        colour, width = OUTLINES[r % len(OUTLINES)]
        handle = Line2D([], [], linestyle="", marker="o", markersize=7, label=_clean(roles[r]))
        handle.set(markerfacecolor="white", markeredgecolor=colour, markeredgewidth=width)
        handles.append(handle)
    legend = figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _caption_lines(title: str, predicted: Any, probability: float | None, actual: Any, columns: int) -> list[str]:
    parts = []
    if predicted is not None:
        chance = "" if probability is None else f" (probability {probability:.2f})"
        parts.append(f"predicted {predicted}{chance}")
    if actual is not None:
        parts.append(f"class {actual}")
    texts = [text for text in (title, ", ".join(parts)) if text]
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
