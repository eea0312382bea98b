"""Rows of Table 2: a kind of model, trained on all targets of QM9 side by side."""

from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.atom_references import subtract_references
from softmask.data.bonds import BOND_KINDS
from softmask.data.edge_features import EdgeFeatures
from softmask.data.features import Features
from softmask.data.qm9 import TARGETS
from softmask.data.splits import holdout
from softmask.data.store import GraphStore
from softmask.errors import SettingError, StudyInterrupted
from softmask.estimator import load_model
from softmask.fleet import History, OnEpoch, Replica, train_in_waves
from softmask.fleet.pairs import StorePairs
from softmask.fleet.precision import precision_name
from softmask.model_file import TrainedModel, save_model
from softmask.nn import GeometricSoftMaskGNN, SoftMaskGNN
from softmask.nn.geometric_gnn import select
from softmask.study.geometric import Geometric
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

BONDS = EdgeFeatures(values=(tuple(BOND_KINDS.values()),), mean=(0.0,), std=(1.0,), relative=True)
"""What the paper gives the layers of a bond: its kind, one-hot, and its length by the longest of the molecule."""


def _constant_mae(store: GraphStore, train: np.ndarray, test: np.ndarray) -> list[float]:
    """Of each target, the error on the test part of always saying the training part's mean: what no network needs."""
    assert store.y is not None
    mean = store.y[torch.as_tensor(train)].mean(dim=0)
    return (store.y[torch.as_tensor(test)] - mean).abs().mean(dim=0).tolist()


class Lesson(NamedTuple):
    """What a fleet is to learn.

    Args:
        store: the graphs, with the targets as they are learned.
        buffers: for each target, the buffers of its replica.
        options: of the fleet.
        geometric: for each target, what its model has beside its settings, if it sees where the atoms are.
        about: for the record.
    """

    store: GraphStore
    buffers: list[dict[str, list[float]]]
    options: dict[str, Any]
    geometric: list[Geometric | None]
    about: dict[str, Any]


@dataclass(frozen=True)
class Regression:
    """One of the paper's rows: a variant on all targets. Its models are kept, if :attr:`keeps_models`.

    Args:
        variant: ``smg-jk`` or ``m-smg-jk``.
        settings: of the model.
        ratios: of the training, validation and test part.
        whole: the epochs of the recipe, where the settings may have fewer.
        seed: of the split and of the weights.
    """

    variant: str
    settings: Settings
    ratios: tuple[float, ...]
    whole: int
    seed: int = 0
    keeps_models: ClassVar[bool] = True

    def path(self, out: Path) -> Path:
        """Its record."""
        return out / "table2" / f"{self.variant}-seed{self.seed}.json"

    def model_path(self, out: Path, target: str) -> Path:
        """The model that is kept for a target."""
        return self.path(out).with_suffix("") / f"{target}.safetensors"

    def model(self, features: Features) -> Module:
        """A model with fresh weights."""
        return self.settings.build(features, 1, "regression", BONDS)

    def about(self) -> dict[str, Any]:
        """What its record says of how it was made, beside the data."""
        return {"settings": self.settings.to_json()}

    def done(self, store: GraphStore, out: Path) -> bool:
        """Whether its record is there and whole; one that was made otherwise is refused, since it is not this row's."""
        path = self.path(out)
        if not path.is_file():
            return False
        record, wanted = read_json(path), self.about() | {"data_hash": store.content_hash()}
        if changed := [name for name in wanted if record.get(name) != wanted[name]]:
            raise SettingError(
                f"{path} was made with other {' and '.join(changed)}; move it away, or give another folder with --out"
            )
        return not record.get("cut", False)

    def lesson(self, store: GraphStore, train: np.ndarray) -> Lesson:
        """What its fleet is to learn, given the training molecules."""
        targets = store.info["targets"]
        # Half precision moves an energy of hundreds of Hartree by more than the paper's error (benchmarks/rounding.py).
        options = {"loss": "mse", "edge_x": BONDS(store), "precision": "tf32-gradients"}
        return Lesson(store, [{} for _ in targets], options, [None for _ in targets], {})

    def run(self, store: GraphStore, out: Path, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains a model for each target, keeps the best by validation, and writes their record.

        It goes on from a snapshot if there is one. Where `on_epoch` ends it before its last epoch, the record and the
        models are those of the epochs so far, the record says that it was cut, and :class:`StudyInterrupted` is raised.
        """
        s, names = self.settings, store.info["targets"]
        features = Features.of(store)
        parts = dict(zip(("train", "validation", "test"), holdout(store.num_graphs, self.ratios, self.seed)))
        train, scored = parts["train"], {name: parts[name] for name in ("validation", "test")}
        lesson = self.lesson(store, train)
        replicas = [
            Replica(
                *((self.seed * 1000 + column) % 2**32, train, scored),
                lr=s.lr,
                decay=s.decay,
                decay_every=s.decay_every,
                target=column,
                buffers=buffers,
            )
            for column, buffers in enumerate(lesson.buffers)
        ]
        path = self.path(out)
        snapshots = path.with_suffix("") / "snapshots"
        snapshots.mkdir(parents=True, exist_ok=True)
        ticks: list[float] = []

        def tick(epoch: int, metrics: dict[str, Tensor]) -> bool | None:
            ticks.append(monotonic())
            return None if on_epoch is None else on_epoch(epoch, metrics)

        history, mean, std = train_in_waves(
            *(lambda: self.model(features), lesson.store, features(store), replicas, s.epochs),
            batch_size=s.batch_size,
            keep="validation",
            on_epoch=tick,
            device=device,
            snapshots=snapshots,
            **lesson.options,
        )
        if len(history.weights) < len(names) or (history.interrupted and _epochs(path) > history.epochs):
            # Cut before all targets had begun, or sooner than an earlier try whose snapshot is gone.
            raise StudyInterrupted
        digest = store.content_hash()
        scales = list(zip(mean.tolist(), std.tolist()))
        if self.keeps_models:
            errors = self._keep(store, digest, features, lesson, history, scales, scored, out, device)
        else:
            errors = {part: _chosen(history, part, names) for part in scored}
        record = {
            "data": store.info.get("name"),
            "data_hash": digest,
            "variant": self.variant,
            **self.about(),
            **lesson.about,
            "precision": precision_name(lesson.options["precision"], torch.device(device)),
            "epochs": {"trained": history.epochs, "of": self.whole},
            "cut": history.interrupted,
            # The median over the epochs of this process but the first, which compiles.
            "seconds_an_epoch": float(np.median(np.diff(ticks))) if len(ticks) > 1 else None,
            "parts": [len(ids) for ids in parts.values()],
            "constant_mae": dict(zip(names, _constant_mae(lesson.store, train, parts["test"]))),
            "epoch": dict(zip(names, history.epoch.tolist())),
            "test_mae": errors["test"],
            "validation_mae": errors["validation"],
            "curves": {part: history.metric[part].tolist() for part in scored},
            "troubles": [str(t) for t in history.troubles],
            "provenance": provenance(seed=self.seed),
        }
        write_json(path, record)
        if history.interrupted:
            raise StudyInterrupted
        for file in snapshots.iterdir():
            file.unlink()
        snapshots.rmdir()

    def _keep(
        self,
        store: GraphStore,
        digest: str,
        features: Features,
        lesson: Lesson,
        history: History,
        scales: list[tuple[list[float], list[float]]],
        scored: dict[str, np.ndarray],
        out: Path,
        device: str,
    ) -> dict[str, dict[str, float]]:
        """Writes the models, and gives the errors of these files by part and target: what anyone gets with them."""
        half = precision_name(lesson.options["precision"], torch.device(device)) == "bf16"
        chosen = {part: store.select(ids) for part, ids in scored.items()}
        errors: dict[str, dict[str, float]] = {part: {} for part in scored}
        for column, target in enumerate(store.info["targets"]):
            state, (mean, std) = history.weights[column], scales[column]
            with torch.random.fork_rng(devices=[]):
                model = self.model(features)
            assert isinstance(model, SoftMaskGNN | GeometricSoftMaskGNN)
            model.load_state_dict(_as_computed(model, state) if half else state)
            trained = TrainedModel(
                task="regression",
                settings=self.settings,
                features=features,
                outputs=1,
                model=model.eval(),
                classes=None,
                mean=tuple(mean),
                std=tuple(std),
                summary={
                    "data": store.info.get("name"),
                    "data_hash": digest,
                    "graphs": store.num_graphs - sum(map(len, scored.values())),
                    "epochs": history.epochs,
                    "epoch": int(history.epoch[column]),
                    "interrupted": history.interrupted,
                    "train_loss": float(history.train_loss[column, -1]),
                    "seed": self.seed,
                    "device": device,
                    "unit": TARGETS[target][0],
                    "split": {"ratios": list(self.ratios), "seed": self.seed, "graphs": store.num_graphs},
                },
                edge_features=BONDS if self.settings.edges else None,
                targets=[target],
                geometric=lesson.geometric[column],
            )
            path = self.model_path(out, target)
            save_model(trained, path)
            kept = load_model(path, device)
            for part, graphs in chosen.items():
                assert graphs.y is not None
                errors[part][target] = float(np.abs(kept.predict(graphs) - graphs.y[:, column].numpy()).mean())
        return errors


def _chosen(history: History, part: str, names: list[str]) -> dict[str, float]:
    """The errors of a part in the chosen epochs, by target."""
    epochs = np.maximum(history.epoch, 1)
    return {name: float(history.metric[part][column, epochs[column] - 1]) for column, name in enumerate(names)}


def _epochs(path: Path) -> int:
    """How many epochs an earlier record has; 0 if there is none."""
    return int(read_json(path)["epochs"]["trained"]) if path.is_file() else 0


def _as_computed(model: SoftMaskGNN | GeometricSoftMaskGNN, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as a fleet computed with them in half precision; in a model file they then take half the bytes."""
    whole = tuple(f"{name}." for name in model.full_precision)
    rounded = {name for name, _ in model.named_parameters() if not name.startswith(whole)}
    return {name: t.bfloat16().float() if name in rounded else t for name, t in state.items()}


@dataclass(frozen=True, kw_only=True)
class GeometricRegression(Regression):
    """A row beyond the paper: the model sees where the atoms are (:class:`softmask.nn.GeometricSoftMaskGNN`).

    Args:
        num_radial, cutoff: of the model.
        loss: what is minimised, on targets of mean 0 and deviation 1.
        readouts: by target.
        references: by target, what it is linear in and the model need not learn
            (:func:`softmask.data.atom_references.subtract_references`).
    """

    num_radial: int
    cutoff: float
    loss: str
    readouts: dict[str, str]
    references: dict[str, list[str]]

    def model(self, features: Features) -> Module:
        """A model with fresh weights; its readout is given by buffers."""
        return Geometric("sum", self.num_radial, self.cutoff).build(self.settings, features)

    def about(self) -> dict[str, Any]:
        """What its record says of how it was made, beside the data."""
        model = {"num_radial": self.num_radial, "cutoff": self.cutoff, "loss": self.loss}
        return super().about() | {"model": model, "readouts": self.readouts}

    def lesson(self, store: GraphStore, train: np.ndarray) -> Lesson:
        """What its fleet is to learn, given the training molecules."""
        rest, references = subtract_references(store, self.references, train)
        assert rest.y is not None
        part = rest.y[torch.as_tensor(train)]
        # The fleet learns (y - mean) / std; the length of a dipole is not negative, and zero means zero.
        zero = -part.mean(dim=0) / part.std(dim=0, correction=0)
        buffers, geometric = [], []
        for column, name in enumerate(store.info["targets"]):
            readout = self.readouts[name]
            offset = float(zero[column]) if readout == "dipole" else 0.0
            buffers.append({"select": select(readout).tolist(), "offset": [offset]})
            linear = (tuple(self.references.get(name, ())), tuple(references.get(name, ())))
            geometric.append(Geometric(readout, self.num_radial, self.cutoff, *linear))
        options = {"loss": self.loss, "pairs": StorePairs.of_atoms(store), "precision": "auto"}
        return Lesson(rest, buffers, options, [*geometric], {"references": references})
