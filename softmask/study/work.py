"""One job of a study: a fleet, from the trials to the files of its record."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from softmask.baselines.once import number_of_fits
from softmask.baselines.own import check_elsewhere
from softmask.baselines.registry import SOFT_MASK, way_of
from softmask.baselines.train import train_baseline
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.errors import DataError, StudyInterrupted
from softmask.fleet import History, train_in_waves
from softmask.fleet.precision import precision_name
from softmask.nn.committee import joint_state
from softmask.study.record import KEYS, VALUES, read_done, read_json, write_json, write_metrics
from softmask.study.settings import Settings
from softmask.study.trial import Job

# Called after every epoch of a job with its number; True ends the study.
OnEpoch = Callable[[int], bool | None]


@dataclass(frozen=True, eq=False)
class Work:
    """What the jobs of a study have in common.

    Args:
        folder: of the study.
        question: hash of the study's question, by which its jobs are known.
        settings: all settings of the study.
        task: ``classification`` or ``regression``.
        precision: of the arithmetic.
        patience: ends a fleet when no model's validation part has improved for so many epochs.
        weights: whether the final weights are kept.
        force: whether kernels are computed that are estimated to take beyond reason.
    """

    folder: Path
    question: str
    settings: Sequence[Settings]
    task: str
    precision: str
    patience: int | None
    weights: bool
    force: bool = False

    def check_elsewhere(self, machines: bool = False) -> None:
        """Refuses models that other processes, or those of other `machines`, could not find."""
        for settings in self.settings:
            check_elsewhere(settings.model, machines)

    def done(self, job: Job) -> bool:
        """Whether the job's record is complete."""
        place = self.folder / "jobs" / job.name
        if not (place / "done.json").is_file() or read_done(place / "done.json").get("question") != self.question:
            return False
        return not self.weights or (place / "weights.safetensors").is_file()

    def run(self, job: Job, store: GraphStore, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains a job's models and writes its record; goes on from a snapshot if there is one."""
        place = self.folder / "jobs" / job.name
        place.mkdir(parents=True, exist_ok=True)
        begin = saved = monotonic()
        spent = _spent(place / "spent.json")
        shape = self.settings[job.trials[0].setting]

        def report(epoch: int, metrics: dict[str, torch.Tensor]) -> bool | None:
            nonlocal saved
            if monotonic() - saved > 30:
                saved = monotonic()
                write_json(place / "spent.json", spent + saved - begin)
            return None if on_epoch is None else on_epoch(epoch)

        replicas = [r for t in job.trials for r in t.replicas(self.settings[t.setting])]
        options: dict[str, Any] = {
            "epochs": job.trials[0].epochs,
            "patience": None if self.patience is None else ("validation", self.patience),
            "device": device,
            "precision": self.precision,
            "snapshots": place,
        }
        if shape.model != SOFT_MASK:
            history = train_baseline(
                *(shape, store, replicas), **options, on_epoch=lambda epoch: report(epoch, {}), force=self.force
            )
        else:
            features, edges = Features.of(store, attributes=shape.attributes), shape.edge_features(store)
            outputs = len(store.info["classes"]) if self.task == "classification" else store.y.size(1)  # type: ignore[union-attr]
            history, _, _ = train_in_waves(
                lambda: shape.build(features, outputs, self.task, edges),
                *(store, features(store), replicas),
                **options,
                batch_size=shape.batch_size,
                on_epoch=report,
                loss="cross_entropy" if self.task == "classification" else "mse",
                committee=shape.committee,
                edge_x=None if edges is None else edges(store),
            )
        seconds = spent + monotonic() - begin
        if history.interrupted:
            write_json(place / "spent.json", seconds)
            raise StudyInterrupted
        write_metrics(place / "metrics.parquet", _columns(job, history, shape.committee))
        if self.weights:
            _write_weights(place / "weights.safetensors", history, shape.committee)
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
        done = {
            "question": self.question,
            "replicas": number_of_fits(replicas) if way_of(shape.model) == "once" else len(replicas),
            "wall_s": round(seconds, 3),
            "device": name,
            "precision": _precision(self.precision, shape.model, device),
            "way": way_of(shape.model),
            "troubles": [str(t) for t in history.troubles],
        }
        write_json(place / "done.json", done)
        for file in (*place.glob("replicas-*.safetensors"), place / "spent.json"):
            file.unlink(missing_ok=True)


def _precision(precision: str, model: str, device: str) -> str:
    if way_of(model) == "fleet":
        return precision_name(precision, torch.device(device))  # type: ignore[arg-type]
    return "float32" if way_of(model) == "one by one" else "float64"


def _spent(path: Path) -> float:
    """Seconds that earlier processes spent on a job; it is only a time, so a damaged file is no reason to stop."""
    try:
        return float(read_json(path))
    except (DataError, TypeError, ValueError):
        return 0.0


def _columns(job: Job, history: History, committee: int) -> dict[str, Any]:
    models, epochs = len(job.trials), history.epochs
    columns: dict[str, Any] = {name: np.full(models * epochs, np.nan) for name in VALUES}
    for name in KEYS[:-1]:
        columns[name] = np.repeat(np.array([getattr(t, name) for t in job.trials]), epochs)
    columns["epoch"] = np.tile(np.arange(1, epochs + 1), models)
    # In training, the members of a committee have figures of their own.
    for name, of_members in (("train_loss", history.train_loss), ("train_metric", history.train_metric)):
        columns[name] = of_members.reshape(models, committee, epochs).mean(axis=1).ravel()
    for part in history.loss:
        for name, of_all in ((f"{part}_loss", history.loss[part]), (f"{part}_metric", history.metric[part])):
            columns[name] = of_all[::committee].ravel()
    return columns


def _write_weights(path: Path, history: History, committee: int) -> None:
    from safetensors.torch import save_file

    from softmask.atomic import atomic_path

    states = [joint_state(history.weights[i : i + committee]) for i in range(0, len(history.weights), committee)]
    with atomic_path(path) as temporary:
        save_file({f"{i}.{name}": t for i, w in enumerate(states) for name, t in w.items()}, temporary)
