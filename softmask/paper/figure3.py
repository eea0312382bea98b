"""Figure 3 of the paper: how well GAT, SMG with one layer, SMG and SMG-JK fit their training parts."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.atomic import atomic_path
from softmask.data.features import Features
from softmask.data.splits import holdout, stratified_folds
from softmask.data.store import GraphStore
from softmask.errors import SettingError, StudyInterrupted
from softmask.fleet import OnEpoch, Replica, train_in_waves
from softmask.nn import GAT
from softmask.paper import paper_settings
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

MODELS = ("GAT", "SMG, one layer", "SMG", "SMG-JK")
REDDIT = ("REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K")
_COLOURS = {"GAT": "#b35806", "SMG, one layer": "#7f7f7f", "SMG": "#2166ac", "SMG-JK": "#1b7837"}
_DASHES = {"GAT": "--", "SMG, one layer": ":", "SMG": "-", "SMG-JK": "-."}


@dataclass(frozen=True)
class Fit:
    """One curve of the figure: a model on a set.

    Args:
        name: of the set.
        model: one of ``MODELS``.
        settings: layers, sizes and rates.
        seeds: how many models are trained.
        graphs: at most so many, for a quick look.
    """

    name: str
    model: str
    settings: Settings
    seeds: int
    graphs: int | None = None

    def path(self, out: Path) -> Path:
        """Its record."""
        return out / "figure3" / self.name / f"{self.model.replace(', ', '-').replace(' ', '-')}.json"

    def build(self, features: Features, classes: int) -> torch.nn.Module:
        """A model with fresh weights."""
        s = self.settings
        if self.model == "GAT":
            return GAT(features.channels, s.hidden, s.layers, classes, dropout=s.dropout)
        return s.build(features, classes, "classification")

    def run(self, store: GraphStore, out: Path, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains the models and writes their record; goes on from a snapshot if there is one."""
        assert store.y is not None
        y = store.y.numpy()
        if self.graphs is not None and store.num_graphs > self.graphs:
            store = store.select(holdout(y, (self.graphs / store.num_graphs, 1 - self.graphs / store.num_graphs), 0)[0])
            y = store.y.numpy()  # type: ignore[union-attr]
        parts = [train for train, _ in stratified_folds(y, max(self.seeds, 2), 0)]
        if self.graphs is None:
            parts = [train for train, _ in stratified_folds(y, 10, 0)]
        s, features = self.settings, Features.of(store)
        replicas = [
            Replica(seed, parts[seed], {"train": parts[seed]}, lr=s.lr, decay=s.decay, decay_every=s.decay_every)
            for seed in range(self.seeds)
        ]
        path = self.path(out)
        path.parent.mkdir(parents=True, exist_ok=True)
        snapshots = path.with_suffix("")
        snapshots.mkdir(exist_ok=True)
        history, _, _ = train_in_waves(
            lambda: self.build(features, len(store.info["classes"])),
            *(store, features(store), replicas, s.epochs),
            batch_size=s.batch_size,
            on_epoch=on_epoch,
            device=device,
            snapshots=snapshots,
        )
        if history.interrupted:
            raise StudyInterrupted
        shares = np.bincount(y) / len(y)
        record = {
            "data": self.name,
            "data_hash": store.content_hash(),
            "model": self.model,
            "settings": s.to_json(),
            "seeds": self.seeds,
            "largest_class": float(shares.max()),
            "train_accuracy": history.metric["train"].tolist(),
            "train_loss": history.train_loss.tolist(),
            "troubles": [str(t) for t in history.troubles],
            "provenance": provenance(seed=0),
        }
        write_json(path, record)
        for file in snapshots.iterdir():
            file.unlink()
        snapshots.rmdir()


def fits(sets: Sequence[str] = (), quick: bool = False) -> list[Fit]:
    """The curves of the figure; of some sets only, if any are named."""
    recipe = tomllib.loads(files("softmask.paper").joinpath("figure3.toml").read_text(encoding="utf-8"))
    small = recipe["quick"]
    known = small["sets"] if quick else list(recipe["epochs"])
    if unknown := set(sets) - set(known):
        raise SettingError(f"the figure has no set {sorted(unknown)[0]!r}; it has {', '.join(known)}")
    found = []
    for name in sets or known:
        for model in MODELS:
            base = replace(paper_settings(name), variant="smg-jk" if model == "SMG-JK" else "smg")
            base = replace(base, epochs=recipe["epochs"][name], layers=1 if "one layer" in model else base.layers)
            if quick:
                base = replace(base, hidden=small["hidden"], epochs=small["epochs"])
            found.append(Fit(name, model, base, 2 if quick else recipe["seeds"], small["graphs"] if quick else None))
    return found


def gather(out: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The finished records, by set and model."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in sorted((out / "figure3").glob("*/*.json")):
        record = read_json(path)
        found.setdefault(record["data"], {})[record["model"]] = record
    return found


def reached(record: dict[str, Any]) -> float:
    """The training accuracy a model reaches: the mean over seeds and the last tenth of its epochs."""
    curves = np.array(record["train_accuracy"])
    return float(curves[:, -max(curves.shape[1] // 10, 1) :].mean())


def claims(records: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, str, bool, str]]:
    """The paper's claims, set by set: the claim, the set, whether our curves bear it out, and the numbers."""
    found = []
    for name, models in records.items():
        if set(models) < set(MODELS):
            continue
        end = {model: reached(models[model]) for model in MODELS}
        numbers = ", ".join(f"{model} {100 * end[model]:.1f} %" for model in MODELS)
        found.append(("SMG and SMG-JK fit better than GAT", name, min(end["SMG"], end["SMG-JK"]) > end["GAT"], numbers))
        if name in REDDIT:
            base = models["GAT"]["largest_class"]
            fails = end["GAT"] - base < 0.5 * (end["SMG-JK"] - base)
            found.append(
                ("GAT fails to fit REDDIT (less than half of SMG-JK's gain over the largest class)", name, fails,
                 f"largest class {100 * base:.1f} %, GAT {100 * end['GAT']:.1f} %, SMG-JK {100 * end['SMG-JK']:.1f} %")
            )  # fmt: skip
        helps = end["SMG"] > end["SMG, one layer"]
        claim = "more layers do not help" if name == "COLLAB" else "more layers help"
        found.append(
            (claim, name, helps != (name == "COLLAB"),
             f"one layer {100 * end['SMG, one layer']:.1f} %, {models['SMG']['settings']['layers']} layers "
             f"{100 * end['SMG']:.1f} %")
        )  # fmt: skip
    return found


def markdown(out: Path) -> str:
    """The claims as a table."""
    lines = ["| claim of the paper | set | here | training accuracy at the end |", "|---|---|---|---|"]
    for claim, name, holds, numbers in claims(gather(out)):
        lines.append(f"| {claim} | {name} | {'yes' if holds else '**no**'} | {numbers} |")
    return "\n".join(lines) + "\n"


def plot(out: Path) -> list[Path]:
    """Draws the curves of all finished sets, as SVG and PNG. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    records = gather(out)
    columns = min(3, len(records))
    rows = -(-len(records) // columns)
    figure = Figure(figsize=(4 * columns, 3.1 * rows + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, (name, models) in zip(grid, records.items()):
        for model in (m for m in MODELS if m in models):
            curves = 100 * np.array(models[model]["train_accuracy"])
            epochs = np.arange(1, curves.shape[1] + 1)
            mean, low, high = curves.mean(axis=0), curves.min(axis=0), curves.max(axis=0)
            axes.plot(epochs, mean, _DASHES[model], color=_COLOURS[model], label=model, linewidth=1.6)
            axes.fill_between(epochs, low, high, color=_COLOURS[model], alpha=0.15, linewidth=0)
        axes.set_title(name, fontsize=11)
        axes.set_xlabel("epoch")
        axes.set_ylabel("training accuracy, %")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[len(records) :]:
        axes.set_visible(False)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    paths = [out / "figure3" / f"figure3.{kind}" for kind in ("svg", "png")]
    for path in paths:
        with atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=150, format=path.suffix[1:])
    return paths
