"""One model trained by many processes on one set, each working on its own share of the graphs."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel

from softmask.data.features import Features, UnseenFeatureWarning
from softmask.data.store import GraphStore
from softmask.device import matmul_precision
from softmask.errors import SettingError
from softmask.fleet.batches import plan
from softmask.fleet.fleet import _DROPOUT, _SHUFFLE, OnEpoch
from softmask.fleet.history import History, find_troubles
from softmask.fleet.losses import LOSSES, METRICS, check_loss
from softmask.fleet.precision import Precision, resolve
from softmask.fleet.ranks import Ranks
from softmask.fleet.replica import Replica
from softmask.fleet.shares import Share, ShareBatch
from softmask.fleet.targets import scaled_targets
from softmask.nn import KeyedDropout, SoftMaskGNN
from softmask.ops.keyed import fold_key


def train_data_parallel(
    make_model: Callable[[], Module],
    store: GraphStore,
    features: Features,
    replica: Replica,
    epochs: int,
    ranks: Ranks,
    batch_size: int = 128,
    loss: str = "cross_entropy",
    precision: Precision = "auto",
    on_epoch: OnEpoch | None = None,
) -> tuple[History, Tensor, Tensor]:
    """Trains one model on many ranks; all of them call this with the same arguments, and all get the same result.

    That result is the one of a :class:`~softmask.fleet.Fleet` of this one replica, up to rounding, for any number of
    ranks: every rank deals the same batches from the seed and takes its slots of each
    (:func:`~softmask.fleet.shares.divide`). Graphs keep their slots, so that dropout, which is keyed by slot, drops
    what it would drop on one rank. The loss of a rank is that of its graphs over the count of the whole batch, so the
    sum of the gradients over ranks is the gradient of the whole batch.

    Args:
        make_model: builds the model, called under the replica's seed (see :class:`~softmask.fleet.Fleet`).
        store: the graphs, with targets, mapped into memory (:func:`softmask.data.files.load_store`). A rank holds a
            few numbers for each graph, and nodes and edges of no more than two of its batches.
        features: what the model sees of a node (:func:`~softmask.fleet.shared_features.shared_features`).
        replica: the seed, the parts and the rates.
        epochs: how often every training graph is seen.
        ranks: the processes (:func:`~softmask.fleet.ranks.joined_ranks`).
        batch_size: the most graphs in a batch of all ranks together.
        loss: ``"cross_entropy"``, ``"mse"`` or ``"mae"``.
        precision: ``"float64"``, ``"float32"`` or ``"tf32"``; ``"auto"`` is TF32 on CUDA and float32 on the CPU.
        on_epoch: called on every rank after every epoch; the training ends if it returns True on any.

    Returns:
        The history of the one replica, and mean and deviation of its targets, ``[1, outputs]``.
    """
    _check(store, replica, epochs, batch_size, loss, ranks)
    dtype, tf32 = _resolve(precision, ranks.device)
    y, mean, std = scaled_targets(store, [replica])
    y = y[0].to(dtype) if y.is_floating_point() else y
    # What the model does not look at is never read.
    graphs = dataclasses.replace(store, edge_label=None, edge_attr=None, node_role=None, pos=None, y=None, info={})

    def share(ids: np.ndarray | Sequence[int]) -> Share:
        return Share(graphs, y, features, plan([ids], store.sizes, batch_size), ranks, dtype)

    train, parts = share(replica.train), {name: share(ids) for name, ids in replica.evaluate.items()}
    _check_slots(train.plan.slots, len(replica.train), ranks.world)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(replica.seed)
        model = make_model().to(ranks.device, dtype)
    scores = _Scores(loss, std[0].to(ranks.device))
    step = _Step(model, replica, ranks, train.plan.slots, scores)
    key = torch.tensor([replica.seed])
    record: list[Tensor] = []
    stop = False
    with matmul_precision(tf32), warnings.catch_warnings():
        # It would come for every batch, and name a graph by its place in the batch.
        warnings.simplefilter("ignore", UnseenFeatureWarning)
        while len(record) < epochs and not stop:
            epoch = len(record) + 1
            model.train()
            batches = train.batches(fold_key(fold_key(key, _SHUFFLE), epoch))
            trained = torch.stack([step(batch) for batch in batches]).sum(dim=0)
            step.rates.step()
            evaluated = [_evaluate(model, part, scores) for part in parts.values()]
            sums = [trained, *(total for total, _ in evaluated)]
            counts = [int(part.plan.counts[0]) for part in (train, *parts.values())]
            means = ranks.sum(torch.stack(sums)) / torch.tensor(counts).unsqueeze(1)
            masks = [ranks.max(largest).amin() for _, largest in evaluated]
            record.append(torch.cat([means.reshape(-1), torch.tensor(masks, dtype=torch.float64)]))
            if on_epoch is not None:
                asked = on_epoch(epoch, {name: means[i, 1:] for i, name in enumerate(parts, start=1)})
                stop = bool(ranks.max(torch.tensor(int(bool(asked)))))
    rows = torch.stack(record).t().unsqueeze(1).numpy()
    history = History(
        train_loss=rows[0],
        train_metric=rows[1],
        loss={name: rows[2 * i] for i, name in enumerate(parts, start=1)},
        metric={name: rows[2 * i + 1] for i, name in enumerate(parts, start=1)},
        weights=[{name: p.detach().cpu().clone() for name, p in model.named_parameters()}],
        epoch=np.array([len(record)]),
        troubles=find_troubles([replica.seed], rows[0], list(rows[2 + 2 * len(parts) :])),
        interrupted=len(record) < epochs,
    )
    return history, mean, std


class _Scores:
    """Loss and metric of graphs; errors are reported in the target's own unit."""

    def __init__(self, loss: str, std: Tensor):
        self.loss, self.metric, self.std = LOSSES[loss], METRICS[loss], std
        self.classes = loss == "cross_entropy"

    def sums(self, loss: Tensor, out: Tensor, y: Tensor) -> Tensor:
        """The sums over graphs of the loss, as given, and of the metric: ``[2]``."""
        if not self.classes:
            out, y = out.double() * self.std, y.double() * self.std
        return torch.stack([loss.detach().sum().double(), self.metric(out.detach(), y).sum().double()])


class _Step:
    """One update of the model with one batch: the same on every rank."""

    def __init__(self, model: Module, replica: Replica, ranks: Ranks, slots: int, scores: _Scores):
        self.network = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self.adam = torch.optim.Adam(model.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
        self.rates = torch.optim.lr_scheduler.StepLR(self.adam, replica.decay_every, replica.decay)
        self.dropouts = [m for m in model.modules() if isinstance(m, KeyedDropout)]
        for dropout in self.dropouts:
            dropout.keyed = True
            rate = dropout.p if replica.dropout is None else replica.dropout
            dropout.rate = torch.tensor(rate, device=ranks.device)
        self.key = fold_key(torch.tensor(replica.seed), _DROPOUT)
        self.steps = 0
        self.world, self.slots, self.scores = ranks.world, slots, scores

    def __call__(self, batch: ShareBatch) -> Tensor:
        """Updates, and gives the sums of loss and metric over this rank's graphs, ``[2]``."""
        for i, dropout in enumerate(self.dropouts):
            dropout.key.copy_(fold_key(fold_key(self.key, self.steps), i))
        out = self.network(*batch.inputs, batch_size=self.slots)[batch.slots]
        loss = self.scores.loss(out, batch.y)
        self.adam.zero_grad()
        # DDP takes the mean over ranks; times their number it is the sum.
        (loss.sum() * (self.world / batch.graphs)).backward()
        self.adam.step()
        self.steps += 1
        return self.scores.sums(loss, out, batch.y)


@torch.no_grad()
def _evaluate(model: Module, part: Share, scores: _Scores) -> tuple[Tensor, Tensor]:
    """The sums of loss and metric over this rank's graphs of a part, ``[2]``, and the largest mask of each layer."""
    model.eval()
    sums = torch.zeros(2, device=part.device, dtype=torch.float64)
    largest = torch.zeros(model.num_layers, device=part.device) if isinstance(model, SoftMaskGNN) else torch.ones(1)
    for batch in part.batches():
        if not len(batch.slots):
            continue
        if isinstance(model, SoftMaskGNN):
            out, masks = model(*batch.inputs, batch_size=part.plan.slots, return_masks=True)
            if len(masks[0]):
                largest = torch.maximum(largest, torch.stack([m.amax() for m in masks]).float())
        else:
            out = model(*batch.inputs, batch_size=part.plan.slots)
        out = out[batch.slots]
        sums += scores.sums(scores.loss(out, batch.y), out, batch.y)
    return sums, largest


def _resolve(precision: Precision, device: torch.device) -> tuple[torch.dtype, bool]:
    if precision == "auto":
        precision = "tf32" if device.type == "cuda" else "float32"
    dtype, compute, tf32, tf32_gradients = resolve(precision, device)
    if compute != dtype or tf32 != tf32_gradients:
        raise SettingError(
            f"data parallel training does not compute in {precision}; use auto, float64, float32 or tf32"
        )
    return dtype, tf32


def _check(store: GraphStore, replica: Replica, epochs: int, batch_size: int, loss: str, ranks: Ranks) -> None:
    check_loss(loss)
    if store.y is None:
        raise SettingError("the graphs have no classes or targets to learn")
    if store.y.is_floating_point() == (loss == "cross_entropy"):
        raise SettingError(
            f"the loss {loss!r} does not fit the targets: classes need cross_entropy, numbers mse or mae"
        )
    if epochs < 1 or batch_size < 1:
        raise SettingError(f"epochs and batch_size must be at least 1, got {epochs} and {batch_size}")
    if store.num_nodes == 0:
        raise SettingError("the graphs have no nodes at all")
    replica.check(store.num_graphs, 0)
    if replica.target is not None and not (store.y.dim() == 2 and 0 <= replica.target < store.y.size(1)):
        raise SettingError(f"there is no target {replica.target}")
    seen = (store.num_graphs, store.num_nodes, store.num_edges, replica.seed, len(replica.train))
    for rank, other in enumerate(ranks.gather(seen)):
        if other != seen:
            raise SettingError(
                f"ranks {rank} and {ranks.rank} have different sets, seeds or parts; give all processes the same"
            )


def _check_slots(slots: int, graphs: int, world: int) -> None:
    if graphs < world:
        raise SettingError(f"{graphs} graphs to train on cannot be shared by {world} processes; start fewer")
    if slots < world:
        raise SettingError(
            f"a batch of {slots} graphs cannot be shared by {world} processes; use larger batches or fewer processes"
        )
