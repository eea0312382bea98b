"""The graphs of a store as the kernels see them: one sparse matrix, one colour for each node."""

from collections.abc import Sequence

import numpy as np
from scipy import sparse

from softmask.data.store import GraphStore


def adjacency(store: GraphStore) -> sparse.csr_array:
    """All graphs side by side as one symmetric matrix ``[nodes, nodes]`` of zeros and ones.

    The kernels are defined for simple undirected graphs: directions are forgotten, self loops dropped, and an edge that
    stands twice counts once.
    """
    source, target = (t.cpu().numpy() for t in store.edges())
    keep = source != target
    rows = np.concatenate([target[keep], source[keep]]) if store.directed else target[keep]
    columns = np.concatenate([source[keep], target[keep]]) if store.directed else source[keep]
    entries = np.ones(len(rows), dtype=np.float64)
    matrix = sparse.csr_array((entries, (rows, columns)), shape=(store.num_nodes, store.num_nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def pointers(store: GraphStore) -> np.ndarray:
    """Where each graph's nodes begin, ``[graphs + 1]``."""
    return store.node_ptr.cpu().numpy()


def graph_of_node(store: GraphStore) -> np.ndarray:
    """The graph of each node, ``[nodes]``."""
    return store.batch.cpu().numpy()


def degrees(matrix: sparse.csr_array) -> np.ndarray:
    """Neighbours of each node, ``[nodes]`` int64."""
    return np.diff(matrix.indptr).astype(np.int64)


def node_labels(store: GraphStore) -> np.ndarray | None:
    """The label of each node as a number from 0, several columns taken together; ``None`` if the set has none."""
    if store.node_label is None:
        return None
    return np.unique(store.node_label.cpu().numpy(), axis=0, return_inverse=True)[1].reshape(-1)


def colours(store: GraphStore, matrix: sparse.csr_array) -> np.ndarray:
    """The colour of each node as a number from 0: its label, or its degree in a set without labels."""
    labels = node_labels(store)
    return np.unique(degrees(matrix), return_inverse=True)[1] if labels is None else labels


def counts(graph: np.ndarray, kind: np.ndarray, num_graphs: int) -> sparse.csr_array:
    """How often each kind of thing occurs in each graph, ``[graphs, kinds]``, for things given one by one."""
    table = sparse.csr_array(
        (np.ones(len(kind)), (graph, kind)), shape=(num_graphs, int(kind.max()) + 1 if len(kind) else 1)
    )
    table.sum_duplicates()
    return table


def counted(found: Sequence[tuple[np.ndarray, np.ndarray]]) -> sparse.csr_array:
    """The same for things counted graph by graph: for each graph its kinds, ascending, and how often each occurs."""
    kind = np.unique(np.concatenate([kinds for kinds, _ in found]), return_inverse=True)[1]
    times = np.concatenate([times for _, times in found]).astype(np.float64)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(kinds) for kinds, _ in found])])
    return sparse.csr_array((times, kind, ends), shape=(len(found), int(kind.max()) + 1 if len(kind) else 1))


def block(matrix: sparse.csr_array, first: int, end: int) -> sparse.csr_array:
    """The rows and columns ``first`` to ``end`` of a block-diagonal matrix whose blocks do not cross these bounds."""
    start, stop = matrix.indptr[first], matrix.indptr[end]
    parts = matrix.data[start:stop], matrix.indices[start:stop] - first, matrix.indptr[first : end + 1] - start
    return sparse.csr_array(parts, shape=(end - first, end - first))
