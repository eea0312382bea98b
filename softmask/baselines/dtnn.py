"""DTNN: deep tensor neural network, on all pairs of the atoms of a molecule."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.entry import Inputs
from softmask.baselines.in_space import NetworkInSpace, distances
from softmask.nn.embed import embed
from softmask.ops.pair_blocks import Blocks, PairBlocks, split_nodes

if TYPE_CHECKING:
    from softmask.study.settings import Settings


BOHR = 0.529177
"""In Angstrom."""


class Interaction(torch.nn.Module):
    r"""A pass of `"Quantum-Chemical Insights from Deep Tensor Neural Networks" <https://arxiv.org/abs/1609.08259>`_,

    .. math::
        \mathbf{c}^{\prime}_v = \mathbf{c}_v + \sum_{u \neq v} \tanh \Big( \mathbf{W}^{fc} \big( (\mathbf{W}^{cf}
        \mathbf{c}_u + \mathbf{b}^{f_1}) \odot (\mathbf{W}^{df} \hat{\mathbf{d}}_{vu} + \mathbf{b}^{f_2}) \big) \Big)

    over the other atoms of the molecule, where :math:`\hat{\mathbf{d}}_{vu}` is their distance in Gaussians: a tensor
    that mixes distances and vectors, as a product of matrices.

    Args:
        channels: size of an atom's vector.
        factors: rank of the product.
        num_radial: number of Gaussians.
    """

    def __init__(self, channels: int, factors: int, num_radial: int):
        super().__init__()
        self.lin_atom = Linear(channels, factors)
        self.lin_distance = Linear(num_radial, factors)
        self.lin_out = Linear(factors, channels, bias=False)

    def forward(self, c: Tensor, gaussians: list[Tensor], there: list[Tensor], blocks: Blocks) -> Tensor:
        """"""  # noqa: D419
        sums = []
        for near, gauss, pair in zip(split_nodes(self.lin_atom(c), blocks), gaussians, there):
            sent = self.lin_out(self.lin_distance(gauss) * near.unsqueeze(1)).tanh()
            sums.append(torch.where(pair.unsqueeze(-1), sent, 0).sum(dim=2).flatten(0, 1))
        return c + torch.cat(sums)


class DTNN(NetworkInSpace):
    r"""Deep tensor neural network: atoms refine their vectors by those of all others and by the distances to them, a
    perceptron makes a number from -1 to 1 of each, and the sum over a molecule is mapped to its output. Bonds it does
    not see.

    Distances are in Gaussians as wide as they are apart, :math:`\hat d_k = \exp( -(d - \mu_k)^2 / 2 \delta^2)`, as
    DeepChem has them from -1 to 18 Bohr.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of an atom's vector.
        num_layers: number of passes.
        out_channels: number of targets or classes.
        factors: rank of the products.
        num_radial, nearest, farthest: how many Gaussians there are, and where the first and the last would be, if there
            were one more, in the unit of the positions.
        out_hidden: width of the perceptron.

    Shapes:
        - as for :class:`~softmask.baselines.in_space.NetworkInSpace`
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head", "lin_out")

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        factors: int = 60,
        num_radial: int = 170,
        nearest: float = -1.0 * BOHR,
        farthest: float = 18.0 * BOHR,
        out_hidden: int = 100,
    ):
        super().__init__()
        d, self.factors, self.num_radial = hidden_channels, factors, num_radial
        self.hidden_channels, self.nearest, self.step = d, nearest, (farthest - nearest) / num_radial
        self.lin_in = Linear(in_channels, d)
        self.passes = torch.nn.ModuleList(Interaction(d, self.factors, num_radial) for _ in range(num_layers))
        tanh = torch.nn.Tanh()
        self.head = torch.nn.Sequential(Linear(d, out_hidden), tanh, Linear(out_hidden, out_channels), tanh)
        self.lin_out = Linear(out_channels, out_channels)

    def of_pairs(self, x: Tensor, real: Tensor, pairs: PairBlocks) -> Tensor:
        """"""  # noqa: D419
        c = embed(x, self.lin_in)
        apart = distances(pairs, real)
        gaussians = [self._gaussians(distance).to(c.dtype) for distance, _ in apart]
        there = [pair for _, pair in apart]
        for interaction in self.passes:
            c = interaction(c, gaussians, there, pairs.blocks)
        each = self.head(c.to(next(self.head.parameters()).dtype))
        each = torch.where(real.unsqueeze(-1), each, 0)
        return self.lin_out(torch.cat([block.sum(dim=1) for block in split_nodes(each, pairs.blocks)]))

    def _gaussians(self, distance: Tensor) -> Tensor:
        centre = torch.arange(self.num_radial, device=distance.device)
        return torch.exp(-0.5 * ((distance.unsqueeze(-1) - self.nearest) / self.step - centre).square())

    def numbers_held(self, pairs: int, graphs: int) -> int:
        """About how many numbers a step of training holds for a batch with so many pairs of places."""
        # For the gradient the two factors of the product, the product, and the tangent; beside them two more products.
        kept = self.num_radial + len(self.passes) * (2 * self.factors + self.hidden_channels)
        return pairs * (kept + 2 * self.factors)


def build_dtnn(inputs: Inputs, settings: "Settings") -> DTNN:
    """DTNN; molecules that are too large for the memory are refused when it trains."""
    return DTNN(inputs.channels, settings.hidden, settings.layers, inputs.outputs)
