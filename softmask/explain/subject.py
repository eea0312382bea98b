"""One graph as it is shown to a person: an explanation, its nodes in words, and where they are."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from softmask.data.store import GraphStore
from softmask.errors import SettingError, SoftmaskError
from softmask.explain.draw import _edges, layout
from softmask.explain.explanation import Explanation
from softmask.explain.molecule import _element, atom_order, has_molecules, laid_out
from softmask.explain.subgraph import connected, induced

MOST_NODES, MOST_EDGES = 5_000, 50_000
"""What can still be told apart in a picture, and is drawn in a moment."""

LABELS = {"MUTAG": ("C", "N", "O", "F", "I", "Cl", "Br")}
"""What the node labels of a set stand for, by its name, as its authors say; in the files they are numbers from 0."""


@dataclass(frozen=True, eq=False)
class Subject:
    """What is drawn of one graph.

    Args:
        explanation: of the graph, or of the part of it that is drawn.
        number: of the graph in its set.
        place: ``[nodes, 2]``, x to the right and y upwards, in any unit.
        edges: ``[edges, 2]``, each pair of neighbours once.
        labels: a word for each node; ``None`` if the graphs have no labels.
        bonds: ``[edges]``, for molecules the kind of each bond: 1, 2, 3, or 12 (aromatic).
        whole: number of nodes of the whole graph.
        degree: ``[nodes]``, neighbours in the whole graph; by default those that are drawn.
    """

    explanation: Explanation
    number: int
    place: np.ndarray
    edges: np.ndarray
    labels: list[str] | None = None
    bonds: np.ndarray | None = None
    whole: int = 0
    degree: np.ndarray | None = None

    @property
    def nodes(self) -> int:
        """Number of nodes that are drawn."""
        return len(self.explanation.importance)

    @property
    def cut(self) -> bool:
        """Whether this is a part of the graph only."""
        return self.nodes < self.whole


def check_drawable(store: GraphStore, numbers: Sequence[int], size: int | None = None) -> None:
    """Refuses graphs that are too large to be looked at as a whole, before any work is done.

    Args:
        store: the set.
        numbers: graphs of it that are to be drawn.
        size: draw that many of the most important nodes of larger graphs; this is always possible.
    """
    if size is not None:
        if not 1 <= size <= MOST_NODES:
            raise SettingError(f"size={size}: from 1 to {MOST_NODES} nodes can be drawn")
        return
    for g in numbers:
        first, last = store.node_ptr[g : g + 2].tolist()
        edges = int(store.row_ptr[last] - store.row_ptr[first]) // 2
        if last - first > MOST_NODES or edges > MOST_EDGES:
            raise SettingError(
                f"graph {g} has {last - first:,} nodes and {edges:,} edges, too many to draw (at most {MOST_NODES:,} "
                f"and {MOST_EDGES:,}): draw its most important nodes with --size 500, or choose other graphs"
            )


def subjects(
    store: GraphStore,
    explanations: Sequence[Explanation],
    numbers: Sequence[int],
    size: int | None = None,
    on_trouble: Callable[[str], None] = lambda words: None,
) -> Iterator[Subject]:
    """Makes subjects of explained graphs, one after the other, as placing the nodes of large ones takes a while.

    Args:
        store: the set they are from.
        explanations: of the graphs `numbers` of the set.
        numbers: the graphs.
        size: of larger graphs, only that many important nodes that hang together (:func:`connected`), with the edges
            between them.
        on_trouble: called with a sentence where a molecule has to be drawn as a graph.
    """
    molecules = has_molecules(store)
    for number, explanation in zip(numbers, explanations):
        labels, whole, degree = node_labels(store, number), len(explanation.importance), None
        if size is not None and whole > size:
            every = _edges(explanation.data)
            kept = connected(explanation.importance, every, size)
            degree = np.bincount(every.reshape(-1), minlength=whole)[kept]
            explanation = _part(explanation, kept)
            labels = None if labels is None else [labels[v] for v in kept.tolist()]
        edges = _edges(explanation.data)
        place, bonds = None, None
        if molecules and len(explanation.importance) == whole:
            try:
                place, bonds = _molecule_place(store, number), _bonds(store, number, edges)
            except SoftmaskError as error:
                on_trouble(f"{error}; it is drawn as a graph")
        if place is None:
            place = layout(len(explanation.importance), edges)
        yield Subject(explanation, number, place, edges, labels, bonds, whole, degree)


def node_labels(store: GraphStore, graph: int) -> list[str] | None:
    """A word for each node of a graph: its element where that is known, else its label; ``None`` if it has none."""
    rows = slice(*store.node_ptr[graph : graph + 2].tolist())
    if has_molecules(store):
        return _elements(store, rows)
    if store.node_label is None:
        return None
    table = store.node_label[rows].tolist()
    names = LABELS.get(str(store.info.get("name")))
    if names is not None and all(len(row) == 1 and 0 <= row[0] < len(names) for row in table):
        return [names[row[0]] for row in table]
    return ["/".join(map(str, row)) for row in table]


def _elements(store: GraphStore, rows: slice) -> list[str]:
    from rdkit import Chem

    numbers = _element(store)
    assert numbers is not None
    table = Chem.GetPeriodicTable()
    return [table.GetElementSymbol(z) if 0 <= z <= 118 else str(z) for z in numbers[rows].tolist()]


def _molecule_place(store: GraphStore, graph: int) -> np.ndarray:
    """Where a chemist would draw the atoms."""
    order = atom_order(store, graph)
    drawn = laid_out(store.info["names"][graph], len(order)).GetConformer().GetPositions()[:, :2]
    place = np.empty_like(drawn)
    place[order] = drawn
    return place


def _bonds(store: GraphStore, graph: int, edges: np.ndarray) -> np.ndarray:
    first, last = store.node_ptr[graph : graph + 2].tolist()
    rows = slice(int(store.row_ptr[first]), int(store.row_ptr[last]))
    target = np.repeat(np.arange(last - first), np.diff(store.row_ptr[first : last + 1].cpu().numpy()))
    assert store.edge_label is not None
    kind = dict(zip(zip(target.tolist(), store.col[rows].tolist()), store.edge_label[rows, 0].tolist()))
    return np.array([kind[u, v] for u, v in edges.tolist()], dtype=np.int64)


def _part(explanation: Explanation, nodes: np.ndarray) -> Explanation:
    return dataclasses.replace(
        explanation,
        data=induced(explanation.data, nodes),
        masks=explanation.masks[nodes],
        importance=explanation.importance[nodes],
    )
