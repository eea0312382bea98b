"""Top-k pooling and SAGPool: networks that drop nodes between their layers, on our operators."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.inits import glorot, uniform

from softmask.baselines.conv_gnn import GCNConv
from softmask.baselines.entry import Inputs
from softmask.nn import KeyedDropout
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch
from softmask.ops import (
    Neighbours,
    Segments,
    as_neighbours,
    as_segments,
    graph_max,
    graph_rank,
    graph_sum,
    neighbour_sum,
)

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class MeanConv(torch.nn.Module):
    r"""The layer of `"Towards Sparse Hierarchical Graph Classifiers" <https://arxiv.org/abs/1811.01287>`_, equation
    (1): :math:`\hat{\mathbf{D}}^{-1} \hat{\mathbf{A}} \mathbf{X} \boldsymbol{\Theta} + \mathbf{X}
    \boldsymbol{\Theta}^{\prime}`, the mean over a node and its neighbours, and a skip connection.

    Shapes:
        - **alive:** ``[nodes, 1]``, which nodes are there
        - **degree:** ``[nodes, 1]``, how many of a node and its neighbours are there
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin, self.skip = Linear(in_channels, out_channels, bias=False), Linear(in_channels, out_channels)

    def forward(self, x: Tensor, neighbours: Neighbours, alive: Tensor, degree: Tensor) -> Tensor:
        """"""  # noqa: D419
        # The map commutes with the mean, and of tokens it is a look-up. A node that was dropped is zero, and stays so
        # since there is no bias; padding is nobody's neighbour.
        h = embed(x, self.lin)
        return (h + neighbour_sum(h, neighbours)) * (1 / degree).to(h.dtype) + embed(x, self.skip)


class NormConv(GCNConv):
    """The layer of a graph convolutional network among the nodes that are there, the others being zero; shapes as
    :class:`MeanConv`.
    """

    def forward(self, x: Tensor, neighbours: Neighbours, alive: Tensor, degree: Tensor) -> Tensor:  # type: ignore[override]
        """"""  # noqa: D419
        return super().forward(x, neighbours, degree.rsqrt())


class TopKScore(torch.nn.Module):
    r"""The score of `"Graph U-Nets" <https://arxiv.org/abs/1905.05178>`_, :math:`\mathbf{X} \mathbf{p} /
    \|\mathbf{p}\|`; with the first weights of PyG's ``TopKPooling``.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, channels))
        uniform(channels, self.weight)

    def forward(self, x: Tensor, neighbours: Neighbours, alive: Tensor, degree: Tensor) -> Tensor:
        """"""  # noqa: D419
        return _product(x, self.weight) / self.weight.norm()


class SAGScore(torch.nn.Module):
    r"""The score of `"Self-Attention Graph Pooling" <https://arxiv.org/abs/1904.08082>`_, a graph convolution to one
    channel, :math:`\hat{\mathbf{D}}^{-1/2} \hat{\mathbf{A}} \hat{\mathbf{D}}^{-1/2} \mathbf{X} \mathbf{w} + b`; with
    the first weights of PyG's ``GCNConv``.
    """

    def __init__(self, channels: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(1, channels))
        self.bias = torch.nn.Parameter(torch.zeros(1))
        glorot(self.weight)

    def forward(self, x: Tensor, neighbours: Neighbours, alive: Tensor, degree: Tensor) -> Tensor:
        """"""  # noqa: D419
        root = degree.rsqrt() * alive
        h = _product(x, self.weight) * root
        return root * (h + neighbour_sum(h, neighbours)) + self.bias


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """``[nodes, 1]`` in the type of the weight; no matrix product, which CUDA may compute in TF32."""
    return (x.to(weight.dtype) * weight).sum(dim=-1, keepdim=True)


class PoolGNN(torch.nn.Module):
    r"""Blocks of a layer and a pooling that keeps the nodes with the highest scores, each times the tanh of its score;
    after every block the mean and the maximum over each graph's remaining nodes are read out, and the readouts of all
    blocks are added,

    .. math::
        \mathbf{h}_G = \sum_k \Big[ \tfrac{1}{|V_k|} \sum_{v \in V_k} \mathbf{h}^{(k)}_v \; \Big\Vert \;
        \max_{v \in V_k} \mathbf{h}^{(k)}_v \Big]

    followed by a perceptron with halved widths and dropout, as in `"Self-Attention Graph Pooling"
    <https://arxiv.org/abs/1904.08082>`_. It computes what PyG's ``TopKPooling`` and ``SAGPooling`` do, but takes no
    node away: a node that is not kept is zero and no longer counts, so that all shapes stay as they are. Of nodes with
    one score the earlier is kept.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of all hidden vectors.
        num_layers: number of blocks.
        out_channels: number of classes or targets.
        conv: makes a layer from the sizes of its input and output vectors.
        score: makes what scores the nodes from the size of their vectors.
        ratio: share of a graph's nodes that a block keeps, rounded up.
        dropout: dropout in the perceptron.

    Shapes:
        - as for :class:`softmask.nn.GAT`
    """

    # Which nodes are kept depends on small differences.
    full_precision = ("scores", "lins")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        conv: Callable[[int, int], torch.nn.Module],
        score: Callable[[int], torch.nn.Module],
        ratio: float,
        dropout: float = 0.5,
    ):
        super().__init__()
        d, self.ratio = hidden_channels, ratio
        sizes = [in_channels, *[d] * (num_layers - 1)]
        self.convs = torch.nn.ModuleList(conv(size, d) for size in sizes)
        self.scores = torch.nn.ModuleList(score(d) for _ in sizes)
        half = max(d // 2, 1)
        self.lins = torch.nn.ModuleList([Linear(2 * d, d), Linear(d, half), Linear(half, out_channels)])
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
        neighbours = as_neighbours(edge_index, x.size(0))
        first, second, last = self.lins
        wide = next(first.parameters()).dtype
        # The graph of each node that is still there; the others have none.
        graph = as_segments(batch).graph
        count = graph_sum((graph >= 0).unsqueeze(-1).to(wide), batch, batch_size)
        read: Tensor | float = 0.0
        for conv, score in zip(self.convs, self.scores):
            alive = (graph >= 0).unsqueeze(-1)
            degree = 1 + neighbour_sum(alive.to(wide), neighbours)
            h = conv(x, neighbours, alive, degree).relu()
            given = score(h, neighbours, alive, degree)
            count = (self.ratio * count).ceil()
            # The row behind the last, at -1, is that of nodes without a graph.
            most = F.pad(count, (0, 0, 0, 1))[graph].squeeze(-1)
            graph = torch.where(graph_rank(given.squeeze(-1), graph, batch_size) < most, graph, -1)
            x = h * torch.where((graph >= 0).unsqueeze(-1), given.tanh(), 0).to(h.dtype)
            mean = graph_sum(x, batch, batch_size) / count.clamp(min=1)
            read = read + torch.cat([mean, graph_max(x, graph, batch_size)], dim=-1).to(wide)
        return last(second(self.dropout(first(read).relu())).relu())


def build_topk(inputs: Inputs, settings: "Settings") -> PoolGNN:
    """Top-k pooling: four fifths of the nodes are kept in every block."""
    return _build(inputs, settings, MeanConv, TopKScore, 0.8)


def build_sagpool(inputs: Inputs, settings: "Settings") -> PoolGNN:
    """SAGPool, the hierarchical form: half of the nodes are kept in every block."""
    return _build(inputs, settings, NormConv, SAGScore, 0.5)


def _build(
    inputs: Inputs,
    settings: "Settings",
    conv: Callable[[int, int], torch.nn.Module],
    score: Callable[[int], torch.nn.Module],
    ratio: float,
) -> PoolGNN:
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return PoolGNN(*sizes, conv=conv, score=score, ratio=ratio, dropout=settings.dropout)
