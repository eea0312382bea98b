"""GCN and GraphSAGE on our operators, for whole graphs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.entry import Inputs
from softmask.nn import GAT
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch, classifier, graph_sizes, sum_readout
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, neighbour_sum

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class GCNConv(torch.nn.Module):
    r"""The layer of `"Semi-Supervised Classification with Graph Convolutional Networks"
    <https://arxiv.org/abs/1609.02907>`_,

    .. math::
        \mathbf{h}^{\prime}_v = \mathbf{b} + \sum_{u \in \mathcal{N}(v) \cup \{v\}} \frac{1}{\sqrt{\hat d_u \hat d_v}}
        \mathbf{W} \mathbf{h}_u, \qquad \hat d_v = 1 + |\mathcal{N}(v)|

    It computes what PyG's ``GCNConv`` does and has its parameters by their names.
    """

    # Degrees are sums, too.
    sums_only = True

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin = Linear(in_channels, out_channels, bias=False, weight_initializer="glorot")
        self.bias = torch.nn.Parameter(torch.zeros(out_channels))

    def forward(self, x: Tensor, neighbours: Neighbours, root: Tensor | None = None) -> Tensor:
        r"""
        Args:
            x: the nodes' vectors, or tokens.
            neighbours: the graph.
            root: ``[nodes, 1]``, :math:`1 / \sqrt{\hat d_v}` where it is known already, or other degrees are meant.
        """
        h = embed(x, self.lin)
        root = ((1 + _degree(h, neighbours)).rsqrt() if root is None else root).to(h.dtype)
        h = h * root
        return root * (h + neighbour_sum(h, neighbours)) + self.bias


class SAGEConv(torch.nn.Module):
    r"""The layer of `"Inductive Representation Learning on Large Graphs" <https://arxiv.org/abs/1706.02216>`_ with the
    mean over all neighbours,

    .. math::
        \mathbf{h}^{\prime}_v = \mathbf{W}_r \mathbf{h}_v + \mathbf{W}_l \, \frac{1}{|\mathcal{N}(v)|}
        \sum_{u \in \mathcal{N}(v)} \mathbf{h}_u + \mathbf{b}

    It computes what PyG's ``SAGEConv`` does on graphs without self loops, which are never counted here, and has its
    parameters by their names.
    """

    # Degrees are sums, too.
    sums_only = True

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_l = Linear(in_channels, out_channels)
        self.lin_r = Linear(in_channels, out_channels, bias=False)

    def forward(self, x: Tensor, neighbours: Neighbours) -> Tensor:
        """"""  # noqa: D419
        share = 1 / _degree(x, neighbours).clamp(min=1)
        return self.lin_r(x) + self.lin_l(neighbour_sum(x, neighbours) * share.to(x.dtype))


def _degree(x: Tensor, neighbours: Neighbours) -> Tensor:
    """Neighbours of each node, ``[nodes, 1]``, in float32 or more: half precision counts to 256."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    return neighbour_sum(torch.ones(x.size(0), 1, device=x.device, dtype=wide), neighbours)


class ConvGNN(torch.nn.Module):
    r"""A stack of layers that look at neighbours, built as :class:`softmask.nn.SoftMaskGNN` is but for the layer: the
    same input map, ReLU between, readouts of all layers side by side (equation (5)) and the same head.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of all hidden vectors.
        num_layers: number of layers.
        out_channels: number of classes or targets.
        conv: makes a layer from the sizes of its input and output vectors.
        readout: ``"sum"``, or ``"mean"``.
        dropout: dropout in the head.

    Shapes:
        - as for :class:`softmask.nn.GAT`
    """

    full_precision = ("head",)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        conv: Callable[[int, int], torch.nn.Module],
        readout: Literal["sum", "mean"] = "sum",
        dropout: float = 0.5,
    ):
        super().__init__()
        self.readout = readout
        self.lin_in = Linear(in_channels, hidden_channels)
        self.convs = torch.nn.ModuleList(conv(hidden_channels, hidden_channels) for _ in range(num_layers))
        self.head = classifier(hidden_channels * num_layers, hidden_channels, out_channels, dropout)

    @property
    def sums_only(self) -> bool:
        """Whether nodes meet in sums alone: as the layers say of themselves."""
        return all(getattr(conv, "sums_only", False) for conv in self.convs)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, batch_size = as_batch(batch, batch_size, x)
        # The input map and every layer have a bias, which padding must not take.
        real = (as_segments(batch).graph >= 0).unsqueeze(-1)
        neighbours = as_neighbours(edge_index, x.size(0))
        h, hidden = embed(x, self.lin_in) * real, []
        for conv in self.convs:
            h = conv(h, neighbours).relu() * real
            hidden.append(h)
        read = sum_readout(hidden, batch, batch_size)
        if self.readout == "mean":
            read = read / graph_sizes(batch, batch_size, read.dtype)
        return self.head(read.to(next(self.head.parameters()).dtype))


def build_gcn(inputs: Inputs, settings: "Settings") -> ConvGNN:
    """Graph convolutional network."""
    return _build(inputs, settings, GCNConv)


def build_sage(inputs: Inputs, settings: "Settings") -> ConvGNN:
    """GraphSAGE with the mean."""
    return _build(inputs, settings, SAGEConv)


def build_gat(inputs: Inputs, settings: "Settings") -> GAT:
    """Graph attention network."""
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return GAT(*sizes, jk=True, dropout=settings.dropout)


def _build(inputs: Inputs, settings: "Settings", conv: Callable[[int, int], torch.nn.Module]) -> ConvGNN:
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return ConvGNN(*sizes, conv=conv, readout=settings.readout, dropout=settings.dropout)
