"""The soft-mask layer for nodes in space: filters follow from distances."""

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.geometric_basis import Geometry
from softmask.ops.pair_sums import pair_sums


class GeometricSoftMaskConv(torch.nn.Module):
    r"""A soft-mask layer over all pairs of nodes within a cutoff: equation (3) of `"Soft-mask: Adaptive Substructure
    Extractions for Graph Neural Networks" <https://doi.org/10.1145/3442381.3449929>`_ with the continuous-filter
    convolution of `"SchNet" <https://arxiv.org/abs/1706.08566>`_ in the place of the sum over neighbours. Not of the
    paper.

    Beside its vector of numbers :math:`\mathbf{h}_v` a node has vectors in space :math:`\mathbf{V}_v`, one a channel,
    in the manner of `"PaiNN" <https://arxiv.org/abs/2102.03150>`_; they turn with the molecule, and only products of
    two of them enter the numbers.

    .. math::
        \mathbf{s}_v &= \sum_{u} \mathbf{A} \mathbf{e}_{vu} \odot \mathbf{x}_u \qquad
        \mathbf{T}_v = \mathbf{V}_v + \sum_{u} \mathbf{A} \mathbf{e}_{vu} \odot (\mathbf{x}_u \otimes
        \hat{\mathbf{r}}_{vu} + m_u \odot \mathbf{V}_u) \qquad
        \mathbf{x}_u = \mathbf{W}_{\mathrm{in}} (m_u \odot \mathbf{h}_u)

        \mathbf{a}_v &= \mathrm{SiLU} \big( m_v \odot ( \mathbf{W}_{\mathrm{root}} \mathbf{h}_v +
        \mathbf{W}_{\mathrm{rel}} [\mathbf{s}_v \Vert \nu \langle \mathbf{P} \mathbf{T}_v, \mathbf{Q} \mathbf{T}_v
        \rangle] ) \big)

        \mathbf{h}^{\prime}_v &= m_v \odot ( \mathbf{h}_v + \mathbf{W}_{\mathrm{out}} \mathbf{a}_v ) \qquad
        \mathbf{V}^{\prime}_v = m_v \odot ( \mathbf{V}_v + \mathbf{W}_{\mathrm{gate}} \mathbf{a}_v \odot \mathbf{P}
        \mathbf{T}_v )

    where :math:`\mathbf{e}_{vu}` is the distance in a radial basis and the kind of bond
    (:class:`~softmask.nn.geometric_basis.GeometricBasis`), :math:`\hat{\mathbf{r}}_{vu}` the unit vector between the
    two nodes, and :math:`\nu(p) = p \, (1 + p^2)^{-1/4}` keeps large products small. The products depend on angles;
    like the distances, they do not change when the molecule is moved, turned or mirrored.

    There is no bias, and SiLU maps 0 to 0: a node whose mask is 0 becomes zero and is invisible to all others.

    Args:
        channels: size of the vectors.
        pair_channels: numbers that a pair carries.

    Shapes:
        - **x:** ``[nodes, channels]``
        - **vectors:** ``[nodes, 3, channels]``, or ``None`` for zero
        - **geometry:** of the same nodes
        - **mask:** ``[nodes, 1]`` or ``[nodes, channels]``
        - **output:** ``[nodes, channels]`` and ``[nodes, 3, channels]``
    """

    def __init__(self, channels: int, pair_channels: int):
        super().__init__()
        self.channels = channels
        self.pair_channels = pair_channels
        self.lin_in = Linear(channels, channels, bias=False)
        self.lin_filter = Linear(pair_channels, channels, bias=False)
        self.lin_root = Linear(channels, channels, bias=False)
        self.lin_rel = Linear(2 * channels, channels, bias=False)
        self.lin_vectors = Linear(channels, 2 * channels, bias=False)  # P and Q
        self.lin_out = Linear(channels, 2 * channels, bias=False)  # W_out and W_gate

    def reset_parameters(self) -> None:
        """Draws all weights anew, uniform in ±1/sqrt(fan_in)."""
        for lin in (self.lin_in, self.lin_filter, self.lin_root, self.lin_rel, self.lin_vectors, self.lin_out):
            lin.reset_parameters()

    def forward(self, x: Tensor, vectors: Tensor | None, geometry: Geometry, mask: Tensor) -> tuple[Tensor, Tensor]:
        """"""  # noqa: D419
        # A product for each chunk, also in the gradient; a plain product would be folded into one.
        matrix = self.lin_filter.weight.t().expand(geometry.attr.size(0), -1, -1)
        filters = torch.bmm(geometry.attr, matrix).flatten(0, 1)
        wide = mask.unsqueeze(1)
        carried = None if vectors is None else wide * vectors
        sums, space = pair_sums(filters, self.lin_in(mask * x), geometry.direction, carried, geometry.blocks)
        if vectors is not None:
            space = space + vectors
        first, second = self.lin_vectors(space).chunk(2, dim=-1)
        product = (first * second).sum(dim=1)
        # Two roots: a power takes a GPU twenty times as many instructions.
        product = product * (1 + product.square()).sqrt().rsqrt()
        rel = self.lin_rel(torch.cat([sums, product], dim=-1))
        hidden = torch.nn.functional.silu(mask * (self.lin_root(x) + rel))
        out, gate = self.lin_out(hidden).chunk(2, dim=-1)
        moved = gate.unsqueeze(1) * first
        return mask * (x + out), wide * (moved if vectors is None else vectors + moved)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels}, pair_channels={self.pair_channels})"
