"""DiffPool: soft clusters of nodes, on our operators."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module, ModuleList
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.batch_norm import MaskedBatchNorm
from softmask.baselines.entry import Inputs
from softmask.nn.embed import embed
from softmask.nn.readout import as_batch
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, graph_max, graph_sum, neighbour_sum
from softmask.ops.blocks import as_blocks, num_blocks
from softmask.ops.largest_of import largest_of

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Layers between two poolings, and the share of clusters among the nodes before.
_DEEP, _SHARE = 3, 0.25
# Of the nodes in blocks: rows of a block for each cluster, and the fewest. The products of a block's nodes are as large
# as those of a graph, so that there should not be many of them.
_ROWS, _FEWEST = 0.25, 16
# Vectors of each row that a step keeps for its gradient, and how often a row's assignments; counted.
_VECTORS, _ASSIGNMENTS = 36, 12
# Below this an assignment is no part of the entropy's logarithm, as PyG has it; and a squared norm counts as zero.
_TINY, _NOTHING = 1e-15, 1e-30


class SAGEConv(Module):
    r"""The layer of `"Inductive Representation Learning on Large Graphs" <https://arxiv.org/abs/1706.02216>`_ with the
    mean over all neighbours and vectors of length 1,

    .. math::
        \mathbf{h}^{\prime}_v = \frac{\mathbf{u}_v}{\lVert \mathbf{u}_v \rVert}, \qquad
        \mathbf{u}_v = \mathbf{W}_1 \, \mathrm{mean}_{u \in \mathcal{N}(v)} \mathbf{h}_u + \mathbf{W}_2 \mathbf{h}_v +
        \mathbf{b}

    It computes what PyG's ``DenseSAGEConv`` does and has its parameters by their names.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.lin_rel = Linear(in_channels, out_channels, bias=False)
        self.lin_root = Linear(in_channels, out_channels)

    def forward(self, x: Tensor, mean: Callable[[Tensor], Tensor]) -> Tensor:
        """"""  # noqa: D419
        # The map goes before the mean, with which it commutes: tokens are then looked up, not multiplied.
        h = mean(embed(x, self.lin_rel)) + embed(x, self.lin_root)
        return F.normalize(_wide(h), dim=-1).to(h.dtype)


class SAGE(Module):
    """Three GraphSAGE layers, each with ReLU and batch norm; all of them side by side.

    Shapes:
        - **x:** ``[rows, in_channels]``, nodes or clusters, or the tokens of nodes
        - **mean:** takes the rows ``[rows, channels]`` to the means over their neighbours
        - **real:** ``[rows, 1]``, whether a row counts; the others become zero
        - **output:** ``[rows, channels]``
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (_DEEP - 1), out_channels]
        self.convs = ModuleList(SAGEConv(a, b) for a, b in pairwise(sizes))
        self.norms = ModuleList(MaskedBatchNorm(b) for b in sizes[1:])
        self.channels = sum(sizes[1:])

    def forward(self, x: Tensor, mean: Callable[[Tensor], Tensor], real: Tensor) -> Tensor:
        """"""  # noqa: D419
        hidden = []
        for conv, norm in zip(self.convs, self.norms):
            x = norm(conv(x, mean).relu(), real)
            hidden.append(x)
        return torch.cat(hidden, dim=-1)


class DiffPool(Module):
    r"""Differentiable pooling (`"Hierarchical Graph Representation Learning with Differentiable Pooling"
    <https://arxiv.org/abs/1806.08804>`_): one network embeds the nodes, another assigns them softly to clusters,
    :math:`\mathbf{S} = \mathrm{softmax}(\mathrm{GNN}(\mathbf{A}, \mathbf{X}))`, and the clusters are the nodes of the
    next level, :math:`\mathbf{S}^\top \mathbf{Z}` joined by :math:`\mathbf{S}^\top \mathbf{A} \mathbf{S}`. The maximum
    over nodes is read out at every level.

    In training it also gives the two losses of the paper, for links and for the entropy of assignments. No matrix of
    all pairs of nodes is formed: the loss for links is

    .. math::
        \lVert \mathbf{A} - \mathbf{S} \mathbf{S}^\top \rVert^2 = \lVert \mathbf{A} \rVert^2 - 2 \, \mathrm{tr}(
        \mathbf{S}^\top \mathbf{A} \mathbf{S}) + \lVert \mathbf{S}^\top \mathbf{S} \rVert^2 .

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of all hidden vectors.
        num_layers: number of poolings.
        out_channels: number of classes or targets.
        largest: number of nodes of the largest graph; every level has a quarter of the clusters of that before.

    Shapes:
        - as for :class:`softmask.nn.GAT`, but the nodes of a graph stand side by side, and padding behind them; a
          graph without nodes takes no part in statistics and losses
    """

    full_precision = ("lins", "to_clusters")
    # torch 2.11's compiler for CUDA was not done with it after four minutes.
    compiles = False

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, largest: int):
        super().__init__()
        d, clusters = hidden_channels, largest
        self.hidden_channels = hidden_channels
        self.clusters: list[int] = []
        self.embeds, self.assigns, self.to_clusters = ModuleList(), ModuleList(), ModuleList()
        channels, read = in_channels, 0
        for _ in range(num_layers):
            clusters = max(1, math.ceil(_SHARE * clusters))
            self.clusters.append(clusters)
            embed_, assign = SAGE(channels, d, d), SAGE(channels, d, clusters)
            self.embeds.append(embed_)
            self.assigns.append(assign)
            self.to_clusters.append(Linear(assign.channels, clusters))
            channels, read = embed_.channels, read + embed_.channels
        self.last = SAGE(channels, d, d)
        self.lins = ModuleList([Linear(read + self.last.channels, d), Linear(d, out_channels)])

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """"""  # noqa: D419
        batch, graphs = as_batch(batch, batch_size, x)
        neighbours = as_neighbours(edge_index, x.size(0))
        real = (as_segments(batch).graph >= 0).unsqueeze(-1)
        one = real.to(next(self.lins.parameters()).dtype)
        degree, size = neighbour_sum(one, neighbours), graph_sum(one, batch, graphs)
        there = size > 0
        share = 1 / degree.clamp(min=1)
        z, s = self._assigned(0, x, lambda h: neighbour_sum(h, neighbours) * share.to(h.dtype), real)
        read = [graph_max(z, batch, graphs)]
        x, adj, square = self._pooled(z, s, neighbours, degree, batch, graphs)
        extra = _losses(square, s, there.sum(), size.amax().clamp(min=1))
        for level in range(1, len(self.clusters)):
            z, s = self._assigned(level, x.flatten(0, 1), _mean_over(adj), _rows_of(there, adj))
            z, s = z.unflatten(0, (graphs, -1)), s.unflatten(0, (graphs, -1))
            read.append(largest_of(z, dim=1))
            extra = extra + _losses((adj - s @ s.mT).square().sum(), s, there.sum(), adj.size(1))
            x, adj = (s.mT @ z.to(s.dtype)).to(z.dtype), s.mT @ adj @ s
        h = self.last(x.flatten(0, 1), _mean_over(adj), _rows_of(there, adj))
        read.append(largest_of(h.unflatten(0, (graphs, -1)), dim=1))
        out = self.lins[1](self.lins[0](torch.cat(read, dim=-1).to(one.dtype)).relu())
        return (out, extra) if self.training else out

    def _assigned(self, level: int, x: Tensor, mean: Callable[[Tensor], Tensor], real: Tensor) -> tuple[Tensor, Tensor]:
        """The vectors of all rows, and to which clusters they are assigned, in float32 or more; zero for padding."""
        z, a, lin = self.embeds[level](x, mean, real), self.assigns[level](x, mean, real), self.to_clusters[level]
        return z, lin(a.to(lin.weight.dtype)).softmax(dim=-1) * real

    def _pooled(
        self, z: Tensor, s: Tensor, neighbours: Neighbours, degree: Tensor, batch: Tensor | Segments, graphs: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The clusters of the nodes, ``[graphs, clusters, channels]``, how they are joined, and the squared norm of
        what assignments do not say of the edges.
        """
        around, clusters = neighbour_sum(s, neighbours), s.size(1)
        blocks = as_blocks(batch, graphs, _rows_of_block(clusters))
        rows = blocks.gather(torch.cat([z.to(s.dtype), around, s], dim=-1))
        sums = blocks.sum(rows[..., -clusters:].mT @ rows, graphs)
        x, adj, inner = sums.split([z.size(1), clusters, clusters], dim=-1)
        # Edges that stand twice count twice here; the square of their entry would be 4.
        square = degree.sum() - 2 * (s * around).sum() + inner.square().sum()
        return x.to(z.dtype), adj, square

    def numbers_held(self, nodes: int, graphs: int) -> int:
        """About how many float32 numbers a step of training holds for a batch: what autograd keeps, and the products of
        all blocks, which come and go.
        """
        d, rows, held = self.hidden_channels, nodes, 0
        for level, clusters in enumerate(self.clusters):
            wide = 3 * d + 2 * clusters
            if level == 0:
                in_block = _rows_of_block(clusters)
                blocks = num_blocks(nodes, graphs, in_block)
                held += blocks * wide * (clusters + 3 * in_block // 2)
            else:
                held += 4 * rows * rows // graphs
            held += rows * (_VECTORS * d + _ASSIGNMENTS * clusters)
            rows = graphs * clusters
        return held + rows * _VECTORS * d // 2


def _rows_of_block(clusters: int) -> int:
    return max(_FEWEST, math.ceil(_ROWS * clusters))


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _losses(square: Tensor, s: Tensor, graphs: Tensor, nodes: Tensor | int) -> Tensor:
    """That for links, of its squared norm, and that of the entropy. As in PyG both are divided by the entries of a
    batch in which every graph has as many nodes as the largest.
    """
    rows = graphs.clamp(min=1) * nodes
    # The root has no gradient at zero, which is the norm where there are no nodes.
    link = square.clamp(min=_NOTHING).sqrt() / (rows * nodes)
    return link - (s * (s + _TINY).log()).sum() / rows


def _mean_over(adj: Tensor) -> Callable[[Tensor], Tensor]:
    """The means over the neighbours of clusters, whose weights are those of `adj`, ``[graphs, clusters, clusters]``."""
    share = adj / adj.sum(dim=-1, keepdim=True).clamp(min=1)
    return lambda h: (share.to(h.dtype) @ h.unflatten(0, adj.shape[:2])).flatten(0, 1)


def _rows_of(there: Tensor, adj: Tensor) -> Tensor:
    """Whether the clusters of each graph count, ``[graphs * clusters, 1]``."""
    return there.expand(-1, adj.size(1)).reshape(-1, 1)


def build_diffpool(inputs: Inputs, settings: "Settings") -> DiffPool:
    """DiffPool for the sizes of the set's graphs."""
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    return DiffPool(*sizes, largest=int(inputs.sizes.max(initial=1)))
