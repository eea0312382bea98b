"""DGCNN: sort pooling, of PyG's layers."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Conv1d, Linear
from torch_geometric.nn import SimpleConv, SortAggregation

from softmask.baselines.entry import Inputs

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Of the two convolutions over the sorted nodes; the second takes 5 of them after they were halved.
_CHANNELS, _WIDTH, _DENSE = (16, 32), 5, 128


class DGCNN(torch.nn.Module):
    r"""Deep graph convolutional network (`"An End-to-End Deep Learning Architecture for Graph Classification"
    <https://doi.org/10.1609/aaai.v32i1.11782>`_): layers :math:`\mathbf{Z}^{(t+1)} = \tanh(\tilde{\mathbf{D}}^{-1}
    \tilde{\mathbf{A}} \mathbf{Z}^{(t)} \mathbf{W}^{(t)})`, the last of one channel, all of them side by side; the
    nodes of each graph sorted by that last channel and cut or padded to `k`; then two convolutions along the sorted
    nodes and a dense layer.

    Args:
        in_channels: number of node features.
        hidden_channels: size of the hidden vectors.
        num_layers: number of layers before the last, which has one channel.
        out_channels: number of classes or targets.
        k: how many nodes a graph is cut or padded to.
        dropout: dropout after the dense layer.
    """

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
        self.dropout = dropout
        sizes = [in_channels, *[hidden_channels] * num_layers, 1]
        self.mean = SimpleConv(aggr="mean", combine_root="self_loop")
        self.lins = torch.nn.ModuleList(Linear(a, b) for a, b in pairwise(sizes))
        self.sort = SortAggregation(k)
        wide = sum(sizes[1:])
        self.conv1 = Conv1d(1, _CHANNELS[0], wide, wide)
        self.conv2 = Conv1d(_CHANNELS[0], _CHANNELS[1], _WIDTH)
        self.lin = Linear(_CHANNELS[1] * (k // 2 - _WIDTH + 1), _DENSE)
        self.out = Linear(_DENSE, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None) -> Tensor:
        """"""  # noqa: D419
        hidden = []
        for lin in self.lins:
            x = self.mean(lin(x), edge_index).tanh()
            hidden.append(x)
        h = self.sort(torch.cat(hidden, dim=1), batch, dim_size=batch_size)
        h = F.max_pool1d(self.conv1(h.unsqueeze(1)).relu(), 2)
        h = self.lin(self.conv2(h).relu().flatten(1)).relu()
        return self.out(F.dropout(h, self.dropout, self.training))


def nodes_to_keep(sizes: np.ndarray) -> int:
    """The size that at most six in ten graphs do not exceed, and at least 10: as the authors have it."""
    ordered = np.sort(sizes)
    return max(2 * _WIDTH, int(ordered[math.ceil(0.6 * len(ordered)) - 1]))


def build_dgcnn(inputs: Inputs, settings: "Settings") -> DGCNN:
    """DGCNN for the sizes of the set's graphs."""
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return DGCNN(*sizes, k=nodes_to_keep(inputs.sizes), dropout=settings.dropout)
