"""Sets in TU layout: text files in a folder or a zip file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from softmask.data.raw import RawFiles
from softmask.data.store import GraphStore
from softmask.data.table import line_of_row, read_table
from softmask.errors import DataError

READER_VERSION = 1
"""Part of the key of the cache: raise it when the reader makes another store of the same files."""


def read_tu(path: Path) -> GraphStore:
    """Reads a set in TU layout.

    Line "u, v" of ``NAME_A.txt`` is an edge from node u to node v. Self loops are dropped and counted in
    ``info["self_loops"]``; of an edge given twice the first line counts. ``NAME_graph_attributes.txt``
    (targets of a regression) goes before ``NAME_graph_labels.txt`` (classes), as in PyG; with neither, ``y``
    is ``None``. Labels are kept as given, unlike in PyG, which subtracts the smallest.

    Args:
        path: the folder, or a zip file of it (any compression that Python reads).
    """
    with RawFiles(path) as raw:
        return read_raw(raw)


def read_raw(raw: RawFiles) -> GraphStore:
    """The same for files that are open already."""
    node_ptr, graph = _graphs(raw)
    arrays, lines, given, self_loops = _edges(raw, node_ptr, graph)
    info: dict[str, Any] = {"name": raw.name, "source": "TU", "self_loops": self_loops}
    for rows, other, things in (("node", "graph_indicator", "nodes"), ("edge", "A", "edges")):
        for kind, dtype, name in (("labels", np.int32, "label"), ("attributes", np.float32, "attr")):
            file = f"{rows}_{kind}"
            if file not in raw:
                continue
            columns = read_table(raw, file, dtype)
            _same_length(raw, file, len(columns[0]), len(graph) if rows == "node" else given, other, things)
            if rows == "edge":
                columns = [column[lines] for column in columns]
            arrays[f"{rows}_{name}"] = torch.from_numpy(np.stack(columns, axis=1))
    y, classes = _targets(raw, len(node_ptr) - 1)
    if classes is not None:
        info["classes"] = classes
    return GraphStore(node_ptr=torch.from_numpy(node_ptr), y=y, info=info, **arrays)


def _graphs(raw: RawFiles) -> tuple[np.ndarray, np.ndarray]:
    """Where each graph's nodes begin, and the graph of each node, both from 0."""
    (graph,) = read_table(raw, "graph_indicator", np.int32, columns=1)
    where = raw.where("graph_indicator")
    if graph[0] != 1:
        raise DataError(
            f"{where}, line {line_of_row(raw, 'graph_indicator', 0)}: graphs are numbered from 1, found {graph[0]}"
        )
    step = np.diff(graph)
    if (step < 0).any():
        row = int(np.argmax(step < 0))
        line = line_of_row(raw, "graph_indicator", row + 1)
        raise DataError(
            f"{where}, line {line}: graph {graph[row + 1]} comes after graph {graph[row]}; the nodes of a "
            "graph must stand together, graphs in rising order: sort the nodes by graph, and number them "
            "anew in all files"
        )
    if (step > 1).any():
        row = int(np.argmax(step > 1))
        line = line_of_row(raw, "graph_indicator", row + 1)
        raise DataError(
            f"{where}, line {line}: graph {graph[row + 1]} follows graph {graph[row]}, so graph "
            f"{graph[row] + 1} has no nodes. Graphs without nodes are not read: remove them, and their line "
            "in the file of graph labels"
        )
    graph = graph - 1
    node_ptr = np.searchsorted(graph, np.arange(int(graph[-1]) + 2)).astype(np.int64)
    return node_ptr, graph


def _edges(raw: RawFiles, node_ptr: np.ndarray, graph: np.ndarray) -> tuple[dict[str, Tensor], np.ndarray, int, int]:
    """The arrays, for each edge its row in the file, and how many rows and self loops there were.

    The rows are meaningful only if there are labels or attributes of edges to be looked up by them.
    """
    from scipy.sparse import coo_array

    nodes = len(graph)
    source, target = read_table(raw, "A", np.int32, columns=2)
    given = len(source)
    if given >= 2**31:
        raise DataError(f"{raw.where('A')}: {given} lines; up to {2**31 - 1} are read: split the set")
    for ends in (source, target):
        if ends.min() < 1 or ends.max() > nodes:
            row = int(np.argmax((source < 1) | (source > nodes) | (target < 1) | (target > nodes)))
            bad = source[row] if not 1 <= source[row] <= nodes else target[row]
            raise DataError(
                f"{raw.where('A')}, line {line_of_row(raw, 'A', row)}: edge {source[row]}, {target[row]} "
                f"names node {bad}, but nodes go from 1 to {nodes} (one for each line of "
                f"{raw.name}_graph_indicator.txt)"
            )
    marked = "edge_labels" in raw or "edge_attributes" in raw
    # One byte an edge where nothing is to be looked up by it: COLLAB has 24.6 million.
    lines = np.arange(given, dtype=np.int32) if marked else np.ones(given, dtype=np.int8)
    proper = source != target
    self_loops = given - int(np.count_nonzero(proper))
    if self_loops:
        source, target, lines = source[proper], target[proper], lines[proper]
    del proper
    # Grouping by source, then by target, is a counting sort each: linear, and stable, so that entries of a
    # row come out in order of their source, and equal edges in order of their lines.
    coo = coo_array((lines, (source - 1, target - 1)), shape=(nodes, nodes))
    coo.has_canonical_format = True  # Keeps scipy from adding up the entries of equal edges.
    del source, target, lines
    by_target = coo.tocsr().tocsc()
    del coo
    row_ptr, col, lines = by_target.indptr.astype(np.int64), by_target.indices, by_target.data
    again = col[1:] == col[:-1]
    begins = row_ptr[1:-1]
    again[begins[(begins > 0) & (begins < len(col))] - 1] = False
    if again.any():
        keep = np.concatenate([[True], ~again])
        row_ptr = np.concatenate([[0], np.cumsum(keep)])[row_ptr]
        col, lines = col[keep], lines[keep]
    del again, by_target
    degree = np.diff(row_ptr)
    arrays: dict[str, Tensor] = {}
    row_ptr_t, col_t = _transposed(row_ptr, col)
    if not (np.array_equal(row_ptr, row_ptr_t) and np.array_equal(col, col_t)):
        first_t = np.repeat(node_ptr[graph].astype(np.int32), np.diff(row_ptr_t))
        arrays |= {"row_ptr_t": torch.from_numpy(row_ptr_t), "col_t": torch.from_numpy(col_t - first_t)}
    del col_t
    local = col - np.repeat(node_ptr[graph].astype(np.int32), degree)
    size = np.repeat(np.diff(node_ptr)[graph].astype(np.int32), degree)
    if (outside := (local < 0) | (local >= size)).any():
        entry = int(np.argmax(outside))
        v = int(np.searchsorted(row_ptr, entry, side="right")) - 1
        raise _between_graphs(raw, int(col[entry]), v, graph)
    arrays |= {"row_ptr": torch.from_numpy(row_ptr), "col": torch.from_numpy(local)}
    return arrays, lines, given, self_loops


def _transposed(row_ptr: np.ndarray, col: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    from scipy.sparse import csr_array

    nodes = len(row_ptr) - 1
    ones = np.ones(len(col), dtype=np.int8)
    turned = csr_array((ones, col, row_ptr.astype(np.int32)), shape=(nodes, nodes)).tocsc()
    return turned.indptr.astype(np.int64), turned.indices


def _between_graphs(raw: RawFiles, u: int, v: int, graph: np.ndarray) -> DataError:
    source, target = read_table(raw, "A", np.int32, columns=2)
    row = int(np.argmax((source == u + 1) & (target == v + 1)))
    return DataError(
        f"{raw.where('A')}, line {line_of_row(raw, 'A', row)}: edge {u + 1}, {v + 1} goes from graph "
        f"{graph[u] + 1} to graph {graph[v] + 1}; an edge must stay within one graph"
    )


def _targets(raw: RawFiles, graphs: int) -> tuple[Tensor | None, list[int] | None]:
    if "graph_attributes" in raw:
        table = read_table(raw, "graph_attributes", np.float64)
        _same_length(raw, "graph_attributes", len(table[0]), graphs, "graph_indicator", "graphs")
        return torch.from_numpy(np.stack(table, axis=1)), None
    if "graph_labels" in raw:
        (labels,) = read_table(raw, "graph_labels", np.int64, columns=1)
        _same_length(raw, "graph_labels", len(labels), graphs, "graph_indicator", "graphs")
        classes, index = np.unique(labels, return_inverse=True)
        return torch.from_numpy(index.reshape(-1).astype(np.int64)), classes.tolist()
    return None, None


def _same_length(raw: RawFiles, kind: str, found: int, expected: int, other: str, things: str) -> None:
    if found != expected:
        raise DataError(
            f"{raw.where(kind)}: {found} lines, but {raw.name}_{other}.txt has {expected} {things}; "
            f"there must be one line for each"
        )
