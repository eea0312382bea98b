"""Any PyTorch module on batches as PyG has them: one model after the other, with the records of a fleet."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import UninitializedParameter

from softmask.data.store import GraphStore
from softmask.errors import CannotRun, SettingError
from softmask.fleet.history import History, find_troubles
from softmask.fleet.losses import LOSSES, METRICS, own_loss
from softmask.fleet.replica import Replica
from softmask.fleet.snapshot import Snapshot, fingerprint

# Called after every epoch of any model with the epochs of all models so far, as those of one; True ends the training.
OnEpoch = Callable[[int], bool | None]


def train_one_by_one(
    make_model: Callable[[], Module],
    store: GraphStore,
    x: Tensor,
    channels: int,
    replicas: Sequence[Replica],
    epochs: int,
    batch_size: int = 128,
    loss: str = "cross_entropy",
    on_epoch: OnEpoch | None = None,
    device: torch.device | str = "cpu",
    snapshots: Path | None = None,
    patience: tuple[str, int] | None = None,
    edge_x: Tensor | None = None,
) -> History:
    """Trains models one after the other: Adam, the rates of each replica, in float32.

    A model takes ``(x, edge_index, batch)`` and gives ``[graphs, outputs]``, or that and a loss of its own to add. If
    its ``forward`` has arguments ``batch_size`` or ``edge_attr``, it gets these too; and as ``y`` the targets, in
    training only. If it has a method ``loss_per_graph(out, y)``, that stands for `loss`.

    Args:
        make_model: builds one model, called under each replica's seed.
        store: the graphs, with targets.
        x: the input of all nodes, tokens or vectors; models see vectors of `channels` numbers.
        channels: size of the nodes' input vectors.
        replicas: the models to train; what one learns follows from its own fields alone.
        epochs: how often every training graph is seen.
        batch_size: the most graphs in a batch; all batches of an epoch are almost equally large.
        loss: ``"cross_entropy"`` or ``"mse"``.
        on_epoch: called after every epoch.
        device: where to train.
        snapshots: folder for the state of every model that is done, from which an interrupted training goes on.
        patience: a part and a number of epochs, after which a model that has not improved on it stops.
        edge_x: what the edges carry, ``[edges, channels]`` in the order of the store's ``col``.
    """
    device = torch.device(device)
    graphs = _graphs(store, x, edge_x).to(device)
    trained: list[dict[str, Tensor]] = []
    interrupted = False
    for place, replica in enumerate(replicas):
        replica.check(store.num_graphs, place)

        def report(epoch: int) -> bool:
            together = (place * epochs + epoch) // len(replicas)  # noqa: B023
            return on_epoch is not None and bool(on_epoch(together))

        with _seeded(replica.seed, device):
            model = _checked(make_model()).to(device)
            saved = None if snapshots is None else Snapshot(snapshots / f"replicas-{place}.safetensors")
            who = _identity(model, replica, store, epochs, batch_size, patience)
            done = None if saved is None else saved.load(who)
            if done is None:
                try:
                    one = _Training(model, graphs, replica, store, loss, batch_size, device, channels)
                    done, interrupted = one.run(epochs, report, patience)
                except torch.OutOfMemoryError:
                    raise CannotRun(
                        f"a batch of {batch_size} graphs does not fit into the memory of {device}; use smaller batches"
                    ) from None
                if interrupted:
                    break
                if saved is not None:
                    saved.save(done, who)
        trained.append(done)
    return _history(trained, replicas, epochs, interrupted)


class _Training:
    """The training of one model."""

    def __init__(
        self,
        model: Module,
        graphs: GraphStore,
        replica: Replica,
        store: GraphStore,
        loss: str,
        batch_size: int,
        device: torch.device,
        channels: int,
    ):
        self.model, self.replica, self.device, self.channels = model, replica, device, channels
        self.graphs, self.batch_size = graphs, batch_size
        self.loss = own_loss(model) if hasattr(model, "loss_per_graph") else LOSSES[loss]
        self.metric = METRICS[loss]
        self.takes = _arguments(model)
        self.y, self.std = _scaled(store, replica)
        # The parts that are only evaluated are batched once.
        self.parts = {
            name: [self._batch(ids) for ids in _cut(np.asarray(ids), batch_size)]
            for name, ids in replica.evaluate.items()
        }
        self.adam = torch.optim.Adam(model.parameters(), lr=replica.lr, weight_decay=replica.weight_decay)
        self.decay = torch.optim.lr_scheduler.StepLR(self.adam, replica.decay_every, replica.decay)

    def run(
        self, epochs: int, report: Callable[[int], bool], patience: tuple[str, int] | None
    ) -> tuple[dict[str, Tensor], bool]:
        """Trains; gives the metrics of every epoch and the weights, by name, and whether it was interrupted."""
        rows: list[list[float]] = []
        best, best_epoch = -np.inf, 0
        shuffles = np.random.default_rng(self.replica.seed)
        for epoch in range(1, epochs + 1):
            self.model.train()
            sums = np.zeros(2)
            train = np.asarray(self.replica.train)
            for ids in _cut(shuffles.permutation(train), self.batch_size):
                sums += self._step(self._batch(ids))
            self.decay.step()
            rows.append([*(sums / len(train)), *(v for part in self.parts.values() for v in self._evaluate(part))])
            if report(epoch) and epoch < epochs:
                return {}, True
            if patience is not None and patience[0] in self.parts:
                score = rows[-1][3 + 2 * list(self.parts).index(patience[0])]
                score = score if self.metric is METRICS["cross_entropy"] else -score
                if score > best:
                    best, best_epoch = score, epoch
                elif epoch - best_epoch >= patience[1]:
                    break
        table = torch.tensor(rows, dtype=torch.float64).t().contiguous()
        kept = {f"metrics.{name}": row for name, row in zip(_rows(self.parts), table)}
        # Copies: of weights that a model uses twice, a file would not take the same memory under two names.
        weights = {f"weights.{name}": t.detach().cpu().clone() for name, t in self.model.state_dict().items()}
        return kept | weights, False

    def _step(self, batch: "_Batch") -> np.ndarray:
        out, extra = self._forward(batch)
        each = self.loss(out, batch.y)
        total = each.mean() + extra
        if not total.requires_grad:
            raise SettingError(f"the output of {type(self.model).__name__} does not depend on its parameters")
        self.adam.zero_grad()
        total.backward()
        self.adam.step()
        return np.array([each.detach().sum().item(), self._score(out.detach(), batch.y).sum().item()])

    @torch.no_grad()
    def _evaluate(self, part: Sequence["_Batch"]) -> tuple[float, float]:
        self.model.eval()
        loss = metric = count = 0.0
        for batch in part:
            out, _ = self._forward(batch)
            loss += self.loss(out, batch.y).sum().item()
            metric += self._score(out, batch.y).sum().item()
            count += len(batch.y)
        return loss / count, metric / count

    def _score(self, out: Tensor, y: Tensor) -> Tensor:
        if self.metric is METRICS["cross_entropy"]:
            return self.metric(out, y)
        # Errors are reported in the target's own unit.
        return self.metric(out.double() * self.std, y.double() * self.std)

    def _batch(self, ids: np.ndarray) -> "_Batch":
        """The graphs side by side, as PyG's loader would put them, but by index arithmetic on the device."""
        these = self.graphs.select(ids)
        x = these.node_attr
        if x is None:
            assert these.node_label is not None
            x = _one_hot(these.node_label, self.channels)
        y = self.y[torch.as_tensor(ids)].to(self.device)
        return _Batch(x, torch.stack(these.edges()), these.batch, these.edge_attr, y)

    def _forward(self, batch: "_Batch") -> tuple[Tensor, Tensor | float]:
        graphs = len(batch.y)
        # What is evaluated must not see its targets.
        more = {"batch_size": graphs, "edge_attr": batch.edge_attr, "y": batch.y if self.model.training else None}
        given = {name: more[name] for name in self.takes}
        found = self.model(batch.x, batch.edge_index, batch.graph, **given)
        out, extra = found if isinstance(found, tuple) else (found, 0.0)
        if not isinstance(out, Tensor) or out.dim() != 2 or out.size(0) != graphs:
            shape = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise SettingError(f"the model must give [graphs, outputs]; for {graphs} graphs it gave {shape}")
        wanted = batch.y.size(1) if batch.y.dim() == 2 else int(batch.y.max()) + 1
        if out.size(1) != wanted and (batch.y.dim() == 2 or out.size(1) < wanted):
            raise SettingError(f"the model gives {out.size(1)} outputs for {wanted} classes or targets")
        return out, extra


class _Batch(NamedTuple):
    """Some graphs as PyG batches them, and their targets."""

    x: Tensor
    edge_index: Tensor
    graph: Tensor
    edge_attr: Tensor | None
    y: Tensor


def _graphs(store: GraphStore, x: Tensor, edge_x: Tensor | None) -> GraphStore:
    """The graphs with the models' input for their nodes and edges, and without self loops, as in the operators."""
    source, target = store.edges()
    keep = source != target
    row_ptr = torch.cat([store.row_ptr[:1], torch.bincount(target[keep], minlength=store.num_nodes).cumsum(0)])
    tokens = not x.is_floating_point()
    return GraphStore(
        node_ptr=store.node_ptr,
        row_ptr=row_ptr,
        col=store.col[keep],
        node_label=x.reshape(store.num_nodes, -1) if tokens else None,
        node_attr=None if tokens else x,
        edge_attr=None if edge_x is None else edge_x[keep],
    )


def _one_hot(tokens: Tensor, channels: int) -> Tensor:
    """Vectors with a 1 in the place of each token; -1 is the zero vector."""
    hot = F.one_hot(tokens.long().reshape(tokens.size(0), -1) + 1, channels + 1)
    return hot[..., 1:].sum(dim=1).float()


def _cut(ids: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return np.array_split(ids, -(-len(ids) // batch_size))


def _scaled(store: GraphStore, replica: Replica) -> tuple[Tensor, Tensor]:
    """Classes; or targets with mean 0 and deviation 1 of the training part, and that deviation."""
    assert store.y is not None
    if not store.y.is_floating_point():
        return store.y.cpu(), torch.ones(1)
    y = store.y.cpu().double()
    train = y[torch.as_tensor(np.asarray(replica.train))]
    std = train.std(dim=0, correction=0)
    std = torch.where(std > 0, std, torch.ones_like(std))
    return ((y - train.mean(dim=0)) / std).float(), std


def _checked(model: Module) -> Module:
    """Refuses what cannot be trained here, before torch does in words of its own."""
    if not isinstance(model, Module):
        raise SettingError(f"the model must be a torch.nn.Module, got {type(model).__name__}")
    name = type(model).__name__
    try:
        inspect.signature(model.forward).bind(None, None, None, **dict.fromkeys(_arguments(model)))
    except TypeError as error:
        raise SettingError(f"the forward of {name} must take (x, edge_index, batch): {error}") from None
    if any(isinstance(p, UninitializedParameter) for p in model.parameters()):
        raise SettingError(f"{name} has layers whose sizes are left open (lazy); give them in_channels, which it gets")
    if not any(p.requires_grad for p in model.parameters()):
        raise SettingError(f"{name} has no parameters to train")
    return model


def _arguments(model: Module) -> list[str]:
    """Which of the optional arguments the model's forward has."""
    names = inspect.signature(model.forward).parameters
    return [name for name in ("batch_size", "edge_attr", "y") if name in names]


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Weights and dropout follow from the seed; the generators are left as they were."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _identity(
    model: Module,
    replica: Replica,
    store: GraphStore,
    epochs: int,
    batch_size: int,
    patience: tuple[str, int] | None,
) -> str:
    flat = torch.cat([p.detach().reshape(-1).cpu() for p in model.parameters()] or [torch.zeros(0)])
    return fingerprint([replica], flat, f"{store.content_hash()} {epochs} {batch_size} {patience} {model!r}")


def _rows(parts: Mapping[str, Any]) -> list[str]:
    return ["train_loss", "train_metric", *(f"{part}_{what}" for part in parts for what in ("loss", "metric"))]


def _history(
    trained: Sequence[dict[str, Tensor]], replicas: Sequence[Replica], epochs: int, interrupted: bool
) -> History:
    longest = max((t["metrics.train_loss"].numel() for t in trained), default=0)

    def table(row: str) -> np.ndarray:
        # With patience a model may have ended before another; what it did not train is NaN.
        lines = np.full((len(trained), longest), np.nan)
        for line, one in zip(lines, trained):
            if f"metrics.{row}" in one:
                values = one[f"metrics.{row}"].numpy()
                line[: len(values)] = values
        return lines

    parts = list(dict.fromkeys(part for r in replicas for part in r.evaluate))
    ends = np.array([t["metrics.train_loss"].numel() for t in trained])
    losses = table("train_loss")
    # What is NaN because a model had stopped is no divergence.
    seen = np.where(np.arange(longest) < ends.reshape(-1, 1), losses, 0.0)
    return History(
        train_loss=losses,
        train_metric=table("train_metric"),
        loss={part: table(f"{part}_loss") for part in parts},
        metric={part: table(f"{part}_metric") for part in parts},
        weights=[
            {name.removeprefix("weights."): t for name, t in one.items() if name.startswith("weights.")}
            for one in trained
        ],
        epoch=ends,
        troubles=find_troubles([r.seed for r in replicas[: len(trained)]], seen, []),
        interrupted=interrupted,
    )
