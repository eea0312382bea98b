"""Masks against the structure of their graphs, as numbers over many graphs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.explain.score import _ranks

CLOSED = 0.05
"""A node with a smaller mask counts as left out: in a picture it is as white as the paper."""

RISE = 0.1
"""A mask that rises by less is not seen to: a tenth of the scale of a picture."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
ROLES = ("leaves", "between", "hub")
_FARTHEST = 3
# Smaller differences between masks are rounding of the arithmetic, which must not decide on ranks: the leaves of one
# node all have the same mask, and ranks drawn at random among them would hide what they have in common.
_DECIMALS = 4


@dataclass(frozen=True, eq=False)
class Structure:
    """Where the nodes of many graphs stand in them; every field is ``[nodes]``.

    Args:
        graph: the graph of each node.
        degree: its neighbours, itself not counted.
        role: an index into :data:`ROLES`: the hub (the first node of the largest degree of each graph), the leaves
            (one neighbour), and what lies between.
        distance: edges to the hub of its graph on a shortest path; -1 where there is no path.
    """

    graph: np.ndarray
    degree: np.ndarray
    role: np.ndarray
    distance: np.ndarray

    @classmethod
    def of(cls, store: GraphStore) -> "Structure":
        """The structure of all graphs of a store; the direction of edges is ignored for distances."""
        store = store.to("cpu")
        graph, degree = store.batch.numpy(), store.degree().numpy()
        # Graph by graph the largest degree first, and of those the first node.
        order = np.lexsort((np.arange(len(graph)), -degree, graph))
        hubs = order[np.flatnonzero(np.diff(graph[order], prepend=-1))]
        role = np.where(degree == 1, ROLES.index("leaves"), ROLES.index("between"))
        role[hubs] = ROLES.index("hub")
        return cls(graph, degree, role, _distances(store, hubs))

    def role_shares(self) -> dict[str, float]:
        """Mean over graphs of the share of nodes with each role: their share of the weight if all masks are equal."""
        return {name: share["mean"] for name, share in _shares(np.ones(len(self.graph)), self).items()}


def rank_correlations(a: Any, b: Any, graph: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of two node values within each graph, ``[graphs]``, in the order of `graph`.

    NaN for graphs in which one of the two is the same for all nodes: there is nothing to correlate.
    """
    a, b = (np.asarray(values, dtype=np.float64).reshape(-1) for values in (a, b))
    if not len(a) == len(b) == len(graph):
        raise SettingError(f"values and graphs are of {len(a)}, {len(b)} and {len(graph)} nodes")
    _, graph = np.unique(graph, return_inverse=True)
    x, y = (_centred(_ranks(values, graph), graph) for values in (a, b))
    both, left, right = (np.bincount(graph, weights=w) for w in (x * y, x * x, y * y))
    known = (left > 0) & (right > 0)
    return np.divide(both, np.sqrt(left * right), out=np.full(len(both), np.nan), where=known)


def layer_statistics(mask: np.ndarray, structure: Structure, label: np.ndarray | None = None) -> dict[str, Any]:
    """What the masks of one layer do, over all graphs, as plain JSON.

    Args:
        mask: ``[nodes]``, from 0 to 1.
        structure: of the same nodes.
        label: ``[nodes]``, discrete labels, if there are any.

    Returns:
        - ``mean``, ``std``, ``quantiles`` over all nodes, and ``closed``, the share of nodes with masks below 0.05;
        - ``within``: the standard deviation of the masks within a graph, over graphs;
        - ``degree``, ``distance``: rank correlation within a graph with the degree and with the distance to the hub
          (nodes without a path to it are left out), over graphs; ``graphs`` says how many have one;
        - ``share``: the share of a graph's mask weight on leaves, hub, and between, over graphs;
        - ``role``: mean mask of the nodes of each role within a graph, over graphs;
        - ``at_distance``: mean mask of all nodes at distance 0, 1, 2, and 3 or more from the hub;
        - ``label``: the share of the variance of masks that the label explains (the squared correlation ratio).
    """
    mask = np.asarray(mask, dtype=np.float64).reshape(-1)
    graph, rounded = structure.graph, np.round(mask, _DECIMALS)
    reached = structure.distance >= 0
    far = np.minimum(structure.distance, _FARTHEST)
    numbers: dict[str, Any] = {
        "mean": float(mask.mean()),
        "std": float(mask.std()),
        "quantiles": {f"{q:g}": float(v) for q, v in zip(QUANTILES, np.quantile(mask, QUANTILES))},
        "closed": float((mask < CLOSED).mean()),
        "within": _over_graphs(np.sqrt(_means(_centred(mask, graph) ** 2, graph))),
        "degree": _over_graphs(rank_correlations(rounded, structure.degree, graph)),
        "distance": _over_graphs(rank_correlations(rounded[reached], structure.distance[reached], graph[reached])),
        "share": _shares(mask, structure),
        "role": {name: _over_graphs(_role_means(mask, structure, r)) for r, name in enumerate(ROLES)},
        "at_distance": [float(mask[far == d].mean()) if (far == d).any() else None for d in range(_FARTHEST + 1)],
    }
    if label is not None:
        numbers["label"] = _explained(mask, np.unique(label, return_inverse=True)[1].reshape(-1))
    return numbers


def risers(masks: np.ndarray, graph: np.ndarray) -> list[float]:
    """For each layer, the share of nodes that up to it rose from low to high.

    A node did if it was in the lowest third of its graph's masks in some layer and in the highest third in a later one,
    and if its mask rose by :data:`RISE` or more between the two.

    Args:
        masks: ``[nodes, layers]``.
        graph: the graph of each node.
    """
    layers = np.round(masks, _DECIMALS).T
    place = np.stack([_places(layer, graph) for layer in layers])
    lowest = np.full(place.shape, np.inf)  # mask of the node where it was low before
    lowest[1:] = np.minimum.accumulate(np.where(place < 1 / 3, layers, np.inf), axis=0)[:-1]
    rose = np.logical_or.accumulate((place > 2 / 3) & (np.round(layers - lowest, _DECIMALS) >= RISE), axis=0)
    return [float(share) for share in rose.mean(axis=1)]


def agreement(masks: list[np.ndarray], graph: np.ndarray) -> list[dict[str, Any]]:
    """For each layer, the rank correlation of the masks of two models within a graph, over graphs and pairs of models.

    Args:
        masks: of each model ``[nodes, layers]``.
        graph: the graph of each node.
    """
    pairs = [(a, b) for i, a in enumerate(masks) for b in masks[:i]]
    layers = range(masks[0].shape[1])
    rounded = [tuple(np.round(m, _DECIMALS) for m in pair) for pair in pairs]
    if not pairs:
        return [_over_graphs(np.empty(0)) for _ in layers]
    return [
        _over_graphs(np.concatenate([rank_correlations(a[:, k], b[:, k], graph) for a, b in rounded])) for k in layers
    ]


def _distances(store: GraphStore, hubs: np.ndarray) -> np.ndarray:
    """Breadth first, in all graphs at once."""
    ends = np.stack([t.numpy() for t in store.edges()])
    source, target = np.concatenate([ends, ends[::-1]], axis=1) if store.directed else ends
    distance = np.full(store.num_nodes, -1)
    front, steps = hubs, 0
    while len(front):
        distance[front] = steps
        here = np.zeros(store.num_nodes, dtype=bool)
        here[front] = True
        reached = np.zeros(store.num_nodes, dtype=bool)
        reached[target[here[source]]] = True
        front, steps = np.flatnonzero(reached & (distance < 0)), steps + 1
    return distance


def _shares(mask: np.ndarray, structure: Structure) -> dict[str, dict[str, Any]]:
    total = np.bincount(structure.graph, weights=mask)
    shares = {}
    for r, name in enumerate(ROLES):
        part = np.bincount(structure.graph, weights=np.where(structure.role == r, mask, 0), minlength=len(total))
        shares[name] = _over_graphs(np.divide(part, total, out=np.full(len(total), np.nan), where=total > 0))
    return shares


def _role_means(mask: np.ndarray, structure: Structure, role: int) -> np.ndarray:
    has = structure.role == role
    return _means(mask[has], structure.graph[has])


def _places(values: np.ndarray, graph: np.ndarray) -> np.ndarray:
    """The rank within its graph, from 0 to 1; the middle is 0.5 in graphs of any size."""
    _, graph, nodes = np.unique(graph, return_inverse=True, return_counts=True)
    return (_ranks(values, graph) - 0.5) / nodes[graph]


def _explained(mask: np.ndarray, label: np.ndarray) -> float | None:
    total = float(((mask - mask.mean()) ** 2).sum())
    left = float((_centred(mask, label) ** 2).sum())
    return 1 - left / total if total > 0 else None


def _means(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Mean of each group that has a value, in ascending order of the groups."""
    _, group = np.unique(group, return_inverse=True)
    return np.bincount(group, weights=values) / np.bincount(group)


def _centred(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    _, group = np.unique(group, return_inverse=True)
    return values - _means(values, group)[group]


def _over_graphs(values: np.ndarray) -> dict[str, Any]:
    """Mean and standard deviation over graphs, and how many there are."""
    known = values[np.isfinite(values)]
    if not known.size:
        return {"mean": None, "std": None, "graphs": 0}
    return {"mean": float(known.mean()), "std": float(known.std()), "graphs": int(known.size)}
