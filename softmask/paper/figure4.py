"""Figure 4 and the pictures of the appendix: trained masks layer by layer, drawn, and read as numbers.

For a set, a few SMG models that differ in their seed alone train side by side on eight tenths of the graphs; another
tenth, the validation part, chooses the epoch of each, so that the masks are those of a model that works. On the last
tenth, the test part, masks are measured on all graphs and kept for a few of them, from which pictures are drawn: at
once, or on another machine.
"""

import dataclasses
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.data.features import Features
from softmask.data.splits import stratified_folds
from softmask.data.store import GraphStore
from softmask.device import device_name
from softmask.errors import SettingError, StudyInterrupted
from softmask.explain import node_masks
from softmask.explain.statistics import RISE, Structure, agreement, layer_statistics, risers
from softmask.fleet import Fleet, History, OnEpoch, Replica
from softmask.fleet.precision import precision_name
from softmask.fleet.predict import predict
from softmask.fleet.replica import check_seed
from softmask.fleet.snapshot import Snapshot
from softmask.paper import mask_pictures, paper_settings
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

REPLICAS = 3
FOLDS = 10
PICTURES = 4
# The quick form: graphs, hidden channels, epochs, folds.
QUICK_GRAPHS, QUICK_HIDDEN, QUICK_EPOCHS, QUICK_FOLDS = 300, 32, 4, 5

_RECIPE = tomllib.loads(files("softmask.paper").joinpath("figure4.toml").read_text(encoding="utf-8"))

FIGURES: dict[str, tuple[str, ...]] = {
    figure: tuple(name for name, recipe in _RECIPE.items() if recipe["figure"] == figure)
    for figure in dict.fromkeys(recipe["figure"] for recipe in _RECIPE.values())
}
"""The sets that each figure needs: ``figure4``, ``collab``, ``nci1`` and ``proteins``."""


def reproduce_masks(
    name: str,
    store: GraphStore,
    out: Path,
    device: torch.device | str = "cpu",
    epochs: int | None = None,
    quick: bool = False,
    seed: int = 0,
    on_epoch: OnEpoch | None = None,
) -> dict[str, Any]:
    """Trains models on a set, measures their masks on all its test graphs, and keeps those of a few to draw.

    It writes ``masks-SET.json``, from which :func:`draw_missing` makes the pictures. What is there already, of the very
    same question, is not made again; a training that was interrupted goes on.

    Args:
        name: of the set, one of those in :data:`FIGURES`.
        store: the set.
        out: folder for the results; made if it is not there.
        device: where to train.
        epochs: other than the paper's.
        quick: a small version: few graphs, few channels, few epochs. It shows that the recipe works, and nothing else.
        seed: of the split, of the first model (the others have the seeds that follow), and of the graphs drawn.
        on_epoch: called after every epoch with the epoch and the accuracy of all models by part (there is
            ``validation``), on the device; True ends the training.

    Returns:
        What ``masks-SET.json`` holds.

    Raises:
        StudyInterrupted: if it was ended; the same call goes on from there.
    """
    if name not in _RECIPE:
        raise SettingError(f"no figure of the paper shows masks on {name!r}; there are {', '.join(_RECIPE)}")
    if store.y is None or store.y.is_floating_point():
        raise SettingError(f"{name}: the graphs have no classes to learn")
    check_seed(seed)
    settings = mask_settings(name, epochs, quick)
    ids = _sample(name, store, seed) if quick else np.arange(store.num_graphs)
    used = store.select(ids) if quick else store
    folds = QUICK_FOLDS if quick else FOLDS
    test, validation = (part for _, part in stratified_folds(_classes(used), folds, seed)[:2])
    train = np.setdiff1d(np.arange(used.num_graphs), np.concatenate([test, validation]))
    question = {
        "figure": _RECIPE[name]["figure"],
        "set": name,
        "quick": quick,
        "settings": settings.to_json(),
        "seeds": [(seed + r) % 2**32 for r in range(REPLICAS)],
        "riser_rise": RISE,
        "data": {
            "hash": store.content_hash(),
            "graphs": used.num_graphs,
            "split": f"stratified, part 1 of {folds} for the test, part 2 to choose the epoch, seed {seed}",
            "test_graphs": len(test),
            "test_nodes": int(used.sizes[torch.as_tensor(test)].sum()),
        },
    }
    path = _prepare(out, name, quick)
    if (found := _found(path, question)) is not None:
        return found
    snapshot = Snapshot(path.with_name(f"masks-{name}.snapshot.safetensors"))
    # Of the whole set also in the quick form: few small graphs would get their degrees one-hot on REDDIT too.
    features = Features.of(store, attributes=settings.attributes)
    history = _train(used, features, settings, question["seeds"], train, validation, device, on_epoch, snapshot)
    part = used.select(test)
    masks, outputs = _apply(part, features, settings, history, device)
    structure = Structure.of(part)
    models = _measured(part, structure, masks, outputs, question["seeds"], history)
    drawn = max(range(REPLICAS), key=lambda r: models[r]["validation_accuracy"])
    record = question | {
        "precision": precision_name("auto", torch.device(device)),
        "models": models,
        "agreement": agreement(masks, structure.graph),
        "node_share": structure.role_shares(),
        "picture_rule": mask_pictures.rule(_RECIPE[name], PICTURES),
        "picture_seed": question["seeds"][drawn],
        "pictures": [
            mask_pictures.picture_record(name, part, g, int(ids[test][g]), masks[drawn], outputs[drawn][g])
            for g in mask_pictures.chosen(_RECIPE[name], part, seed, PICTURES)
        ],
        "provenance": provenance(device=device_name(device), data_hash=question["data"]["hash"], seed=seed),
    }
    mask_pictures.discard(name, path.parent)
    write_json(path, record)
    snapshot.path.unlink(missing_ok=True)
    return record


def gather(out: Path, figure: str) -> list[dict[str, Any]]:
    """The records of a figure's sets that are in a folder, in the order of the recipe."""
    paths = [out / f"masks-{name}.json" for name in FIGURES[figure]]
    return [read_json(path) for path in paths if path.is_file()]


def draw_missing(record: dict[str, Any], store: Callable[[], GraphStore], out: Path) -> list[Path]:
    """Draws those of a record's pictures that are not there yet. Needs matplotlib and pygraphviz.

    Args:
        record: what ``masks-SET.json`` holds.
        store: opens the whole set; not called if there is nothing to draw.
        out: the folder of the record.

    Returns:
        The files of all its pictures.
    """
    if not mask_pictures.missing(record, out):
        return [out / name for picture in record["pictures"] for name in picture["files"]]
    opened = store()
    if opened.content_hash() != record["data"]["hash"]:
        raise SettingError(f"{out}: the masks are of another {record['set']} than the one to draw")
    return mask_pictures.draw_pictures(record, _RECIPE[record["set"]], opened, out)


def mask_settings(name: str, epochs: int | None, quick: bool) -> Settings:
    """The paper's settings for the set, but for what the figure or the caller wants otherwise."""
    paper = paper_settings(name)
    changed: dict[str, Any] = {"variant": "smg"}
    changed |= {key: _RECIPE[name][key] for key in ("layers", "epochs") if key in _RECIPE[name]}
    if quick:
        changed |= {"hidden": QUICK_HIDDEN, "epochs": QUICK_EPOCHS, "batch_size": 32, "lr": 2e-3}
    if epochs is not None:
        changed["epochs"] = epochs
    return dataclasses.replace(paper, **changed)


def _sample(name: str, store: GraphStore, seed: int) -> np.ndarray:
    """Equally many graphs of each class, drawn by seed from those that could be drawn as pictures."""
    y, order = _classes(store), mask_pictures.shuffled(store.num_graphs, seed)
    order = order[mask_pictures.readable(_RECIPE[name], store)[order]]
    each = QUICK_GRAPHS // len(np.unique(y))
    return np.sort(np.concatenate([order[y[order] == c][:each] for c in np.unique(y)]))


def _classes(store: GraphStore) -> np.ndarray:
    return np.asarray(store.info["classes"])[store.y.cpu().numpy()]  # type: ignore[union-attr]


def _prepare(out: Path, name: str, quick: bool) -> Path:
    """Where the record goes. A quick form does not take the place of a whole one, which may have taken hours."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {out}: {error.strerror}") from None
    path = out / f"masks-{name}.json"
    if quick and path.is_file() and not read_json(path).get("quick"):
        raise SettingError(f"{path} is of a whole run; give the quick form another folder")
    return path


def _found(path: Path, question: dict[str, Any]) -> dict[str, Any] | None:
    """The record, if it answers this very question."""
    if not path.is_file():
        return None
    record = read_json(path)
    return record if all(record.get(key) == value for key, value in question.items()) else None


def _model(settings: Settings, features: Features, store: GraphStore) -> Any:
    return settings.build(features, len(store.info["classes"]), "classification")


def _train(
    store: GraphStore,
    features: Features,
    settings: Settings,
    seeds: list[int],
    train: np.ndarray,
    validation: np.ndarray,
    device: torch.device | str,
    on_epoch: OnEpoch | None,
    snapshot: Snapshot,
) -> History:
    rates = {"lr": settings.lr, "decay": settings.decay, "decay_every": settings.decay_every}
    replicas = [Replica(s, train, {"validation": validation}, **rates) for s in seeds]  # type: ignore[arg-type]
    fleet = Fleet(
        lambda: _model(settings, features, store),
        *(store, features(store), replicas),
        batch_size=settings.batch_size,
        device=device,
    )
    history = fleet.train(settings.epochs, keep="validation", on_epoch=on_epoch, snapshot=snapshot)
    if history.interrupted:
        raise StudyInterrupted
    return history


def _apply(
    part: GraphStore, features: Features, settings: Settings, history: History, device: torch.device | str
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of every model, the masks ``[nodes, layers]`` and the probabilities ``[graphs, classes]``."""
    x, masks, outputs = features(part), [], []
    for weights in history.weights:
        model = _model(settings, features, part)
        model.load_state_dict(weights)
        output, layers = predict(model.to(device), part, x)
        outputs.append(output.double().softmax(dim=1).cpu().numpy())
        masks.append(node_masks(layers).double().cpu().numpy())
    return masks, outputs


def _measured(
    part: GraphStore,
    structure: Structure,
    masks: list[np.ndarray],
    outputs: list[np.ndarray],
    seeds: list[int],
    history: History,
) -> list[dict[str, Any]]:
    """Model by model its accuracy, and what its masks do layer by layer."""
    label = None if part.node_label is None else part.node_label[:, 0].cpu().numpy()
    y = part.y.cpu().numpy()  # type: ignore[union-attr]
    models = []
    for r, (mask, output) in enumerate(zip(masks, outputs)):
        rose, epoch = risers(mask, structure.graph), int(history.epoch[r])
        models.append(
            {
                "seed": seeds[r],
                "accuracy": float((output.argmax(axis=1) == y).mean()),
                "epoch": epoch,
                "validation_accuracy": float(history.metric["validation"][r, epoch - 1]),
                "troubles": [str(t) for t in history.troubles if t.replica == r],
                "layers": [
                    layer_statistics(layer, structure, label) | {"risers": rose[k]} for k, layer in enumerate(mask.T)
                ],
            }
        )
    return models
