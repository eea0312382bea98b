"""Fleet: many models trained as one program."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.store import GraphStore
from softmask.device import freed_memory_kept, matmul_precision, pick_device
from softmask.errors import SettingError
from softmask.fleet.adam import Adam
from softmask.fleet.average import Average
from softmask.fleet.batches import Batch, Plan, deal, plan, with_layout
from softmask.fleet.by_size import classes_for, evenly
from softmask.fleet.check import check, check_parts, check_tokens
from softmask.fleet.committee import as_one
from softmask.fleet.graphs import Graphs
from softmask.fleet.history import History, find_troubles
from softmask.fleet.levels import LevelledBatch
from softmask.fleet.losses import LOSSES, METRICS, own_loss
from softmask.fleet.models import Crew, Models, differentiated
from softmask.fleet.pairs import Layout, StorePairs, places_in
from softmask.fleet.precision import Precision, resolve
from softmask.fleet.program import Program, capture_all
from softmask.fleet.replica import Replica
from softmask.fleet.side_by_side import side_by_side
from softmask.fleet.snapshot import Snapshot, fingerprint
from softmask.fleet.stack import Stack
from softmask.fleet.targets import scaled_targets
from softmask.nn import GAT, GeometricSoftMaskGNN, KeyedDropout, SoftMaskGNN
from softmask.ops.keyed import fold_key
from softmask.ops.neighbour_sum import triton_sums

# Bytes of one tensor of all models that compute together on a CPU: more of them save calls of small operations. Twice
# as many bytes save up to a seventh of the time more, for up to twice the memory (benchmarks/together.py).
_TOGETHER = 16 * 2**20
# Bytes of one tensor up to which models on a CPU compute side by side, each on a core; the operations of larger ones
# keep all cores busy by themselves.
_SMALL = 8 * 2**20
_SHUFFLE, _DROPOUT = 1, 2
# What a training's state consists of.
_STATE = ("flat", "mean", "square", "steps", "epoch", "record", "best_score", "best_epoch", "best")

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")
# Called after every epoch with its number (from 1) and the metrics by part; True ends the training.
OnEpoch = Callable[[int, dict[str, Tensor]], bool | None]


class _Part(NamedTuple):
    """A part that is evaluated: its batches by size class, how many graphs it has, and what the evaluation writes,
    ``[replicas]`` each.
    """

    plans: Sequence[Plan]
    graphs: Sequence[Tensor]
    counts: Tensor
    loss: Tensor
    metric: Tensor
    mask: Tensor


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
        device: where to train; the store is moved there. ``"auto"`` is the GPU if there is one.
        precision: of the arithmetic: ``"float64"``, ``"float32"``, ``"tf32-gradients"``, ``"tf32"`` or ``"bf16"``;
            ``"auto"`` is bf16 on CUDA and float32 on the CPU (see :func:`softmask.fleet.precision.resolve`).
        edge_x: what the edges carry, ``[edges, channels]`` in the order of the store's ``col``; the model then gets an
            :class:`~softmask.ops.edge_table.EdgeTable` as ``edge_attr``.
        merge: whether nodes that the model cannot tell apart are computed as one
            (:func:`softmask.fleet.quotient.quotient`), which changes nothing but the rounding and which graphs share a
            batch. By default where the model says that its nodes meet in sums alone (``sums_only``), and where it
            saves a fifth of the nodes or more; not where bit matrices of the whole graphs are quicker. On the CPU,
            :class:`~softmask.nn.SoftMaskGNN` then also computes as one what its first layers alone cannot tell apart
            (:class:`softmask.fleet.levels.StoreLevels`), which changes nothing but the rounding; by default where it
            saves a fifth of the matrix products.
        pairs: where the nodes are in space, and which are bonded; the model then gets a
            :class:`~softmask.ops.pair_blocks.PairBlocks` as ``pos``.
        committee: so many replicas in a row are one committee, if more than 1: each trains by itself, and what is
            evaluated is what they say together (:class:`softmask.nn.Committee`). The figures of all members are then
            those of their committee, and so is the best epoch, where weights are kept by it.
        compiles: whether the model is compiled on CUDA, which takes a while and pays in long trainings. One whose
            attribute ``compiles`` is False never is. It is captured either way.

    A model may bring a loss of its own. In training its ``forward`` may give ``(out, extra)``: the number `extra` is
    added to the mean loss of the batch, for the gradient and not in the record; slots without a graph, which have no
    nodes, must not enter it. If ``forward`` has an argument ``y``, it gets the targets of the batch in training, those
    of any graph in a slot without one, and ``None`` in evaluation. A method ``loss_per_graph(out, y)``, which gives one
    number a graph, stands for `loss`; it gets the graphs of all replicas at once, and takes each by itself.

    A model of all pairs of nodes has an argument ``pair_blocks``. The graphs of a batch then stand in blocks of equally
    many places (:data:`softmask.ops.pair_blocks.Blocks`), which it gets; a place without a node is padding. Where that
    needs far fewer places, a batch has graphs of about one size (:func:`~softmask.fleet.by_size.size_classes`).

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
        precision: Precision = "auto",
        edge_x: Tensor | None = None,
        merge: bool | None = None,
        pairs: StorePairs | None = None,
        committee: int = 1,
        compiles: bool = True,
    ):
        check(store, x, replicas, batch_size, loss, committee=committee)
        self.device = pick_device(device)
        dtype, compute, self.tf32, self.tf32_gradients = resolve(precision, self.device)
        self.replicas = list(replicas)
        self.committee = committee
        self.given = store
        self.stack = Stack(make_model, [r.seed for r in replicas], self.device, dtype, compute)
        for place, replica in enumerate(replicas):
            self.stack.assign(place, replica.buffers)
        check_tokens(x, self.stack.model)
        self.graphs = Graphs(store, x, self.stack.model, self.device, dtype, compute, edge_x, merge, pairs)
        self.model = self.stack.model
        self.models = Models(self.model)
        self.loss = own_loss(self.model) if hasattr(self.model, "loss_per_graph") else LOSSES[loss]
        self.metric = METRICS[loss]
        self.has_masks = isinstance(self.model, SoftMaskGNN | GeometricSoftMaskGNN)
        y, self.mean, self.std = scaled_targets(self.graphs.store, self.replicas)
        self.y = y.to(dtype) if y.is_floating_point() else y
        decays = self._tensor([r.weight_decay for r in replicas])
        self.adam = Adam(self.stack.flat, decays, adamw, self.stack.trained)
        self.keys = torch.tensor([r.seed for r in replicas], device=self.device, dtype=torch.int64)
        self.dropouts = {n: m for n, m in self.model.named_modules() if isinstance(m, KeyedDropout)}
        for dropout in self.dropouts.values():
            dropout.keyed = True
        self.rates = {
            name: self._tensor([m.p if r.dropout is None else r.dropout for r in replicas]).float()
            for name, m in self.dropouts.items()
        }
        # On CUDA the compiler, which needs triton, fuses all that is not a graph sum or a matrix product.
        compiles = compiles and getattr(self.model, "compiles", True)
        with_compiler = compiles and self.device.type == "cuda" and triton_sums is not None
        fuse: Callable[[Any], Any] = _compiled if with_compiler else _as_it_is
        self._run_prepare = fuse(self._prepare)
        self._run_loss = fuse(self._loss)
        self._run_update = fuse(self._update)
        self._run_scores = fuse(self._scores)
        self._write_programs(batch_size)
        self.graphs.use_levels(self.tables[0][0, 0])
        if self.graphs.levels is None:
            together = len(replicas) if self.device.type == "cuda" else self._replicas_together()
            self.crews = [
                Crew(first, last, self.stack.parameters(first, last), self.stack.kept(first, last))
                for first in range(0, len(replicas), together)
                for last in [min(first + together, len(replicas))]
            ]
        else:
            # Every replica's batches have classes of their own.
            models = [self.stack.module(r) for r in range(len(replicas))]
            self.crews = [Crew(r, r + 1, dict(m.named_parameters()), {}, m) for r, m in enumerate(models)]
        # Crews that are evaluated at once: a committee may have members in several.
        self.juries = [self.crews] if committee > 1 else [[crew] for crew in self.crews]
        self._try_out()

    def _tensor(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self.device, dtype=torch.float64)

    def _write_programs(self, batch_size: int) -> None:
        """Lays out the fixed tensors that the programs work on: everything a step reads or writes."""
        self.classes = classes_for(self.model, self.graphs.store.sizes, batch_size)
        (self.train_plans,) = self._plans([[r.train for r in self.replicas]])
        self.train_counts = torch.stack([made.counts for made in self.train_plans]).sum(dim=0)
        self.order = evenly(self.classes, [made.steps * bool(made.counts.any()) for made in self.train_plans])
        self.epoch = torch.zeros((), device=self.device, dtype=torch.int64)
        self.lr = self._tensor([r.lr for r in self.replicas])
        self.tables = [deal(made) for made in self.train_plans]
        self.cursor = torch.zeros(len(self.tables), device=self.device, dtype=torch.int64)
        self.train_loss = self._tensor([0.0] * len(self.replicas))
        self.train_metric = torch.zeros_like(self.train_loss)
        self.first_lr = self.lr.clone()
        self.decay = self._tensor([r.decay for r in self.replicas])
        self.decay_every = torch.tensor([r.decay_every for r in self.replicas], device=self.device)
        self.average = self._averages()
        adam: tuple[Tensor, ...] = (self.stack.flat, self.stack.copy, self.adam.mean, self.adam.square, self.adam.steps)
        if self.average is not None:
            adam = (*adam, self.average.flat)
        counted = (self.cursor, self.train_loss, self.train_metric)
        # Programs run one after the other and keep nothing in between, so that those of several classes share memory.
        several = self.device.type == "cuda" and len(self.classes) > 1
        pool = torch.cuda.graph_pool_handle() if several else None
        self.begin = Program(self._begin_epoch, (self.epoch, self.lr, *self.tables, *counted), self.device)
        self.steps = [
            Program(partial(self._step, k), (*adam, *counted), self.device, pool) for k in range(len(self.classes))
        ]
        self.parts: dict[str, _Part] = {}
        self.evaluations: list[Program] = []
        names = list(dict.fromkeys(name for r in self.replicas for name in r.evaluate))
        parts = [[r.evaluate.get(name, ()) for r in self.replicas] for name in names]
        for name, by_class in zip(names, self._plans(parts)):
            plans = [made for made in by_class if made.counts.any()]
            written = [torch.zeros_like(self.train_loss) for _ in range(3)]
            counts = torch.stack([made.counts for made in plans]).sum(dim=0)
            part = _Part(plans, [deal(made) for made in plans], counts, *written)
            self.parts[name] = part
            self.evaluations.append(Program(partial(self._evaluate, part), written, self.device, pool))

    def _averages(self) -> Average | None:
        """The means of the weights, where a replica wants them."""
        epochs = self._tensor([r.average for r in self.replicas])
        batches = torch.stack([(table >= 0).any(dim=2).sum(dim=0) for table in self.tables])
        return Average(self.stack.flat, epochs * batches.sum(dim=0)) if bool(epochs.any()) else None

    @property
    def _used(self) -> Tensor:
        """The weights that are evaluated and kept, laid out as the stack's."""
        return self.stack.flat if self.average is None else self.average.flat

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The models compute with the means of their weights, where there are any."""
        if self.average is None:
            yield
            return
        own = self.stack.flat.clone()
        self.stack.flat.copy_(self.average.flat)
        self.stack.refresh()
        try:
            yield
        finally:
            self.stack.flat.copy_(own)
            self.stack.refresh()

    def _plans(self, parts: Sequence[Sequence[np.ndarray | Sequence[int]]]) -> list[tuple[Plan, ...]]:
        """The batches of some parts of every replica, by size class."""
        sizes = self.graphs.store.sizes
        by_class = []
        for one in self.classes:
            made = [plan([one.members(ids, sizes) for ids in part], sizes, one.batch_size) for part in parts]
            placed = made and (self.graphs.on_pairs or self.graphs.pairs is not None)
            by_class.append(with_layout(made, sizes, places_in(self.model)) if placed else made)
        return list(zip(*by_class, strict=True))

    def _replicas_together(self) -> int:
        """How many replicas compute together on a CPU."""
        model = self.model
        widest = max(max(p.shape, default=1) for p in model.parameters())
        wide = model.hidden_channels if isinstance(model, SoftMaskGNN | GAT | GeometricSoftMaskGNN) else widest
        rows = max(made.rows for made in self.train_plans)
        return max(1, _TOGETHER // (self.stack.copy.itemsize * rows * wide))

    def _try_out(self) -> None:
        """A graph of one replica through the model and back, so that one that cannot be a fleet is refused at once."""
        crew = self.crews[0]
        if self.graphs.levels is None:
            crew = Crew(0, 1, self.stack.parameters(0, 1), self.stack.kept(0, 1))
        graphs, nodes, layout = self.tables[-1][0, :1], self.train_plans[-1].nodes, self.train_plans[-1].layout
        if layout is None:
            graphs = graphs[:, :1]
            nodes = max(int(self.graphs.store.sizes[graphs]), 1)
        batch, y = self.graphs.batch(graphs, nodes, layout), self._targets_of(crew.rows, graphs)
        out = self.models.try_out(crew, batch, self._dropout_buffers(crew), y)
        outputs = self.y.size(-1) if self.y.dim() == 3 else int(self.y.max()) + 1
        if out.size(2) != outputs and (self.y.dim() == 3 or out.size(2) < outputs):
            raise SettingError(f"the model gives {out.size(2)} outputs for {outputs} classes or targets")
        self.loss(out, y)

    def train(
        self,
        epochs: int,
        keep: str = "last",
        on_epoch: OnEpoch | None = None,
        snapshot: Snapshot | None = None,
        patience: tuple[str, int] | None = None,
    ) -> History:
        """Trains all replicas.

        Args:
            epochs: how often every training graph is seen.
            keep: whose weights to return: ``"last"``, or the name of a part, for the epoch with its best metric.
            on_epoch: called after every epoch with the epoch (from 1) and the metrics by part, ``[replicas]`` on the
                device; to look at their values is to wait for the device. If it returns True, the training ends.
            snapshot: where to save the training now and then, and at its end; if it holds a state of this very
                training, the training goes on from there. The weights it starts from must be fresh.
            patience: a part and a number of epochs; the training ends when the metric of that part has not improved
                for so many epochs in any replica. A replica without that part keeps the training going to its end.
        """
        if epochs < 1:
            raise SettingError(f"epochs must be at least 1, got {epochs}")
        check_parts(self.replicas, keep, patience)
        rows = [
            *(self.train_loss, self.train_metric),
            *(t for part in self.parts.values() for t in (part.loss, part.metric, part.mask)),
        ]
        record = torch.zeros(epochs, len(rows), len(self.replicas), device=self.device, dtype=torch.float64)
        best = self._used if keep == "last" else self._used.clone()
        best_score = torch.full_like(self.train_loss, -torch.inf)
        best_epoch = torch.zeros_like(self.keys)
        done, stop, waited = 0, False, False
        identity = "" if snapshot is None else self._identity(epochs, keep)
        states = (self.stack.flat, self.adam.mean, self.adam.square, self.adam.steps, self.epoch, record)
        state = dict(zip(_STATE, (*states, best_score, best_epoch, best)))
        if keep == "last":
            del state["best"]
        if self.average is not None:
            state["average"] = self.average.flat
        if snapshot is not None and (saved := snapshot.load(identity)) is not None:
            for name, tensor in state.items():
                tensor.copy_(saved[name])
            self.stack.refresh()
            done = int(self.epoch)
            waited = self._waited(record[:done], patience)
        with matmul_precision(self.tf32), freed_memory_kept(self.device):
            while done < epochs and not (stop or waited):
                self.train_epoch()
                for evaluate in self.evaluations:
                    evaluate()
                torch.stack(rows, out=record[done])
                done += 1
                if keep != "last":
                    score = self.parts[keep].metric * (1 if self.metric is METRICS["cross_entropy"] else -1)
                    better = score > best_score
                    best_score.copy_(torch.where(better, score, best_score))
                    best_epoch.masked_fill_(better, done)
                    best.copy_(torch.where(better.unsqueeze(1), self._used, best))
                if on_epoch is not None:
                    stop = bool(on_epoch(done, {name: part.metric for name, part in self.parts.items()}))
                waited = self._waited(record[:done], patience)
                if snapshot is not None and (stop or snapshot.due(last=waited or done == epochs)):
                    snapshot.save(state, identity)
        table = record[:done].permute(1, 2, 0).cpu().numpy()
        by_part = {name: table[2 + 3 * i : 5 + 3 * i] for i, name in enumerate(self.parts)}
        masks = [t[2] for t in by_part.values()]
        if self.has_masks and not all(r.evaluate for r in self.replicas):
            masks.append(np.full_like(table[0], np.nan))
            masks[-1][:, -1] = self._trained_masks()
        return History(
            train_loss=table[0],
            train_metric=table[1],
            loss={name: t[0] for name, t in by_part.items()},
            metric={name: t[1] for name, t in by_part.items()},
            weights=[self.stack.state(best, r) for r in range(len(self.replicas))],
            epoch=np.full(len(self.replicas), done) if keep == "last" else best_epoch.cpu().numpy(),
            troubles=find_troubles(
                [r.seed for r in self.replicas],
                *(table[0], masks, torch.isfinite(self.stack.flat).all(dim=1).cpu().numpy()),
            ),
            interrupted=stop and done < epochs,
        )

    def train_epoch(self) -> None:
        """Every training graph once."""
        self.begin()
        capture_all([self.steps[k] for k in sorted(set(self.order), key=lambda k: -self.train_plans[k].rows)])
        for k in self.order:
            self.steps[k]()

    def _waited(self, record: Tensor, patience: tuple[str, int] | None) -> bool:
        """Whether no replica's metric of a part has improved in the last epochs."""
        if patience is None or patience[0] not in self.parts:
            return False
        metric = record[:, 3 + 3 * list(self.parts).index(patience[0])]
        score = metric if self.metric is METRICS["cross_entropy"] else -metric
        since = len(score) - 1 - torch.where(torch.isfinite(score), score, -torch.inf).argmax(dim=0)
        # A replica without the part waits for ever.
        return bool(((since >= patience[1]) & torch.isfinite(score).any(dim=0)).all())

    def _identity(self, epochs: int, keep: str) -> str:
        dtypes = (self.stack.flat.dtype, self.stack.copy.dtype, self.tf32, self.tf32_gradients)
        inputs, model = self.graphs.inputs, f"{self.adam.decoupled} {self.model!r}"
        dealt = self.classes if len(self.classes) > 1 else self.train_plans[0].slots
        shape = (epochs, keep, dealt, [tuple(t.shape) for t in inputs], self.loss.__name__)
        more = f"{self.given.content_hash()} {self.graphs.store.num_nodes} {dtypes} {shape} {model}"
        more = f"{self.committee} {more}" if self.committee > 1 else more
        return fingerprint(self.replicas, self.stack.flat, more, inputs)

    def _begin_epoch(self) -> None:
        """Deals the training graphs into batches and sets the rates."""
        self.epoch += 1
        self.lr.copy_(self.first_lr * self.decay ** ((self.epoch - 1) // self.decay_every))
        keys = fold_key(fold_key(self.keys, _SHUFFLE), self.epoch)
        for table, made in zip(self.tables, self.train_plans):
            table.copy_(deal(made, keys))
        for counted in (self.cursor, self.train_loss, self.train_metric):
            counted.zero_()

    def _step(self, k: int) -> None:
        """One update, with graphs of size class `k`, of every replica that still has a batch of them this epoch."""
        self.model.train()
        gradients, counted, kept = zip(*self._of_crews(partial(self._gradients, k), self.crews), strict=True)
        self._run_update(k, gradients, counted, kept)

    def _of_crews(self, run: Callable[[_Work], _Result], crews: Sequence[_Work]) -> list[_Result]:
        """What `run` gives for every crew, or for what belongs to it; small ones on the CPU side by side."""
        row = self.stack.copy.itemsize * getattr(self.model, "hidden_channels", 1)
        if self.graphs.levels is not None and self.train_plans[0].nodes * row <= _SMALL:
            return side_by_side(run, crews)
        return [run(crew) for crew in crews]

    def _gradients(self, k: int, crew: Crew) -> tuple[Sequence[Tensor], Sequence[Tensor], dict[str, Tensor]]:
        """The gradients of a crew's next batch, loss and metric of its graphs, and the models' statistics after it."""
        batch, y, buffers = self._run_prepare(k, crew)
        with torch.enable_grad():
            total, statistics, *sums = self._run_loss(crew, batch, y, buffers)
        with matmul_precision(self.tf32_gradients):
            found = differentiated(total, crew)
        return found if crew.alone is None else [g.unsqueeze(0) for g in found], sums, statistics

    def _next_graphs(self, k: int) -> Tensor:
        return self.tables[k].index_select(0, self.cursor[k : k + 1]).squeeze(0)

    def _prepare(self, k: int, crew: Crew) -> tuple[Batch | LevelledBatch, Tensor, dict[str, Tensor]]:
        """The next batch of every replica, its targets, and the keys of its dropout."""
        graphs, made = self._next_graphs(k)[crew.rows], self.train_plans[k]
        batch = self.graphs.batch(graphs, made.nodes, made.layout)
        return batch, self._targets_of(crew.rows, graphs), self._dropout_buffers(crew)

    def _loss(self, crew: Crew, batch: Batch | LevelledBatch, y: Tensor, buffers: dict[str, Tensor]) -> tuple[Any, ...]:
        """What is differentiated, the sum over replicas of the mean loss and of what the model adds; the models'
        statistics after this batch; and loss and metric of each one's graphs.
        """
        out, extra, _, kept = self.models.forward(crew, batch, buffers, y)
        there = batch.graphs >= 0
        loss = torch.where(there, self.loss(out, y), 0).sum(dim=1)
        # The gradient of the sum is each replica's own: none sees another's parameters.
        total = (loss / there.sum(dim=1).clamp(min=1) + extra).sum()
        kept = {name: t.detach() for name, t in kept.items()}
        return total, kept, loss.detach(), torch.where(there, self._score(crew.rows, out.detach(), y), 0).sum(dim=1)

    def _score(self, rows: slice, out: Tensor, y: Tensor) -> Tensor:
        """The metric of every graph of some replicas."""
        if self.metric is METRICS["cross_entropy"]:
            return self.metric(out, y)
        # Errors are reported in the target's own unit.
        std = self.std[rows].unsqueeze(1)
        return self.metric(out.double() * std, y.double() * std)

    def _update(
        self,
        k: int,
        gradients: Sequence[Sequence[Tensor]],
        counted: Sequence[Sequence[Tensor]],
        kept: Sequence[dict[str, Tensor]],
    ) -> None:
        active = (self._next_graphs(k) >= 0).any(dim=1)
        if self.device.type == "cuda":
            self.adam.step(torch.cat([self.stack.gather(g) for g in gradients]), self.lr, active)
        else:
            # Crew by crew, each while its gradients are in the caches.
            self._of_crews(partial(self._move, active), list(zip(self.crews, gradients)))
        for crew, statistics in zip(self.crews, kept):
            for name, now in statistics.items():
                # A replica without a batch has seen nothing.
                on = active[crew.rows].reshape(-1, *[1] * (now.dim() - 1))
                crew.statistics[name].copy_(torch.where(on, now, crew.statistics[name]))
        if self.average is not None:
            self.average.step(self.stack.flat, self.adam.steps, active)
        self.stack.refresh()
        for sums, total in zip(zip(*counted), (self.train_loss, self.train_metric)):
            total.add_(torch.cat(sums) / self.train_counts)
        # Warming up a program takes steps of its own, perhaps more than an epoch has.
        self.cursor[k].add_(1).remainder_(self.train_plans[k].steps)

    def _move(self, active: Tensor, crew: tuple[Crew, Sequence[Tensor]]) -> None:
        self.adam.step(self.stack.gather(crew[1]), self.lr, active, crew[0].first)

    def _dropout_buffers(self, crew: Crew) -> dict[str, Tensor]:
        """Key and rate of every dropout of every replica for this step."""
        rows = crew.rows
        keys = fold_key(fold_key(self.keys[rows], _DROPOUT), self.adam.steps[rows].squeeze(1).long())
        buffers = {}
        for i, name in enumerate(self.dropouts):
            buffers[f"{name}.key"] = fold_key(keys, i)
            buffers[f"{name}.rate"] = self.rates[name][rows]
        return buffers

    def _targets_of(self, rows: slice, graphs: Tensor) -> Tensor:
        """The targets of some replicas' graphs."""
        ids = graphs.clamp(min=0)
        if self.y.dim() == 1:
            return self.y[ids]
        replicas = torch.arange(rows.start, rows.stop, device=self.device).unsqueeze(1)
        return self.y[replicas, ids]

    @torch.no_grad()
    def _evaluate(self, part: _Part) -> None:
        """Mean loss and metric of each replica over its graphs of a part, and its most closed layer's largest mask."""
        self.model.eval()
        with self._averaged():
            for jury in self.juries:
                self._evaluate_jury(jury, part)

    def _evaluate_jury(self, jury: Sequence[Crew], part: _Part) -> None:
        rows = slice(jury[0].first, jury[-1].last)
        loss, metric, largest = zip(
            *(
                self._run_scores(jury, graphs[rows], made.nodes, made.layout)
                for table, made in zip(part.graphs, part.plans)
                for graphs in table
            ),
            strict=True,
        )
        counts = part.counts[rows]
        part.loss[rows] = sum(loss) / counts
        part.metric[rows] = sum(metric) / counts
        # Over batches the largest, over layers the smallest: one closed layer is enough to kill the network.
        closed = torch.stack(largest).amax(dim=0).amin(dim=1).double()
        part.mask[rows] = torch.where(counts > 0, closed, torch.nan)

    @torch.no_grad()
    def _trained_masks(self) -> np.ndarray:
        """The largest mask of each replica's most closed layer over its training graphs, once, as the weights are now:
        for replicas that evaluate nothing.
        """
        self.model.eval()
        with self._averaged():
            largest = [
                torch.stack(
                    [
                        self._answers(crew, graphs[crew.rows], made.nodes, made.layout)[1]
                        for table, made in zip(self.tables, self.train_plans)
                        for graphs in table
                    ]
                )
                for crew in self.crews
            ]
        return torch.cat([masks.amax(dim=0).amin(dim=1) for masks in largest]).double().cpu().numpy()

    def _answers(self, crew: Crew, graphs: Tensor, nodes: int, layout: Layout | None) -> tuple[Tensor, Tensor]:
        """What the models of a crew say of a batch, and their largest masks by layer."""
        batch = self.graphs.batch(graphs, nodes, layout, again=True)
        out, _, masks, _ = self.models.forward(crew, batch, {}, masks=self.has_masks)
        return out, torch.ones_like(out[:, 0, :1]) if masks is None else masks

    def _scores(
        self, jury: Sequence[Crew], graphs: Tensor, nodes: int, layout: Layout | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Loss and metric summed over a batch's graphs, ``[replicas]``, and the largest masks by layer."""
        rows = slice(jury[0].first, jury[-1].last)
        parts = [graphs[crew.first - rows.start : crew.last - rows.start] for crew in jury]
        answers = [self._answers(crew, part, nodes, layout) for crew, part in zip(jury, parts)]
        out = torch.cat([out for out, _ in answers])
        out = as_one(out, self.committee, self.metric is METRICS["cross_entropy"])
        y, there = self._targets_of(rows, graphs), graphs >= 0
        return (
            torch.where(there, self.loss(out, y), 0).sum(dim=1).double(),
            torch.where(there, self._score(rows, out, y), 0).sum(dim=1).double(),
            torch.cat([masks for _, masks in answers]),
        )


def _as_it_is(method: Any) -> Any:
    return method


def _compiled(method: MethodType) -> Any:
    # torch keeps what it compiled with the code, for a few callers only; a copy makes each fleet the only one.
    plain = method.__func__
    copy = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__)
    return torch.compile(MethodType(copy, method.__self__), dynamic=False)
