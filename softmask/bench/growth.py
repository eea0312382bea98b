"""How time and memory of a training step grow: with the size of a graph, and with the number of replicas."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from softmask.atomic import atomic_path
from softmask.bench.attempt import attempt
from softmask.bench.clock import forget, once, peak_bytes, timed
from softmask.bench.compare import make_fleet
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.data.synthetic import motif
from softmask.device import freed_memory_kept, matmul_precision
from softmask.errors import SettingError
from softmask.fleet import Replica
from softmask.fleet.precision import Precision, precision_name
from softmask.study.settings import Settings

_EDGES_PER_NODE = 10
_LABELS = 10


class Scale(NamedTuple):
    """How far to grow.

    Args:
        nodes: sizes of the one graph of a batch; it has 10 edges a node.
        replicas: numbers of replicas, each with a batch of `graphs` graphs of some forty nodes.
        graphs: in a batch, where the replicas grow.
        hidden, layers: of the model.
    """

    nodes: Sequence[int]
    replicas: Sequence[int]
    graphs: int
    hidden: int
    layers: int = 2


def scale_for(device: torch.device) -> Scale:
    """To a million nodes, ten million edges and 200 replicas; with smaller batches and vectors on the CPU."""
    nodes, replicas = (100_000, 250_000, 500_000, 750_000, 1_000_000), (1, 10, 50, 100, 150, 200)
    return Scale(nodes, replicas, 64, 64) if device.type == "cuda" else Scale(nodes, replicas, 4, 16)


def growth(
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    seconds: float = 20.0,
    scale: Scale | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Measures both growths: points, and for each a straight line with the share of the spread it explains (R^2).

    A point that fails, for want of memory say, is recorded as such and left out of the lines.

    Args:
        device: where to compute.
        precision: of the fleet.
        seconds: about how long all points of one growth are measured, beyond their compilation.
        scale: how far; by default :func:`scale_for` the device.
        say: called with what is being done.
    """
    device = torch.device(device)
    scale = scale_for(device) if scale is None else scale
    settings = Settings(variant="smg", hidden=scale.hidden, layers=scale.layers, batch_size=scale.graphs)
    by_nodes = []
    for nodes in scale.nodes:
        say(f"growth: {nodes:,} nodes")
        store = cycles(nodes)
        features = Features.of(store)
        point = attempt(
            _step, store, features, [Replica(0, [0])], settings, device, precision, seconds / len(scale.nodes)
        )
        by_nodes.append({"nodes": nodes, "edges": store.num_edges // 2} | point)
    small = motif(scale.graphs, seed=0)
    features = Features.of(small)
    by_replicas = []
    for count in scale.replicas:
        say(f"growth: {count} replicas")
        replicas = [Replica(seed, np.arange(scale.graphs)) for seed in range(count)]
        point = attempt(_step, small, features, replicas, settings, device, precision, seconds / len(scale.replicas))
        by_replicas.append({"replicas": count, "nodes": count * small.num_nodes} | point)
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "precision": precision_name(precision, device),
        "settings": settings.to_json(),
        "nodes": _with_lines(by_nodes, "nodes"),
        "replicas": _with_lines(by_replicas, "replicas"),
    }


def cycles(nodes: int, seed: int = 0) -> GraphStore:
    """One graph: ten random cycles through all nodes, so that every node has 20 neighbours anywhere in memory."""
    rng = np.random.default_rng(seed)
    columns = []
    for _ in range(_EDGES_PER_NODE):
        order = rng.permutation(nodes)
        after, before = np.empty_like(order), np.empty_like(order)
        after[order] = np.roll(order, -1)
        before[order] = np.roll(order, 1)
        columns += [after, before]
    col = np.sort(np.stack(columns, axis=1).astype(np.int32), axis=1).reshape(-1)
    return GraphStore(
        node_ptr=torch.tensor([0, nodes]),
        row_ptr=torch.arange(nodes + 1) * len(columns),
        col=torch.from_numpy(col),
        node_label=torch.from_numpy(rng.integers(0, _LABELS, (nodes, 1)).astype(np.int32)),
        y=torch.zeros(1, dtype=torch.int64),
        info={"name": "cycles", "classes": [0, 1], "seed": seed},
    )


def line(x: Sequence[float], y: Sequence[float]) -> dict[str, float]:
    """The straight line through the points by least squares, and R^2, the share of the spread it explains."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = np.asarray(y) - (slope * np.asarray(x) + intercept)
    spread = float(np.square(np.asarray(y) - np.mean(y)).sum())
    r2 = 1 - float(np.square(rest).sum()) / spread if spread > 0 else 1.0
    return {"slope": float(slope), "intercept": float(intercept), "r2": r2}


def _step(
    store: GraphStore,
    features: Features,
    replicas: list[Replica],
    settings: Settings,
    device: torch.device,
    precision: Precision,
    seconds: float,
) -> dict[str, float]:
    forget(device)
    fleet = make_fleet(store, features, replicas, settings, device, precision)

    def step() -> None:
        fleet.begin()
        fleet.steps[0]()

    with matmul_precision(fleet.tf32), freed_memory_kept(device):
        first = once(step, device)
        timing = timed(step, device, seconds)
    return {
        "ms_per_step": 1e3 * timing.median,
        "first_step_s": first,
        "peak_bytes": peak_bytes(device),
        "padding": fleet.train_plans[0].padding,
    }


def _with_lines(points: list[dict[str, Any]], by: str) -> dict[str, Any]:
    points, failed = [p for p in points if "failed" not in p], [p for p in points if "failed" in p]
    if len(points) < 2:
        raise SettingError(f"growth by {by}: all points but {len(points)} failed, so there is no line to draw")
    x = [p[by] for p in points]
    lines = {what: line(x, [p[what] for p in points]) for what in ("ms_per_step", "peak_bytes")}
    return {"points": points, "failed": failed, "lines": lines}


def plot(record: dict[str, Any], path: Path) -> None:
    """Draws the points and their lines: time and memory, by nodes and by replicas. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, 2)
    kinds = (("ms_per_step", "ms per training step", 1.0), ("peak_bytes", "peak memory, GB", 1e-9))
    for column, by in zip(grid.T, ("nodes", "replicas")):
        points = record[by]["points"]
        x = np.array([p[by] for p in points])
        shown = x / 1000 if by == "nodes" else x
        for axes, (what, label, unit) in zip(column, kinds):
            fit = record[by]["lines"][what]
            axes.plot(shown, unit * (fit["slope"] * x + fit["intercept"]), "-", color="tab:grey", linewidth=1)
            axes.plot(shown, [unit * p[what] for p in points], "o", color="tab:blue", clip_on=False)
            axes.set_title(f"R² = {fit['r2']:.4f}", fontsize=10)
            axes.set_xlabel(f"thousand nodes of one graph, {_EDGES_PER_NODE} edges each" if by == "nodes" else by)
            axes.set_ylabel(label)
            axes.set_xlim(left=0)
            axes.set_ylim(0, 1.1 * unit * max(p[what] for p in points))
    figure.suptitle(f"{record['device']}: growth of a training step")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")
