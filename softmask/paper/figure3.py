"""Figure 3 of the paper: how well GAT, SMG with one layer, SMG and SMG-JK fit their training parts."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.atomic import atomic_path
from softmask.data.features import Features
from softmask.data.splits import holdout, stratified_folds
from softmask.data.store import GraphStore
from softmask.device import device_name
from softmask.errors import SettingError, SoftmaskError, StudyInterrupted, nearest
from softmask.fleet import OnEpoch, Replica, train_in_waves
from softmask.fleet.precision import precision_name
from softmask.nn import GAT
from softmask.paper import paper_settings
from softmask.paper.published import QUICK
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

MODELS = ("GAT", "SMG, one layer", "SMG", "SMG-JK")
REDDIT = ("REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K")
_BETTER = "SMG and SMG-JK fit better than GAT"
_FAILS = "GAT fails to fit REDDIT (less than half of SMG-JK's gain over the largest class)"
_LAYERS = "More layers fit better than one"
_COLLAB = "COLLAB is fitted as well with one layer"
_AS_GOOD, _EQUAL, _PART = 0.01, "about equal", "in part"
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

    def question(self, store: GraphStore) -> dict[str, Any]:
        """What its record must say to be of this very curve."""
        return {
            "data": self.name,
            "data_hash": store.content_hash(),
            "model": self.model,
            "settings": self.settings.to_json(),
            "seeds": self.seeds,
            "graphs": self.graphs,
        }

    def done(self, store: GraphStore, out: Path) -> bool:
        """Whether its record is there; one of other settings, or of another set, does not count."""
        path = self.path(out)
        return path.is_file() and read_json(path).items() >= self.question(store).items()

    def run(self, store: GraphStore, out: Path, device: str, on_epoch: OnEpoch | None = None) -> None:
        """Trains the models and writes their record; goes on from a snapshot if there is one."""
        assert store.y is not None
        question, y = self.question(store), store.y.numpy()
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
        record = question | {
            "largest_class": float(shares.max()),
            "train_accuracy": history.metric["train"].tolist(),
            "train_loss": history.train_loss.tolist(),
            "troubles": [str(t) for t in history.troubles],
            "precision": precision_name("auto", torch.device(device)),
            "provenance": provenance(device=device_name(device), data_hash=question["data_hash"], seed=0),
        }
        write_json(path, record)
        for file in snapshots.iterdir():
            file.unlink()
        snapshots.rmdir()


@cache
def _recipe() -> dict[str, Any]:
    return tomllib.loads(files("softmask.paper").joinpath("figure3.toml").read_text(encoding="utf-8"))


def fits(sets: Sequence[str] = (), quick: bool = False) -> list[Fit]:
    """The curves of the figure; of some sets only, if any are named."""
    recipe = _recipe()
    small = recipe["quick"]
    known = small["sets"] if quick else list(recipe["epochs"])
    if unknown := sorted(set(sets) - set(known)):
        form = "quick form of the figure" if quick else "figure"
        raise SettingError(f"the {form} has no set {unknown[0]!r}; {nearest(unknown[0].upper(), known)}")
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
    """The finished records, by set and model in the order of the recipe."""
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in _recipe()["epochs"]}
    for path in sorted((out / "figure3").glob("*/*.json")):
        record = read_json(path)
        found[record["data"]][record["model"]] = record
    return {name: models for name, models in found.items() if models}


def reached(record: dict[str, Any]) -> np.ndarray:
    """The training accuracies that the seeds reach: the median over the last fifth of the epochs of each, which one
    that breaks down in its last epochs does not move far.
    """
    curves = np.array(record["train_accuracy"])
    return np.median(curves[:, -max(curves.shape[1] // 5, 1) :], axis=1)


def claims(records: dict[str, dict[str, dict[str, Any]]]) -> list[tuple[str, str, str, str]]:
    """The paper's claims, set by set: the claim, the set, what our curves say (yes or no if those of all seeds do, else
    in part; or about equal, which is within one point), and the numbers.
    """
    found = []
    for name, models in records.items():
        if set(models) < set(MODELS):
            continue
        seeds = {model: reached(models[model]) for model in MODELS}
        end = {model: float(of.mean()) for model, of in seeds.items()}
        said = {model: f"{model} {100 * end[model]:.1f} ± {_deviation(seeds[model]):.1f} %" for model in MODELS}
        by_seed = {model: f"{model} by seed {_listed(seeds[model])} %" for model in MODELS}

        def numbers(answer: str, *of: str) -> str:
            return ", ".join((by_seed if answer.startswith(_PART) else said)[model] for model in of)  # noqa: B023

        # A seed is a fold, the same for all models.
        better = _answer(np.minimum(seeds["SMG"], seeds["SMG-JK"]) - seeds["GAT"])
        found.append((_BETTER, name, better, numbers(better, "GAT", "SMG", "SMG-JK")))
        if name in REDDIT:
            base = models["GAT"]["largest_class"]
            gain = end["SMG-JK"] - base
            fails = (seeds["GAT"] - base < 0.5 * gain) & (gain > 0)
            highest = np.array(models["GAT"]["train_accuracy"]).max(axis=1)
            of_gat = f"largest class {100 * base:.1f} %, {by_seed['GAT']} (in its best epoch {_listed(highest)} %)"
            found.append((_FAILS, name, _of_seeds(fails), f"{of_gat}, {said['SMG-JK']}"))
        helped = seeds["SMG"] - seeds["SMG, one layer"]
        claim, answer = (_COLLAB, _of_seeds(helped <= _AS_GOOD)) if name == "COLLAB" else (_LAYERS, _answer(helped))
        found.append((claim, name, answer, numbers(answer, "SMG, one layer", "SMG")))
    return found


def _deviation(seeds: np.ndarray) -> float:
    return 100 * float(seeds.std(ddof=min(1, len(seeds) - 1)))


def _listed(shares: np.ndarray) -> str:
    return ", ".join(f"{100 * share:.1f}" for share in shares)


def _of_seeds(met: np.ndarray) -> str:
    return "yes" if met.all() else f"{_PART} ({met.sum()} of {len(met)} seeds)" if met.any() else "no"


def _answer(ahead: np.ndarray) -> str:
    """Whether something fits better that is ahead by so much, seed by seed."""
    return _EQUAL if (abs(ahead) <= _AS_GOOD).all() else _of_seeds(ahead > _AS_GOOD)


def markdown(out: Path) -> str:
    """The paper's claims and what our curves say: a sentence each, and a table of all sets."""
    records = gather(out)
    found = claims(records)
    quick = any(r["graphs"] is not None for models in records.values() for r in models.values())
    parts = [QUICK] if quick else []
    lines = ["| claim of the paper | set | here | training accuracy reached |", "|---|---|---|---|"]
    for claim, name, answer, numbers in found:
        lines.append(f"| {claim} | {name} | {answer if answer == 'yes' else f'**{answer}**'} | {numbers} |")
    parts += [answers(out), "\n".join(lines)] if found else []
    parts.append(_how(records))
    left = [name for name in _recipe()["epochs"] if set(records.get(name, ())) < set(MODELS)]
    if left and not quick:
        parts.append(f"Not run yet: {', '.join(left)}.")
    return "\n\n".join(parts) + "\n"


def answers(out: Path) -> str:
    """A line for each claim: on which sets it holds."""
    found, lines = claims(gather(out)), []
    for claim in (_BETTER, _FAILS, _LAYERS, _COLLAB):
        held = {name: answer for said, name, answer, _ in found if said == claim}
        where = [
            f"**{answer}** on {', '.join(name for name, found_ in held.items() if found_ == answer)}"
            for answer in sorted(set(held.values()), key=lambda answer: "yian".index(answer[0]))
        ]
        lines += [f"- {claim}: {'; '.join(where)}."] if held else []
    return "\n".join(lines)


def caption(out: Path) -> str:
    """What a reader of the picture must know."""
    short = [
        f"{name} ({models['SMG']['settings']['epochs']} of {paper_settings(name).epochs})"
        for name, models in gather(out).items()
        if "SMG" in models and models["SMG"]["settings"]["epochs"] < paper_settings(name).epochs
    ]
    cut = f" Fewer epochs than Table 1 has: {', '.join(short)}." if short else ""
    return (
        "*Accuracy on the training part after every epoch: the mean of three models, and a band from the lowest to the "
        f"highest. Where nothing is learned, all graphs get the largest class (thin line).{cut}*"
    )


def _how(records: dict[str, dict[str, dict[str, Any]]]) -> str:
    """What the numbers are, and of how many layers and epochs."""
    lines = [
        "Accuracy on the training part after an epoch, without dropout; of each seed the median over the last fifth of "
        "the epochs, of which here are the mean and the standard deviation over seeds. In the picture the band goes "
        "from the lowest seed to the highest. GAT has the rate that the paper's authors chose for SMG, as all have."
    ]
    for name, models in records.items():
        one = models.get("SMG") or next(iter(models.values()))
        settings, whole = one["settings"], paper_settings(name).epochs
        epochs = f"{settings['epochs']} of Table 1's {whole}" if settings["epochs"] < whole else f"{whole}"
        lines.append(f"{name}: {settings['layers']} layers, {epochs} epochs, {one['seeds']} seeds.")
        lines += [f"Trouble with {model}: {t}." for model, record in models.items() for t in record["troubles"]]
    return " ".join(lines)


def plot(out: Path) -> list[Path]:
    """Draws the curves of all finished sets, as SVG and PNG. Needs matplotlib."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise SoftmaskError(
            "the picture needs matplotlib: pip install 'softmask[draw]'; the same command draws it and trains nothing"
        ) from None
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
        base = 100 * next(iter(models.values()))["largest_class"]
        axes.axhline(base, color="black", linewidth=0.8, alpha=0.6, label="always the largest class")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 5, 10]))
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
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        # Text stays text in the SVG, and ids depend on the content alone.
        with atomic_path(path) as temporary, rc_context({"svg.fonttype": "none", "svg.hashsalt": "softmask"}):
            figure.savefig(temporary, dpi=200, format=path.suffix[1:], metadata=metadata)
    return paths
