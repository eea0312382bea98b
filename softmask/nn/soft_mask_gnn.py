"""The whole network: input map, mask networks, soft-mask layers, readout, head."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.dropout import KeyedDropout
from softmask.nn.edge_soft_mask_conv import EdgeSoftMaskConv
from softmask.nn.embed import embed
from softmask.nn.mask_net import MaskNet
from softmask.nn.readout import as_batch, classifier, graph_sizes, sum_readout
from softmask.nn.soft_mask_conv import SoftMaskConv
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments
from softmask.ops.edge_table import EdgeTable, as_edge_table
from softmask.ops.levels import LayerRounds, Levels, Lists, both_sums, own

Graph: TypeAlias = "Tensor | EdgeIndex | Neighbours | Levels"
Masks: TypeAlias = Tensor | Sequence[Tensor]


class SoftMaskGNN(torch.nn.Module):
    r"""Soft-mask GNN for properties of whole graphs (`"Soft-mask: Adaptive Substructure Extractions for Graph Neural
    Networks" <https://doi.org/10.1145/3442381.3449929>`_): SMG, and with the options M-SMG, SMG-JK and M-SMG-JK.

    An affine map takes the node features to :math:`\mathbf{h}^{(0)}`; layer :math:`k` computes masks
    :math:`m^{(k)}` with a :class:`MaskNet` and then :math:`\mathbf{h}^{(k)}` with a :class:`SoftMaskConv`; the
    readout is :math:`\mathbf{h}_G = \sum_v \mathbf{h}^{(K)}_v`, or with jumping knowledge equation (5),

    .. math::
        \mathbf{h}_G = \big\Vert_{k=1}^{K} \sum_v \mathbf{h}^{(k)}_v .

    Args:
        in_channels: number of node features (of kinds of token, for integer input), or ``-1`` to take it from the
            first input.
        hidden_channels: size of all hidden vectors.
        num_layers: number of soft-mask layers.
        out_channels: number of classes or targets.
        multi_channel: a mask for every channel (equation (6)) instead of one per node.
        jk: read out all layers (equation (5)) instead of the last.
        readout: ``"sum"``, or ``"mean"``, which is not zero invariant.
        dropout: dropout in the head.
        norm: divide every node's vector by its root mean square in every layer (see :class:`SoftMaskConv`).
        edge_channels: number of edge features; the layers are then :class:`EdgeSoftMaskConv`.
        head: ``"classifier"`` (linear, ReLU, dropout, linear) or ``"regressor"`` (three linear maps, ELU between).

    Shapes:
        - **x:** ``[nodes, in_channels]`` floating point; or integer tokens, ``[nodes]`` or ``[nodes, columns]``, each
          standing for the one-hot vector with a 1 in that place (-1: the zero vector)
        - **edge_index:** as for :class:`SoftMaskConv`
        - **batch:** ``[nodes]``, the graph of each node, -1 for padding; ``None`` for a single graph
        - **output:** ``[graphs, out_channels]``
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head",)
    # Nodes meet in sums over neighbours and over graphs alone: nodes of one stable colour have equal vectors and masks.
    sums_only = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        multi_channel: bool = False,
        jk: bool = False,
        readout: Literal["sum", "mean"] = "sum",
        dropout: float = 0.5,
        head: Literal["classifier", "regressor"] = "classifier",
        norm: bool = False,
        edge_channels: int | None = None,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if readout not in ("sum", "mean"):
            raise ValueError(f"readout must be 'sum' or 'mean', got {readout!r}")
        if head not in ("classifier", "regressor"):
            raise ValueError(f"head must be 'classifier' or 'regressor', got {head!r}")
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.out_channels = out_channels
        self.multi_channel = multi_channel
        self.jk = jk
        self.readout = readout
        self.norm = norm

        d = hidden_channels
        self.lin_in = Linear(in_channels, d)
        self.masks = torch.nn.ModuleList(MaskNet(d, d, d if multi_channel else 1) for _ in range(num_layers))
        if edge_channels is not None and norm:
            raise ValueError("the layers with edge features have no norm")
        self.edge_channels = edge_channels
        self.convs = torch.nn.ModuleList(
            SoftMaskConv(d, d, norm=norm) if edge_channels is None else EdgeSoftMaskConv(d, d, edge_channels)
            for _ in range(num_layers)
        )
        read = d * num_layers if jk else d
        if head == "classifier":
            self.head = classifier(read, d, out_channels, dropout)
        else:
            wide = d * math.ceil(num_layers / 2) if jk else d
            self.head = torch.nn.Sequential(
                *(Linear(read, wide), torch.nn.ELU(), KeyedDropout(dropout)),
                *(Linear(wide, d), torch.nn.ELU(), Linear(d, out_channels)),
            )

    def reset_parameters(self) -> None:
        """Draws all weights and biases anew, uniform in ±1/sqrt(fan_in)."""
        for module in (self.lin_in, *self.masks, *self.convs, *self.head):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(
        self,
        x: Tensor,
        edge_index: Graph,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        masks: Masks | None = None,
        return_masks: bool = False,
        edge_attr: Tensor | EdgeTable | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        r"""
        Args:
            x: node features or tokens.
            edge_index: the graph or graphs; or :class:`~softmask.ops.levels.Levels`, which need no `batch`, and whose
                first classes `x` then belongs to. Masks are then those of classes, too.
            batch: the graph of each node.
            batch_size: number of graphs; computed from ``batch`` if not given.
            masks: preassigned masks, one per layer, instead of those of the mask networks.
            return_masks: also return the list of the masks of all layers.
            edge_attr: edge features, ``[edges, edge_channels]`` beside an ``edge_index``, or a table of them.
        """
        hidden, used = self._layers(x, edge_index, batch, masks, edge_attr)
        batches: Tensor | Segments | Sequence[Lists]
        if isinstance(edge_index, Levels):
            batches, batch_size = edge_index.graphs if self.jk else edge_index.graphs[-1:], edge_index.num_graphs
        else:
            batches, batch_size = as_batch(batch, batch_size, hidden[0])
        read = sum_readout(hidden if self.jk else hidden[-1:], batches, batch_size)
        if self.readout == "mean":
            read = read / graph_sizes(batches, batch_size, read.dtype)
        # The readout of half-precision vectors is float32; the head may be either.
        out = self.head(read.to(next(self.head.parameters(), read).dtype))
        return (out, used) if return_masks else out

    def node_embeddings(
        self,
        x: Tensor,
        edge_index: Graph,
        masks: Masks | None = None,
        batch: Tensor | Segments | None = None,
        edge_attr: Tensor | EdgeTable | None = None,
    ) -> Tensor:
        r"""The vectors :math:`\mathbf{h}^{(K)}` of all nodes, before the readout: ``[nodes, hidden_channels]``."""
        return self._layers(x, edge_index, batch, masks, edge_attr)[0][-1]

    def _layers(
        self,
        x: Tensor,
        edge_index: Graph,
        batch: Tensor | Segments | None,
        masks: Masks | None,
        edge_attr: Tensor | EdgeTable | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        if masks is not None and len(masks) != self.num_layers:
            raise ValueError(f"got masks for {len(masks)} layers; the model has {self.num_layers}")
        h = embed(x, self.lin_in)
        if batch is not None:
            # The input map has a bias; padding must start from zero, and then stays zero.
            h = h * (as_segments(batch).graph >= 0).unsqueeze(-1)
        graphs: Sequence[Neighbours | LayerRounds]
        if isinstance(edge_index, Levels):
            graphs = edge_index.layers
        else:
            graphs = [as_neighbours(edge_index, h.size(0))] * self.num_layers
        table = None if self.edge_channels is None else self._edge_table(edge_index, edge_attr, h.size(0))
        hidden: list[Tensor] = []
        used: list[Tensor] = []
        for k, (mask_net, conv, graph) in enumerate(zip(self.masks, self.convs, graphs, strict=True)):
            if masks is None:
                # With levels, a layer's output stands one round further than its masks.
                before = None if k == 0 else own(used[-1], both_sums(graphs[k - 1], h.size(0))[1])
                mask = mask_net(h, graph, before)
            else:
                mask = _column(masks[k])
            h = conv(h, graph if table is None else table, mask)
            hidden.append(h)
            used.append(mask)
        return hidden, used

    def _edge_table(self, edge_index: Graph, edge_attr: Tensor | EdgeTable | None, nodes: int) -> EdgeTable:
        if isinstance(edge_attr, EdgeTable):
            return edge_attr
        if edge_attr is None or not isinstance(edge_index, Tensor):
            raise ValueError("this model needs edge_attr, beside an edge_index of shape [2, edges]")
        return as_edge_table(edge_index, edge_attr, nodes)

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, "
            f"num_layers={self.num_layers}, out_channels={self.out_channels}, "
            f"multi_channel={self.multi_channel}, jk={self.jk}, readout={self.readout!r}, norm={self.norm})"
        )


def _column(mask: Tensor) -> Tensor:
    return mask.unsqueeze(-1) if mask.dim() == 1 else mask
