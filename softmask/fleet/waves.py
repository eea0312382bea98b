"""Fleets larger than the memory: trained wave after wave."""

import gc
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.store import GraphStore
from softmask.device import pick_device
from softmask.errors import CannotRun, SettingError
from softmask.fleet.batches import blocks_of, plan
from softmask.fleet.by_size import classes_for
from softmask.fleet.check import check
from softmask.fleet.fleet import Fleet, OnEpoch
from softmask.fleet.history import History, Trouble
from softmask.fleet.pairs import holds_pairs, places_in
from softmask.fleet.precision import Precision, resolve
from softmask.fleet.replica import Replica
from softmask.fleet.snapshot import Snapshot
from softmask.fleet.stack import check_models
from softmask.nn import GAT, GeometricSoftMaskGNN, SoftMaskGNN
from softmask.ops.pair_blocks import num_pairs

# d-wide vectors a node and layer that a step holds at its peak, and those outside the layers. Measured on an H200:
# 10 replicas of PROTEINS (SMG, d = 128) peaked at 15, of REDDIT-BINARY (SMG-JK, d = 256) at 10 a layer.
_VECTORS_A_LAYER, _VECTORS_BESIDE = 16, 8
# Not measured: GAT keeps 3 for the backward pass, 5 in half precision, and works on some more.
_GAT_VECTORS_A_LAYER = 8
# Not measured: with edge features, a vector for each of 128 channels of the perceptron, its gradient, and a copy.
_EDGE_VECTORS_A_LAYER = 3 * 129
# Not measured: for every pair of nodes the filter, its gradient, its products with the nodes' vectors, and some more.
_PAIR_VECTORS_A_LAYER = 6
# Of the memory that is free; the rest is for what the estimate does not know.
_SHARE = 0.9
# Bytes held for a batch, summed over all batches of a training, from which on the compiler's half a minute pays; each
# size class takes it. Measured on an H200: uncompiled fleets of PROTEINS, NCI1 and COLLAB took 4.3 to 4.4 ms for each
# GB (as estimated) and step, two to three times as long as compiled ones. So this is most of a minute.
_WORTH_COMPILING = 11e12


class SmallerWaveWarning(UserWarning):
    """A fleet did not fit into the memory and is trained in parts."""


def train_in_waves(
    make_model: Callable[[], Module],
    store: GraphStore,
    x: Tensor,
    replicas: Sequence[Replica],
    epochs: int,
    batch_size: int = 128,
    keep: str = "last",
    on_epoch: OnEpoch | None = None,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    memory: int | None = None,
    snapshots: Path | None = None,
    patience: tuple[str, int] | None = None,
    committee: int = 1,
    **options: Any,
) -> tuple[History, Tensor, Tensor]:
    """Trains any number of replicas, as many at a time as the memory holds.

    The arguments are those of :class:`Fleet` and of :meth:`Fleet.train`, and `memory`, the bytes to use at the most (by
    default what is free), and `snapshots`, a folder for the state of every wave, from which an interrupted training
    goes on. What a replica learns does not depend on its wave. If the memory runs out all the same, the wave is halved
    and tried again, with a :class:`SmallerWaveWarning`. With several waves, the epoch given to `on_epoch` is that of
    all waves together, counted to `epochs`. On CUDA the models are compiled where the training is long enough for it.

    Returns:
        The history of all replicas, and the mean and deviation of their targets (see :class:`Fleet`).
    """
    check(store, x, replicas, batch_size, options.get("loss", "cross_entropy"), keep, patience, committee)
    device = pick_device(device)
    with torch.random.fork_rng(devices=[]):
        model = make_model()
    check_models([model])
    shared, each = memory_needs(model, store, replicas, batch_size, resolve(precision, device).compute, device)
    memory = free_memory(device) if memory is None else memory
    wave = min(int((_SHARE * memory - shared) // (committee * each)) * committee, len(replicas))
    if wave < 1:
        mend = "use smaller batches or hidden vectors"
        if holds_pairs(model):
            mend = (
                "it has vectors for all pairs of nodes of a graph, of which the largest graph has "
                f"{int(store.sizes.max())}: leave out the largest graphs, {mend}, or take another model"
            )
        raise CannotRun(
            f"{_one(committee)} needs about {_size(shared + committee * each)} and {_size(memory)} are free on "
            f"{device}, of which {_SHARE:.0%} may be used; {mend}"
        )
    if wave < len(replicas):
        # As few waves as there must be, and about equally large ones.
        waves = -(-len(replicas) // wave)
        wave = -(-len(replicas) // (waves * committee)) * committee
        _warn(f"{len(replicas)} models of about {_size(each)} each are trained {wave} at a time")
    histories: list[History] = []
    scales: list[tuple[Tensor, Tensor]] = []
    fleet: Fleet | None
    held = _held(model, store, replicas, batch_size, resolve(precision, device).compute)
    work = epochs * sum(steps * size for steps, size in held)
    done, stopped = 0, False
    while done < len(replicas) and not stopped:
        now = list(replicas[done : done + wave])

        def report(epoch: int, metrics: dict[str, Tensor]) -> bool | None:
            together = (done * epochs + len(now) * epoch) // len(replicas)  # noqa: B023
            return None if on_epoch is None else on_epoch(together, metrics)

        told = ""
        try:
            fleet = Fleet(
                *(make_model, store, x, now),
                batch_size=batch_size,
                device=device,
                precision=precision,
                committee=committee,
                compiles=len(now) * work > len(held) * _WORTH_COMPILING,
                **options,
            )
            name = f"replicas-{done}-{done + len(now)}.safetensors"
            snapshot = None if snapshots is None else Snapshot(snapshots / name, last=len(now) < len(replicas))
            histories.append(fleet.train(epochs, keep, report, snapshot, patience))
            scales.append((fleet.mean.cpu(), fleet.std.cpu()))
        except torch.OutOfMemoryError as error:
            told = str(error).partition("\n")[0] or "out of memory"
        # Only here, behind the exception, is the wave's memory no longer held by anyone.
        fleet = None
        gc.collect()
        torch.cuda.empty_cache()
        if told:
            if wave == committee:
                raise CannotRun(
                    f"{_one(committee)} does not fit into the memory of {device}; use smaller batches ({told})"
                )
            wave = -(-wave // (2 * committee)) * committee
            _warn(f"out of memory: going on with {wave} models at a time")
            continue
        done += len(now)
        stopped = histories[-1].interrupted
    if stopped and snapshots is None and (done < len(replicas) or len(histories) > 1):
        raise SettingError(f"ended in wave {len(histories)}: its models have fewer epochs than others, so none count")
    return _joined(histories), torch.cat([m for m, _ in scales]), torch.cat([d for _, d in scales])


def memory_needs(
    model: Module,
    store: GraphStore,
    replicas: Sequence[Replica],
    batch_size: int,
    compute: torch.dtype,
    device: torch.device,
) -> tuple[int, int]:
    """About how many bytes a fleet takes while it trains: those that all replicas share, and those of each.

    On the CPU the replicas compute a few at a time, in the same memory, which is counted once: a few small models take
    16 MiB for every tensor of theirs, a large one takes its own. On CUDA all compute at once. A model of which more
    must be known says by its method ``numbers_held(nodes, graphs)`` how many float32 numbers it alone holds for a
    batch. One of all pairs of nodes is asked for ``numbers_held(pairs, graphs)``, in the precision of the arithmetic.
    """
    batch = max(size for _, size in _held(model, store, replicas, batch_size, compute))
    # Parameters, their copy for the arithmetic, gradients, Adam's two averages; their own mean.
    entries = sum(p.numel() for p in model.parameters())
    own = (6 if any(r.average for r in replicas) else 5) * 4 * entries
    return (0, batch + own) if device.type == "cuda" else (batch, own)


def _held(
    model: Module, store: GraphStore, replicas: Sequence[Replica], batch_size: int, compute: torch.dtype
) -> list[tuple[int, int]]:
    """How many batches of each size class an epoch has, and about how many bytes one replica holds for such a batch."""
    held: Callable[[int, int], int] | None = getattr(model, "numbers_held", None)
    found = []
    for size in classes_for(model, store.sizes, batch_size):
        made = plan([size.members(r.train, store.sizes) for r in replicas], store.sizes, size.batch_size)
        if not made.counts.any():  # nobody trains on graphs of that size
            continue
        if held is None:
            numbers, width = made.nodes * _numbers_a_node(model, store), compute.itemsize
        elif holds_pairs(model):
            pairs = num_pairs(blocks_of([made], store.sizes, places_in(model)))
            numbers, width = held(pairs, made.slots), compute.itemsize
        else:
            numbers, width = held(made.nodes, made.slots), max(compute.itemsize, 4)
        found.append((made.steps, numbers * width))
    return found


def _numbers_a_node(model: Module, store: GraphStore) -> int:
    """About how many numbers a model holds for each node of a batch."""
    if isinstance(model, SoftMaskGNN | GAT):
        a_layer = _VECTORS_A_LAYER if isinstance(model, SoftMaskGNN) else _GAT_VECTORS_A_LAYER
        if isinstance(model, SoftMaskGNN) and model.edge_channels is not None:
            a_layer += _EDGE_VECTORS_A_LAYER
        vectors = model.num_layers * a_layer + _VECTORS_BESIDE
        return vectors * model.hidden_channels + model.in_channels
    if isinstance(model, GeometricSoftMaskGNN):
        vectors = model.num_layers * (_VECTORS_A_LAYER + _PAIR_VECTORS_A_LAYER * int(store.sizes.max()))
        return (vectors + _VECTORS_BESIDE) * model.hidden_channels + model.in_channels
    # Nothing is known of another model but its parameters; a matrix of them has as many rows as it gives outputs.
    return 4 * sum(p.size(0) if p.dim() else 1 for p in model.parameters())


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        # Free pages alone would leave out what the system keeps as a cache and gives back when asked.
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _one(committee: int) -> str:
    """What must fit into the memory at once."""
    return "one model" if committee == 1 else f"one committee of {committee} models"


def _size(count: int) -> str:
    """A number of bytes for people to read."""
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.2f} MiB"


def _warn(message: str) -> None:
    warnings.warn(message, SmallerWaveWarning, stacklevel=3)


def _joined(histories: Sequence[History]) -> History:
    if len(histories) == 1:
        return histories[0]
    first = np.cumsum([0, *(len(h.weights) for h in histories)])
    epochs = max(h.epochs for h in histories)

    def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
        # With patience a wave may have ended before another; what it did not train is NaN.
        return np.concatenate([np.pad(a, ((0, 0), (0, epochs - a.shape[1])), constant_values=np.nan) for a in arrays])

    parts = dict.fromkeys(name for h in histories for name in h.loss)

    def part(name: str, arrays: Sequence[dict[str, np.ndarray]]) -> np.ndarray:
        # A wave may lack a part that another has.
        return stacked([a.get(name, np.full_like(h.train_loss, np.nan)) for a, h in zip(arrays, histories)])

    return History(
        train_loss=stacked([h.train_loss for h in histories]),
        train_metric=stacked([h.train_metric for h in histories]),
        loss={name: part(name, [h.loss for h in histories]) for name in parts},
        metric={name: part(name, [h.metric for h in histories]) for name in parts},
        weights=[w for h in histories for w in h.weights],
        epoch=np.concatenate([h.epoch for h in histories]),
        troubles=[
            Trouble(t.replica + int(n), t.seed, t.epoch, t.what) for n, h in zip(first, histories) for t in h.troubles
        ],
        interrupted=any(h.interrupted for h in histories),
    )
