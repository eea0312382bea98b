"""DGCNN: sort pooling, on our operators."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.entry import Inputs
from softmask.nn import KeyedDropout
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, graph_rank, neighbour_sum

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Of the two convolutions over the sorted nodes; the second takes 5 of them after they were halved.
_CHANNELS, _WIDTH, _DENSE = (16, 32), 5, 128


class DGCNN(torch.nn.Module):
    r"""Deep graph convolutional network (`"An End-to-End Deep Learning Architecture for Graph Classification"
    <https://doi.org/10.1609/aaai.v32i1.11782>`_): layers :math:`\mathbf{Z}^{(t+1)} = \tanh(\tilde{\mathbf{D}}^{-1}
    \tilde{\mathbf{A}} \mathbf{Z}^{(t)} \mathbf{W}^{(t)})`, the last of one channel, all of them side by side; the
    nodes of each graph sorted by that last channel and cut or padded to `k`; then two convolutions along the sorted
    nodes and a dense layer. It sorts as PyG's ``SortAggregation`` does; of nodes with one value the earlier comes
    first.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of the hidden vectors.
        num_layers: number of layers before the last, which has one channel.
        out_channels: number of classes or targets.
        k: how many nodes a graph is cut or padded to.
        dropout: dropout after the dense layer.

    Shapes:
        - as for :class:`softmask.nn.GAT`
    """

    # The order of the nodes depends on small differences.
    full_precision = ("last", "conv1", "conv2", "lin", "out")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        k: int,
        dropout: float = 0.5,
    ):
        super().__init__()
        if k < 2 * _WIDTH:
            raise ValueError(f"k must be at least {2 * _WIDTH}, got {k}")
        self.k = k
        sizes = [in_channels, *[hidden_channels] * num_layers]
        self.lins = torch.nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.last = Linear(sizes[-1], 1)
        # A convolution in steps of its own width, and one in steps of 1, as maps of what their windows see.
        self.conv1 = Linear(sum(sizes[1:]) + 1, _CHANNELS[0])
        self.conv2 = Linear(_WIDTH * _CHANNELS[0], _CHANNELS[1])
        self.lin = Linear(_CHANNELS[1] * (k // 2 - _WIDTH + 1), _DENSE)
        self.out = Linear(_DENSE, out_channels)
        self.dropout = KeyedDropout(dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, batch_size = as_batch(batch, batch_size, x)
        graph = as_segments(batch).graph
        neighbours = as_neighbours(edge_index, x.size(0))
        wide = self.last.weight.dtype
        share = 1 / (1 + neighbour_sum((graph >= 0).unsqueeze(-1).to(wide), neighbours))
        hidden: list[Tensor] = []
        for lin in (*self.lins, self.last):
            assert isinstance(lin, Linear)
            # Padding needs no care: it is nobody's neighbour, and is left out when the nodes are sorted.
            h = embed(x.to(wide) if lin is self.last else x, lin)
            x = ((h + neighbour_sum(h, neighbours)) * share.to(h.dtype)).tanh()
            hidden.append(x)
        rank = graph_rank(x.squeeze(-1), graph, batch_size)
        return self._along(self._sorted(torch.cat(hidden, dim=-1), graph, rank, batch_size))

    def _sorted(self, nodes: Tensor, graph: Tensor, rank: Tensor, num_graphs: int) -> Tensor:
        """The first convolution, which sees one node at a time, of the first `k` nodes of each graph in their order,
        ``[graphs, k, channels]``.
        """
        h = F.linear(nodes, self.conv1.weight)
        # The nodes behind the first k, and padding, go into one row more, which is cut off.
        place = torch.where((graph >= 0) & (rank < self.k), graph * self.k + rank, num_graphs * self.k)
        rows = h.new_zeros(num_graphs * self.k + 1, h.size(1)).scatter(0, place.unsqueeze(-1).expand_as(h), h)
        # A graph of fewer nodes is padded with zeros, of which the bias remains.
        return (rows[:-1].reshape(num_graphs, self.k, h.size(1)) + self.conv1.bias).relu()

    def _along(self, h: Tensor) -> Tensor:
        """What follows along the sorted nodes: the larger of every two, the second convolution, the dense layers."""
        half = self.k // 2
        h = torch.maximum(h[:, : 2 * half : 2], h[:, 1 : 2 * half : 2])
        steps = half - _WIDTH + 1
        windows = torch.cat([h[:, i : i + steps] for i in range(_WIDTH)], dim=-1)
        h = self.conv2(windows.flatten(0, 1)).relu().reshape(h.size(0), self.lin.in_channels)
        return self.out(self.dropout(self.lin(h).relu()))


def nodes_to_keep(sizes: np.ndarray) -> int:
    """The size that at most six in ten graphs do not exceed, and at least 10: as the authors have it."""
    ordered = np.sort(sizes)
    return max(2 * _WIDTH, int(ordered[math.ceil(0.6 * len(ordered)) - 1]))


def build_dgcnn(inputs: Inputs, settings: "Settings") -> DGCNN:
    """DGCNN for the sizes of the set's graphs."""
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return DGCNN(*sizes, k=nodes_to_keep(inputs.sizes), dropout=settings.dropout)
