"""DCNN: diffusion-convolutional neural networks, on our operators."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.entry import Inputs
from softmask.nn.readout import as_batch, graph_sizes
from softmask.ops import Neighbours, Segments, as_neighbours, graph_sum, neighbour_sum

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class DCNN(torch.nn.Module):
    r"""Diffusion-convolutional neural network (`"Diffusion-Convolutional Neural Networks"
    <https://arxiv.org/abs/1511.02136>`_) for whole graphs, equation (5) of its paper,

    .. math::
        \mathbf{Z} = \tanh \Big( \mathbf{W}^c \odot \tfrac{1}{N} \mathbf{1}^\top \mathbf{P}^{j} \mathbf{X}
        \Big)_{j = 0, \dots, H}, \qquad \mathbf{P} = \mathbf{D}^{-1} \mathbf{A}

    that is, one weight for every feature and every length of the walks that bring it, then a dense layer.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hops: the longest walk, :math:`H`.
        out_channels: number of classes or targets.

    Shapes:
        - as for :class:`softmask.nn.GAT`
    """

    full_precision = ("lin", "weight")

    def __init__(self, in_channels: int, hops: int, out_channels: int):
        super().__init__()
        self.in_channels, self.hops = in_channels, hops
        # As in the paper: normal, with variance 0.01.
        self.weight = torch.nn.Parameter(0.1 * torch.randn(hops + 1, in_channels))
        self.lin = Linear((hops + 1) * in_channels, out_channels)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, batch_size = as_batch(batch, batch_size, x)
        neighbours = as_neighbours(edge_index, x.size(0))
        wide = self.lin.weight.dtype
        if not x.is_floating_point():
            kinds = torch.arange(self.in_channels, device=x.device)
            x = (x.reshape(x.size(0), -1, 1) == kinds).sum(dim=1)
        x = x.to(wide)
        size = graph_sizes(batch, batch_size, wide)
        degree = neighbour_sum(torch.ones_like(x[:, :1]), neighbours).clamp(min=1)
        read = [graph_sum(x, batch, batch_size) / size]
        for _ in range(self.hops):
            x = neighbour_sum(x, neighbours) / degree
            read.append(graph_sum(x, batch, batch_size) / size)
        walks = torch.stack(read, dim=1).to(wide)
        return self.lin(F.tanh(walks * self.weight).flatten(1))


def build_dcnn(inputs: Inputs, settings: "Settings") -> DCNN:
    """DCNN with walks as long as there are layers."""
    return DCNN(inputs.channels, settings.layers, inputs.outputs)
