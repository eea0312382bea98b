"""networkx graphs to a GraphStore and back."""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor

from softmask.data.pack import from_edges
from softmask.data.pyg import as_labels
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError

Marks = list[tuple[int, Any, dict[str, Any]]]
"""Graph, node or edge, and its data."""


def from_networkx(graphs: Sequence[nx.Graph], y: Sequence[Any] | None = None, **info: Any) -> GraphStore:
    """Packs networkx graphs.

    Node and edge data named ``label`` (integers) or ``attr`` (numbers) come along, and so does node data
    ``role`` (strings). An undirected graph's edge becomes two, one each way; nodes are numbered in the
    graph's own order.

    Args:
        graphs: the graphs.
        y: class or targets of each; by default the graph data ``y`` if the graphs have it.
        info: more for ``store.info``.
    """
    if len(graphs) == 0:
        raise DataError("no graphs were given")
    node_marks: Marks = []
    edge_marks: Marks = []
    edge_indices = []
    for g, graph in enumerate(graphs):
        number = {node: i for i, node in enumerate(graph.nodes)}
        node_marks += [(g, node, marks) for node, marks in graph.nodes(data=True)]
        edges = []
        for u, v, marks in graph.edges(data=True):
            both = not graph.is_directed() and u != v
            edges += [(number[u], number[v]), (number[v], number[u])][: 1 + both]
            edge_marks += [(g, (u, v), marks)] * (1 + both)
        edge_indices.append(torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t())
    arrays: dict[str, Tensor | None] = {}
    for kind, things in (("node", node_marks), ("edge", edge_marks)):
        arrays[f"{kind}_label"] = _numbers(things, "label", kind)
        arrays[f"{kind}_attr"] = _numbers(things, "attr", kind)
    if (roles := _values(node_marks, "role", "node")) is not None:
        info["roles"] = list(info.get("roles") or sorted(set(roles)))
        index = {role: i for i, role in enumerate(info["roles"])}
        arrays["node_role"] = torch.tensor([index[role] for role in roles], dtype=torch.int8)
    store = from_edges(edge_indices, [len(graph) for graph in graphs], arrays, info)
    if y is None and any("y" in graph.graph for graph in graphs):
        lacking = [g for g, graph in enumerate(graphs) if "y" not in graph.graph]
        if lacking:
            raise DataError(f"graph {lacking[0]} has no graph data 'y', but others have")
        y = [graph.graph["y"] for graph in graphs]
    return store if y is None else with_targets(store, y)


def to_networkx(store: GraphStore) -> list[nx.Graph]:
    """All graphs as networkx graphs; labels, attributes and roles as node and edge data, the target as graph
    data.

    The graphs are directed if the set is, or if the two directions of an edge have different data. Graphs
    with parallel edges come as multigraphs.
    """
    directed = store.directed or not _same_both_ways(store)
    kind = nx.MultiDiGraph if directed else nx.MultiGraph
    targets = _targets(store)
    roles = store.info.get("roles")
    out = []
    for g in range(store.num_graphs):
        first, last = store.node_ptr[g : g + 2].tolist()
        ptr = store.row_ptr[first : last + 1]
        begin, end = int(ptr[0]), int(ptr[-1])
        target = torch.repeat_interleave(torch.arange(last - first), ptr.diff().cpu()).tolist()
        source = store.col[begin:end].tolist()
        nodes = _marks(store, "node", first, last)
        if store.node_role is not None:
            for mark, role in zip(nodes, store.node_role[first:last].tolist()):
                mark["role"] = roles[role] if roles else role
        graph = kind() if targets is None else kind(y=targets[g])
        graph.add_nodes_from(enumerate(nodes))
        edges = zip(source, target, _marks(store, "edge", begin, end))
        # Of the two entries of an undirected edge one is kept.
        graph.add_edges_from(e for e in edges if directed or e[0] <= e[1])
        parallel = graph.number_of_edges() != len({(u, v) for u, v, _ in graph.edges})
        out.append(graph if parallel else (nx.DiGraph if directed else nx.Graph)(graph))
    return out


def _values(things: Marks, key: str, kind: str) -> list[Any] | None:
    """What the nodes or edges of all graphs have under this key; all of them or none must have it."""
    lacking = next(((g, thing) for g, thing, marks in things if key not in marks), None)
    if lacking is None:
        return [marks[key] for _, _, marks in things] or None
    if any(key in marks for _, _, marks in things):
        raise DataError(f"graph {lacking[0]}: {kind} {lacking[1]!r} has no {key!r}, but others have")
    return None


def _numbers(things: Marks, key: str, kind: str) -> Tensor | None:
    values = _values(things, key, kind)
    if values is None:
        return None
    rows: list[np.ndarray] = []
    wanted = ("integers", "biu") if key == "label" else ("finite numbers", "biuf")
    for (g, thing, _), value in zip(things, values):
        try:
            row = np.asarray(value).reshape(-1)
        except ValueError:
            row = np.asarray(["ragged"])
        # An empty list has numpy's default type, float, and is fine for both.
        if row.size and (row.dtype.kind not in wanted[1] or not np.isfinite(row).all()):
            raise DataError(f"graph {g}: {kind} {thing!r}: {key} must be {wanted[0]}, not {value!r}")
        if rows and len(row) != len(rows[0]):
            raise DataError(
                f"graph {g}: {kind} {thing!r}: {key} has {len(row)} numbers, those before have {len(rows[0])}"
            )
        rows.append(row)
    if key == "attr":
        return torch.from_numpy(np.stack(rows).astype(np.float64))
    return as_labels(torch.from_numpy(np.stack(rows).astype(np.int64)), f"{kind} labels")


def _marks(store: GraphStore, kind: str, begin: int, end: int) -> list[dict[str, Any]]:
    marks: list[dict[str, Any]] = [{} for _ in range(end - begin)]
    for key in ("label", "attr"):
        t = getattr(store, f"{kind}_{key}")
        if t is not None:
            for mark, value in zip(marks, t[begin:end].tolist()):
                mark[key] = value[0] if len(value) == 1 else value
    return marks


def _targets(store: GraphStore) -> list[Any] | None:
    if store.y is None:
        return None
    if store.y.is_floating_point():
        return [row[0] if len(row) == 1 else row for row in store.y.tolist()]
    classes = store.info.get("classes")
    return [classes[i] if classes else i for i in store.y.tolist()]


def _same_both_ways(store: GraphStore) -> bool:
    """Whether edges from u to v and from v to u carry the same data."""
    data = [t.cpu().numpy() for t in (store.edge_label, store.edge_attr) if t is not None]
    columns = [column for t in data for column in t.T]
    source, target = (t.cpu().numpy() for t in store.edges())
    there, back = np.lexsort((*columns, source, target)), np.lexsort((*columns, target, source))
    return all(np.array_equal(column[there], column[back]) for column in columns)
