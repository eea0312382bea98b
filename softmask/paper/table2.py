"""Table 2 of the paper: mean absolute errors of SMG-JK and M-SMG-JK on the 12 targets of QM9."""

import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softmask.data.features import Features
from softmask.data.splits import holdout
from softmask.data.store import GraphStore
from softmask.errors import DataError, StudyInterrupted
from softmask.fleet import OnEpoch, Replica, train_in_waves
from softmask.nn import VARIANTS, SoftMaskGNN
from softmask.paper.published import OURS, published
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

BOND_KINDS = (1, 2, 3, 12)
OTHERS = ("DTNN", "MPNN", "PPGNN")


def bond_features(store: GraphStore) -> Tensor:
    """What the paper gives the layers of a bond: its kind, one-hot, and its length by the longest of the molecule."""
    if store.edge_label is None or store.edge_attr is None:
        raise DataError("these graphs have no bond kinds and lengths; Table 2 is about QM9 (softmask data get qm9)")
    kinds = (store.edge_label[:, :1] == torch.tensor(BOND_KINDS)).float()
    _, target = store.edges()
    graph = store.batch[target]
    longest = torch.zeros(store.num_graphs).scatter_reduce(0, graph, store.edge_attr[:, 0].float(), "amax")
    return torch.cat([kinds, (store.edge_attr[:, 0].float() / longest[graph]).unsqueeze(1)], dim=1)


@dataclass(frozen=True)
class Regression:
    """One row of the table: a variant on all targets.

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

    def run(self, store: GraphStore, out: Path, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains a model for each target and writes their record; goes on from a snapshot if there is one."""
        assert store.y is not None
        s, names = self.settings, store.info["targets"]
        features, edge_x = Features.of(store), bond_features(store)
        train, validation, test = holdout(store.num_graphs, self.ratios, self.seed)
        replicas = [
            Replica(
                *((self.seed * 1000 + column) % 2**32, train, {"validation": validation, "test": test}),
                lr=s.lr,
                decay=s.decay,
                decay_every=s.decay_every,
                target=column,
            )
            for column in range(len(names))
        ]
        path = self.path(out)
        snapshots = path.with_suffix("")
        snapshots.mkdir(parents=True, exist_ok=True)

        def build() -> SoftMaskGNN:
            return SoftMaskGNN(
                features.channels,
                s.hidden,
                s.layers,
                1,
                readout=s.readout,
                dropout=s.dropout,
                head="regressor",
                edge_channels=edge_x.size(1),
                **VARIANTS[self.variant],
            )

        history, _, _ = train_in_waves(
            *(build, store, features(store), replicas, s.epochs),
            batch_size=s.batch_size,
            on_epoch=on_epoch,
            device=device,
            snapshots=snapshots,
            loss="mse",
            edge_x=edge_x,
        )
        if history.interrupted:
            raise StudyInterrupted
        epoch = history.metric["validation"].argmin(axis=1)
        rows = np.arange(len(names))
        record = {
            "data": store.info.get("name"),
            "data_hash": store.content_hash(),
            "variant": self.variant,
            "settings": s.to_json(),
            "parts": [len(train), len(validation), len(test)],
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


def rows(quick: bool = False) -> list[Regression]:
    """The rows of the table that are ours."""
    recipe = tomllib.loads(files("softmask.paper").joinpath("table2.toml").read_text(encoding="utf-8"))
    settings = Settings(**recipe["settings"])
    if quick:
        settings = replace(settings, **recipe["quick"])
    return [Regression(v, replace(settings, variant=v), tuple(recipe["ratios"])) for v in recipe["variants"]]


def markdown(out: Path) -> str:
    """The table as Markdown, from the result files: a row a target."""
    found = {r["variant"]: r for r in map(read_json, sorted((out / "table2").glob("*.json")))}
    table, units = published()["table2"]["mae"], published()["table2"]["units"]
    ours = [variant for variant in OURS if variant in found]
    heads = [f"{OURS[v]}, {whose}" for v in ours for whose in ("here", "in the paper")]
    lines = [f"| target | {' | '.join((*heads, *OTHERS))} |", "|---" * (len(heads) + 4) + "|"]
    reached = first = 0
    for target, unit in units.items():
        cells: list[str] = []
        best = np.inf
        for variant in ours:
            here, there = found[variant]["test_mae"][target], table[OURS[variant]][target]
            cells += [_short(here), _short(there)]
            reached += here <= there
            best = min(best, here)
        others = [table[other][target] for other in OTHERS]
        first += bool(best <= min(others))
        lines.append(f"| {target}, {unit} | {' | '.join((*cells, *map(_short, others)))} |")
    lines += [
        "",
        f"{reached} of {len(ours) * len(units)} figures are at or below the paper's; our best row is first on ",
    ]
    lines[-1] += f"{first} of {len(units)} targets. The epoch is chosen by the validation part."
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    return f"{value:.3g}"
