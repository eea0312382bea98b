"""The network that computes the masks (the paper's GNN-w), equation (4)."""

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.joint import joint_linear
from softmask.ops import Neighbours, neighbour_sum
from softmask.ops.levels import LayerRounds, both_sums, own


class MaskNet(torch.nn.Module):
    r"""Computes a mask in (0, 1) for every node (GNN-w of `"Soft-mask: Adaptive Substructure Extractions for Graph
    Neural Networks" <https://doi.org/10.1145/3442381.3449929>`_, equation (4)),

    .. math::
        m^{\prime}_v = \sigma \left( \mathrm{MLP} \left( \mathrm{ReLU} \left[ L_1(m_v \odot \mathbf{h}_v) \, \Vert
        \sum_{u \in \mathcal{N}(v)} L_2(m_u \odot \mathbf{h}_u) \right] \right) \right)

    :math:`L_1` and :math:`L_2` are affine, so the bias of :math:`L_2` counts once per neighbour. All biases are
    needed: without them a node whose inputs vanish would be stuck at the mask 0.5.

    Args:
        in_channels: size of each input vector, or ``-1`` to take it from the first input.
        hidden_channels: size of the outputs of :math:`L_1` and :math:`L_2` and of the perceptron's hidden layer.
        out_channels: 1 for one mask per node, or one per channel (equation (6)).

    Shapes:
        - **x:** ``[nodes, in_channels]``
        - **edge_index:** as for :class:`SoftMaskConv`
        - **mask:** the mask of the layer before, ``[nodes, 1]`` or ``[nodes, in_channels]``; ``None`` for layer 1
        - **output:** ``[nodes, out_channels]``
    """

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int = 1):
        super().__init__()
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.out_channels = out_channels
        self.lin_root = Linear(in_channels, hidden_channels)
        self.lin_rel = Linear(in_channels, hidden_channels)
        self.mlp = torch.nn.Sequential(
            Linear(2 * hidden_channels, hidden_channels),
            torch.nn.ReLU(),
            Linear(hidden_channels, out_channels),
        )

    def reset_parameters(self) -> None:
        """Draws all weights and biases anew, uniform in ±1/sqrt(fan_in)."""
        for module in (self.lin_root, self.lin_rel, *self.mlp):
            if isinstance(module, Linear):
                module.reset_parameters()

    def forward(
        self, x: Tensor, edge_index: Tensor | EdgeIndex | Neighbours | LayerRounds, mask: Tensor | None = None
    ) -> Tensor:
        """"""  # noqa: D419
        neighbours, _ = both_sums(edge_index, x.size(0))
        z = x if mask is None else mask * x
        root, rel = joint_linear(z, self.lin_root, self.lin_rel)
        seen = torch.cat([own(root, neighbours), neighbour_sum(rel, neighbours)], dim=-1)
        hidden = self.mlp[1](self.mlp[0](seen.relu()))
        return torch.sigmoid(_project(hidden, self.mlp[2]))

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, out_channels={self.out_channels})"
        )


def _project(x: Tensor, lin: torch.nn.Module) -> Tensor:
    if not isinstance(lin, Linear) or lin.out_channels > 1:
        return lin(x)
    # A product with one column is a weighted sum, which a compiler fuses with what stands before and after it.
    return (x * lin.weight[0]).sum(dim=-1, keepdim=True) + lin.bias
