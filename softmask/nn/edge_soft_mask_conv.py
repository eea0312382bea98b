"""The soft-mask layer of the paper's regression: edges carry features."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.resolver import activation_resolver

from softmask.ops.edge_table import EdgeTable, as_edge_table, from_sources
from softmask.ops.mixed_sum import mixed_sum


class EdgeSoftMaskConv(torch.nn.Module):
    r"""The soft-mask layer with edge features, with which `"Soft-mask: Adaptive Substructure Extractions for Graph
    Neural Networks" <https://doi.org/10.1145/3442381.3449929>`_ predicts properties of molecules,

    .. math::
        \mathbf{h}^{\prime}_v = \mathrm{ELU} \Big( m_v \odot \big( \mathbf{W}_{\mathrm{root}} \mathbf{h}_v +
        \sum_{u \in \mathcal{N}(v)} \boldsymbol{\Theta}(\mathbf{e}_{uv}) \, (m_u \odot \mathbf{h}_u) \big) \Big)

    where a perceptron makes the matrix of an edge from its features, :math:`\boldsymbol{\Theta}(\mathbf{e}) = \sum_c
    a_c \boldsymbol{\Theta}_c + \boldsymbol{\Theta}_0` with :math:`\mathbf{a} = \mathrm{ReLU}(\mathbf{A} \mathbf{e} +
    \mathbf{b})`. The matrix of an edge is never formed: the sum over neighbours goes inside, :math:`\sum_c
    \boldsymbol{\Theta}_c \sum_u a_c (m_u \odot \mathbf{h}_u)`, one product for all edges of a node.

    A node whose mask is 0 becomes zero and is invisible to its neighbours, as in :class:`SoftMaskConv`.

    Args:
        in_channels: size of each input vector.
        out_channels: size of each output vector.
        edge_channels: number of edge features.
        edge_hidden: width of the perceptron.
        act: the activation, by PyG's name or as a callable; it must map 0 to 0.

    Shapes:
        - **x:** ``[nodes, in_channels]``
        - **edge_index:** ``[2, edges]``, every edge both ways, with ``edge_attr`` ``[edges, edge_channels]``; or an
          :class:`~softmask.ops.edge_table.EdgeTable`
        - **mask:** ``[nodes, 1]`` or, where in_channels equals out_channels, ``[nodes, in_channels]``
        - **output:** ``[nodes, out_channels]``
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        edge_channels: int,
        edge_hidden: int = 128,
        act: str | Callable[[Tensor], Tensor] = "elu",
    ):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.edge_channels = edge_channels
        self.edge_hidden = edge_hidden
        self.lin_root = Linear(in_channels, out_channels, bias=False)
        # As PyG's NNConv has it: the perceptron's second map gives in_channels x out_channels numbers an edge.
        first, second = Linear(edge_channels, edge_hidden), Linear(edge_hidden, in_channels * out_channels)
        self.nn = torch.nn.Sequential(first, torch.nn.ReLU(), second)
        self.act = activation_resolver(act)
        if self.act(torch.zeros(1, device="cpu")).item() != 0:
            raise ValueError(f"act={act!r} does not map 0 to 0, so a masked node would not vanish")

    def reset_parameters(self) -> None:
        """Draws all weights anew, uniform in ±1/sqrt(fan_in)."""
        for module in (self.lin_root, *self.nn):
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Tensor | EdgeTable, mask: Tensor, edge_attr: Tensor | None = None
    ) -> Tensor:
        """"""  # noqa: D419
        if mask.size(-1) != 1 and x.size(1) != self.out_channels:
            raise ValueError(
                f"a mask per channel needs in_channels equal to out_channels, got {x.size(1)} and {self.out_channels}"
            )
        if not isinstance(edge_index, EdgeTable):
            if edge_attr is None:
                raise ValueError("edge_attr is missing")
            edge_index = as_edge_table(edge_index, edge_attr, x.size(0))
        seen = from_sources(mask * x, edge_index)
        weight = self.nn[:2](edge_index.attr.to(x.dtype))
        _, _, weights, bias = self.nn.parameters()
        # Laid out once, for the values and for the gradients.
        matrices = weights.t().contiguous().reshape(self.edge_hidden, self.in_channels, self.out_channels)
        constant = bias.reshape(self.in_channels, self.out_channels)
        around = mixed_sum(weight, seen, matrices) + seen.sum(dim=1) @ constant
        return self.act(mask * (self.lin_root(x) + around))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}, edge_channels={self.edge_channels})"
