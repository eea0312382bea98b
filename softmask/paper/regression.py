"""Rows of Table 2: a kind of model, trained on all targets of QM9 side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.atom_references import atom_masses, subtract_references
from softmask.data.features import Features
from softmask.data.splits import holdout
from softmask.data.store import GraphStore
from softmask.errors import DataError, SettingError, StudyInterrupted
from softmask.fleet import OnEpoch, Replica, train_in_waves
from softmask.fleet.pairs import StorePairs
from softmask.nn import VARIANTS, GeometricSoftMaskGNN, SoftMaskGNN
from softmask.nn.geometric_gnn import select
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

BOND_KINDS = (1, 2, 3, 12)


def bond_features(store: GraphStore) -> Tensor:
    """What the paper gives the layers of a bond: its kind, one-hot, and its length by the longest of the molecule."""
    kinds = _kinds(store)
    assert store.edge_attr is not None
    _, target = store.edges()
    graph = store.batch[target]
    longest = torch.zeros(store.num_graphs).scatter_reduce(0, graph, store.edge_attr[:, 0].float(), "amax")
    return torch.cat([kinds, (store.edge_attr[:, 0].float() / longest[graph]).unsqueeze(1)], dim=1)


def _kinds(store: GraphStore) -> Tensor:
    """The kinds of bonds, one-hot."""
    if store.edge_label is None or store.edge_attr is None:
        raise DataError("these graphs have no bond kinds and lengths; Table 2 is about QM9 (softmask data get qm9)")
    return (store.edge_label[:, :1] == torch.tensor(BOND_KINDS)).float()


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
        about: for the record.
    """

    store: GraphStore
    buffers: list[dict[str, list[float]]]
    options: dict[str, Any]
    about: dict[str, Any]


@dataclass(frozen=True)
class Regression:
    """One of the paper's rows: a variant on all targets.

    Args:
        variant: ``smg-jk`` or ``m-smg-jk``.
        settings: of the model.
        ratios: of the training, validation and test part.
        seed: of the split and of the weights.
    """

    variant: str
    settings: Settings
    ratios: tuple[float, ...]
    seed: int = 0

    def path(self, out: Path) -> Path:
        """Its record."""
        return out / "table2" / f"{self.variant}-seed{self.seed}.json"

    def model(self, in_channels: int) -> Module:
        """A model with fresh weights."""
        s = self.settings
        return SoftMaskGNN(
            *(in_channels, s.hidden, s.layers, 1),
            readout=s.readout,
            dropout=s.dropout,
            head="regressor",
            edge_channels=len(BOND_KINDS) + 1,
            **VARIANTS[self.variant],
        )

    def about(self) -> dict[str, Any]:
        """What its record says of how it was made, beside the data."""
        return {"settings": self.settings.to_json()}

    def done(self, store: GraphStore, out: Path) -> bool:
        """Whether its record is there; one that was made otherwise is refused, since it is not this row's."""
        path = self.path(out)
        if not path.is_file():
            return False
        record, wanted = read_json(path), self.about() | {"data_hash": store.content_hash()}
        if changed := [name for name in wanted if record.get(name) != wanted[name]]:
            raise SettingError(
                f"{path} was made with other {' and '.join(changed)}; move it away, or give another folder with --out"
            )
        return True

    def lesson(self, store: GraphStore, train: np.ndarray) -> Lesson:
        """What its fleet is to learn, given the training molecules."""
        options = {"loss": "mse", "edge_x": bond_features(store)}
        return Lesson(store, [{} for _ in store.info["targets"]], options, {})

    def run(self, store: GraphStore, out: Path, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains a model for each target and writes their record; goes on from a snapshot if there is one."""
        s, names = self.settings, store.info["targets"]
        features = Features.of(store)
        train, validation, test = holdout(store.num_graphs, self.ratios, self.seed)
        lesson = self.lesson(store, train)
        replicas = [
            Replica(
                *((self.seed * 1000 + column) % 2**32, train, {"validation": validation, "test": test}),
                lr=s.lr,
                decay=s.decay,
                decay_every=s.decay_every,
                target=column,
                buffers=buffers,
            )
            for column, buffers in enumerate(lesson.buffers)
        ]
        path = self.path(out)
        snapshots = path.with_suffix("")
        snapshots.mkdir(parents=True, exist_ok=True)
        history, _, _ = train_in_waves(
            *(lambda: self.model(features.channels), lesson.store, features(store), replicas, s.epochs),
            batch_size=s.batch_size,
            on_epoch=on_epoch,
            device=device,
            snapshots=snapshots,
            **lesson.options,
        )
        if history.interrupted:
            raise StudyInterrupted
        # An epoch without a finite error is never the best.
        errors = history.metric["validation"]
        epoch = np.where(np.isfinite(errors), errors, np.inf).argmin(axis=1)
        rows = np.arange(len(names))
        record = {
            "data": store.info.get("name"),
            "data_hash": store.content_hash(),
            "variant": self.variant,
            **self.about(),
            **lesson.about,
            "parts": [len(train), len(validation), len(test)],
            "constant_mae": dict(zip(names, _constant_mae(lesson.store, train, test))),
            "epoch": dict(zip(names, (epoch + 1).tolist())),
            "test_mae": dict(zip(names, history.metric["test"][rows, epoch].tolist())),
            "validation_mae": dict(zip(names, history.metric["validation"][rows, epoch].tolist())),
            "curves": {part: history.metric[part].tolist() for part in ("validation", "test")},
            "troubles": [str(t) for t in history.troubles],
            "provenance": provenance(seed=self.seed),
        }
        write_json(path, record)
        for file in snapshots.iterdir():
            file.unlink()
        snapshots.rmdir()


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

    def model(self, in_channels: int) -> Module:
        """A model with fresh weights; its readout is given by buffers."""
        s = self.settings
        return GeometricSoftMaskGNN(
            *(in_channels, s.hidden, s.layers, len(BOND_KINDS)),
            multi_channel=VARIANTS[s.variant]["multi_channel"],
            num_radial=self.num_radial,
            cutoff=self.cutoff,
        )

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
        buffers = []
        for column, name in enumerate(store.info["targets"]):
            readout = self.readouts[name]
            offset = float(zero[column]) if readout == "dipole" else 0.0
            buffers.append({"select": select(readout).tolist(), "offset": [offset]})
        pairs = StorePairs.of(store, _kinds(store).argmax(dim=1) + 1, atom_masses(store))
        return Lesson(rest, buffers, {"loss": self.loss, "pairs": pairs}, {"references": references})
