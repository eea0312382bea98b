"""Small labelled graphs for hypothesis, as networkx graphs and as a store, and as GraKeL wants them."""

import warnings
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import strategies as st

from softmask.data.networkx import from_networkx
from softmask.data.store import GraphStore


@st.composite
def labelled(draw: Any, max_nodes: int = 7, min_nodes: int = 1, graphs: int = 4, labels: int = 3) -> list[nx.Graph]:
    """Some graphs with node data ``label``; isolated nodes and several components among them."""
    made = []
    for _ in range(draw(st.integers(2, graphs))):
        n = draw(st.integers(min_nodes, max_nodes))
        graph = nx.Graph()
        graph.add_nodes_from((v, {"label": draw(st.integers(0, labels - 1))}) for v in range(n))
        pairs = [(u, v) for u in range(n) for v in range(u)]
        graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else [])
        made.append(graph)
    return made


def store_of(graphs: list[nx.Graph], labels: bool = True, y: Any = None) -> GraphStore:
    if not labels:
        graphs = [_bare(graph) for graph in graphs]
    return from_networkx(graphs, y)


def _bare(graph: nx.Graph) -> nx.Graph:
    bare = nx.Graph()
    bare.add_nodes_from(graph.nodes)
    bare.add_edges_from(graph.edges)
    return bare


def shuffled(graphs: list[nx.Graph], seed: int) -> list[nx.Graph]:
    """The same graphs with their nodes in another order."""
    random = np.random.default_rng(seed)
    turned = []
    for graph in graphs:
        other = nx.Graph()
        nodes = random.permutation(list(graph.nodes)).tolist()
        other.add_nodes_from((v, graph.nodes[v]) for v in nodes)
        other.add_edges_from(list(graph.edges))
        turned.append(other)
    return turned


def molecules(seed: int, count: int = 40) -> tuple[list[nx.Graph], np.ndarray]:
    """Rings (class 0) and trees (class 1) of 6 to 12 nodes, labels drawn at random."""
    random = np.random.default_rng(seed)
    graphs, y = [], np.arange(count) % 2
    for kind in y:
        n = int(random.integers(6, 13))
        graph = nx.cycle_graph(n) if kind == 0 else nx.from_edgelist((v, int(random.integers(v))) for v in range(1, n))
        nx.set_node_attributes(graph, {v: int(random.integers(3)) for v in graph}, "label")
        graphs.append(graph)
    return graphs, y


def grakel_kernel(name: str, **settings: Any) -> Any:
    """A kernel of GraKeL, the independent form; the test is skipped where GraKeL is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        grakel = pytest.importorskip("grakel")
    return getattr(grakel, name)(**settings)


def grakel_gram(kernel: Any, graphs: list[nx.Graph]) -> np.ndarray:
    import grakel

    given = []
    for graph in graphs:
        order = sorted(graph.nodes)
        labels = {i: graph.nodes[v]["label"] for i, v in enumerate(order)}
        given.append(grakel.Graph(nx.to_numpy_array(graph, order), labels))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(kernel.fit_transform(given), dtype=np.float64)


def degree_labelled(graphs: list[nx.Graph]) -> list[nx.Graph]:
    """The same graphs, the degree of a node as its label."""
    copies = [graph.copy() for graph in graphs]
    for copy in copies:
        nx.set_node_attributes(copy, dict(copy.degree), "label")
    return copies
