"""Graphs of other libraries to a GraphStore and back: PyG, networkx, SMILES."""

from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from softmask.data.store import GraphStore
from softmask.errors import DataError


def from_data(graphs: Sequence[Data], **info: Any) -> GraphStore:
    """Packs PyG ``Data`` objects.

    Floating-point ``x`` and ``edge_attr`` become attributes, integer ones labels. ``y`` with one integer a graph
    becomes a class, otherwise targets. Duplicate edges and self loops are kept as they are.
    """
    if len(graphs) == 0:
        raise DataError("no graphs were given")
    sizes, edge_counts, edge_indices = [], [], []
    for g, data in enumerate(graphs):
        if data.edge_index is None:
            raise DataError(f"graph {g} has no edge_index")
        n = data.num_nodes
        if n is None:
            raise DataError(f"graph {g} has no nodes: give it x or num_nodes")
        edge_index = data.edge_index.cpu()
        if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
            raise DataError(f"graph {g} has an edge to a node outside 0 to {n - 1}")
        sizes.append(n)
        edge_counts.append(edge_index.size(1))
        edge_indices.append(edge_index.long())
    arrays: dict[str, Tensor | None] = {
        **_split_kind("node", _stacked(graphs, "x", sizes)),
        **_split_kind("edge", _stacked(graphs, "edge_attr", edge_counts)),
        "y": _targets(graphs, info),
    }
    roles = _stacked(graphs, "node_role", sizes)
    arrays["node_role"] = None if roles is None else roles.reshape(-1).to(torch.int8)
    return from_edges(edge_indices, sizes, arrays, info)


def from_edges(
    edge_indices: Sequence[Tensor], sizes: Sequence[int], arrays: dict[str, Tensor | None], info: dict[str, Any]
) -> GraphStore:
    """Packs graphs given by their edges (local node numbers) and the arrays of all nodes and edges, end to end."""
    size = torch.tensor(sizes, dtype=torch.long)
    node_ptr = torch.cat([size.new_zeros(1), size.cumsum(0)])
    counts = torch.tensor([e.size(1) for e in edge_indices], dtype=torch.long)
    local = torch.cat(list(edge_indices), dim=1) if edge_indices else torch.zeros(2, 0, dtype=torch.long)
    first = torch.repeat_interleave(node_ptr[:-1], counts)
    source, target = local[0], local[1]

    def rows(row: Tensor, col: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        order = torch.from_numpy(np.lexsort((col.numpy(), (row + first).numpy())))
        ptr = torch.searchsorted((row + first)[order], torch.arange(int(node_ptr[-1]) + 1))
        return ptr, col[order].to(torch.int32), order

    row_ptr, col, order = rows(target, source)
    row_ptr_t, col_t, _ = rows(source, target)
    directed = not (torch.equal(row_ptr, row_ptr_t) and torch.equal(col, col_t))
    arrays = dict(arrays)
    for name in ("edge_label", "edge_attr"):
        if (t := arrays.get(name)) is not None:
            arrays[name] = t[order]
    return GraphStore(
        node_ptr=node_ptr,
        row_ptr=row_ptr,
        col=col,
        row_ptr_t=row_ptr_t if directed else None,
        col_t=col_t if directed else None,
        info=info,
        **arrays,
    )


def to_data(store: GraphStore, graph: int) -> Data:
    """Graph number `graph` as PyG ``Data``; edges are ordered by target, then source."""
    first, last = store.node_ptr[graph : graph + 2].tolist()
    ptr = store.row_ptr[first : last + 1]
    begin, end = int(ptr[0]), int(ptr[-1])
    target = torch.repeat_interleave(torch.arange(last - first, device=store.device), ptr.diff())
    data = Data(edge_index=torch.stack([store.col[begin:end].long(), target]), num_nodes=last - first)
    for name, label, attr, rows in (
        ("x", store.node_label, store.node_attr, slice(first, last)),
        ("edge_attr", store.edge_label, store.edge_attr, slice(begin, end)),
    ):
        parts = [t[rows] for t in (label, attr) if t is not None]
        if len(parts) == 1:
            data[name] = parts[0].long() if parts[0].dtype == torch.int32 else parts[0]
        elif parts:
            # A PyG graph has one x: labels first, then attributes, as numbers.
            data[name] = torch.cat([p.to(parts[1].dtype) for p in parts], dim=1)
    if store.y is not None:
        data.y = store.y[graph : graph + 1]
    if store.node_role is not None:
        data.node_role = store.node_role[first:last]
    return data


def from_networkx(graphs: Sequence[nx.Graph], y: Sequence[Any] | None = None, **info: Any) -> GraphStore:
    """Packs networkx graphs. Node and edge data named ``label`` (integers) or ``attr`` (numbers) come along.

    An undirected graph's edge becomes two, one each way; nodes are numbered in the graph's own order.
    """
    data = []
    for g, graph in enumerate(graphs):
        number = {node: i for i, node in enumerate(graph.nodes)}
        edges, marks = [], []
        for u, v, attributes in graph.edges(data=True):
            edges.append((number[u], number[v]))
            marks.append(attributes)
            if not graph.is_directed() and u != v:
                edges.append((number[v], number[u]))
                marks.append(attributes)
        edge_index = torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t()
        item = Data(edge_index=edge_index, num_nodes=len(number))
        for name, things in (("x", [d for _, d in graph.nodes(data=True)]), ("edge_attr", marks)):
            for key, dtype in (("label", torch.long), ("attr", torch.float32)):
                if things and all(key in d for d in things):
                    try:
                        item[name] = torch.tensor([d[key] for d in things], dtype=dtype).reshape(len(things), -1)
                    except (TypeError, ValueError) as error:
                        kind = "node" if name == "x" else "edge"
                        raise DataError(f"graph {g}: {kind} data {key!r} must be numbers: {error}") from None
        data.append(item)
    store = from_data(data, **info)
    return store if y is None else with_targets(store, y)


def to_networkx(store: GraphStore) -> list[nx.Graph]:
    """All graphs as networkx graphs, directed ones if the set is; labels and attributes as node and edge data."""
    kind = nx.MultiDiGraph if store.directed else nx.MultiGraph
    out = []
    for g in range(store.num_graphs):
        first, last = store.node_ptr[g : g + 2].tolist()
        ptr = store.row_ptr[first : last + 1]
        begin, end = int(ptr[0]), int(ptr[-1])
        target = torch.repeat_interleave(torch.arange(last - first), ptr.diff().cpu()).tolist()
        source = store.col[begin:end].tolist()
        graph = kind()
        graph.add_nodes_from((i, d) for i, d in enumerate(_marks(store, "node", first, last)))
        edges = zip(source, target, _marks(store, "edge", begin, end))
        # Of the two entries of an undirected edge one is kept.
        graph.add_edges_from(e for e in edges if store.directed or e[0] <= e[1])
        out.append(graph if _has_parallel_edges(graph) else (nx.DiGraph if store.directed else nx.Graph)(graph))
    return out


def from_smiles(smiles: Sequence[str], y: Sequence[Any] | None = None, **info: Any) -> GraphStore:
    """Packs molecules given as SMILES: heavy atoms labelled by atomic number, bonds by kind (1, 2, 3; 12 aromatic).

    The strings themselves are kept as the names of the graphs, so that :func:`to_smiles` gives them back.
    """
    try:
        from rdkit import Chem, RDLogger
    except ImportError:
        raise DataError("SMILES need RDKit: pip install 'softmask[smiles]'") from None
    RDLogger.DisableLog("rdApp.*")
    data = []
    for row, text in enumerate(smiles):
        molecule = Chem.MolFromSmiles(text)
        if molecule is None:
            raise DataError(f"molecule {row}: RDKit cannot read the SMILES {text!r}")
        if molecule.GetNumAtoms() == 0:
            raise DataError(f"molecule {row}: the SMILES {text!r} has no atoms")
        atoms = torch.tensor([[a.GetAtomicNum()] for a in molecule.GetAtoms()])
        bonds = [(b.GetBeginAtomIdx(), b.GetEndAtomIdx(), int(b.GetBondType())) for b in molecule.GetBonds()]
        table = torch.tensor(bonds + [(v, u, k) for u, v, k in bonds], dtype=torch.long).reshape(-1, 3)
        data.append(Data(x=atoms, edge_index=table[:, :2].t(), edge_attr=table[:, 2:]))
    store = from_data(data, names=list(smiles), **info)
    return store if y is None else with_targets(store, y)


def to_smiles(store: GraphStore) -> list[str]:
    """The SMILES a store was made from."""
    names = store.info.get("names")
    if names is None:
        raise DataError(f"{store!r} was not made from SMILES")
    return list(names)


def with_targets(store: GraphStore, y: Sequence[Any]) -> GraphStore:
    """The store with targets: floats become regression targets, anything else classes."""
    import dataclasses

    values = np.asarray(y)
    if len(values) != store.num_graphs:
        raise DataError(f"{store.num_graphs} graphs but {len(values)} targets were given")
    info = dict(store.info)
    if values.dtype.kind == "f":
        target = torch.from_numpy(values.astype(np.float64)).reshape(len(values), -1)
        bad = (~torch.isfinite(target).all(dim=1)).nonzero()
        if bad.numel():
            raise DataError(f"graph {int(bad[0])}: its target is not a finite number")
        info.pop("classes", None)
        return dataclasses.replace(store, y=target, info=info)
    classes, index = np.unique(values, return_inverse=True)
    info["classes"] = classes.tolist()
    return dataclasses.replace(store, y=torch.from_numpy(index.reshape(-1)), info=info)


def as_store(graphs: Any) -> GraphStore:
    """A store from whatever was given: a store, PyG ``Data``, networkx graphs, or SMILES strings."""
    if isinstance(graphs, GraphStore):
        return graphs
    if isinstance(graphs, str | bytes) or not hasattr(graphs, "__len__"):
        raise DataError("graphs must be a GraphStore, or a list of PyG Data, networkx graphs or SMILES strings")
    items = list(graphs)
    if not items:
        raise DataError("no graphs were given")
    for kind, convert in ((Data, from_data), (nx.Graph, from_networkx), (str, from_smiles)):
        if all(isinstance(item, kind) for item in items):
            return convert(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise DataError(f"graphs must all be PyG Data, networkx graphs or SMILES strings; got {kinds}")


def _stacked(graphs: Sequence[Data], name: str, rows: Sequence[int]) -> Tensor | None:
    """The field of all graphs end to end, or None if none has it."""
    values = [data.get(name) for data in graphs]
    if all(v is None for v in values):
        return None
    out = []
    for g, (v, n) in enumerate(zip(values, rows)):
        if v is None:
            raise DataError(f"graph {g} has no {name}, but others have")
        v = v.cpu()
        v = v.unsqueeze(-1) if v.dim() == 1 else v
        if v.dim() != 2 or v.size(0) != n:
            raise DataError(f"graph {g}: {name} has shape {list(v.shape)}, expected {n} rows")
        if v.is_floating_point() and not bool(torch.isfinite(v).all()):
            raise DataError(f"graph {g}: {name} has a value that is not a finite number")
        if out and v.size(1) != out[0].size(1):
            raise DataError(f"graph {g}: {name} has {v.size(1)} columns, the graphs before have {out[0].size(1)}")
        out.append(v)
    return torch.cat(out)


def _split_kind(kind: str, values: Tensor | None) -> dict[str, Tensor | None]:
    if values is None:
        return {}
    if values.is_floating_point():
        return {f"{kind}_attr": values}
    return {f"{kind}_label": values.to(torch.int32)}


def _targets(graphs: Sequence[Data], info: dict[str, Any]) -> Tensor | None:
    values = [data.get("y") for data in graphs]
    if all(v is None for v in values):
        return None
    rows = []
    for g, v in enumerate(values):
        if v is None:
            raise DataError(f"graph {g} has no y, but others have")
        rows.append(torch.as_tensor(v).reshape(1, -1).cpu())
    width = {r.size(1) for r in rows}
    if len(width) != 1:
        raise DataError(f"y differs in length from graph to graph: {sorted(width)}")
    y = torch.cat(rows)
    if y.is_floating_point():
        return y.double()
    if y.size(1) != 1:
        raise DataError(f"y has {y.size(1)} integers a graph; a class is one integer, targets are floating point")
    classes, index = torch.unique(y.reshape(-1), return_inverse=True)
    info["classes"] = classes.tolist()
    return index


def _marks(store: GraphStore, kind: str, begin: int, end: int) -> list[dict[str, Any]]:
    marks: list[dict[str, Any]] = [{} for _ in range(end - begin)]
    for key in ("label", "attr"):
        t = getattr(store, f"{kind}_{key}")
        if t is not None:
            for mark, value in zip(marks, t[begin:end].tolist()):
                mark[key] = value[0] if len(value) == 1 else value
    return marks


def _has_parallel_edges(graph: nx.MultiGraph) -> bool:
    return graph.number_of_edges() != len({frozenset(e[:2]) if not graph.is_directed() else e[:2] for e in graph.edges})
