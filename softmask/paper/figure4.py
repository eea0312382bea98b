"""Figure 4 and the pictures of the appendix: trained masks layer by layer, drawn, and read as numbers.

For a set, a few SMG models that differ in their seed alone train side by side on nine tenths of the graphs. Their masks
on the other tenth are drawn for a few graphs and measured on all of them.
"""

import dataclasses
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.data.features import Features
from softmask.data.splits import stratified_folds
from softmask.data.store import GraphStore
from softmask.errors import SettingError, StudyInterrupted
from softmask.explain import draw_masks, node_masks
from softmask.explain.statistics import ROLES, Structure, agreement, layer_statistics, risers
from softmask.fleet import Fleet, History, OnEpoch, Replica
from softmask.fleet.predict import predict
from softmask.fleet.replica import check_seed
from softmask.fleet.snapshot import Snapshot
from softmask.paper import paper_settings
from softmask.paper.mask_claims import claims_of
from softmask.paper.mask_report import markdown
from softmask.study.provenance import provenance
from softmask.study.record import read_json, write_json
from softmask.study.settings import Settings

__all__ = ["FIGURES", "markdown", "reproduce_masks"]

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
    """Trains models on a set, draws the masks of a few of its test graphs, and measures those of all.

    It writes ``masks-SET.json`` and the pictures, ``masks-SET-GRAPH.svg`` and ``.png``, of the first seed's model. What
    is there already, of the very same question, is not made again; a training that was interrupted goes on.

    Args:
        name: of the set, one of those in :data:`FIGURES`.
        store: the set.
        out: folder for the results; made if it is not there.
        device: where to train.
        epochs: other than the paper's.
        quick: a small version: few graphs, few channels, few epochs. It shows that the recipe works, and nothing else.
        seed: of the split, of the first model (the others have the seeds that follow), and of the graphs drawn.
        on_epoch: called after every epoch with the epoch and the accuracy of all models by part (there is ``test``), on
            the device; True ends the training.

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
    train, test = stratified_folds(_classes(used), folds, seed)[0]
    question = {
        "figure": _RECIPE[name]["figure"],
        "set": name,
        "quick": quick,
        "settings": settings.to_json(),
        "seeds": [(seed + r) % 2**32 for r in range(REPLICAS)],
        "data": {
            "hash": store.content_hash(),
            "graphs": used.num_graphs,
            "split": f"stratified, part 1 of {folds} for the test, seed {seed}",
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
    history = _train(used, features, settings, question["seeds"], train, test, device, on_epoch, snapshot)
    part = used.select(test)
    masks, outputs = _apply(part, features, settings, history, device)
    structure = Structure.of(part)
    models = _measured(part, structure, masks, outputs, question["seeds"], history)
    record = question | {
        "models": models,
        "agreement": agreement(masks, structure.graph),
        "node_share": structure.role_shares(),
        "claims": [claim.check(models) for claim in claims_of(name)],
        **_draw(name, part, ids[test], masks[0], outputs[0], structure, path.parent, seed),
        "provenance": provenance(device=_device_name(device), data_hash=question["data"]["hash"], seed=seed),
    }
    write_json(path, record)
    snapshot.path.unlink(missing_ok=True)
    return record


def mask_settings(name: str, epochs: int | None, quick: bool) -> Settings:
    """The paper's settings for the set, but for what the figure or the caller wants otherwise."""
    paper = paper_settings(name)
    changed: dict[str, Any] = {"variant": "smg", "layers": _RECIPE[name].get("layers", paper.layers)}
    if quick:
        changed |= {"hidden": QUICK_HIDDEN, "epochs": QUICK_EPOCHS, "batch_size": 32, "lr": 2e-3}
    if epochs is not None:
        changed["epochs"] = epochs
    return dataclasses.replace(paper, **changed)


def _sample(name: str, store: GraphStore, seed: int) -> np.ndarray:
    """Equally many graphs of each class, drawn by seed from those that could be drawn as pictures."""
    y, order = _classes(store), _shuffled(store.num_graphs, seed)
    order = order[_readable(name, store)[order]]
    each = QUICK_GRAPHS // len(np.unique(y))
    return np.sort(np.concatenate([order[y[order] == c][:each] for c in np.unique(y)]))


def _readable(name: str, store: GraphStore) -> np.ndarray:
    """Which graphs are of a size that can be read in print."""
    fewest, most = _RECIPE[name]["nodes"]
    nodes = store.sizes.cpu().numpy()
    edges = np.diff(store.row_ptr.cpu().numpy()[store.node_ptr.cpu().numpy()]) // 2
    return (nodes >= fewest) & (nodes <= most) & (edges <= _RECIPE[name]["edges"])


def _chosen(name: str, part: GraphStore, seed: int) -> list[int]:
    """The graphs to draw: in an order drawn by the seed, but a class waits until each of the others had its turn."""
    order = [int(g) for g in _shuffled(part.num_graphs, seed) if _readable(name, part)[g]]
    y, turns = _classes(part), dict.fromkeys(_classes(part).tolist(), 0)
    turn = {}
    for g in order:
        turn[g] = turns[y[g]]
        turns[y[g]] += 1
    return sorted(order, key=turn.__getitem__)[:PICTURES]


def _shuffled(count: int, seed: int) -> np.ndarray:
    # Only Generator.random is drawn from: its stream is the same in every version of numpy.
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(count), kind="stable")


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
    """The record, if it answers this very question and its pictures are there."""
    if not path.is_file():
        return None
    record = read_json(path)
    names = [n for picture in record.get("pictures", ()) for n in picture["files"]]
    same = all(record.get(key) == value for key, value in question.items())
    return record if same and all((path.parent / n).is_file() for n in names) else None


def _model(settings: Settings, features: Features, store: GraphStore) -> Any:
    return settings.build(features, len(store.info["classes"]), "classification")


def _train(
    store: GraphStore,
    features: Features,
    settings: Settings,
    seeds: list[int],
    train: np.ndarray,
    test: np.ndarray,
    device: torch.device | str,
    on_epoch: OnEpoch | None,
    snapshot: Snapshot,
) -> History:
    rates = {"lr": settings.lr, "decay": settings.decay, "decay_every": settings.decay_every}
    replicas = [Replica(s, train, {"test": test}, **rates) for s in seeds]  # type: ignore[arg-type]
    fleet = Fleet(
        lambda: _model(settings, features, store),
        *(store, features(store), replicas),
        batch_size=settings.batch_size,
        device=device,
    )

    history = fleet.train(settings.epochs, on_epoch=on_epoch, snapshot=snapshot)
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
        rose = risers(mask, structure.graph)
        models.append(
            {
                "seed": seeds[r],
                "accuracy": float((output.argmax(axis=1) == y).mean()),
                "training_accuracy": float(history.train_metric[r, -1]),
                "troubles": [str(t) for t in history.troubles if t.replica == r],
                "layers": [
                    layer_statistics(layer, structure, label) | {"risers": rose[k]} for k, layer in enumerate(mask.T)
                ],
            }
        )
    return models


def _draw(
    name: str,
    part: GraphStore,
    ids: np.ndarray,
    masks: np.ndarray,
    outputs: np.ndarray,
    structure: Structure,
    out: Path,
    seed: int,
) -> dict[str, Any]:
    """The pictures of a few graphs, and the rule by which these were chosen."""
    recipe, classes = _RECIPE[name], part.info["classes"]
    outline = recipe.get("outline")
    roles = ("node", "hub (largest degree)") if outline == "hub" else outline
    drawn = _chosen(name, part, seed)
    pictures = []
    for g in drawn:
        nodes = slice(int(part.node_ptr[g]), int(part.node_ptr[g + 1]))
        data = part[g]
        if outline == "hub":
            data.node_role = torch.as_tensor(structure.role[nodes] == ROLES.index("hub")).to(torch.int8)
        elif outline:
            assert part.node_label is not None
            data.node_role = part.node_label[nodes, 0]
        best = int(outputs[g].argmax())
        caption = {
            "predicted": classes[best],
            "probability": float(outputs[g, best]),
            "actual": classes[int(part.y[g])],  # type: ignore[index]
        }
        paths = [out / f"masks-{name}-{ids[g]}.{kind}" for kind in ("svg", "png")]
        for path in paths:
            title = f"{name}, graph {ids[g]}"
            draw_masks(data, masks[nodes], path, title=title, roles=roles, engine=recipe["engine"], **caption)
        pictures.append({"graph": int(ids[g]), **caption, "files": [path.name for path in paths]})
    low, high = recipe["nodes"]
    rule = (
        f"of the graphs of the test part with {low} to {high} nodes and at most {recipe['edges']} edges, the first "
        f"{PICTURES} in an order drawn by the seed, the classes taking turns; masks of the first model"
    )
    return {"picture_rule": rule, "pictures": pictures}


def _device_name(device: torch.device | str) -> str:
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"
