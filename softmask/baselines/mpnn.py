"""MPNN: messages between all pairs of the atoms of a molecule, gated updates, a set2set readout."""

from math import sqrt
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import GRUCell, LSTMCell
from torch_geometric.nn.dense.linear import Linear

from softmask.baselines.entry import Inputs
from softmask.baselines.in_space import NetworkInSpace, distances
from softmask.data.bonds import BOND_KINDS
from softmask.nn.embed import embed
from softmask.ops.pair_blocks import Blocks, PairBlocks, split_nodes, split_pairs

if TYPE_CHECKING:
    from softmask.study.settings import Settings

# Vectors of a node that a pass keeps for its gradient beside its products.
_GATES = 14


class EdgeNetwork(torch.nn.Module):
    r"""The messages of `"Neural Message Passing for Quantum Chemistry" <https://arxiv.org/abs/1704.01212>`_,

    .. math::
        \mathbf{m}_v = \mathbf{W} \mathbf{h}_v + \mathbf{b} + \frac{1}{n - 1} \sum_{u \neq v}
        \mathbf{A}(\mathbf{e}_{vu}) \, \mathbf{h}_u

    from all other atoms of the molecule, where a perceptron makes the matrix :math:`\mathbf{A}` of the distance and the
    kind of the bond; with the mean and the linear map of PyG's example, where the paper has a sum. No matrix is formed:
    with :math:`\mathbf{A}(\mathbf{e}) = \sum_k z_k(\mathbf{e}) \, \mathbf{A}_k` an atom gathers
    :math:`\sum_u \mathbf{z}_{vu} \otimes \mathbf{h}_u`, and one product with all :math:`\mathbf{A}_k` follows.

    Args:
        channels: size of an atom's vector.
        width: of the perceptron.
    """

    def __init__(self, channels: int, width: int):
        super().__init__()
        self.channels = channels
        self.lin_edge = Linear(1 + len(BOND_KINDS), width)
        self.lin_matrix = Linear(width, channels * channels)
        self.lin_root = Linear(channels, channels)

    def edges(self, pairs: PairBlocks, apart: list[tuple[Tensor, Tensor]], dtype: torch.dtype) -> list[Tensor]:
        """The perceptron's hidden vector of every pair, block by block; zero for what is no pair of two atoms."""
        kinds = torch.arange(1, 1 + len(BOND_KINDS), device=pairs.kind.device)
        found = []
        for kind, (distance, there) in zip(split_pairs(pairs.kind, pairs.blocks), apart):
            # In the precision of the distances, which half of it would round to three digits.
            weight, bias = (p.to(distance.dtype) for p in (self.lin_edge.weight, self.lin_edge.bias))
            bond = (kind.unsqueeze(-1) == kinds).to(distance.dtype)
            z = F.linear(torch.cat([bond, distance.unsqueeze(-1)], dim=-1), weight, bias).relu().to(dtype)
            found.append(torch.where(there.unsqueeze(-1), z, 0))
        return found

    def matrices(self) -> Tensor:
        """All the matrices that those of edges are made of, one below the other, ``[width * channels, channels]``."""
        # As NNConv has it: row i of a matrix is of the sender's channel i.
        d = self.channels
        return self.lin_matrix.weight.view(d, d, -1).permute(2, 0, 1).reshape(-1, d)

    def forward(self, h: Tensor, matrices: Tensor, edges: list[Tensor], there: list[Tensor], blocks: Blocks) -> Tensor:
        """"""  # noqa: D419
        outer, total, others = [], [], []
        for near, z, pair in zip(split_nodes(h, blocks), edges, there):
            outer.append((z.mT @ near.unsqueeze(1)).flatten(0, 1).flatten(1))
            total.append((pair.to(h.dtype) @ near).flatten(0, 1))
            others.append(pair.sum(dim=2).flatten())
        constant = self.lin_matrix.bias.view(self.channels, self.channels)
        messages = torch.cat(outer) @ matrices + torch.cat(total) @ constant
        return self.lin_root(h) + messages / torch.cat(others).clamp(min=1).unsqueeze(-1).to(h.dtype)


class Set2Set(torch.nn.Module):
    """A readout that looks at the atoms of a molecule several times, each time with another question
    (`Vinyals et al., "Order Matters" <https://arxiv.org/abs/1511.06391>`_).

    Args:
        channels: size of an atom's vector; the output is of twice that.
        steps: how often it looks.
    """

    def __init__(self, channels: int, steps: int):
        super().__init__()
        self.channels, self.steps = channels, steps
        self.lstm = LSTMCell(2 * channels, channels)

    def forward(self, h: Tensor, real: Tensor, blocks: Blocks) -> Tensor:
        """"""  # noqa: D419
        atoms, here = split_nodes(h, blocks), split_nodes(real, blocks)
        asked = h.new_zeros(sum(graphs for graphs, _ in blocks), 2 * self.channels)
        q = cell = asked[:, : self.channels]
        for _ in range(self.steps):
            q, cell = _lstm(self.lstm, asked, q, cell)
            read = []
            for own, there, question in zip(atoms, here, q.split([graphs for graphs, _ in blocks])):
                score = (own @ question.unsqueeze(-1)).squeeze(-1)
                score = torch.where(there, score, torch.finfo(score.dtype).min).softmax(dim=1)
                # A graph without a node reads zero.
                score = torch.where(there, score, 0)
                read.append((score.unsqueeze(1) @ torch.where(there.unsqueeze(-1), own, 0)).squeeze(1))
            asked = torch.cat([q, torch.cat(read)], dim=1)
        return asked


# Gates written out: torch's own kernels know no vmap on a GPU.
def _gru(cell: GRUCell, x: Tensor, h: Tensor) -> Tensor:
    x_r, x_z, x_n = F.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, dim=-1)
    h_r, h_z, h_n = F.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, dim=-1)
    new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
    return new + (x_z + h_z).sigmoid() * (h - new)


def _lstm(cell: LSTMCell, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    gates = F.linear(x, cell.weight_ih, cell.bias_ih) + F.linear(h, cell.weight_hh, cell.bias_hh)
    i, f, g, o = gates.chunk(4, dim=-1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


class MPNN(NetworkInSpace):
    r"""Message passing neural network on molecules in space: every atom gathers messages from all others, a gated unit
    updates it, the same in every pass; set2set and a perceptron make the output.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: size of an atom's vector.
        num_layers: number of passes.
        out_channels: number of targets or classes.
        edge_channels: width of the perceptron that makes a matrix of an edge.
        steps: of the readout.

    Shapes:
        - as for :class:`~softmask.baselines.in_space.NetworkInSpace`
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head",)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        edge_channels: int = 128,
        steps: int = 3,
    ):
        super().__init__()
        d = self.hidden_channels = hidden_channels
        self.num_layers, self.edge_channels = num_layers, edge_channels
        self.lin_in = Linear(in_channels, d)
        self.messages = EdgeNetwork(d, edge_channels)
        self.update = GRUCell(d, d)
        self.readout = Set2Set(d, steps)
        self.head = torch.nn.Sequential(Linear(2 * d, d), torch.nn.ReLU(), Linear(d, out_channels))

    def of_pairs(self, x: Tensor, real: Tensor, pairs: PairBlocks) -> Tensor:
        """"""  # noqa: D419
        h = embed(x, self.lin_in).relu()
        apart = distances(pairs, real)
        edges = self.messages.edges(pairs, apart, h.dtype)
        there, matrices = [pair for _, pair in apart], self.messages.matrices()
        for _ in range(self.num_layers):
            h = _gru(self.update, self.messages(h, matrices, edges, there, pairs.blocks).relu(), h)
        read = self.readout(h, real, pairs.blocks)
        return self.head(read.to(next(self.head.parameters()).dtype))

    def numbers_held(self, pairs: int, graphs: int) -> int:
        """About how many numbers a step of training holds for a batch with so many pairs of places."""
        # At most so many places have so many pairs.
        nodes, products = sqrt(pairs * max(graphs, 1)), self.edge_channels * self.hidden_channels
        # Of every pass the products and what gates keep; the products' gradient, and that of the edges, beside. The
        # matrices are a copy of the weights in another order.
        of_nodes = (self.num_layers + 1) * (products + _GATES * self.hidden_channels)
        of_pairs = 3 * self.edge_channels + (self.num_layers + 1) * self.hidden_channels
        return int(nodes * of_nodes) + pairs * of_pairs + products * self.hidden_channels


def build_mpnn(inputs: Inputs, settings: "Settings") -> MPNN:
    """MPNN; molecules that are too large for the memory are refused when it trains."""
    return MPNN(inputs.channels, settings.hidden, settings.layers, inputs.outputs)
