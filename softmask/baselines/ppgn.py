"""PPGN: provably powerful graph networks, on dense matrices."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric.utils import to_dense_adj, to_dense_batch

from softmask.baselines.dense import check_memory
from softmask.baselines.entry import Inputs

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Matrices a channel and block that a step holds, counted in the code below and in what autograd keeps.
_HELD = 10


class Block(Module):
    r"""A block of `"Provably Powerful Graph Networks" <https://arxiv.org/abs/1905.11136>`_, equation (6):
    :math:`m_4 \big( \mathbf{X} \, \Vert \, m_1(\mathbf{X}) \cdot m_2(\mathbf{X}) \big)`, where the perceptrons work on
    every entry of the matrices by itself, and the product is one of matrices, channel by channel.
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.m1, self.m2 = (
            Sequential(Linear(in_channels, out_channels), ReLU(), Linear(out_channels, out_channels), ReLU())
            for _ in range(2)
        )
        self.m4 = Linear(in_channels + out_channels, out_channels)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        """"""  # noqa: D419
        # The biases must not fill the padding, over which the product sums.
        a, b = ((m(x) * real).movedim(-1, 1) for m in (self.m1, self.m2))
        return self.m4(torch.cat([x, (a @ b).movedim(1, -1)], dim=-1)) * real


class PPGN(Module):
    r"""Provably powerful graph network: a graph is a tensor ``[nodes, nodes, channels]`` of its adjacency matrix and of
    its features on the diagonal; after every block the maxima over the diagonal and over the rest are read out and go
    through a linear map, and the results are added (the second of the two suffixes of its paper).

    Time grows with the cube and memory with the square of the largest graph of a batch.

    Args:
        in_channels: number of node features.
        hidden_channels: number of channels.
        num_layers: number of blocks.
        out_channels: number of classes or targets.
    """

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int):
        super().__init__()
        sizes = [in_channels + 1, *[hidden_channels] * (num_layers - 1)]
        self.blocks = ModuleList(Block(size, hidden_channels) for size in sizes)
        self.outs = ModuleList(Linear(2 * hidden_channels, out_channels) for _ in sizes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None) -> Tensor:
        """"""  # noqa: D419
        adj = to_dense_adj(edge_index, batch, batch_size=batch_size).to(x.dtype)
        features, there = to_dense_batch(x, batch, batch_size=batch_size, max_num_nodes=adj.size(1))
        h = torch.cat([adj.unsqueeze(-1), torch.diag_embed(features.movedim(-1, 1)).movedim(1, -1)], dim=-1)
        pairs = there.unsqueeze(1) & there.unsqueeze(2)
        loops = torch.eye(adj.size(1), dtype=torch.bool, device=x.device)
        real = pairs.unsqueeze(-1).to(x.dtype)
        score: Tensor | float = 0.0
        for block, out in zip(self.blocks, self.outs):
            h = block(h, real)
            score = score + out(torch.cat([_largest(h, pairs & loops), _largest(h, pairs & ~loops)], dim=-1))
        assert isinstance(score, Tensor)
        return score


def _largest(h: Tensor, where: Tensor) -> Tensor:
    """The maximum over the pairs of each graph, ``[graphs, channels]``; zero where there is none."""
    if h.size(1) == 0:  # graphs without nodes alone
        return h.new_zeros(h.size(0), h.size(-1))
    most = h.masked_fill(~where.unsqueeze(-1), -torch.inf).flatten(1, 2).amax(dim=1)
    return torch.where(where.flatten(1).any(dim=1, keepdim=True), most, 0)


def build_ppgn(inputs: Inputs, settings: "Settings") -> PPGN:
    """PPGN, unless the largest graphs make it take more memory than there is."""
    largest = int(inputs.sizes.max(initial=1))
    held = largest**2 * (2 * inputs.channels + _HELD * settings.layers * settings.hidden)
    check_memory("PPGNN", held, inputs, settings)
    return PPGN(inputs.channels, settings.hidden, settings.layers, inputs.outputs)
