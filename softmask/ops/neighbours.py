"""Who is whose neighbour: the one form in which the operators take a graph."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from softmask.ops.segments import side_by_side


class Neighbours(NamedTuple):
    r"""The neighbour lists of all nodes, as rows of a CSR matrix that need not adjoin.

    The neighbours of node :math:`v` are
    :math:`\{\mathrm{base}_v + \mathrm{col}_e : \mathrm{start}_v \le e < \mathrm{end}_v\}`. Rows may lie anywhere in
    ``col``, so a batch of graphs of a store needs no edges of its own: it points into the store's.
    Self loops may be present; the operators never count them, unless the entries have weights.

    Args:
        start, end: ``[nodes]``, where each node's row begins and ends in ``col``.
        col: ``[edges]``, sources of the edges into a node.
        base: ``[nodes]``, added to the entries of ``col`` in a node's row (``None``: nothing is added).
        start_t, end_t, col_t: the same for the transposed graph; ``None`` if the graph is undirected.
        bits, bit_row, size: the same graph once more as bit matrices, for dense graphs on CUDA (see
            :func:`softmask.ops.bitmaps.bitmaps`): the words of all rows, the first word of each node's row
            ``[nodes]``, and the number of nodes of its graph ``[nodes]``, 0 for padding. ``None`` if there are none.
        source, offset: the same graph once more as one list, for the CPU (see :meth:`listed`): all neighbours end to
            end, without self loops, and where each node's begin. Under ``vmap`` they are those of all replicas side by
            side. ``None`` if they were not made.
        hubs: False if no node has more than a few dozen neighbours, which saves CUDA the look for them.
        weight, weight_t: ``[edges]``, how often each entry of ``col`` counts, and how often it does in the transposed
            graph, for a graph whose nodes stand for several (see :func:`softmask.fleet.quotient.quotient`); a node may
            then be its own neighbour. Such a graph has no ``col_t``. ``None``: once.
        entry: where in ``col`` each entry of ``source`` stands, if there are weights.
    """

    start: Tensor
    end: Tensor
    col: Tensor
    base: Tensor | None = None
    start_t: Tensor | None = None
    end_t: Tensor | None = None
    col_t: Tensor | None = None
    bits: Tensor | None = None
    bit_row: Tensor | None = None
    size: Tensor | None = None
    source: Tensor | None = None
    offset: Tensor | None = None
    hubs: bool | None = None
    weight: Tensor | None = None
    weight_t: Tensor | None = None
    entry: Tensor | None = None

    def listed(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """All rows of ``col`` laid end to end without self loops, and where each row begins in that.

        With weights there may be self loops, and then comes the place of each entry in ``col``.
        """
        if self.source is not None and self.offset is not None:
            return self.source, self.offset, self.entry
        degree = self.end - self.start
        row = torch.repeat_interleave(torch.arange(degree.numel(), device=degree.device), degree)
        begin = degree.cumsum(0) - degree
        entry = torch.arange(row.numel(), device=row.device) + (self.start - begin)[row]
        source = self.col[entry].long()
        if self.base is not None:
            source = source + self.base[row]
        if self.weight is not None:
            return source, begin.long(), entry
        loop = source == row
        if bool(loop.any()):
            source = source[~loop]
            degree = degree - torch.bincount(row[loop], minlength=degree.numel())
            begin = degree.cumsum(0) - degree
        return source, begin.long(), None

    def transpose(self) -> "Neighbours":
        """The graph with all edges turned round; an undirected graph is its own transpose."""
        if self.col_t is None:
            return self if self.weight is None else self._replace(weight=self.weight_t, weight_t=self.weight)
        assert self.start_t is not None
        assert self.end_t is not None
        turned = Neighbours(self.start_t, self.end_t, self.col_t, self.base, self.start, self.end, self.col)
        return turned._replace(hubs=self.hubs)


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def as_neighbours(edge_index: "Tensor | EdgeIndex | Neighbours", num_nodes: int) -> Neighbours:
    r"""Brings every accepted form of a graph to :class:`Neighbours`.

    Args:
        edge_index: a ``[2, edges]`` tensor of (source, target) columns, a PyG ``EdgeIndex``, a sparse tensor whose
            rows are the targets (PyG's ``adj_t``; its values are not used, so an edge counts once), or
            :class:`Neighbours`.
        num_nodes: how many nodes there are.
    """
    if isinstance(edge_index, Neighbours):
        return edge_index
    if edge_index.layout != torch.strided:
        return _from_sparse(edge_index, num_nodes)
    undirected = False
    if isinstance(edge_index, EdgeIndex):
        undirected = bool(edge_index.is_undirected)
        edge_index = edge_index.as_tensor()
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype not in _INTEGERS:
        raise ValueError(
            "edge_index must be an integer tensor of shape [2, edges], an EdgeIndex or a sparse tensor; "
            f"got {edge_index.dtype} of shape {list(edge_index.shape)}"
        )
    source, target = edge_index[0], edge_index[1]
    _check_range(edge_index, num_nodes)
    start, end, col = _rows(target, source, num_nodes)
    if undirected:
        return Neighbours(start, end, col)
    return Neighbours(start, end, col, None, *_rows(source, target, num_nodes))


def _check_range(edge_index: Tensor, num_nodes: int) -> None:
    # On CUDA the check would wait for the device, and a compiler or vmap cannot look at values.
    if edge_index.is_cuda or torch.compiler.is_compiling() or edge_index.numel() == 0:
        return
    try:
        low, high = int(edge_index.min()), int(edge_index.max())
    except RuntimeError:
        return
    if low < 0 or high >= num_nodes:
        bad = low if low < 0 else high
        raise IndexError(f"edge_index names node {bad}; there are nodes 0 to {num_nodes - 1}")


def _rows(row: Tensor, col: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    # Fixed shapes throughout (no boolean indexing), so that torch.compile sees one graph.
    row, order = torch.sort(row.long(), stable=True)
    nodes = torch.arange(num_nodes + 1, device=row.device, dtype=row.dtype)
    ptr = torch.searchsorted(row, nodes)
    return ptr[:-1], ptr[1:], col[order]


def _from_sparse(adj: Tensor, num_nodes: int) -> Neighbours:
    if adj.dim() != 2 or adj.size(0) != num_nodes or adj.size(1) != num_nodes:
        raise ValueError(f"a sparse edge_index must be [{num_nodes}, {num_nodes}] here, got {list(adj.shape)}")
    csr, csc = adj.to_sparse_csr(), adj.to_sparse_csc()
    ptr, ptr_t = csr.crow_indices(), csc.ccol_indices()
    return Neighbours(ptr[:-1], ptr[1:], csr.col_indices(), None, ptr_t[:-1], ptr_t[1:], csc.row_indices())


def replicas_beside(neighbours: Neighbours, dims: Neighbours, replicas: int, nodes: int) -> Neighbours:
    """The rows of all replicas as those of one large graph, in which replica r owns the nodes from r * nodes on.

    Args:
        neighbours: as an operator gets it under vmap.
        dims: for each field, which of its dimensions is that of the replicas; ``None`` if it is of all of them.
        replicas: how many there are.
        nodes: of each of them.
    """
    n, place = neighbours, torch.arange(replicas, device=neighbours.start.device).unsqueeze(1)

    def flat(t: Tensor | None, dim: Any, shift: int = 0) -> Any:
        t = side_by_side(t, dim, replicas)
        return None if t is None else (t + place * shift if shift else t).reshape(-1)

    def rows(start: Any, end: Any, col: Any, start_dim: Any, end_dim: Any, col_dim: Any) -> tuple[Any, Any, Any]:
        if col is None:
            return None, None, None
        if col_dim is None:
            return flat(start, start_dim), flat(end, end_dim), col
        edges = col.movedim(col_dim, 0).size(1)
        return flat(start, start_dim, edges), flat(end, end_dim, edges), flat(col, col_dim)

    source, offset, entry = n.source, n.offset, n.entry
    if source is not None and (dims.source is not None or offset is None or offset.numel() != replicas * nodes):
        source = offset = entry = None  # the list of one graph does not serve many replicas
    # A graph without a base gets one: its entries of `col` count from the replica's first node.
    base = (place * nodes).expand(replicas, nodes).reshape(-1) if n.base is None else flat(n.base, dims.base, nodes)
    start, end, col = rows(n.start, n.end, n.col, dims.start, dims.end, dims.col)
    turned = rows(n.start_t, n.end_t, n.col_t, dims.start_t, dims.end_t, dims.col_t)
    dense = (n.bits, flat(n.bit_row, dims.bit_row), flat(n.size, dims.size))
    return Neighbours(start, end, col, base, *turned, *dense, source, offset, n.hubs, n.weight, n.weight_t, entry)
