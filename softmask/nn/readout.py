"""From the nodes' vectors to classes of whole graphs: what the models here have in common."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.dropout import KeyedDropout
from softmask.ops import Segments, as_segments, graph_sum
from softmask.ops.levels import Lists


def as_batch(batch: Tensor | Segments | None, batch_size: int | None, nodes: Tensor) -> tuple[Tensor | Segments, int]:
    """The graph of each node and the number of graphs, where they are not given; all `nodes` are then one graph."""
    if batch is None:
        return torch.zeros(nodes.size(0), dtype=torch.long, device=nodes.device), 1
    if batch_size is None:
        graph = as_segments(batch).graph
        batch_size = int(graph.max()) + 1 if graph.numel() > 0 else 0
    return batch, batch_size


def sum_readout(hidden: Sequence[Tensor], batch: Tensor | Segments | Sequence[Lists], batch_size: int) -> Tensor:
    """The sums over the nodes of each graph, of all given layers side by side: equation (5).

    Layers whose rows are classes of nodes have a batch of their own each.
    """
    batches = [batch] * len(hidden) if isinstance(batch, Tensor | Segments) else batch
    return torch.cat([graph_sum(h, of, batch_size) for h, of in zip(hidden, batches, strict=True)], dim=-1)


def graph_sizes(batch: Tensor | Segments | Sequence[Lists], batch_size: int, dtype: torch.dtype) -> Tensor:
    """The number of nodes of each graph, ``[graphs, 1]``, at least 1, by which a sum becomes a mean."""
    if not isinstance(batch, Tensor | Segments):
        rows = batch[-1].offset_t.numel() - 1
        return graph_sum(torch.ones(rows, 1, dtype=dtype), batch[-1], batch_size).clamp(min=1)
    real = (as_segments(batch).graph >= 0).unsqueeze(-1)
    return graph_sum(real.to(dtype), batch, batch_size).clamp(min=1)


def classifier(in_channels: int, hidden_channels: int, classes: int, dropout: float) -> torch.nn.Sequential:
    """The head: linear, ReLU, dropout, linear."""
    return torch.nn.Sequential(
        Linear(in_channels, hidden_channels),
        torch.nn.ReLU(),
        KeyedDropout(dropout),
        Linear(hidden_channels, classes),
    )
