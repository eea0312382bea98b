"""Distances and directions between the nodes of a graph, as layers take them."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.pair_blocks import Blocks, PairBlocks, split_nodes

# The gradient of the filters' matrix sums over all pairs. In one product it would keep few of a GPU's processors busy:
# its result is one tile. So the pairs come in chunks, each with a product of its own.
_CHUNKS = 16


class Geometry(NamedTuple):
    """What layers see of the pairs of nodes; the same for all layers.

    Args:
        attr: ``[chunks, rows, channels]``, of all pairs, end to end: the distance in a radial basis and the kind of
            bond, one-hot, all times the smooth cutoff; zero where there is no pair of nodes, and behind the last.
        direction: ``[pairs, 3]``, the unit vector from ``j`` to ``i``; zero likewise.
        blocks: the layout.
    """

    attr: Tensor
    direction: Tensor
    blocks: Blocks


class GeometricBasis(torch.nn.Module):
    r"""Takes the distance of two nodes to Gaussians and a smooth cutoff, as `"SchNet: A continuous-filter convolutional
    neural network" <https://arxiv.org/abs/1706.08566>`_ does,

    .. math::
        e_k(r) = \tfrac12 \big( \cos \tfrac{\pi r}{c} + 1 \big) \exp \big( - \tfrac{1}{2 \delta^2} (r - k \delta)^2
        \big) \quad \text{for } r < c, \qquad \delta = \tfrac{c}{K - 1},

    beside which the kinds of bonds stand, one-hot and times the same cutoff.

    Args:
        num_radial: number of Gaussians :math:`K`.
        cutoff: distance :math:`c` from which on nodes do not see each other.
        num_kinds: number of kinds of bonds.
    """

    def __init__(self, num_radial: int, cutoff: float, num_kinds: int):
        super().__init__()
        if num_radial < 2 or not 0 < cutoff < math.inf:
            raise ValueError(f"num_radial must be at least 2 and cutoff positive, got {num_radial} and {cutoff}")
        self.num_radial = num_radial
        self.cutoff = cutoff
        self.num_kinds = num_kinds

    @property
    def channels(self) -> int:
        """Numbers that a pair carries."""
        return self.num_radial + self.num_kinds

    def forward(self, pairs: PairBlocks, real: Tensor, dtype: torch.dtype) -> Geometry:
        """The geometry of `pairs`, where `real` ``[nodes]`` says which places hold nodes, in the type `dtype`.

        Distances are computed in the type of the positions, whatever that of the layers is.
        """
        distances, envelopes, directions = [], [], []
        for pos, here in zip(split_nodes(pairs.pos, pairs.blocks), split_nodes(real, pairs.blocks)):
            apart = pos.unsqueeze(2) - pos.unsqueeze(1)
            there = here.unsqueeze(2) & here.unsqueeze(1)
            there = there & ~torch.eye(pos.size(1), dtype=torch.bool, device=pos.device)
            square = apart.square().sum(dim=-1)
            # Two nodes at the same place have no direction; where there is no pair, any number will do.
            distance = torch.where(there & (square > 0), square, 1).sqrt()
            distance = torch.where(there & (square == 0), 0, distance)
            there = there & (distance < self.cutoff)
            turned = (there & (square > 0)).unsqueeze(-1)
            directions.append(torch.where(turned, apart / distance.clamp(min=1e-6)[..., None], 0).flatten(0, 2))
            envelope = 0.5 * (torch.cos(distance * (math.pi / self.cutoff)) + 1)
            envelopes.append(torch.where(there, envelope, 0).flatten())
            distances.append(distance.flatten())
        # The wide array is made of all pairs at once, so that a compiler writes it alone, and in the type it has; what
        # is the same for all channels comes before.
        distance, envelope = torch.cat(distances), torch.cat(envelopes)
        padding = (0, -len(distance) % _CHUNKS)
        distance, envelope, kind = (F.pad(t, padding) for t in (distance, envelope, pairs.kind))
        attr = (envelope.unsqueeze(-1) * self._basis(distance, kind)).to(dtype)
        return Geometry(
            attr.unflatten(0, (_CHUNKS, len(attr) // _CHUNKS)), torch.cat(directions).to(dtype), pairs.blocks
        )

    def _basis(self, distance: Tensor, kind: Tensor) -> Tensor:
        step = self.cutoff / (self.num_radial - 1)
        # One expression of the channel for both, so that a compiler writes the result alone.
        channel = torch.arange(self.channels, device=distance.device)
        gauss = torch.exp(-0.5 * (distance.unsqueeze(-1) / step - channel).square())
        hot = (kind.unsqueeze(-1) == channel - self.num_radial + 1).to(distance.dtype)
        return torch.where(channel < self.num_radial, gauss, hot)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(num_radial={self.num_radial}, cutoff={self.cutoff}, kinds={self.num_kinds})"
