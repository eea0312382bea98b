"""Synthetic sets with a ground truth: which nodes decide the class is known, so masks can be measured."""

from itertools import combinations
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from softmask.data.pack import from_edges
from softmask.data.store import GraphStore
from softmask.errors import SettingError

Edges = list[tuple[int, int]]

# Both have 5 nodes, 6 edges and the degrees 3, 3, 2, 2, 2. In the house the two nodes of degree 3 are
# neighbours, in K(2,3) they are not. The nodes 2, 3 and 4 have degree 2; one of them carries the bridge to
# the background.
HOUSE: Edges = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 4), (3, 4)]
BICLIQUE: Edges = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)]
CYCLE: Edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]


def hierarchy(
    num_graphs: int = 1000, seed: int = 0, parts: tuple[int, int] = (4, 8), leaves: tuple[int, int] = (3, 6)
) -> GraphStore:
    """Graphs of parts that are joined through root nodes, as in Figure 1 of the paper.

    A part is one root node and its leaf nodes; leaves have neighbours within their part only. There are two
    kinds of part: a *clique*, the root being one of its nodes, and a *star*, the root being one of its tips.
    Every graph has as many cliques as stars, and the roots are joined in a circle. The class is how the parts
    follow each other round it: ``alternating`` (clique, star, clique, star, ...) or ``grouped`` (first all
    cliques, then all stars). The parts are drawn before the class is looked at, and every root has two
    neighbouring roots, so neither the parts nor the degrees say anything about the class.

    Graph `g` depends on `seed` and `g` alone: a smaller set is the beginning of a larger one.

    Args:
        num_graphs: number of graphs; every other one is ``alternating``.
        seed: any integer from 0.
        parts: smallest and largest number of parts; even, at least 4 (of 2 parts there is one circle only).
        leaves: smallest and largest number of leaves of a part; at least 2 (with 1, both kinds are a single
            edge).

    Returns:
        A store with ``node_role`` 0 (leaf) or 1 (root). Nodes have no labels: the input is their degree.
    """
    _check_size(num_graphs, seed)
    low, high = _check_range("parts", parts, 4)
    leaves = _check_range("leaves", leaves, 2)
    if low % 2 or high % 2:
        raise SettingError(f"parts={parts!r}: as many cliques as stars need even numbers of parts")
    graphs = []
    for g in range(num_graphs):
        rng = _stream(seed, g)
        half = _between(rng, low // 2, high // 2)
        made = [(kind, _between(rng, *leaves) + 1) for kind in ("clique", "star") for _ in range(half)]
        # Grouped is the order in which they were made; alternating deals the two kinds out in turn.
        order = [i + half * k for i in range(half) for k in (0, 1)] if g % 2 == 0 else range(2 * half)
        edges, roots, first = [], [], 0
        for kind, size in (made[i] for i in order):
            edges += [(first + u, first + v) for u, v in _part(kind, size)]
            roots.append(first)
            first += size
        edges += list(zip(roots, roots[1:] + roots[:1]))
        role = np.zeros(first, dtype=np.int8)
        role[roots] = 1
        graphs.append(_shuffled(rng, edges, role))
    info = {"name": "hierarchy", "classes": ["alternating", "grouped"], "roles": ["leaf", "root"]}
    return _packed(graphs, info, seed, f"parts={(low, high)}, leaves={leaves}")


def motif(
    num_graphs: int = 1000, seed: int = 0, background: tuple[int, int] = (25, 50), extra_edges: float = 0.1
) -> GraphStore:
    """Graphs with a small motif that decides the class, in a random graph several times as large.

    The background is a random tree (each node joins an earlier one, uniformly drawn) with some more edges
    between nodes drawn at random. One edge ties the motif to it. The class is the motif: a ``house`` or a
    ``biclique``, that is K(2,3). They have the same number of nodes and edges and the same degrees, and
    differ in which degrees are neighbours; the background and the place of the bridge are drawn before the
    class is looked at. So the number of nodes and edges and all degrees together say nothing about the
    class.

    Graph `g` depends on `seed` and `g` alone: a smaller set is the beginning of a larger one.

    Args:
        num_graphs: number of graphs; every other one has the house.
        seed: any integer from 0.
        background: smallest and largest number of background nodes; at least 5.
        extra_edges: edges beyond the background's tree, as a share of its nodes, from 0 to 1 (edges drawn
            twice count once).

    Returns:
        A store with ``node_role`` 0 (background) or 1 (motif). Nodes have no labels: the input is their
        degree.
    """
    _check_size(num_graphs, seed)
    background = _check_range("background", background, 5)
    if not isinstance(extra_edges, Real) or not 0 <= extra_edges <= 1:
        raise SettingError(f"extra_edges={extra_edges!r}: must be a number from 0 to 1")
    graphs = []
    for g in range(num_graphs):
        rng = _stream(seed, g)
        size = _between(rng, *background)
        child = np.arange(1, size)
        parent = (rng.random(size - 1) * child).astype(np.int64)
        ends = (rng.random((int(extra_edges * size), 2)) * size).astype(np.int64)
        ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
        noise = np.unique(np.concatenate([np.stack([parent, child], axis=1), ends]), axis=0)
        bridge = (_between(rng, 0, size - 1), size + _between(rng, 2, 4))
        planted = [(size + u, size + v) for u, v in (HOUSE if g % 2 == 0 else BICLIQUE)]
        role = np.zeros(size + 5, dtype=np.int8)
        role[size:] = 1
        graphs.append(_shuffled(rng, [*map(tuple, noise.tolist()), bridge, *planted], role))
    info = {"name": "motif", "classes": ["house", "biclique"], "roles": ["background", "motif"]}
    return _packed(graphs, info, seed, f"background={background}, extra_edges={float(extra_edges)}")


def ba2motifs(num_graphs: int = 1000, seed: int = 0, background: tuple[int, int] = (20, 20)) -> GraphStore:
    """Graphs like those of BA-2Motifs, on which explainers are compared in the literature.

    The background is a Barabasi-Albert tree (each node joins an earlier one, drawn in proportion to its degree). One
    edge ties a motif to it, at a background node and a motif node drawn uniformly. The class is the motif: a ``house``
    or a ``cycle`` of five nodes. As in BA-2Motifs the house has one edge more, so the number of edges alone tells the
    classes apart; a model that counts them needs no motif, and no ground truth says otherwise. Unlike there the nodes
    have their degree for input, not a constant, and the graphs are made from the seed.

    Graph `g` depends on `seed` and `g` alone: a smaller set is the beginning of a larger one.

    Args:
        num_graphs: number of graphs; every other one has the house.
        seed: any integer from 0.
        background: smallest and largest number of background nodes; at least 5.

    Returns:
        A store with ``node_role`` 0 (background) or 1 (motif). Nodes have no labels: the input is their
        degree.
    """
    _check_size(num_graphs, seed)
    background = _check_range("background", background, 5)
    graphs = []
    for g in range(num_graphs):
        rng = _stream(seed, g)
        size = _between(rng, *background)
        noise: Edges = [(0, 1)]
        for child in range(2, size):
            # An end of an edge drawn at random is a node drawn in proportion to its degree.
            end = _between(rng, 0, 2 * len(noise) - 1)
            noise.append((noise[end // 2][end % 2], child))
        bridge = (_between(rng, 0, size - 1), size + _between(rng, 0, 4))
        planted = [(size + u, size + v) for u, v in (HOUSE if g % 2 == 0 else CYCLE)]
        role = np.zeros(size + 5, dtype=np.int8)
        role[size:] = 1
        graphs.append(_shuffled(rng, [*noise, bridge, *planted], role))
    info = {"name": "ba2motifs", "classes": ["house", "cycle"], "roles": ["background", "motif"]}
    return _packed(graphs, info, seed, f"background={background}")


SYNTHETIC = {"hierarchy": hierarchy, "motif": motif, "ba2motifs": ba2motifs}


def _part(kind: str, size: int) -> Edges:
    """The edges of a part of `size` nodes; node 0 is the root."""
    if kind == "clique":
        return list(combinations(range(size), 2))
    return [(tip, 1) for tip in range(size) if tip != 1]


def _stream(seed: int, graph: int) -> np.random.Generator:
    # Only Generator.random is drawn from: PCG64 and its doubles are the same in every version of numpy,
    # which is not promised of integers(), choice() or permutation().
    return np.random.Generator(np.random.PCG64([seed, graph]))


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return low + int(rng.random() * (high - low + 1))


def _shuffled(rng: np.random.Generator, edges: Edges, role: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes numbered at random, so that the number of a node says nothing; each edge in both directions."""
    old = np.argsort(rng.random(len(role)), kind="stable")
    new = np.argsort(old, kind="stable")
    one_way = new[np.asarray(edges, dtype=np.int64)].T
    return np.concatenate([one_way, one_way[::-1]], axis=1), role[old]


def _packed(graphs: list[tuple[np.ndarray, np.ndarray]], info: dict[str, Any], seed: int, settings: str) -> GraphStore:
    roles = [role for _, role in graphs]
    source = f"softmask.data.synthetic.{info['name']}(num_graphs={len(graphs)}, seed={seed}, {settings})"
    arrays: dict[str, torch.Tensor | None] = {
        "y": torch.arange(len(graphs)) % 2,
        "node_role": torch.from_numpy(np.concatenate(roles)),
    }
    info = {**info, "seed": int(seed), "source": source}
    return from_edges([torch.from_numpy(edges) for edges, _ in graphs], [len(r) for r in roles], arrays, info)


def _check_size(num_graphs: int, seed: int) -> None:
    if not isinstance(num_graphs, Integral) or num_graphs < 2:
        raise SettingError(f"num_graphs={num_graphs!r}: must be a whole number, at least 2 (one for each class)")
    if not isinstance(seed, Integral) or seed < 0:
        raise SettingError(f"seed={seed!r}: must be a whole number, at least 0")


def _check_range(name: str, values: tuple[int, int], least: int) -> tuple[int, int]:
    pair = isinstance(values, tuple | list) and len(values) == 2
    if not pair or not all(isinstance(v, Integral) for v in values) or not least <= values[0] <= values[1]:
        raise SettingError(f"{name}={values!r}: must be the smallest and the largest number, from {least}")
    return int(values[0]), int(values[1])
