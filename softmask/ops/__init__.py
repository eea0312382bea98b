"""The two operators that carry all graph structure."""

from softmask.ops.graph_sum import graph_sum
from softmask.ops.neighbour_sum import neighbour_sum
from softmask.ops.neighbours import Neighbours, as_neighbours

__all__ = ["Neighbours", "as_neighbours", "graph_sum", "neighbour_sum"]
