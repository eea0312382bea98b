"""The pictures of Figure 4 and the appendix: which graphs are drawn, and drawing them from a record of their masks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from softmask.data.store import GraphStore
from softmask.explain import draw_masks
from softmask.explain.statistics import ROLES, Structure

KINDS = ("svg", "png")
# Finer differences of colour cannot be seen.
_DECIMALS = 4


def readable(recipe: dict[str, Any], store: GraphStore) -> np.ndarray:
    """Which graphs are of a size that can be read in print, ``[graphs]``."""
    fewest, most = recipe["nodes"]
    nodes = store.sizes.cpu().numpy()
    edges = np.diff(store.row_ptr.cpu().numpy()[store.node_ptr.cpu().numpy()]) // 2
    return (nodes >= fewest) & (nodes <= most) & (edges <= recipe["edges"])


def shuffled(count: int, seed: int) -> np.ndarray:
    """The numbers below `count` in an order drawn by the seed."""
    # Only Generator.random is drawn from: its stream is the same in every version of numpy.
    return np.argsort(np.random.Generator(np.random.PCG64(seed)).random(count), kind="stable")


def chosen(recipe: dict[str, Any], store: GraphStore, seed: int, count: int) -> list[int]:
    """The graphs to draw: in an order drawn by the seed, but a class waits until each of the others had its turn."""
    fits = readable(recipe, store)
    order = [int(g) for g in shuffled(store.num_graphs, seed) if fits[g]]
    y = store.y.tolist()  # type: ignore[union-attr]
    turns = dict.fromkeys(y, 0)
    turn = {}
    for g in order:
        turn[g] = turns[y[g]]
        turns[y[g]] += 1
    return sorted(order, key=turn.__getitem__)[:count]


def rule(recipe: dict[str, Any], count: int) -> str:
    """How the graphs were chosen, in words."""
    low, high = recipe["nodes"]
    return (
        f"of the graphs of the test part with {low} to {high} nodes and at most {recipe['edges']} edges, the first "
        f"{count} in an order drawn by the seed, the classes taking turns; masks of the model that is best on the "
        "validation part"
    )


def picture_record(
    name: str, part: GraphStore, g: int, number: int, masks: np.ndarray, output: np.ndarray
) -> dict[str, Any]:
    """All that a picture shows of a graph and that the set itself does not hold, as plain JSON.

    Args:
        name: of the set.
        part: graphs of the set.
        g: the graph's place in `part`.
        number: its number in the whole set.
        masks: ``[nodes, layers]`` of all nodes of `part`.
        output: ``[classes]``, the probabilities of the graph's classes.
    """
    classes, best = part.info["classes"], int(output.argmax())
    rows = masks[int(part.node_ptr[g]) : int(part.node_ptr[g + 1])]
    return {
        "graph": number,
        "predicted": classes[best],
        "probability": float(output[best]),
        "actual": classes[int(part.y[g])],  # type: ignore[index]
        "files": [f"masks-{name}-{number}.{kind}" for kind in KINDS],
        "masks": [np.round(layer, _DECIMALS).tolist() for layer in rows.T],
    }


def missing(record: dict[str, Any], out: Path) -> list[dict[str, Any]]:
    """The pictures of a record that do not lie in the folder, or not in every kind of file."""
    return [p for p in record["pictures"] if not all((out / name).is_file() for name in p["files"])]


def draw_pictures(record: dict[str, Any], recipe: dict[str, Any], store: GraphStore, out: Path) -> list[Path]:
    """Draws what is missing of a record's pictures, from the masks that it holds: nothing is computed anew.

    Args:
        record: what ``masks-SET.json`` holds.
        recipe: of the set.
        store: the whole set.
        out: folder for the pictures.

    Returns:
        The files of all the record's pictures.
    """
    outline = recipe.get("outline")
    roles: Sequence[str] | None = ("node", "hub (largest degree)") if outline == "hub" else outline
    model = f"{record['settings']['variant'].upper()}, seed {record.get('picture_seed', record['seeds'][0])}"
    for picture in missing(record, out):
        g = picture["graph"]
        data = store[g]
        if outline == "hub":
            data.node_role = torch.as_tensor(Structure.of(store.select([g])).role == ROLES.index("hub")).to(torch.int8)
        elif outline:
            data.node_role = data.node_label[:, 0]
        caption = {key: picture[key] for key in ("predicted", "probability", "actual")}
        for name in picture["files"]:
            draw_masks(
                data,
                np.array(picture["masks"]).T,
                out / name,
                title=f"{record['set']}, graph {g} ({model})",
                roles=roles,
                engine=recipe["engine"],
                **caption,
            )
    return [out / name for picture in record["pictures"] for name in picture["files"]]


def discard(name: str, out: Path) -> None:
    """Removes the pictures of a set: those of another record must not be taken for this one's."""
    for kind in KINDS:
        for path in out.glob(f"masks-{name}-*.{kind}"):
            path.unlink()
