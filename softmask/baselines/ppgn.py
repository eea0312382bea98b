"""PPGN: provably powerful graph networks, on the matrices of all pairs of nodes."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList, ReLU, Sequential
from torch_geometric import EdgeIndex

from softmask.baselines.entry import Inputs
from softmask.nn.embed import mapped
from softmask.nn.readout import as_batch
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, neighbour_sum
from softmask.ops.largest_of import largest_of
from softmask.ops.pair_blocks import Blocks, num_places, one_block, put, split_nodes

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Vectors of each pair that a block keeps for its gradient, and those of a step that come and go beside them; measured.
_KEPT, _BESIDE = 6, 6


class Block(Module):
    r"""A block of `"Provably Powerful Graph Networks" <https://arxiv.org/abs/1905.11136>`_, equation (6):
    :math:`m_4 \big( \mathbf{X} \, \Vert \, m_1(\mathbf{X}) \cdot m_2(\mathbf{X}) \big)`, where the perceptrons work on
    every entry of the matrices by itself, and the product is one of matrices, channel by channel.

    What is linear in :math:`\mathbf{X}` comes first (:meth:`first`), so that the matrices of a graph's adjacency and
    features need not be formed to be mapped. The channels come before the matrices, so that neither the maps nor the
    products, nor their gradients, turn anything round.

    Shapes:
        - **z:** ``[3 * out_channels, graphs, nodes, nodes]``, of :meth:`first`
        - **real:** ``[graphs, nodes, nodes]``, 1 for pairs of nodes and 0 for padding
        - **output:** ``[out_channels, graphs, nodes, nodes]``, anything for padding
    """

    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()
        self.in_channels = in_channels
        self.m1, self.m2 = (
            Sequential(Linear(in_channels, out_channels), ReLU(), Linear(out_channels, out_channels), ReLU())
            for _ in range(2)
        )
        self.m4 = Linear(in_channels + out_channels, out_channels)

    def first(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the maps of X, side by side: the first of both perceptrons, and the part of m4."""
        lins = [_linear(self.m1, 0), _linear(self.m2, 0), self.m4]
        return torch.cat([lin.weight[:, : self.in_channels] for lin in lins]), torch.cat([lin.bias for lin in lins])

    def forward(self, z: Tensor, real: Tensor) -> Tensor:
        """"""  # noqa: D419
        z1, z2, z4 = z.chunk(3)
        # The biases must not fill the padding, over which the product sums; masked before the ReLU and not after it,
        # one tensor serves both gradients.
        a, b = (
            (map_channels(first.relu(), lin.weight, lin.bias) * real).relu()
            for first, lin in ((z1, _linear(self.m1, 2)), (z2, _linear(self.m2, 2)))
        )
        # A copy of the weight, whose rows begin at whole 16 bytes whatever the number of features.
        return z4 + map_channels(a @ b, self.m4.weight[:, self.in_channels :].contiguous())


class BlockStack(ModuleList):
    """Blocks, one after the other.

    Args:
        in_channels: number of channels of the matrices that the first block takes.
        hidden_channels: number of channels of all others.
        num_layers: number of blocks.

    Shapes:
        - **z:** ``[3 * hidden_channels, graphs, nodes, nodes]``, of :meth:`first`
        - **there:** ``[graphs, nodes]``, which are nodes and not padding
        - **output:** for each block ``[hidden_channels, graphs, nodes, nodes]``, anything for padding
    """

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int):
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1)]
        super().__init__(Block(size, hidden_channels) for size in sizes)
        self.hidden_channels = hidden_channels

    def first(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the first block's maps of X."""
        block = self[0]
        assert isinstance(block, Block)
        return block.first()

    def forward(self, z: Tensor, there: Tensor) -> list[Tensor]:
        """"""  # noqa: D419
        real = (there.unsqueeze(1) & there.unsqueeze(2)).to(z.dtype)
        hidden: list[Tensor] = []
        for block in self:
            assert isinstance(block, Block)
            hidden.append(block(map_channels(hidden[-1], *block.first()) if hidden else z, real))
        return hidden

    def numbers_held(self, pairs: int) -> int:
        """About how many numbers a step of training holds for so many pairs of places."""
        return pairs * self.hidden_channels * (_KEPT * len(self) + _BESIDE)


def map_channels(h: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear map of the channels, which come first."""
    h = (weight @ h.flatten(1)).unflatten(1, h.shape[1:])
    return h if bias is None else h + beside_matrices(bias)


def beside_matrices(values: Tensor) -> Tensor:
    """A number for each channel, beside matrices of graphs."""
    return values.reshape(-1, 1, 1, 1)


def on_diagonal(features: Tensor) -> Tensor:
    """Vectors of nodes, ``[graphs, nodes, channels]``, as matrices ``[channels, graphs, nodes, nodes]``."""
    return _loops(features) * features.movedim(-1, 0).unsqueeze(-1)


def read_out(h: Tensor, there: Tensor) -> Tensor:
    """The maxima over the diagonal and over the rest of matrices, ``[graphs, 2 * channels]``; zero where there is none.

    Args:
        h: ``[channels, graphs, nodes, nodes]``.
        there: ``[graphs, nodes]``, which are nodes and not padding.
    """
    rest = there.unsqueeze(1) & there.unsqueeze(2) & ~_loops(there)
    both = [_largest(h.diagonal(dim1=2, dim2=3), there), _largest(h.flatten(2), rest.flatten(1))]
    return torch.cat(both).mT


class PPGN(Module):
    r"""Provably powerful graph network: a graph is a tensor ``[nodes, nodes, channels]`` of its adjacency matrix and of
    its features on the diagonal; after every block the maxima over the diagonal and over the rest are read out and go
    through a linear map, and the results are added (the second of the two suffixes of its paper).

    Memory grows with the square of the nodes of a graph, and so does time, until the products, which take the cube,
    outweigh the perceptrons: from about six nodes a channel on.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: number of channels.
        num_layers: number of blocks.
        out_channels: number of classes or targets.

    Shapes:
        - as for :class:`softmask.nn.GAT`; with **pair_blocks** the nodes stand in blocks of graphs with equally many
          places (:data:`softmask.ops.pair_blocks.Blocks`), and without it all graphs are padded to the largest
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("outs",)

    def __init__(self, in_channels: int, hidden_channels: int, num_layers: int, out_channels: int):
        super().__init__()
        self.hidden_channels = hidden_channels
        self.blocks = BlockStack(in_channels + 1, hidden_channels, num_layers)
        self.outs = ModuleList(Linear(2 * hidden_channels, out_channels) for _ in self.blocks)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        pair_blocks: Blocks | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, graphs = as_batch(batch, batch_size, x)
        graph, at = as_segments(batch).graph, None
        if pair_blocks is None:
            pair_blocks, at = one_block(graph, graphs)
        weight, bias = self.blocks.first()
        real = graph >= 0
        adj = _adjacency(as_neighbours(edge_index, len(x)), at, pair_blocks, weight.dtype)
        features = mapped(x, weight[:, 1:])
        if at is not None:
            features, adj, real = (put(t, at, num_places(pair_blocks)) for t in (features, adj, real))
        scores = []
        for own, rows, there in zip(*(split_nodes(t, pair_blocks) for t in (features, adj, real))):
            # The rows are those of targets, the matrix is that of sources and targets. What follows has its strides.
            entry = rows[..., : rows.size(1)].mT.contiguous()
            z = entry * beside_matrices(weight[:, 0]) + beside_matrices(bias) + on_diagonal(own)
            scores.append(self._scores(self.blocks(z, there), there))
        return torch.cat(scores)

    def _scores(self, hidden: list[Tensor], there: Tensor) -> Tensor:
        """The outputs for graphs with equally many places, of their matrices after each block."""
        kind = next(self.outs.parameters()).dtype
        return torch.stack([out(read_out(h, there).to(kind)) for h, out in zip(hidden, self.outs)]).sum(dim=0)

    def numbers_held(self, pairs: int, graphs: int) -> int:
        """About how many numbers a step of training holds for a batch with so many pairs of places."""
        return self.blocks.numbers_held(pairs)


def _linear(m: Sequential, layer: int) -> Linear:
    lin = m[layer]
    assert isinstance(lin, Linear)
    return lin


def _adjacency(neighbours: Neighbours, at: Tensor | None, blocks: Blocks, dtype: torch.dtype) -> Tensor:
    """How often each node has each of its graph as a neighbour, ``[nodes, most places of a graph]``: a sum over
    neighbours of one-hot vectors, which say where in its graph a node stands.
    """
    wide = max(places for _, places in blocks)
    place = torch.arange(wide, device=neighbours.start.device)
    rank = torch.cat([place[:places].repeat(graphs) for graphs, places in blocks]) if at is None else at % wide
    return neighbour_sum((rank.unsqueeze(1) == place).to(dtype), neighbours)


def _loops(nodes: Tensor) -> Tensor:
    """Which pairs are a node and itself, of nodes ``[graphs, nodes, ...]``."""
    return torch.eye(nodes.size(1), dtype=torch.bool, device=nodes.device)


def _largest(h: Tensor, where: Tensor) -> Tensor:
    """The maximum over some entries of each graph, ``[channels, graphs]``; zero where there is none.

    Args:
        h: ``[channels, graphs, entries]``.
        where: ``[graphs, entries]``, which of them.
    """
    most = largest_of(h.masked_fill(~where, -torch.inf), dim=-1)
    return torch.where(where.any(dim=-1), most, 0)


def build_ppgn(inputs: Inputs, settings: "Settings") -> PPGN:
    """PPGN; graphs that are too large for the memory are refused when it trains."""
    return PPGN(inputs.channels, settings.hidden, settings.layers, inputs.outputs)
