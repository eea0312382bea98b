"""The soft-mask layer, equations (3) and (6)."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.nn.dense.linear import Linear
from torch_geometric.nn.resolver import activation_resolver

from softmask.nn.joint import joint_linear
from softmask.ops import Neighbours, neighbour_sum
from softmask.ops.levels import LayerRounds, Round, both_sums, own

# Keeps a zero vector zero under the norm.
_EPS = 1e-6


class SoftMaskConv(torch.nn.Module):
    r"""The soft-mask layer of `"Soft-mask: Adaptive Substructure Extractions for Graph Neural Networks"
    <https://doi.org/10.1145/3442381.3449929>`_, equation (3), and with a mask per channel equation (6),

    .. math::
        \mathbf{h}^{\prime}_v = \mathrm{ReLU} \left( m_v \odot \mathbf{W} \left[ \mathbf{h}_v \, \Vert
        \sum_{u \in \mathcal{N}(v)} m_u \odot \mathbf{h}_u \right] \right)

    A node whose mask is 0 becomes zero and is invisible to its neighbours. This rests on three things: no bias, an
    activation with :math:`\sigma(0) = 0`, and the SUM over neighbours. Self loops are not counted.

    With ``norm``, which the paper does not have, the vector :math:`\mathbf{z}_v` that the ReLU takes is replaced by
    :math:`m_v \odot \mathbf{s} \odot \mathbf{z}_v / \mathrm{rms}(\mathbf{z}_v)` with a learned scale
    :math:`\mathbf{s}`. There is no shift and the mask stands before it once more, so zero stays zero.

    Args:
        in_channels: size of each input vector, or ``-1`` to take it from the first input.
        out_channels: size of each output vector.
        act: the activation, by PyG's name or as a callable; it must map 0 to 0.
        norm: divide every node's vector by its root mean square.

    Shapes:
        - **x:** ``[nodes, in_channels]``
        - **edge_index:** ``[2, edges]``, ``EdgeIndex``, sparse ``[nodes, nodes]`` or :class:`~softmask.ops.Neighbours`
        - **mask:** ``[nodes, 1]`` or, where in_channels equals out_channels, ``[nodes, in_channels]``
        - **output:** ``[nodes, out_channels]``
    """

    def __init__(
        self, in_channels: int, out_channels: int, act: str | Callable[[Tensor], Tensor] = "relu", norm: bool = False
    ):
        super().__init__()
        self.out_channels = out_channels
        # W [a || b] = W_root a + W_rel b: the two halves of the paper's matrix.
        self.lin_root = Linear(in_channels, out_channels, bias=False)
        self.lin_rel = Linear(in_channels, out_channels, bias=False)
        self.scale: Tensor | None
        self.register_parameter("scale", torch.nn.Parameter(torch.ones(out_channels)) if norm else None)
        self.act = activation_resolver(act)
        if self.act(torch.zeros(1, device="cpu")).item() != 0:
            raise ValueError(f"act={act!r} does not map 0 to 0, so a masked node would not vanish")

    @property
    def in_channels(self) -> int:
        """Size of each input vector; -1 while it is not known."""
        return self.lin_root.in_channels

    def reset_parameters(self) -> None:
        """Draws all weights anew, uniform in ±1/sqrt(fan_in)."""
        self.lin_root.reset_parameters()
        self.lin_rel.reset_parameters()
        if self.scale is not None:
            torch.nn.init.ones_(self.scale)

    def forward(self, x: Tensor, edge_index: Tensor | EdgeIndex | Neighbours | LayerRounds, mask: Tensor) -> Tensor:
        """"""  # noqa: D419
        if mask.size(-1) != 1 and x.size(1) != self.out_channels:
            raise ValueError(
                f"a mask per channel needs in_channels equal to out_channels, got {x.size(1)} and {self.out_channels}"
            )
        # The masks have seen the neighbours once already; with levels, that tells apart more nodes than x does.
        seen, neighbours = both_sums(edge_index, x.size(0))
        if mask.size(-1) == 1:
            # One number a node goes through W_rel as the sum does, so both halves of W can be one product.
            root, rel = joint_linear(x, self.lin_root, self.lin_rel)
            around = neighbour_sum(own(rel, seen), neighbours, mask)
        elif isinstance(neighbours, Round):
            # A sum has more rows than what is summed, so W_rel comes first.
            root, around = self.lin_root(x), neighbour_sum(self.lin_rel(mask * own(x, seen)), neighbours)
        else:
            root, around = self.lin_root(x), self.lin_rel(neighbour_sum(x, neighbours, mask))
        mask = own(mask, neighbours)
        z = mask * (own(own(root, seen), neighbours) + around)
        if self.scale is not None:
            wide = z if z.dtype == torch.float64 else z.float()
            z = mask * self.scale * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + _EPS)).to(z.dtype)
        return self.act(z)

    def __repr__(self) -> str:
        norm = ", norm=True" if self.scale is not None else ""
        return f"{self.__class__.__name__}({self.in_channels}, {self.out_channels}{norm})"
