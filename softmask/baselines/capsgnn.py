"""CapsGNN: capsules of nodes, graphs and classes, with dynamic routing between them, on our operators."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, ModuleList, Parameter, ReLU, Sequential, Sigmoid, Tanh
from torch_geometric import EdgeIndex

from softmask.baselines.entry import Inputs
from softmask.nn import KeyedDropout
from softmask.nn.readout import as_batch
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments, graph_max, graph_sum, neighbour_sum
from softmask.ops.blocks import Blocks, as_blocks, num_blocks
from softmask.ops.graph_sum import graph_rows
from softmask.ops.largest_of import largest_of

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Of the authors' code, the same for all sets: channels of a layer, graph capsules, rounds of routing, how much narrower
# the hidden layer of the attention is than its input, hidden units of the decoder, its loss's weight, and the margins.
_CHANNELS, _CAPSULES, _ROUNDS, _NARROWER, _DECODER, _SHARE = 2, 16, 3, 16, 128, 0.1
_PRESENT, _ABSENT, _DOWN = 0.9, 0.1, 0.5
_TINY = 1e-11
# Of the nodes in blocks.
_ROWS = 16


def squash(s: Tensor) -> tuple[Tensor, Tensor]:
    r"""A capsule :math:`\frac{\lVert s \rVert^2}{1 + \lVert s \rVert^2} \frac{s}{\lVert s \rVert}`, and its length."""
    square = s.square().sum(dim=-1, keepdim=True)
    length = square / (1 + square)
    return length / (square + _TINY).sqrt() * s, length.squeeze(-1)


class Routing(Module):
    r"""Capsules one level up, by dynamic routing. Each capsule :math:`i` of a node :math:`v` votes for each capsule
    :math:`j` above by :math:`\mathbf{u}_{vij} = \mathbf{x}_{vi} \mathbf{W}_{ij}`, and

    .. math::
        \mathbf{h}_j = \mathrm{squash} \Big( \frac{1}{n} \sum_{v, i} c_{vij} \mathbf{u}_{vij} \Big), \qquad
        c_{vij} = \mathrm{softmax}_j(b_{vij}),

    where :math:`b` starts at 0 and :math:`\mathbf{u}_{vij} \cdot \mathbf{h}_j` is added to it in every round. What is
    routed where is no part of the gradient.

    The votes are never held: the inputs are summed before they are mapped, and it is the capsules above that are mapped
    down to be compared with them.

    Args:
        in_capsules: capsules a node.
        out_capsules: capsules above.
        channels: size of all capsules.
    """

    def __init__(self, in_capsules: int, out_capsules: int, channels: int):
        super().__init__()
        self.weight = Parameter(torch.empty(in_capsules, out_capsules, channels, channels))
        # As TensorFlow's Xavier has it, for which all but the last two sizes are those of a receptive field.
        end = (3 / (in_capsules * out_capsules * channels)) ** 0.5
        torch.nn.init.uniform_(self.weight, -end, end)

    def forward(self, x: Tensor, nodes: Tensor, blocks: Blocks | None = None) -> tuple[Tensor, Tensor]:
        """Capsules ``[graphs, above, channels]`` and their lengths.

        Args:
            x: ``[blocks, rows, capsules, channels]``, zero where there is no node.
            nodes: ``[graphs, 1]``, by how many nodes the sum is divided.
            blocks: the graph of each block; ``None`` if they are the graphs.
        """
        # Laid out once for the products of all rounds.
        x, many = x.transpose(1, 2).contiguous(), self.weight.size(1)
        with torch.no_grad():
            # While b is 0, all capsules above have an equal share of each.
            b = self._agreement(x, (x.sum(dim=2, keepdim=True) / many).expand(-1, -1, many, -1), nodes, blocks)
            for _ in range(_ROUNDS - 2):
                b = b + self._agreement(x, _routed(x, b), nodes, blocks)
        return self._above(_routed(x, b), nodes, blocks)

    def _agreement(self, x: Tensor, sums: Tensor, nodes: Tensor, blocks: Blocks | None) -> Tensor:
        """What is added to b: how much each vote is like the capsule above."""
        above, _ = self._above(sums, nodes, blocks)
        below = torch.einsum("ijde,gje->gidj", self.weight, above)
        return x @ (below if blocks is None else blocks.of_graph(below))

    def _above(self, sums: Tensor, nodes: Tensor, blocks: Blocks | None) -> tuple[Tensor, Tensor]:
        """The capsules above, from what is sent to them from each block."""
        if blocks is not None:
            sums = blocks.sum(sums, nodes.size(0))
        s = torch.einsum("gijd,ijde->gje", sums, self.weight)
        return squash(s / nodes.unsqueeze(-1))


def _routed(x: Tensor, b: Tensor) -> Tensor:
    """The rows of each block, summed into what is sent to each capsule above."""
    return b.softmax(dim=-1).transpose(2, 3) @ x


class CapsGNN(Module):
    r"""Capsule graph neural network (`"Capsule Graph Neural Network" <https://openreview.net/forum?id=Byl8BnRcYm>`_).

    Labels, degrees and a constant are embedded, each as a channel of its own. Layers :math:`\tanh(\tilde{\mathbf{
    D}}^{-1/2} \tilde{\mathbf{A}} \tilde{\mathbf{D}}^{-1/2} (\mathbf{X W} + \mathbf{b}))` give every node two capsules
    each. These are scaled by an attention over the nodes, a softmax for each capsule times the number of nodes, and
    routed (:class:`Routing`) to the capsules of the graph, and those to one capsule a class, whose length is the
    output.

    It brings its own loss, that of margins (:meth:`loss_per_graph`). In training it also gives the loss of a decoder,
    which finds the counts of labels and degrees from the capsule of the true class.

    Args:
        parts: sizes of the parts of the input vectors that are embedded by themselves.
        hidden_channels: size of all capsules.
        num_layers: number of layers.
        out_channels: number of classes.
        counted: how many entries of the input vectors, the first, are one-hot, so that a sum over nodes counts them.
        max_degree: the largest degree, of which a table of embeddings is made; ``None`` if the input has degrees.
        dropout: how often, in training, a node's channel of the input is dropped.

    Shapes:
        - **x:** ``[nodes, channels]`` floating point, the parts side by side; or integer tokens, as for
          :class:`softmask.nn.SoftMaskGNN`
        - **batch:** ``[nodes]``, the graph of each node; the nodes of a graph stand side by side, and padding, whose
          graph is -1, behind them; ``None`` for a single graph
        - **y:** ``[graphs]``, the classes, in training
        - **output:** ``[graphs, out_channels]``, and in training the loss of the decoder, in the mean over all graphs
          with nodes
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("attention", "to_graph", "to_classes", "decoder")
    # torch 2.11's compiler for CUDA makes NaN of its first loss, in float32 too; as it is, it is right.
    compiles = False

    def __init__(
        self,
        parts: Sequence[int],
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        counted: int,
        max_degree: int | None = None,
        dropout: float = 0.3,
    ):
        super().__init__()
        d, capsules = hidden_channels, num_layers * _CHANNELS
        self.parts, self.counted, self.max_degree = tuple(parts), counted, max_degree
        self.hidden_channels = hidden_channels
        self.dropout = KeyedDropout(dropout)
        degrees = 0 if max_degree is None else max_degree + 1
        tables = [*self.parts, *([degrees] if degrees else []), 1]
        self.tables = torch.nn.ParameterList(Parameter(0.1 * torch.randn(size, d)) for size in tables)
        wide = [len(tables) * d, *[_CHANNELS * d] * (num_layers - 1)]
        self.lins = ModuleList(_linear(size, _CHANNELS * d) for size in wide)
        narrow = max(1, capsules * d // _NARROWER)
        self.attention = Sequential(_linear(capsules * d, narrow), Tanh(), _linear(narrow, capsules))
        self.to_graph, self.to_classes = Routing(capsules, _CAPSULES, d), Routing(_CAPSULES, out_channels, d)
        # Without anything to count there is nothing to decode.
        self.decoder = (
            Sequential(_linear(d, _DECODER), ReLU(), _linear(_DECODER, counted + degrees), Sigmoid())
            if counted + degrees
            else None
        )

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | EdgeIndex | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        y: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """"""  # noqa: D419
        batch, graphs = as_batch(batch, batch_size, x)
        neighbours = as_neighbours(edge_index, x.size(0))
        real = (as_segments(batch).graph >= 0).unsqueeze(-1)
        # Degrees, scores and routing are in float32 or more: half precision counts to 256.
        one = real.to(self.to_graph.weight.dtype)
        degree, nodes = neighbour_sum(one, neighbours), graph_sum(one, batch, graphs)
        x = self._input(x, degree)
        given = self._embed(x)
        h = self.dropout(given.new_ones(*given.shape[:2], 1)) * given
        capsules = self._nodes(h.flatten(1), neighbours, degree).to(one.dtype)
        scale = self._attended(capsules, batch, nodes, real)
        capsules = capsules.unflatten(1, (scale.size(1), -1)) * scale.unsqueeze(-1)
        blocks = as_blocks(batch, graphs, _ROWS)
        rows = blocks.gather(capsules.flatten(1)).unflatten(2, capsules.shape[1:])
        of_graph, _ = self.to_graph(rows, nodes.clamp(min=1), blocks)
        of_class, length = self.to_classes(of_graph.unsqueeze(1), torch.ones_like(nodes))
        if y is None or not self.training or self.decoder is None:
            return length
        classes = torch.arange(length.size(1), device=y.device)
        capsule = torch.where((y.unsqueeze(1) == classes).unsqueeze(-1), of_class, 0).sum(dim=1)
        far = missed(self.decoder(capsule), self.counts(x, batch, graphs))
        there = nodes.squeeze(1) > 0
        return length, _SHARE * torch.where(there, far, 0).sum() / there.sum().clamp(min=1)

    def loss_per_graph(self, out: Tensor, y: Tensor) -> Tensor:
        r"""The loss of margins :math:`\max(0, 0.9 - a_y)^2 + 0.5 \sum_{k \neq y} \max(0, a_k - 0.1)^2` of the lengths
        of the class capsules, for each graph.
        """
        true = F.one_hot(y, out.size(1)).to(out.dtype)
        present, absent = (_PRESENT - out).relu().square(), (out - _ABSENT).relu().square()
        return (true * present + _DOWN * (1 - true) * absent).sum(dim=1)

    def counts(self, x: Tensor, batch: Tensor | Segments, graphs: int) -> Tensor:
        """How many nodes of each graph have each label and each degree, ``[graphs, labels and degrees]``.

        Args:
            x: the parts of all nodes, the degree among them.
            batch: the graph of each node.
            graphs: how many there are.
        """
        return graph_sum(torch.cat([x[:, : self.counted], x[:, sum(self.parts) :]], dim=1), batch, graphs)

    def _input(self, x: Tensor, degree: Tensor) -> Tensor:
        """The parts of all nodes as vectors side by side, and then their degrees, unless these are among them."""
        if not x.is_floating_point():
            x = (x.reshape(x.size(0), -1, 1) == torch.arange(sum(self.parts), device=x.device)).sum(dim=1)
        x = x.to(self.tables[-1].dtype)
        if self.max_degree is None:
            return x
        hot = degree.clamp(max=self.max_degree) == torch.arange(self.max_degree + 1, device=x.device)
        return torch.cat([x, hot.to(x.dtype)], dim=1)

    def _embed(self, x: Tensor) -> Tensor:
        """``[nodes, channels, size]``"""
        *tables, constant = self.tables
        channels = [part @ table for part, table in zip(x.split([len(t) for t in tables], dim=1), tables)]
        return torch.stack([*channels, constant.expand(x.size(0), -1)], dim=1)

    def _nodes(self, h: Tensor, neighbours: Neighbours, degree: Tensor) -> Tensor:
        """The capsules of all layers side by side, ``[nodes, capsules * size]``."""
        root = (1 + degree).rsqrt().to(h.dtype)
        layers = []
        for lin in self.lins:
            u = lin(h) * root
            h = ((u + neighbour_sum(u, neighbours)) * root).tanh()
            layers.append(h)
        return torch.cat(layers, dim=1)

    def _attended(self, capsules: Tensor, batch: Tensor | Segments, nodes: Tensor, real: Tensor) -> Tensor:
        """The attention of every node's capsules, a softmax over the nodes of its graph times their number,
        ``[nodes, capsules]``; zero for padding.
        """
        scores = torch.where(real, self.attention(capsules), 0)
        most = graph_max(scores.detach(), batch, nodes.size(0))
        e = torch.where(real, (scores - graph_rows(most, batch)).exp(), 0)
        total = graph_sum(e, batch, nodes.size(0))
        # A graph without nodes has no attention.
        return e * graph_rows(nodes / torch.where(nodes > 0, total, 1), batch)

    def numbers_held(self, nodes: int, graphs: int) -> int:
        """About how many float32 numbers a step of training holds for a batch.

        Of each capsule of a node three copies are kept, and five numbers of the attention; and while it is found where
        they are routed, there are three tables of the capsules above.
        """
        rows, d = num_blocks(nodes, graphs, _ROWS) * _ROWS, self.hidden_channels
        held = nodes * (3 * d + 5) + 3 * rows * _CAPSULES + 2 * graphs * _CAPSULES * d
        return len(self.lins) * _CHANNELS * held


def missed(decoded: Tensor, counts: Tensor) -> Tensor:
    """How far decoded counts are from the true ones over the largest, for each graph: the largest square among what
    occurs in the graph, and the largest among what does not.
    """
    occurs = counts > 0
    square = (decoded - counts / counts.amax(dim=1, keepdim=True).clamp(min=1)).square()
    return largest_of(square * occurs, dim=1) + largest_of(square * ~occurs, dim=1)


def _linear(in_channels: int, out_channels: int) -> Linear:
    """With the first weights of TensorFlow's layers: Xavier's, and no bias."""
    lin = Linear(in_channels, out_channels)
    torch.nn.init.xavier_uniform_(lin.weight)
    torch.nn.init.zeros_(lin.bias)
    return lin


def build_capsgnn(inputs: Inputs, settings: "Settings") -> CapsGNN:
    """CapsGNN for the features of the set: a channel for each kind of label, for the degree, and for the attributes."""
    features = inputs.features
    parts, counted, max_degree = [inputs.channels], inputs.channels, inputs.degree
    if features is not None:
        labels = [features.num_tokens] if features.kind == "degree" else [len(v) for v in features.values]
        parts, counted = [*labels, *([len(features.mean)] if features.mean else [])], features.num_tokens
    return CapsGNN(
        *(parts, settings.hidden, settings.layers, inputs.outputs, counted),
        max_degree=None if features is not None and features.kind == "degree" else max_degree,
        dropout=settings.dropout,
    )
