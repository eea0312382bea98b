"""What a model says of one graph, and which of its nodes it used."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from softmask.data.convert import as_store
from softmask.data.store import GraphStore
from softmask.explain.importance import all_pairs, largest_one, node_importance
from softmask.explain.masks import node_masks
from softmask.explain.subgraph import nodes_of
from softmask.fleet.predict import consecutive


@dataclass(frozen=True, eq=False)
class Explanation:
    """One graph, a model's prediction for it, and the masks with which the model made it.

    In a notebook it shows itself.

    Args:
        data: the graph.
        name: its name in the set (a SMILES string, say), or its number.
        masks: ``[nodes, layers]``, the mask of every node in every layer, channels reduced (see :func:`node_masks`).
        importance: ``[nodes]``, how open the masks leave the substructure around each node (see
            :func:`node_importance`), divided by the largest of the graph: from 0 to 1, and all 0 if all is shut.
        predicted: class as the model was given it; or the predicted number, or a list of them.
        probabilities: ``[classes]``; ``None`` for regression.
        classes: the classes in the order of the probabilities; ``None`` for regression.
        actual: class or numbers of the graph as given; ``None`` where they are not known.
    """

    data: Data
    name: str
    masks: np.ndarray
    importance: np.ndarray
    predicted: Any
    probabilities: np.ndarray | None = None
    classes: list | None = None
    actual: Any | None = None

    def subgraph(self, threshold: float | None = None, size: int | None = None) -> np.ndarray:
        """The nodes that mattered most, in ascending order.

        Args:
            threshold: those whose importance is at least this; 0.5 if neither is given.
            size: that many of the largest importance (all, if the graph has fewer); of equals those of the smallest
                number.
        """
        return nodes_of(self.importance, threshold, size)

    def _repr_html_(self) -> str:
        from softmask.explain.notebook import html_of

        return html_of(self)

    def __repr__(self) -> str:
        shape = f"nodes={len(self.importance)}, layers={self.masks.shape[1]}"
        return f"{self.__class__.__name__}({self.name!r}, {shape}, predicted={self.predicted!r})"


def explain(model: Any, graphs: Any, reduction: str = "mean") -> list[Explanation]:
    """Explains predictions: one pass of the model over all graphs, and a few sums over neighbours.

    Args:
        model: a fitted or loaded :class:`~softmask.SoftMaskClassifier` or :class:`~softmask.SoftMaskRegressor`.
        graphs: whatever the model predicts: a :class:`~softmask.data.GraphStore`, or a list of PyG ``Data``, networkx
            graphs or SMILES strings.
        reduction: how the channels of multi-channel masks become one number: ``mean``, ``max`` or ``norm``.

    Returns:
        One explanation for each graph, in their order.
    """
    store = as_store(graphs)
    said = model.run(store)
    layers = zip(*said.masks)
    table = node_masks([torch.from_numpy(np.concatenate(layer)) for layer in layers], reduction).double()
    on_host = store.to("cpu")
    neighbours, batch, _ = consecutive(on_host, 0, store.num_graphs)
    if model.trained_.geometric is not None:
        neighbours = all_pairs(on_host)
    weight = node_importance(table, neighbours, model.trained_.model.jk, batch)
    importance = largest_one(weight, batch, store.num_graphs)
    cuts = on_host.node_ptr[1:-1].numpy()
    parts = zip(np.split(table.numpy(), cuts), np.split(importance.numpy(), cuts))
    names = store.info.get("names") or [str(g) for g in range(store.num_graphs)]
    classes = None if said.probabilities is None else model.classes_.tolist()
    actual = _actual(on_host)
    return [
        Explanation(
            data=on_host[g],
            name=str(names[g]),
            masks=masks,
            importance=weights,
            predicted=said.values[g].tolist(),
            probabilities=None if said.probabilities is None else said.probabilities[g],
            classes=classes,
            actual=actual[g],
        )
        for g, (masks, weights) in enumerate(parts)
    ]


def _actual(store: GraphStore) -> list[Any]:
    if store.y is None:
        return [None] * store.num_graphs
    if store.y.is_floating_point():
        return [row[0] if len(row) == 1 else row for row in store.y.tolist()]
    classes = store.info["classes"]
    return [classes[i] for i in store.y.tolist()]
