"""ECC: edge-conditioned convolution, on our operators."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.batch_norm import MaskedBatchNorm
from softmask.baselines.entry import Inputs
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch, classifier, graph_sizes
from softmask.ops import Neighbours, Segments, as_segments, graph_sum
from softmask.ops.edge_table import EdgeTable, as_edge_table, from_sources
from softmask.ops.mixed_sum import mixed_sum

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class ECConv(torch.nn.Module):
    r"""The layer of `"Dynamic Edge-Conditioned Filters in Convolutional Neural Networks on Graphs"
    <https://arxiv.org/abs/1704.02901>`_, equation (1),

    .. math::
        \mathbf{h}^{\prime}_v = \mathbf{W} \mathbf{h}_v + \frac{1}{|\mathcal{N}(v)|} \sum_{u \in \mathcal{N}(v)}
        \boldsymbol{\Theta}(\mathbf{e}_{uv}) \, \mathbf{h}_u + \mathbf{b}

    where a perceptron makes the matrix :math:`\boldsymbol{\Theta}` of an edge from its features, and a node's own
    vector has a matrix of its own (the paper has a label for loops). It computes what PyG's ``NNConv`` does with the
    mean; as in :class:`softmask.nn.EdgeSoftMaskConv`, no matrix of an edge is ever formed.

    Args:
        in_channels: size of each input vector.
        out_channels: size of each output vector.
        edge_channels: number of edge features.
        edge_hidden: width of the perceptron.
        bias: whether there is a bias; before a batch norm it has no use.
    """

    def __init__(
        self, in_channels: int, out_channels: int, edge_channels: int, edge_hidden: int = 64, bias: bool = True
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.edge_hidden = in_channels, out_channels, edge_hidden
        first, second = Linear(edge_channels, edge_hidden), Linear(edge_hidden, in_channels * out_channels)
        self.nn = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        self.lin = Linear(in_channels, out_channels, bias=False)
        self.bias = torch.nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor, edges: EdgeTable) -> Tensor:
        """"""  # noqa: D419
        seen = from_sources(x, edges)
        weight = self.nn[:2](edges.attr.to(x.dtype))
        _, _, weights, bias = self.nn.parameters()
        # Laid out once, for the values and for the gradients.
        matrices = weights.t().contiguous().reshape(self.edge_hidden, self.in_channels, self.out_channels)
        constant = bias.reshape(self.in_channels, self.out_channels)
        around = mixed_sum(weight, seen, matrices) + seen.sum(dim=1) @ constant
        out = self.lin(x) + around / edges.there.sum(dim=1).clamp(min=1).to(x.dtype).unsqueeze(-1)
        return out if self.bias is None else out + self.bias


class ECC(torch.nn.Module):
    """Edge-conditioned convolutions with batch norm and ReLU, the mean (or sum) over the nodes, and a perceptron; the
    network of the paper without its pyramid of coarsened graphs.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of all hidden vectors.
        num_layers: number of layers.
        out_channels: number of classes or targets.
        edge_channels: number of edge features.
        readout: ``"mean"`` or ``"sum"``.
        dropout: dropout in the perceptron.

    Shapes:
        - **edge_attr:** ``[edges, edge_channels]`` beside an ``edge_index`` with every edge both ways, or an
          :class:`~softmask.ops.edge_table.EdgeTable`
        - all others as for :class:`softmask.nn.GAT`
    """

    full_precision = ("head",)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        edge_channels: int,
        readout: Literal["sum", "mean"] = "mean",
        dropout: float = 0.1,
    ):
        super().__init__()
        d, self.readout = hidden_channels, readout
        self.lin_in = Linear(in_channels, d)
        self.convs = torch.nn.ModuleList(ECConv(d, d, edge_channels, bias=False) for _ in range(num_layers))
        self.norms = torch.nn.ModuleList(MaskedBatchNorm(d) for _ in range(num_layers))
        self.head = classifier(d, d, out_channels, dropout)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        edge_attr: Tensor | EdgeTable | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, batch_size = as_batch(batch, batch_size, x)
        real = (as_segments(batch).graph >= 0).unsqueeze(-1)
        if not isinstance(edge_attr, EdgeTable):
            if edge_attr is None or not isinstance(edge_index, Tensor):
                raise ValueError("this model needs edge_attr, beside an edge_index of shape [2, edges]")
            edge_attr = as_edge_table(edge_index, edge_attr, x.size(0))
        h = embed(x, self.lin_in) * real
        for conv, norm in zip(self.convs, self.norms):
            h = norm(conv(h, edge_attr), real).relu()
        read = graph_sum(h, batch, batch_size)
        if self.readout == "mean":
            read = read / graph_sizes(batch, batch_size, read.dtype)
        return self.head(read.to(next(self.head.parameters()).dtype))


def build_ecc(inputs: Inputs, settings: "Settings") -> ECC:
    """ECC for what the edges carry."""
    assert inputs.edge_channels is not None
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs, inputs.edge_channels)
    return ECC(*sizes, readout=settings.readout, dropout=settings.dropout)
