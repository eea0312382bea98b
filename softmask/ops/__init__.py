"""The operators that carry all graph structure."""

from softmask.ops.attention_sum import attention_sum
from softmask.ops.graph_max import graph_max
from softmask.ops.graph_rank import graph_rank
from softmask.ops.graph_sum import graph_sum
from softmask.ops.neighbour_sum import neighbour_sum
from softmask.ops.neighbours import Neighbours, as_neighbours
from softmask.ops.segments import Segments, as_segments

__all__ = [
    "Neighbours",
    "Segments",
    "as_neighbours",
    "as_segments",
    "attention_sum",
    "graph_max",
    "graph_rank",
    "graph_sum",
    "neighbour_sum",
]
