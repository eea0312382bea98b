"""PyG ``Data`` objects to a GraphStore and back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from softmask.data.pack import from_edges
from softmask.data.store import GraphStore
from softmask.errors import DataError


def from_data(graphs: Sequence[Data], **info: Any) -> GraphStore:
    """Packs PyG ``Data`` objects.

    Floating-point ``x`` and ``edge_attr`` become attributes, integer ones labels; labels beside attributes
    are taken from ``node_label`` and ``edge_label``. ``y`` with one integer a graph becomes a class,
    otherwise targets; ``pos`` comes along in float32. Duplicate edges and self loops are kept as they are.
    """
    if len(graphs) == 0:
        raise DataError("no graphs were given")
    sizes, edge_counts, edge_indices = [], [], []
    for g, data in enumerate(graphs):
        n, edge_index = _edges(g, data)
        sizes.append(n)
        edge_counts.append(edge_index.size(1))
        edge_indices.append(edge_index)
    arrays: dict[str, Tensor | None] = {"y": _targets(graphs, info)}
    for kind, field, rows in (("node", "x", sizes), ("edge", "edge_attr", edge_counts)):
        values, labels = _stacked(graphs, field, rows), _stacked(graphs, f"{kind}_label", rows)
        if values is not None and not values.is_floating_point():
            if labels is not None:
                raise DataError(f"{field} and {kind}_label both hold integers; keep one of them")
            values, labels = None, values
        if labels is not None and labels.is_floating_point():
            raise DataError(f"{kind}_label must hold integers, not {labels.dtype}")
        arrays[f"{kind}_attr"] = values
        arrays[f"{kind}_label"] = None if labels is None else as_labels(labels, f"{kind} labels")
    roles = _stacked(graphs, "node_role", sizes)
    arrays["node_role"] = None if roles is None else roles.reshape(-1).to(torch.int8)
    pos = _stacked(graphs, "pos", sizes)
    arrays["pos"] = None if pos is None else pos.float()
    return from_edges(edge_indices, sizes, arrays, info)


def to_data(store: GraphStore, graph: int) -> Data:
    """Graph number `graph` as PyG ``Data``; edges are ordered by target, then source.

    ``y`` is the class as it was given where classes are integers, else its index; or the row of targets.
    Where there are both labels and attributes, ``x`` holds the attributes and ``node_label`` the labels, and
    the same for edges.
    """
    first, last = store.node_ptr[graph : graph + 2].tolist()
    ptr = store.row_ptr[first : last + 1]
    begin, end = int(ptr[0]), int(ptr[-1])
    target = torch.repeat_interleave(torch.arange(last - first, device=store.device), ptr.diff())
    data = Data(edge_index=torch.stack([store.col[begin:end].long(), target]), num_nodes=last - first)
    for kind, field, label, attr, rows in (
        ("node", "x", store.node_label, store.node_attr, slice(first, last)),
        ("edge", "edge_attr", store.edge_label, store.edge_attr, slice(begin, end)),
    ):
        if attr is not None:
            data[field] = attr[rows]
        if label is not None:
            data[field if attr is None else f"{kind}_label"] = label[rows].long()
    if store.y is not None:
        data.y = store.y[graph : graph + 1]
        classes = store.info.get("classes")
        if classes and not store.y.is_floating_point() and all(isinstance(c, int) for c in classes):
            data.y = torch.tensor([classes[int(data.y)]], device=store.device)
    if store.node_role is not None:
        data.node_role = store.node_role[first:last]
    if store.pos is not None:
        data.pos = store.pos[first:last]
    return data


def as_labels(values: Tensor, what: str) -> Tensor:
    """Integers as int32; refuses those that do not fit."""
    limits = torch.iinfo(torch.int32)
    if values.numel() and values.dtype == torch.int64:
        low, high = int(values.min()), int(values.max())
        if low < limits.min or high > limits.max:
            bad = low if low < limits.min else high
            raise DataError(f"{what}: {bad} is outside {limits.min} to {limits.max}")
    return values.to(torch.int32)


def _edges(g: int, data: Data) -> tuple[int, Tensor]:
    if data.edge_index is None:
        raise DataError(f"graph {g} has no edge_index")
    n = data.num_nodes
    if n is None:
        raise DataError(f"graph {g} has no nodes: give it x or num_nodes")
    # EdgeIndex, PyG's subclass, would carry its own rules into torch.cat.
    edge_index = data.edge_index.as_subclass(Tensor).cpu()
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.is_floating_point():
        raise DataError(
            f"graph {g}: edge_index must be integers of shape [2, edges], not {edge_index.dtype} of shape "
            f"{list(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
        raise DataError(f"graph {g} has an edge to a node outside 0 to {n - 1}")
    return n, edge_index.long()


def _stacked(graphs: Sequence[Data], name: str, rows: Sequence[int]) -> Tensor | None:
    """The field of all graphs end to end, or None if none has it."""
    values = [data.get(name) for data in graphs]
    if all(v is None for v in values):
        return None
    out: list[Tensor] = []
    for g, (v, n) in enumerate(zip(values, rows)):
        if v is None:
            raise DataError(f"graph {g} has no {name}, but others have")
        v = _tensor(v, f"graph {g}: {name}")
        v = v.unsqueeze(-1) if v.dim() == 1 else v
        if v.dim() != 2 or v.size(0) != n:
            raise DataError(f"graph {g}: {name} has shape {list(v.shape)}, expected {n} rows")
        if v.dtype in (torch.float16, torch.bfloat16):
            v = v.float()
        if v.is_floating_point() and not bool(torch.isfinite(v).all()):
            raise DataError(f"graph {g}: {name} has a value that is not a finite number")
        if out and v.size(1) != out[0].size(1):
            raise DataError(f"graph {g}: {name} has {v.size(1)} columns, the graphs before have {out[0].size(1)}")
        if out and v.is_floating_point() != out[0].is_floating_point():
            raise DataError(f"graph {g}: {name} holds {v.dtype}, the graphs before {out[0].dtype}")
        out.append(v)
    return torch.cat(out)


def _tensor(value: Any, what: str) -> Tensor:
    try:
        t = torch.as_tensor(value).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what} must be numbers: {error}") from None
    if t.is_complex() or t.layout != torch.strided:
        raise DataError(f"{what} must be a plain tensor of real numbers, not {t.dtype}, {t.layout}")
    return t


def _targets(graphs: Sequence[Data], info: dict[str, Any]) -> Tensor | None:
    values = [data.get("y") for data in graphs]
    if all(v is None for v in values):
        return None
    rows = []
    for g, v in enumerate(values):
        if v is None:
            raise DataError(f"graph {g} has no y, but others have")
        rows.append(_tensor(v, f"graph {g}: y").reshape(1, -1))
        if not bool(torch.isfinite(rows[-1]).all()):
            raise DataError(f"graph {g}: y is not a finite number")
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
