"""One set, the paper's settings, 10 folds: the usual way and the fleet, on equal work, in one run."""

from collections.abc import Callable
from statistics import mean, median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from softmask.bench.attempt import attempt
from softmask.bench.ceilings import Ceilings, measure_ceilings
from softmask.bench.clock import Timing, forget, once, peak_bytes, timed
from softmask.bench.floor import floor
from softmask.bench.usual import UsualFold, usual_graphs
from softmask.data.features import Features
from softmask.data.splits import stratified_folds
from softmask.data.store import GraphStore
from softmask.device import freed_memory_kept, matmul_precision
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.precision import Precision
from softmask.paper import paper_settings
from softmask.study.settings import Settings

FOLDS = 10
_MOST_ROUNDS = 5
_USUAL = (
    "train and evaluate the test part, one fold after the other, in float32; after a warm-up on the first fold, "
    "{fold_epochs} epochs of a fold were timed, on {folds_timed} of {folds} folds in turn; their mean counts for each "
    "of the {replicas} models (folds x runs)"
)


def compare(
    name: str,
    store: GraphStore,
    settings: Settings | None = None,
    runs: int = 1,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    seconds: float = 20.0,
    ceilings: Ceilings | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:
    """Times an epoch of all folds the usual way and as a fleet: train, then evaluate the test part.

    A side that fails is recorded as such, ``{"failed": message}``, its traceback goes to the standard error, and the
    ratio is ``None``.

    Args:
        name: of the set.
        store: its graphs, with classes.
        settings: of the models; by default the paper's for this name.
        runs: cross validations side by side, so that there are ``10 * runs`` replicas.
        device: where to compute.
        precision: of the fleet; the usual way computes in float32.
        seconds: about how long each side is measured, beyond its warm-up or compilation.
        ceilings: of the device, if they were measured in this run.
        say: called with what is being done.

    Returns:
        The record, plain JSON; see ``docs/speed.md``.
    """
    settings = paper_settings(name) if settings is None else settings
    if runs < 1:
        raise SettingError(f"runs must be at least 1, got {runs}")
    if not seconds > 0:
        raise SettingError(f"seconds must be positive, got {seconds}")
    if store.y is None or store.y.is_floating_point():
        raise SettingError(f"{name} has no classes; the benchmark trains classifiers")
    device = torch.device(device)
    store = store.to("cpu")
    if ceilings is None:
        say(f"{name}: ceilings")
        ceilings = measure_ceilings(device, precision, min(seconds, 2.0))
    features = Features.of(store)
    replicas = make_replicas(store, settings, runs)
    say(f"{name}: the usual way")
    forget(device)
    usual = attempt(_usual, store, features, replicas, settings, device, seconds)
    say(f"{name}: the fleet, compiling" if device.type == "cuda" else f"{name}: the fleet")
    forget(device)
    fleet = attempt(_fleet, store, features, replicas, settings, device, precision, seconds, ceilings)
    forget(device)
    failed = "failed" in usual or "failed" in fleet
    return {
        "name": name,
        "graphs": store.num_graphs,
        "nodes": store.num_nodes,
        "edges": store.num_edges,
        "data_hash": store.content_hash(),
        "settings": settings.to_json(),
        "folds": FOLDS,
        "runs": runs,
        "replicas": len(replicas),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "ceilings": ceilings.to_json(),
        "usual": usual,
        "fleet": fleet,
        "ratio": None if failed else usual["ms_per_epoch"] / fleet["ms_per_epoch"],
    }


def make_replicas(store: GraphStore, settings: Settings, runs: int) -> list[Replica]:
    """The 10 folds of each run, as ``softmask evaluate`` makes them with seed 0."""
    assert store.y is not None
    y = np.asarray(store.info["classes"])[store.y.numpy()]
    return [
        Replica(run * 1000 + fold, train, {"test": test}, settings.lr, settings.decay, settings.decay_every)
        for run in range(runs)
        for fold, (train, test) in enumerate(stratified_folds(y, FOLDS, run))
    ]


def _usual(
    store: GraphStore,
    features: Features,
    replicas: list[Replica],
    settings: Settings,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    graphs = usual_graphs(store, features)
    outputs = len(store.info["classes"])
    # The folds of the first run stand for all: the others have as many graphs.
    folds = [
        UsualFold(graphs, np.asarray(r.train), np.asarray(r.evaluate["test"]), outputs, settings, device)
        for r in replicas[:FOLDS]
    ]
    _, warm_up = folds[0].train(seconds)
    folds[0].evaluate()
    train: list[float] = []
    evaluate: list[float] = []
    end = perf_counter() + seconds
    while not train or (len(train) < _MOST_ROUNDS * FOLDS and perf_counter() < end):
        fold = folds[len(train) % FOLDS]
        train.append(1e3 * once(fold.train, device))
        evaluate.append(1e3 * once(fold.evaluate, device))
    epochs = [a + b for a, b in zip(train, evaluate)]
    timed_folds = min(len(train), FOLDS)
    how = {"fold_epochs": len(train), "folds_timed": timed_folds, "folds": FOLDS, "replicas": len(replicas)}
    return {
        "ms_per_epoch": mean(epochs) * len(replicas),
        "train_ms_per_epoch": mean(train) * len(replicas),
        "ms_per_fold_epoch": {
            "mean": mean(epochs),
            "median": median(epochs),
            "least": min(epochs),
            "most": max(epochs),
        },
        "fold_epochs": len(train),
        "folds_timed": timed_folds,
        "warm_up_batches": warm_up,
        "peak_bytes": peak_bytes(device),
        "how": _USUAL.format(**how),
    }


def make_fleet(
    store: GraphStore,
    features: Features,
    replicas: list[Replica],
    settings: Settings,
    device: torch.device,
    precision: Precision,
) -> Fleet:
    """A fleet of classifiers as the settings say."""
    return Fleet(
        lambda: settings.build(features, len(store.info["classes"]), "classification"),
        store,
        features(store),
        replicas,
        batch_size=settings.batch_size,
        device=device,
        precision=precision,
    )


def _fleet(
    store: GraphStore,
    features: Features,
    replicas: list[Replica],
    settings: Settings,
    device: torch.device,
    precision: Precision,
    seconds: float,
    ceilings: Ceilings,
) -> dict[str, Any]:
    begin = perf_counter()
    fleet = make_fleet(store, features, replicas, settings, device, precision)
    built = perf_counter() - begin
    steps = len(fleet.order)

    def evaluate() -> None:
        for program in fleet.evaluations:
            program()

    def epoch() -> None:
        fleet.train_epoch()
        evaluate()

    with matmul_precision(fleet.tf32), freed_memory_kept(device):
        first = once(epoch, device)
        whole = timed(epoch, device, seconds / 2)
        training = timed(fleet.train_epoch, device, seconds / 4)
        evaluation = timed(evaluate, device, seconds / 4)
    step_ms = 1e3 * training.median / steps
    sizes = store.sizes.numpy()
    nodes = sum(int(sizes[np.asarray(r.train)].sum()) for r in replicas) / steps
    least = floor(nodes, settings.hidden, settings.layers, ceilings)
    return {
        "ms_per_epoch": 1e3 * whole.median,
        "epoch_ms": _ms(whole),
        "train_ms": _ms(training),
        "evaluate_ms": _ms(evaluation),
        "steps_per_epoch": steps,
        "ms_per_step": step_ms,
        "build_s": built,
        "first_epoch_s": first,
        "nodes_computed": round(fleet.graphs.nodes_computed),
        # With levels every batch is as large as it is.
        "padding": fleet.train_plans[0].padding if fleet.graphs.levels is None else 0.0,
        "test_padding": fleet.parts["test"].plans[0].padding if fleet.graphs.levels is None else 0.0,
        "floor": least,
        "step_over_floor": step_ms / least["ms"],
        # Of the products alone; what else a step does is not counted as useful.
        "share_of_matrix_rate": least["arithmetic_ms"] / step_ms,
        "finite_loss": bool(torch.isfinite(fleet.train_loss).all()),
        "peak_bytes": peak_bytes(device),
        "how": "all replicas in lockstep; medians over samples from an idle device to an idle device, after the first "
        "epoch, which compiles and captures on CUDA; a step is begin and all steps of an epoch, over their number",
    }


def _ms(timing: Timing) -> dict[str, float]:
    return {
        "median": 1e3 * timing.median,
        "least": 1e3 * timing.least,
        "most": 1e3 * timing.most,
        "runs": timing.runs,
    }
