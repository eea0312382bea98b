"""GIN: graph isomorphism networks, on our operators."""

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.batch_norm import MaskedBatchNorm
from softmask.baselines.entry import Inputs
from softmask.nn import KeyedDropout
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch, graph_sizes
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, graph_sum, neighbour_sum

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class GINConv(torch.nn.Module):
    r"""The layer of `"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_, equation (4.1),

    .. math::
        \mathbf{h}^{\prime}_v = \mathrm{MLP} \Big( (1 + \epsilon) \, \mathbf{h}_v + \sum_{u \in \mathcal{N}(v)}
        \mathbf{h}_u \Big)

    whose perceptron is linear, batch norm, ReLU, linear, and then, as in its authors' code, batch norm and ReLU. The
    first linear map goes before the sum, with which it commutes: tokens are then looked up, not multiplied.

    Args:
        in_channels: size of each input vector (kinds of token, for integer input).
        out_channels: size of each output vector, and of the perceptron's hidden one.
        train_eps: learn :math:`\epsilon`, which is 0 otherwise (GIN-0).
    """

    def __init__(self, in_channels: int, out_channels: int, train_eps: bool = False):
        super().__init__()
        # No bias before a batch norm, which takes it away: its gradient is rounding, and Adam would make steps of that.
        self.lin_in = Linear(in_channels, out_channels, bias=False)
        self.eps = torch.nn.Parameter(torch.zeros(1)) if train_eps else 0.0
        self.norm_in = MaskedBatchNorm(out_channels)
        self.lin_out = Linear(out_channels, out_channels, bias=False)
        self.norm_out = MaskedBatchNorm(out_channels)

    def forward(self, x: Tensor, neighbours: Neighbours, real: Tensor, times: Tensor | None = None) -> Tensor:
        """"""  # noqa: D419
        h = embed(x, self.lin_in)
        h = (1 + self.eps) * h + neighbour_sum(h, neighbours)
        h = self.lin_out(self.norm_in(h, real, times).relu())
        return self.norm_out(h, real, times).relu()


class GIN(torch.nn.Module):
    r"""Graph isomorphism network (`"How Powerful are Graph Neural Networks?" <https://arxiv.org/abs/1810.00826>`_) for
    whole graphs, as in its authors' code: the nodes' vectors of every layer, the input among them, are summed (or
    averaged) over each graph, each of these readouts goes through a linear map and dropout, and the results are added.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of all hidden vectors.
        num_layers: number of layers that look at neighbours; the paper counts one more, the input.
        out_channels: number of classes or targets.
        readout: ``"sum"``, or ``"mean"``.
        dropout: dropout of the readouts' linear maps.
        train_eps: learn every layer's :math:`\epsilon`.
        constant: every node's input is 1, whatever it is given.

    Shapes:
        - **x:** ``[nodes, in_channels]`` floating point, or integer tokens, as for :class:`softmask.nn.SoftMaskGNN`
        - **batch:** ``[nodes]``, the graph of each node, -1 for padding; ``None`` for a single graph
        - **output:** ``[graphs, out_channels]``
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("predictions",)
    # Nodes meet in sums over neighbours and over graphs, and in batch norms, which count a node as often as they do.
    sums_only = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        readout: Literal["sum", "mean"] = "sum",
        dropout: float = 0.5,
        train_eps: bool = False,
        constant: bool = False,
    ):
        super().__init__()
        self.readout = readout
        self.constant = constant
        sizes = [1 if constant else in_channels, *[hidden_channels] * num_layers]
        self.convs = torch.nn.ModuleList(GINConv(size, hidden_channels, train_eps) for size in sizes[:-1])
        self.predictions = torch.nn.ModuleList(Linear(size, out_channels) for size in sizes)
        self.dropouts = torch.nn.ModuleList(KeyedDropout(dropout) for _ in sizes)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, batch_size = as_batch(batch, batch_size, x)
        segments = as_segments(batch)
        real = (segments.graph >= 0).unsqueeze(-1)
        times = None if segments.weight is None else segments.weight.unsqueeze(-1)
        neighbours = as_neighbours(edge_index, x.size(0))
        if self.constant:
            x = real.to(next(self.convs.parameters()).dtype)
        wide = next(self.predictions.parameters()).dtype
        share: Tensor | float = 1.0
        if self.readout == "mean":
            share = 1 / graph_sizes(batch, batch_size, wide)
        out: Tensor | float = 0.0
        for layer, (predict, dropout) in enumerate(zip(self.predictions, self.dropouts)):
            assert isinstance(predict, Linear)
            if layer:
                x = self.convs[layer - 1](x, neighbours, real, times)
            if x.is_floating_point():
                score = predict(graph_sum(x, batch, batch_size).to(wide) * share)
            else:
                # The map of a sum of one-hot vectors is a sum of rows of its matrix; the bias counts once a graph.
                rows = embed(x, predict) - predict.bias
                score = graph_sum(torch.where(real, rows, 0), batch, batch_size).to(wide) * share + predict.bias
            out = out + dropout(score)
        assert isinstance(out, Tensor)
        return out


def build_gin(inputs: Inputs, settings: "Settings") -> GIN:
    """GIN-0: every epsilon is zero."""
    return _build(inputs, settings, train_eps=False)


def build_gin_eps(inputs: Inputs, settings: "Settings") -> GIN:
    """GIN with a learned epsilon in every layer."""
    return _build(inputs, settings, train_eps=True)


def _build(inputs: Inputs, settings: "Settings", train_eps: bool) -> GIN:
    return GIN(
        inputs.channels,
        settings.hidden,
        settings.layers,
        inputs.outputs,
        readout=settings.readout,
        dropout=settings.dropout,
        train_eps=train_eps,
        # As its authors do on REDDIT.
        constant=inputs.features is not None and inputs.features.kind == "scaled-degree",
    )
