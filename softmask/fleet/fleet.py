"""Fleet: many models trained as one program."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import Module

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.fleet.adam import Adam
from softmask.fleet.batches import Batch, Plan, assemble, deal, plan
from softmask.fleet.history import History, Trouble
from softmask.fleet.interrupt import stop_on_interrupt
from softmask.fleet.losses import LOSSES, METRICS, check_loss
from softmask.fleet.replica import Replica
from softmask.fleet.stack import Stack
from softmask.nn import KeyedDropout
from softmask.ops.keyed import fold_key

_SHUFFLE, _DROPOUT = 1, 2


class _Part(NamedTuple):
    plan: Plan
    graphs: Tensor  # [steps, replicas, slots]


class Fleet:
    """Many models of one shape, trained in lockstep: every step is one program over all of them.

    The model is written for one batch; ``vmap`` makes the fleet. A replica's weights after training depend on its own
    seed, graphs and rates alone (up to rounding), not on how many train beside it.

    Args:
        make_model: builds one model, called under each replica's seed; ``model(x, neighbours, batch, batch_size)``
            gives ``[graphs, outputs]``.
        store: the graphs, with targets.
        x: the input of all nodes of the store (see :class:`softmask.data.Features`).
        replicas: the models to train.
        batch_size: the most graphs in a batch.
        loss: ``"cross_entropy"``, ``"mse"`` or ``"mae"``.
        adamw: decoupled weight decay.
        device: where to train; the store is moved there.
        dtype: precision of the parameters and the arithmetic.

    Regression targets are scaled to mean 0 and deviation 1 of each replica's training part; :attr:`mean` and
    :attr:`std`, ``[replicas, outputs]`` in float64, undo that.
    """

    def __init__(
        self,
        make_model: Callable[[], Module],
        store: GraphStore,
        x: Tensor,
        replicas: Sequence[Replica],
        batch_size: int = 128,
        loss: str = "cross_entropy",
        adamw: bool = False,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        check_loss(loss)
        _check(store, x, replicas, batch_size)
        self.device = torch.device(device)
        self.replicas = list(replicas)
        self.store = store.to(self.device)
        self.x = x.to(self.device, dtype) if x.is_floating_point() else x.to(self.device)
        self.loss, self.metric = LOSSES[loss], METRICS[loss]
        self.stack = Stack(make_model, [r.seed for r in replicas], self.device, dtype)
        self.model = self.stack.model
        y, self.mean, self.std = _targets(self.store, self.replicas)
        self.y = y.to(dtype) if y.is_floating_point() else y
        self.train_plan = plan([r.train for r in replicas], self.store.sizes, batch_size)
        self.parts = {name: self._part(name, batch_size) for name in replicas[0].evaluate}
        self.adam = Adam(self.stack.flat, self._tensor([r.weight_decay for r in replicas]), adamw)
        self.gradient = torch.zeros_like(self.stack.flat)
        self.keys = torch.tensor([r.seed for r in replicas], device=self.device, dtype=torch.int64)
        self.dropouts = {n: m for n, m in self.model.named_modules() if isinstance(m, KeyedDropout)}
        for dropout in self.dropouts.values():
            dropout.keyed = True
        self.rates = {
            name: self._tensor([m.p if r.dropout is None else r.dropout for r in replicas])
            for name, m in self.dropouts.items()
        }

    def train(
        self,
        epochs: int,
        keep: str = "last",
        on_epoch: Callable[[int, dict[str, np.ndarray]], None] | None = None,
    ) -> History:
        """Trains all replicas.

        Args:
            epochs: how often every training graph is seen.
            keep: whose weights to return: ``"last"``, or the name of a part, for the epoch with its best metric.
            on_epoch: called after every epoch with the epoch (from 1) and the metrics by part.

        A Ctrl-C ends the training after the current epoch; what was trained so far is returned.
        """
        if epochs < 1:
            raise SettingError(f"epochs must be at least 1, got {epochs}")
        if keep != "last" and keep not in self.parts:
            raise SettingError(f"keep={keep!r}: no such part; there is {', '.join(['last', *self.parts])}")
        train_loss: list[np.ndarray] = []
        losses: dict[str, list[np.ndarray]] = {name: [] for name in self.parts}
        metrics: dict[str, list[np.ndarray]] = {name: [] for name in self.parts}
        troubles: dict[int, Trouble] = {}
        best = self.stack.flat.clone()
        best_metric = np.full(len(self.replicas), -np.inf)
        best_epoch = np.zeros(len(self.replicas), dtype=np.int64)
        with stop_on_interrupt() as stop:
            for epoch in range(1, epochs + 1):
                train_loss.append(self._train_epoch(epoch).cpu().numpy())
                for name, part in self.parts.items():
                    loss, metric = self._evaluate(part)
                    losses[name].append(loss.cpu().numpy())
                    metrics[name].append(metric.cpu().numpy())
                self._look_for_trouble(epoch, train_loss[-1], troubles)
                if keep == "last":
                    best_epoch[:] = epoch
                else:
                    score = metrics[keep][-1] if self.metric is METRICS["cross_entropy"] else -metrics[keep][-1]
                    better = score > best_metric
                    best_metric = np.where(better, score, best_metric)
                    best_epoch[better] = epoch
                    rows = torch.from_numpy(better).to(self.device)
                    best = torch.where(rows.unsqueeze(1), self.stack.flat, best)
                if on_epoch is not None:
                    on_epoch(epoch, {name: rows[-1] for name, rows in metrics.items()})
                if stop.asked:
                    break
        flat = self.stack.flat if keep == "last" else best
        return History(
            train_loss=np.stack(train_loss, axis=1),
            loss={name: np.stack(rows, axis=1) for name, rows in losses.items()},
            metric={name: np.stack(rows, axis=1) for name, rows in metrics.items()},
            weights=[self.stack.state(flat, r) for r in range(len(self.replicas))],
            epoch=best_epoch,
            troubles=list(troubles.values()),
            interrupted=len(train_loss) < epochs,
        )

    def _tensor(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self.device, dtype=torch.float64)

    def _part(self, name: str, batch_size: int) -> _Part:
        made = plan([r.evaluate[name] for r in self.replicas], self.store.sizes, batch_size)
        return _Part(made, deal(made))

    def _train_epoch(self, epoch: int) -> Tensor:
        """One pass over the training graphs; the mean loss of each replica."""
        self.model.train()
        rates = [r.lr * r.decay ** ((epoch - 1) // r.decay_every) for r in self.replicas]
        lr = self._tensor(rates)
        table = deal(self.train_plan, fold_key(fold_key(self.keys, _SHUFFLE), epoch))
        total = torch.zeros(len(self.replicas), device=self.device, dtype=torch.float64)
        for graphs in table:
            active = (graphs >= 0).any(dim=1)
            batch = assemble(self.store, self.x, graphs, self.train_plan.nodes)
            with torch.enable_grad():
                loss = self._losses(self._forward(batch, self._dropout_buffers()), graphs)
                # The gradient of the sum is each replica's own: none sees another's parameters.
                mean = loss.sum(dim=1) / (graphs >= 0).sum(dim=1).clamp(min=1)
                mean.sum().backward()
            self.stack.gradient(self.gradient)
            self.adam.step(self.gradient, lr, active)
            total += loss.detach().sum(dim=1).double()
        return total / self.train_plan.count

    def _dropout_buffers(self) -> dict[str, Tensor]:
        """Key and rate of every dropout of every replica for this step."""
        keys = fold_key(fold_key(self.keys, _DROPOUT), self.adam.steps.squeeze(1).long())
        buffers = {}
        for i, name in enumerate(self.dropouts):
            buffers[f"{name}.key"] = fold_key(keys, i)
            buffers[f"{name}.rate"] = self.rates[name].float()
        return buffers

    def _forward(self, batch: Batch, buffers: dict[str, Tensor]) -> Tensor:
        slots = batch.graphs.size(1)

        def one(parameters, buffers, x, neighbours, nodes_graph):
            return functional_call(
                self.model, {**parameters, **buffers}, (x, neighbours, nodes_graph), {"batch_size": slots}
            )

        run = vmap(one, in_dims=(0, 0, *batch.in_dims()), randomness="error")
        return run(self.stack.parameters, buffers, batch.x, batch.neighbours, batch.batch)

    def _losses(self, out: Tensor, graphs: Tensor) -> Tensor:
        """The loss of every graph, ``[replicas, slots]``, 0 for empty slots."""
        loss = self.loss(out, self._targets_of(graphs))
        return torch.where(graphs >= 0, loss, 0)

    def _targets_of(self, graphs: Tensor) -> Tensor:
        ids = graphs.clamp(min=0)
        if self.y.dim() == 1:
            return self.y[ids]
        rows = torch.arange(len(self.replicas), device=self.device).unsqueeze(1)
        return self.y[rows, ids]

    def _scores(self, out: Tensor, y: Tensor) -> Tensor:
        if self.metric is METRICS["cross_entropy"]:
            return self.metric(out, y)
        # Errors are reported in the target's own unit.
        std = self.std.unsqueeze(1).to(self.device)
        return self.metric(out.double() * std, y.double() * std)

    @torch.no_grad()
    def _evaluate(self, part: _Part) -> tuple[Tensor, Tensor]:
        """Mean loss and metric of each replica over its graphs of a part."""
        self.model.eval()
        loss = torch.zeros(len(self.replicas), device=self.device, dtype=torch.float64)
        metric = torch.zeros_like(loss)
        for graphs in part.graphs:
            batch = assemble(self.store, self.x, graphs, part.plan.nodes)
            out = self._forward(batch, {})
            loss += self._losses(out, graphs).sum(dim=1).double()
            score = self._scores(out, self._targets_of(graphs))
            metric += torch.where(graphs >= 0, score, 0).sum(dim=1).double()
        return loss / part.plan.count, metric / part.plan.count

    @torch.no_grad()
    def _look_for_trouble(self, epoch: int, train_loss: np.ndarray, troubles: dict[int, Trouble]) -> None:
        for r in np.flatnonzero(~np.isfinite(train_loss)):
            if r not in troubles:
                what = f"the loss is {train_loss[r]}: the training diverged; a smaller learning rate helps"
                troubles[int(r)] = Trouble(int(r), self.replicas[r].seed, epoch, what)


def _check(store: GraphStore, x: Tensor, replicas: Sequence[Replica], batch_size: int) -> None:
    if not replicas:
        raise SettingError("a fleet needs at least one replica")
    if batch_size < 1:
        raise SettingError(f"batch_size must be at least 1, got {batch_size}")
    if store.y is None:
        raise SettingError("the graphs have no targets to learn")
    if x.size(0) != store.num_nodes:
        raise SettingError(f"x has {x.size(0)} rows, the store {store.num_nodes} nodes")
    for place, replica in enumerate(replicas):
        replica.check(store.num_graphs, place)
        if set(replica.evaluate) != set(replicas[0].evaluate):
            raise SettingError("all replicas of a fleet must evaluate parts of the same names")


def _targets(store: GraphStore, replicas: Sequence[Replica]) -> tuple[Tensor, Tensor, Tensor]:
    """Classes ``[graphs]``; or targets ``[replicas, graphs, outputs]`` scaled by each replica's training part, with
    mean and deviation ``[replicas, outputs]``, all in float64: total energies need it."""
    assert store.y is not None
    if not store.y.is_floating_point():
        return store.y, torch.zeros(len(replicas), 1), torch.ones(len(replicas), 1)
    rows, means, stds = [], [], []
    for r in replicas:
        y = store.y if r.target is None else store.y[:, r.target : r.target + 1]
        train = y[torch.as_tensor(np.asarray(r.train), device=y.device)]
        mean = train.mean(dim=0)
        std = (train - mean).square().mean(dim=0).sqrt()
        std = torch.where(std > 0, std, torch.ones_like(std))
        rows.append((y - mean) / std)
        means.append(mean)
        stds.append(std)
    return torch.stack(rows), torch.stack(means), torch.stack(stds)
