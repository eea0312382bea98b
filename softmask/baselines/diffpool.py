"""DiffPool: soft clusters of nodes, of PyG's dense layers."""

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleList
from torch_geometric.nn import DenseSAGEConv, dense_diff_pool
from torch_geometric.utils import to_dense_adj, to_dense_batch

from softmask.baselines.dense import check_memory
from softmask.baselines.entry import Inputs

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Layers between two poolings, and the share of clusters among the nodes before.
_DEEP, _SHARE = 3, 0.25


class DenseSAGE(Module):
    """Three GraphSAGE layers (mean), normalised vectors, ReLU and batch norm; all of them side by side."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (_DEEP - 1), out_channels]
        self.convs = ModuleList(DenseSAGEConv(a, b, normalize=True) for a, b in pairwise(sizes))
        self.norms = ModuleList(BatchNorm1d(b) for b in sizes[1:])
        self.channels = sum(sizes[1:])

    def forward(self, x: Tensor, adj: Tensor, real: Tensor | None) -> Tensor:
        """"""  # noqa: D419
        hidden = []
        for conv, norm in zip(self.convs, self.norms):
            x = conv(x, adj, real).relu()
            if real is None:
                x = norm(x.flatten(0, 1)).unflatten(0, x.shape[:2])
            else:
                # Padding takes no part in the statistics.
                x = torch.zeros_like(x).masked_scatter(real.unsqueeze(-1), norm(x[real]))
            hidden.append(x)
        return torch.cat(hidden, dim=-1)


class DiffPool(Module):
    r"""Differentiable pooling (`"Hierarchical Graph Representation Learning with Differentiable Pooling"
    <https://arxiv.org/abs/1806.08804>`_): one network embeds the nodes, another assigns them softly to clusters,
    :math:`\mathbf{S} = \mathrm{softmax}(\mathrm{GNN}(\mathbf{A}, \mathbf{X}))`, and the clusters are the nodes of the
    next level, :math:`\mathbf{S}^\top \mathbf{Z}` joined by :math:`\mathbf{S}^\top \mathbf{A} \mathbf{S}`. The maximum
    over nodes is read out at every level.

    In training it also gives the two losses of the paper, for links and for the entropy of assignments.

    Args:
        in_channels: number of node features.
        hidden_channels: size of all hidden vectors.
        num_layers: number of poolings.
        out_channels: number of classes or targets.
        largest: number of nodes of the largest graph; every level has a quarter of the clusters of that before.
    """

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int, largest: int):
        super().__init__()
        d, clusters = hidden_channels, largest
        self.embeds, self.assigns, self.to_clusters = ModuleList(), ModuleList(), ModuleList()
        channels, read = in_channels, 0
        for _ in range(num_layers):
            clusters = max(1, math.ceil(_SHARE * clusters))
            embed, assign = DenseSAGE(channels, d, d), DenseSAGE(channels, d, clusters)
            self.embeds.append(embed)
            self.assigns.append(assign)
            self.to_clusters.append(Linear(assign.channels, clusters))
            channels, read = embed.channels, read + embed.channels
        self.last = DenseSAGE(channels, d, d)
        self.lins = ModuleList([Linear(read + self.last.channels, d), Linear(d, out_channels)])

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """"""  # noqa: D419
        adj = to_dense_adj(edge_index, batch, batch_size=batch_size).to(x.dtype)
        mask: Tensor | None
        x, mask = to_dense_batch(x, batch, batch_size=batch_size, max_num_nodes=adj.size(1))
        read, extra = [], x.new_zeros(())
        for embed, assign, to_clusters in zip(self.embeds, self.assigns, self.to_clusters):
            h = embed(x, adj, mask)
            read.append(_largest(h, mask))
            x, adj, link, entropy = dense_diff_pool(h, adj, to_clusters(assign(x, adj, mask)), mask)
            mask, extra = None, extra + link + entropy
        read.append(_largest(self.last(x, adj, None), None))
        out = self.lins[1](self.lins[0](torch.cat(read, dim=-1)).relu())
        return (out, extra) if self.training else out


def _largest(x: Tensor, real: Tensor | None) -> Tensor:
    """The maximum over the nodes of each graph; of a graph without nodes, zero."""
    if real is None:
        return x.amax(dim=1)
    return torch.where(real.any(dim=1, keepdim=True), x.masked_fill(~real.unsqueeze(-1), -torch.inf).amax(dim=1), 0)


def build_diffpool(inputs: Inputs, settings: "Settings") -> DiffPool:
    """DiffPool for the sizes of the set's graphs, unless they make it take more memory than there is."""
    sizes = (inputs.channels, settings.hidden, settings.layers, inputs.outputs)
    largest = int(inputs.sizes.max(initial=1))
    check_memory("DiffPool", numbers_held(largest, settings.hidden, settings.layers), inputs, settings)
    return DiffPool(*sizes, largest=largest)


def numbers_held(nodes: int, hidden: int, levels: int) -> int:
    """About how many numbers a step of training holds for a graph of so many nodes: what autograd keeps.

    At each level three matrices of all pairs of nodes (the adjacency, and two of the loss for links), five vectors for
    each of six layers, and ten of the length of the clusters.
    """
    held = 0
    for _ in range(levels):
        clusters = max(1, math.ceil(_SHARE * nodes))
        held += 3 * nodes**2 + nodes * (5 * 2 * _DEEP * hidden + 10 * clusters)
        nodes = clusters
    return held
