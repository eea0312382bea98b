"""GraphStore: all graphs of a set as flat arrays."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from softmask.errors import DataError

INFO_FIELDS = ("name", "classes", "targets", "names", "roles", "source", "self_loops", "seed")


@dataclass(frozen=True, eq=False)
class GraphStore:
    """All graphs of a set as flat arrays, on one device.

    Graph ``g`` owns the nodes ``node_ptr[g]`` to ``node_ptr[g + 1]``; the neighbours of node ``v`` are the
    entries ``row_ptr[v]`` to ``row_ptr[v + 1]`` of ``col``, counted from the first node of ``v``'s graph. An
    edge from u to v stands in the row of v.

    Args:
        node_ptr: ``[graphs + 1]`` int64, where each graph's nodes begin.
        row_ptr: ``[nodes + 1]`` int64, where each node's neighbours begin.
        col: ``[edges]`` int32, neighbours within the graph; an undirected edge stands twice.
        row_ptr_t, col_t: the same for the edges turned round; ``None`` if the set is undirected.
        node_label: ``[nodes, columns]`` int32, discrete labels as given in the files.
        node_attr: ``[nodes, channels]`` float32 or float64, continuous attributes.
        edge_label: ``[edges, columns]`` int32, in the order of ``col``.
        edge_attr: ``[edges, channels]`` float32 or float64, in the order of ``col``.
        y: ``[graphs]`` int64, an index into ``info["classes"]``; or ``[graphs, targets]`` float64; or
            ``None``.
        node_role: ``[nodes]`` int8, an index into ``info["roles"]``: the ground truth of synthetic sets.
        pos: ``[nodes, dimensions]`` float32, where each node is in space; no feature of its own, see
            :class:`~softmask.data.features.Features`.
        info: what is known of the set: ``name``, ``classes`` (the labels as given), ``targets`` (their
            names), ``names`` (a string for each graph, such as its SMILES), ``roles``, ``source``,
            ``self_loops`` (dropped by the reader), ``seed``. All of it is plain JSON.
    """

    node_ptr: Tensor
    row_ptr: Tensor
    col: Tensor
    row_ptr_t: Tensor | None = None
    col_t: Tensor | None = None
    node_label: Tensor | None = None
    node_attr: Tensor | None = None
    edge_label: Tensor | None = None
    edge_attr: Tensor | None = None
    y: Tensor | None = None
    node_role: Tensor | None = None
    pos: Tensor | None = None
    info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.info) - set(INFO_FIELDS)
        if unknown:
            raise ValueError(f"unknown fields in info: {sorted(unknown)}; known are {', '.join(INFO_FIELDS)}")

    def tensors(self) -> dict[str, Tensor]:
        """The arrays that are present, by name."""
        arrays = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "info"}
        return {name: t for name, t in arrays.items() if t is not None}

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return self.node_ptr.numel() - 1

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return self.row_ptr.numel() - 1

    @property
    def num_edges(self) -> int:
        """Entries of ``col``: an undirected edge counts twice."""
        return self.col.numel()

    @property
    def directed(self) -> bool:
        """Whether some edge has no counterpart the other way."""
        return self.col_t is not None

    @property
    def device(self) -> torch.device:
        """Where the arrays are."""
        return self.col.device

    @property
    def sizes(self) -> Tensor:
        """Number of nodes of each graph, ``[graphs]``."""
        return self.node_ptr.diff()

    @property
    def batch(self) -> Tensor:
        """The graph of each node, ``[nodes]``."""
        graphs = torch.arange(self.num_graphs, device=self.device)
        return torch.repeat_interleave(graphs, self.sizes)

    def edges(self) -> tuple[Tensor, Tensor]:
        """Source and target of every entry of ``col``, as nodes of the whole set."""
        nodes = torch.arange(self.num_nodes, device=self.device)
        target = torch.repeat_interleave(nodes, self.row_ptr.diff())
        first = self.node_ptr[:-1][self.batch]
        return self.col.long() + first[target], target

    def degree(self) -> Tensor:
        """Neighbours of each node, ``[nodes]``, self loops not counted."""
        degree = self.row_ptr.diff()
        # In the numbers of `col`, which are small: COLLAB has 24.6 million entries.
        nodes = torch.arange(self.num_nodes, device=self.device)
        own = (nodes - self.node_ptr[:-1][self.batch]).to(self.col.dtype)
        loops = self.col == torch.repeat_interleave(own, degree)
        if not bool(loops.any()):
            return degree
        return degree - torch.bincount(torch.repeat_interleave(nodes, degree)[loops], minlength=self.num_nodes)

    def to(self, device: torch.device | str) -> "GraphStore":
        """The same store on another device."""
        moved: dict[str, Any] = {name: t.to(device) for name, t in self.tensors().items()}
        return dataclasses.replace(self, **moved)

    def select(self, graphs: Tensor | np.ndarray | Iterable[int]) -> "GraphStore":
        """A store of the given graphs, in the given order; or of those where a boolean mask is true."""
        ids = torch.as_tensor(graphs if isinstance(graphs, Tensor | np.ndarray) else list(graphs)).reshape(-1)
        if ids.dtype == torch.bool:
            if ids.numel() != self.num_graphs:
                raise DataError(f"a mask of {ids.numel()} values for {self.num_graphs} graphs")
            ids = ids.nonzero()
        elif ids.is_floating_point() and ids.numel():
            raise DataError(f"graphs are chosen by integers or a boolean mask, not {ids.dtype}")
        ids = ids.to(self.device, torch.long).reshape(-1)
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.num_graphs):
            bad = ids[(ids < 0) | (ids >= self.num_graphs)][0]
            raise DataError(f"there is no graph {int(bad)}: the set has graphs 0 to {self.num_graphs - 1}")
        nodes, node_ptr = _ranges(self.node_ptr, ids)
        edges, row_ptr = _ranges(self.row_ptr, nodes)
        changed: dict[str, Any] = {"node_ptr": node_ptr, "row_ptr": row_ptr, "col": self.col[edges]}
        if self.row_ptr_t is not None and self.col_t is not None:
            edges_t, changed["row_ptr_t"] = _ranges(self.row_ptr_t, nodes)
            changed["col_t"] = self.col_t[edges_t]
        for name, rows in (
            *(("node_label", nodes), ("node_attr", nodes), ("node_role", nodes), ("pos", nodes)),
            *(("edge_label", edges), ("edge_attr", edges), ("y", ids)),
        ):
            if (t := getattr(self, name)) is not None:
                changed[name] = t[rows]
        info = dict(self.info)
        if names := info.get("names"):
            info["names"] = [names[i] for i in ids.tolist()]
        return dataclasses.replace(self, **changed, info=info)

    def __len__(self) -> int:
        return self.num_graphs

    def __getitem__(self, graph: int) -> Data:
        """One graph as a PyG ``Data``."""
        from softmask.data.pyg import to_data

        graph = int(graph)
        if graph < 0:
            graph += self.num_graphs
        if not 0 <= graph < self.num_graphs:
            raise IndexError(f"there is no graph {graph}: the set has graphs 0 to {self.num_graphs - 1}")
        return to_data(self, graph)

    def __iter__(self) -> Iterator[Data]:
        return (self[g] for g in range(self.num_graphs))

    def content_hash(self) -> str:
        """SHA-256 over all arrays and the info: equal for equal content, on any machine."""
        digest = hashlib.sha256()
        for name, t in sorted(self.tensors().items()):
            array = t.detach().cpu().contiguous().numpy()
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
            digest.update(little.reshape(-1).view(np.uint8).data)
        digest.update(json.dumps(self.info, sort_keys=True).encode())
        return digest.hexdigest()

    def __repr__(self) -> str:
        name = self.info.get("name", "unnamed")
        kind = "directed" if self.directed else "undirected"
        return (
            f"{self.__class__.__name__}({name!r}, graphs={self.num_graphs}, nodes={self.num_nodes}, "
            f"edges={self.num_edges}, {kind}, arrays=[{', '.join(self.tensors())}])"
        )


def _ranges(ptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of the given rows end to end, and the pointer over them."""
    sizes = ptr[rows + 1] - ptr[rows]
    new = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    shift = torch.repeat_interleave(ptr[rows] - new[:-1], sizes)
    return torch.arange(int(new[-1]), device=ptr.device) + shift, new
