"""CapsGNN: capsules of nodes, graphs and classes, with dynamic routing between them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Linear, Module, ModuleList, Parameter, ReLU, Sequential, Sigmoid, Tanh
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import degree, scatter, to_dense_batch

from softmask.baselines.dense import check_memory
from softmask.baselines.entry import Inputs

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Of the authors' code, the same for all sets: channels of a layer, graph capsules, rounds of routing, how much narrower
# the hidden layer of the attention is than its input, hidden units of the decoder, its loss's weight, and the margins.
_CHANNELS, _CAPSULES, _ROUNDS, _NARROWER, _DECODER, _SHARE = 2, 16, 3, 16, 128, 0.1
_PRESENT, _ABSENT, _DOWN = 0.9, 0.1, 0.5
_TINY = 1e-11


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

    def forward(self, x: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Capsules ``[graphs, above, channels]`` and their lengths.

        Args:
            x: ``[graphs, nodes, capsules, channels]``, zero where a graph has no node.
            nodes: ``[graphs]``, by how many nodes the sum is divided.
        """
        x = x.transpose(1, 2)
        with torch.no_grad():
            b = x.new_zeros(*x.shape[:3], self.weight.size(1))
            c = b + 1 / b.size(-1)
            for _ in range(_ROUNDS - 1):
                above, _ = self._above(x, c, nodes)
                b += x @ torch.einsum("ijde,gje->gidj", self.weight, above)
                c = b.softmax(dim=-1)
        return self._above(x, c, nodes)

    def _above(self, x: Tensor, c: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        s = torch.einsum("gijd,ijde->gje", c.transpose(2, 3) @ x, self.weight)
        return squash(s / nodes.view(-1, 1, 1))


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
    """

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
        self.parts, self.counted, self.max_degree, self.dropout = tuple(parts), counted, max_degree, dropout
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
        self, x: Tensor, edge_index: Tensor, batch: Tensor, batch_size: int | None = None, y: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """"""  # noqa: D419
        graphs = batch_size if batch_size is not None else int(batch.max()) + 1 if batch.numel() else 0
        degrees = degree(edge_index[1], x.size(0), dtype=torch.long)
        given = self._embed(x, degrees)
        h = F.dropout(given.new_ones(*given.shape[:2], 1), self.dropout, self.training) * given
        capsules, real = to_dense_batch(self._nodes(h.flatten(1), edge_index), batch, batch_size=graphs)
        nodes = real.sum(dim=1).clamp(min=1)
        scores = self.attention(capsules).masked_fill(~real.unsqueeze(-1), torch.finfo(h.dtype).min)
        scale = scores.softmax(dim=1) * nodes.view(-1, 1, 1)
        capsules = capsules.unflatten(2, (scale.size(2), -1)) * scale.unsqueeze(-1)
        of_graph, _ = self.to_graph(capsules, nodes)
        of_class, length = self.to_classes(of_graph.unsqueeze(1), torch.ones_like(nodes))
        if y is None or not self.training or self.decoder is None:
            return length
        decoded = self.decoder(of_class[torch.arange(graphs, device=y.device), y])
        return length, _SHARE * missed(decoded, self.counts(x, degrees, batch, graphs)).mean()

    def loss_per_graph(self, out: Tensor, y: Tensor) -> Tensor:
        r"""The loss of margins :math:`\max(0, 0.9 - a_y)^2 + 0.5 \sum_{k \neq y} \max(0, a_k - 0.1)^2` of the lengths
        of the class capsules, for each graph.
        """
        true = F.one_hot(y, out.size(1)).to(out.dtype)
        present, absent = (_PRESENT - out).relu().square(), (out - _ABSENT).relu().square()
        return (true * present + _DOWN * (1 - true) * absent).sum(dim=1)

    def counts(self, x: Tensor, degrees: Tensor, batch: Tensor, graphs: int) -> Tensor:
        """How many nodes of each graph have each label and each degree, ``[graphs, labels and degrees]``."""
        found = scatter(x[:, : self.counted], batch, dim=0, dim_size=graphs)
        if self.max_degree is None:
            return found
        hot = F.one_hot(degrees.clamp(max=self.max_degree), self.max_degree + 1).to(x.dtype)
        return torch.cat([found, scatter(hot, batch, dim=0, dim_size=graphs)], dim=1)

    def _embed(self, x: Tensor, degrees: Tensor) -> Tensor:
        """``[nodes, channels, size]``"""
        channels = [part @ table for part, table in zip(x.split(self.parts, dim=1), self.tables)]
        if self.max_degree is not None:
            channels.append(self.tables[-2][degrees.clamp(max=self.max_degree)])
        return torch.stack([*channels, self.tables[-1].expand(x.size(0), -1)], dim=1)

    def _nodes(self, h: Tensor, edge_index: Tensor) -> Tensor:
        """The capsules of all layers side by side, ``[nodes, capsules * size]``."""
        (source, target), weight = gcn_norm(edge_index, num_nodes=h.size(0), dtype=h.dtype)
        layers = []
        for lin in self.lins:
            h = scatter(weight.unsqueeze(-1) * lin(h)[source], target, dim=0, dim_size=h.size(0)).tanh()
            layers.append(h)
        return torch.cat(layers, dim=1)


def missed(decoded: Tensor, counts: Tensor) -> Tensor:
    """How far decoded counts are from the true ones over the largest, for each graph: the largest square among what
    occurs in the graph, and the largest among what does not.
    """
    occurs = counts > 0
    square = (decoded - counts / counts.amax(dim=1, keepdim=True).clamp(min=1)).square()
    return (square * occurs).amax(dim=1) + (square * ~occurs).amax(dim=1)


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
    held = numbers_held(int(inputs.sizes.max(initial=1)), settings.hidden, settings.layers)
    check_memory("CapsGNN", held, inputs, settings, why="it pads the graphs of a batch to the largest")
    return CapsGNN(
        *(parts, settings.hidden, settings.layers, inputs.outputs, counted),
        max_degree=None if features is not None and features.kind == "degree" else max_degree,
        dropout=settings.dropout,
    )


def numbers_held(nodes: int, hidden: int, layers: int) -> int:
    """About how many numbers a step of training holds for a graph of so many nodes.

    A node has `layers` times two capsules. Of each of them three copies are kept, and two numbers of the attention; and
    while it is found where they are routed, there are three tables of the 16 capsules above.
    """
    return nodes * layers * _CHANNELS * (3 * hidden + 2 + 3 * _CAPSULES)
