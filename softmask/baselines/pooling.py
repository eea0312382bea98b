"""Top-k pooling and SAGPool: networks that drop nodes between their layers, of PyG's layers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import (
    GCNConv,
    SAGPooling,
    SimpleConv,
    TopKPooling,
    global_max_pool,
    global_mean_pool,
)

from softmask.baselines.entry import Inputs

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class MeanConv(torch.nn.Module):
    r"""The layer of `"Towards Sparse Hierarchical Graph Classifiers" <https://arxiv.org/abs/1811.01287>`_, equation
    (1): :math:`\hat{\mathbf{D}}^{-1} \hat{\mathbf{A}} \mathbf{X} \boldsymbol{\Theta} + \mathbf{X}
    \boldsymbol{\Theta}^{\prime}`, the mean over a node and its neighbours, and a skip connection.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.mean = SimpleConv(aggr="mean", combine_root="self_loop")
        self.lin, self.skip = Linear(in_channels, out_channels), Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """"""  # noqa: D419
        return self.lin(self.mean(x, edge_index)) + self.skip(x)


class PoolGNN(torch.nn.Module):
    r"""Blocks of a layer and a pooling that keeps the nodes with the highest scores; after every block the mean and the
    maximum over each graph's remaining nodes are read out, and the readouts of all blocks are added,

    .. math::
        \mathbf{h}_G = \sum_k \Big[ \tfrac{1}{|V_k|} \sum_{v \in V_k} \mathbf{h}^{(k)}_v \; \Big\Vert \;
        \max_{v \in V_k} \mathbf{h}^{(k)}_v \Big]

    followed by a perceptron with halved widths and dropout, as in `"Self-Attention Graph Pooling"
    <https://arxiv.org/abs/1904.08082>`_.

    Args:
        in_channels: number of node features.
        hidden_channels: size of all hidden vectors.
        num_layers: number of blocks.
        out_channels: number of classes or targets.
        conv: makes a layer from the sizes of its input and output vectors.
        pool: makes a pooling from the size of the vectors.
        dropout: dropout in the perceptron.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        conv: Callable[[int, int], torch.nn.Module],
        pool: Callable[[int], torch.nn.Module],
        dropout: float = 0.5,
    ):
        super().__init__()
        d, self.dropout = hidden_channels, dropout
        sizes = [in_channels, *[d] * (num_layers - 1)]
        self.convs = torch.nn.ModuleList(conv(size, d) for size in sizes)
        self.pools = torch.nn.ModuleList(pool(d) for _ in sizes)
        half = max(d // 2, 1)
        self.lins = torch.nn.ModuleList([Linear(2 * d, d), Linear(d, half), Linear(half, out_channels)])

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None) -> Tensor:
        """"""  # noqa: D419
        read: Tensor | float = 0.0
        for conv, pool in zip(self.convs, self.pools):
            x, edge_index, _, batch, *_ = pool(conv(x, edge_index).relu(), edge_index, batch=batch)
            both = [global_mean_pool(x, batch, batch_size), global_max_pool(x, batch, batch_size)]
            read = read + torch.cat(both, dim=1)
        h = F.dropout(self.lins[0](read).relu(), self.dropout, self.training)
        return self.lins[2](self.lins[1](h).relu())


def build_topk(inputs: Inputs, settings: "Settings") -> PoolGNN:
    """Top-k pooling: four fifths of the nodes are kept in every block."""
    return _build(inputs, settings, MeanConv, lambda d: TopKPooling(d, ratio=0.8))


def build_sagpool(inputs: Inputs, settings: "Settings") -> PoolGNN:
    """SAGPool, the hierarchical form: half of the nodes are kept in every block."""
    return _build(inputs, settings, GCNConv, lambda d: SAGPooling(d, ratio=0.5, GNN=GCNConv))


def _build(
    inputs: Inputs,
    settings: "Settings",
    conv: Callable[[int, int], torch.nn.Module],
    pool: Callable[[int], torch.nn.Module],
) -> PoolGNN:
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return PoolGNN(*sizes, conv=conv, pool=pool, dropout=settings.dropout)
