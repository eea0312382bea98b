"""Graphs of other libraries to a GraphStore and back: PyG, networkx, SMILES."""

from typing import Any

import networkx as nx
from torch_geometric.data import Data

from softmask.data.networkx import from_networkx, to_networkx
from softmask.data.pack import from_edges
from softmask.data.pyg import from_data, to_data
from softmask.data.smiles import from_smiles, to_smiles
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError

__all__ = [
    "as_store",
    "from_data",
    "from_edges",
    "from_networkx",
    "from_smiles",
    "to_data",
    "to_networkx",
    "to_smiles",
    "with_targets",
]


def as_store(graphs: Any) -> GraphStore:
    """A store from whatever was given: a store, PyG ``Data``, networkx graphs, or SMILES strings."""
    if isinstance(graphs, GraphStore):
        return graphs
    if isinstance(graphs, Data | nx.Graph | str):
        raise DataError("one graph was given where a list of graphs is expected: put it into a list, [graph]")
    if isinstance(graphs, bytes) or not hasattr(graphs, "__len__"):
        raise DataError("graphs must be a GraphStore, or a list of PyG Data, networkx graphs or SMILES strings")
    items = list(graphs)
    if not items:
        raise DataError("no graphs were given")
    for kind, convert in ((Data, from_data), (nx.Graph, from_networkx), (str, from_smiles)):
        if all(isinstance(item, kind) for item in items):
            return convert(items)
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise DataError(f"graphs must all be PyG Data, networkx graphs or SMILES strings; got {kinds}")
