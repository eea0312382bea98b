"""Graph attention networks for whole graphs, which the paper compares the training curves of."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.embed import embed
from softmask.nn.gat_conv import GATConv
from softmask.nn.readout import as_batch, classifier, sum_readout
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments


class GAT(torch.nn.Module):
    r"""Graph attention network (`"Graph Attention Networks" <https://arxiv.org/abs/1710.10903>`_) for classes of whole
    graphs, built as :class:`SoftMaskGNN` is, with attention in the place of masks: the same input map, readouts (SUM of
    the last layer, or with `jk` of all) and head, vectors of the same size.

    The soft-mask paper shows GAT's training curves (Figure 3) and says nothing of its setting. The activation is ELU,
    as in GAT's own paper. There is no dropout but in the head: the figure asks how well the training graphs are fitted.

    Args:
        in_channels: number of node features (of kinds of token, for integer input), or ``-1`` to take it from the
            first input.
        hidden_channels: size of all hidden vectors, which the heads share; a multiple of `heads`.
        num_layers: number of attention layers.
        out_channels: number of classes.
        heads: number of heads of every layer.
        jk: read out all layers instead of the last.
        dropout: dropout in the head.

    Shapes:
        - **x:** ``[nodes, in_channels]`` floating point; or integer tokens, ``[nodes]`` or ``[nodes, columns]``, each
          standing for the one-hot vector with a 1 in that place (-1: the zero vector)
        - **edge_index:** as for :class:`GATConv`
        - **batch:** ``[nodes]``, the graph of each node, -1 for padding; ``None`` for a single graph
        - **output:** ``[graphs, out_channels]``
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head",)
    # Nodes meet in sums alone: attention counts a neighbour as often as sums do.
    sums_only = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        heads: int = 4,
        jk: bool = False,
        dropout: float = 0.5,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if heads < 1 or hidden_channels % heads:
            raise ValueError(f"hidden_channels must be a multiple of heads, got {hidden_channels} and {heads}")
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.heads = heads
        self.jk = jk

        d = hidden_channels
        self.lin_in = Linear(in_channels, d)
        self.convs = torch.nn.ModuleList(GATConv(d, d // heads, heads) for _ in range(num_layers))
        self.head = classifier(d * num_layers if jk else d, d, out_channels, dropout)

    def reset_parameters(self) -> None:
        """Draws all weights and biases anew."""
        for module in (self.lin_in, *self.convs, *self.head):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""
        Args:
            x: node features or tokens.
            edge_index: the graph or graphs.
            batch: the graph of each node.
            batch_size: number of graphs; computed from ``batch`` if not given.
        """
        batch, batch_size = as_batch(batch, batch_size, x)
        # The input map and every layer have a bias, which padding must not take.
        real = (as_segments(batch).graph >= 0).unsqueeze(-1)
        neighbours = as_neighbours(edge_index, x.size(0))
        h = embed(x, self.lin_in) * real
        hidden = []
        for conv in self.convs:
            h = F.elu(conv(h, neighbours)) * real
            hidden.append(h)
        read = sum_readout(hidden if self.jk else hidden[-1:], batch, batch_size)
        # The readout of half-precision vectors is float32; the head may be either.
        return self.head(read.to(next(self.head.parameters()).dtype))

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}, "
            f"out_channels={self.out_channels}, heads={self.heads}, jk={self.jk})"
        )
