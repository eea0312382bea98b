"""The whole network for molecules in space."""

from typing import Literal

import torch
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear

from softmask.nn.embed import embed
from softmask.nn.geometric_basis import GeometricBasis
from softmask.nn.geometric_conv import GeometricSoftMaskConv
from softmask.nn.geometric_readout import READOUTS, readouts
from softmask.nn.mask_net import MaskNet
from softmask.nn.readout import as_batch
from softmask.nn.soft_mask_gnn import Masks
from softmask.ops import Neighbours, Segments, as_neighbours, as_segments
from softmask.ops.pair_blocks import PairBlocks, as_pair_blocks

# A mask multiplies every layer's vectors; beginning near 0.9 and not at a half, they reach the last layer.
_OPEN = 2.0


class GeometricSoftMaskGNN(torch.nn.Module):
    r"""Soft-mask GNN for molecules whose atoms have positions. Ours, not of the paper: all pairs of atoms within a
    cutoff see each other (:class:`GeometricSoftMaskConv`), and the readout fits the property.

    The masks are those of the paper: a :class:`MaskNet` on the bonds computes them for every layer, equation (4), and
    a node whose masks are 0 is as good as not there. The layers are read out together (equation (5)), atom by atom:
    a perceptron without bias takes :math:`\Vert_k \mathbf{h}^{(k)}_v` to two numbers of each atom, one that is read out
    (see :func:`~softmask.nn.geometric_readout.readouts`) and one that says how much the atom counts in a mean; beside
    a charge, an atom has a dipole of its own, made of its vectors in space.

    The output does not change when the molecule is moved, turned or mirrored, nor with the order of its atoms.

    Args:
        in_channels: number of node features.
        hidden_channels: size of all hidden vectors.
        num_layers: number of soft-mask layers.
        num_kinds: number of kinds of bonds.
        multi_channel: a mask for every channel (equation (6)) instead of one per node.
        readout: ``"sum"``, ``"mean"``, ``"dipole"`` or ``"extent"``.
        num_radial: number of radial functions.
        cutoff: distance from which on atoms do not see each other, in the unit of the positions.

    Shapes:
        - **x:** as for :class:`SoftMaskGNN`
        - **edge_index:** ``[2, edges]``, the bonds, each of them both ways
        - **batch:** ``[nodes]``, the graph of each node, -1 for padding; ``None`` for a single graph
        - **pos:** ``[nodes, 3]``
        - **output:** ``[graphs, 1]``
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head", "head_dipole")
    # All layers are read out.
    jk = True
    select: Tensor
    offset: Tensor

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        num_kinds: int = 4,
        multi_channel: bool = True,
        readout: Literal["sum", "mean", "dipole", "extent"] = "sum",
        num_radial: int = 60,
        cutoff: float = 10.0,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if readout not in READOUTS:
            raise ValueError(f"readout must be one of {', '.join(READOUTS)}, got {readout!r}")
        self.in_channels = in_channels
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.multi_channel = multi_channel
        self.readout = readout
        d = hidden_channels
        self.basis = GeometricBasis(num_radial, cutoff, num_kinds)
        self.lin_in = Linear(in_channels, d)
        self.masks = torch.nn.ModuleList(MaskNet(d, d, d if multi_channel else 1) for _ in range(num_layers))
        self.convs = torch.nn.ModuleList(GeometricSoftMaskConv(d, self.basis.channels) for _ in range(num_layers))
        self.head = torch.nn.Sequential(
            Linear(num_layers * d, d, bias=False), torch.nn.SiLU(), Linear(d, 2, bias=False)
        )
        self.head_dipole = Linear(d, 1, bias=False)
        # Buffers, so that the replicas of a fleet, which are one program, may differ in their readout.
        self.register_buffer("select", select(readout))
        self.register_buffer("offset", torch.zeros(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all weights and biases anew, uniform in ±1/sqrt(fan_in); the masks begin near 0.9."""
        for module in (self.lin_in, *self.masks, *self.convs, *self.head, self.head_dipole):
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        for net in self.masks:
            assert isinstance(net, MaskNet)
            torch.nn.init.constant_(net.get_parameter("mlp.2.bias"), _OPEN)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        masks: Masks | None = None,
        return_masks: bool = False,
        pos: Tensor | PairBlocks | None = None,
        edge_kind: Tensor | None = None,
        mass: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        r"""
        Args:
            x: node features or tokens.
            edge_index: the bonds.
            batch: the graph of each node.
            batch_size: number of graphs; computed from ``batch`` if not given.
            masks: preassigned masks, one per layer, instead of those of the mask networks.
            return_masks: also return the list of the masks of all layers.
            pos: positions; or blocks of them, in whose order the nodes then stand.
            edge_kind: ``[edges]``, the kinds of the bonds, from 1 on; all 1 if not given.
            mass: ``[nodes]``, of which the centre of a molecule is made; all 1 if not given.
        """
        if isinstance(pos, PairBlocks):
            out, used = self._forward(x, edge_index, batch, batch_size, masks, pos)
            return (out, used) if return_masks else out
        if pos is None or not isinstance(edge_index, Tensor):
            raise ValueError("this model needs pos, beside an edge_index of shape [2, edges]")
        batch, batch_size = as_batch(batch, batch_size, x)
        blocks, at = as_pair_blocks(pos, as_segments(batch).graph, batch_size, edge_index, edge_kind, mass)
        # From the order of the nodes to that of the blocks, and back.
        places = blocks.pos.size(0)
        holder = torch.full((places + 1,), len(x), device=x.device).index_copy(0, at, torch.arange(len(x)).to(at))
        holder = holder[:places]
        graph = torch.cat([as_segments(batch).graph, at.new_full((1,), -1)])[holder]
        inside = (at[edge_index] < places).all(dim=0)
        rows = torch.cat([x, x.new_zeros(1, *x.shape[1:])])[holder]
        if masks is not None:
            masks = [torch.cat([m, m.new_zeros(1, *m.shape[1:])])[holder] for m in masks]
        out, used = self._forward(rows, at[edge_index[:, inside]], graph, batch_size, masks, blocks)
        if not return_masks:
            return out
        return out, [torch.cat([m, m.new_zeros(1, m.size(1))])[at] for m in used]

    def _forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbours,
        batch: Tensor | Segments | None,
        batch_size: int | None,
        masks: Masks | None,
        pairs: PairBlocks,
    ) -> tuple[Tensor, list[Tensor]]:
        """Output and masks of nodes that stand in blocks."""
        if masks is not None and len(masks) != self.num_layers:
            raise ValueError(f"got masks for {len(masks)} layers; the model has {self.num_layers}")
        batch, batch_size = as_batch(batch, batch_size, x)
        real = as_segments(batch).graph >= 0
        # The input map has a bias; padding must start from zero, and then stays zero.
        h = embed(x, self.lin_in) * real.unsqueeze(-1)
        neighbours = as_neighbours(edge_index, h.size(0))
        geometry = self.basis(pairs, real, h.dtype)
        hidden: list[Tensor] = []
        used: list[Tensor] = []
        mask: Tensor | None = None
        vectors: Tensor | None = None
        for k, (mask_net, conv) in enumerate(zip(self.masks, self.convs)):
            mask = mask_net(h, neighbours, mask) if masks is None else masks[k].reshape(len(h), -1)
            h, vectors = conv(h, vectors, geometry, mask)
            hidden.append(h)
            used.append(mask)
        assert vectors is not None
        kind = self.head_dipole.weight.dtype
        y, importance = self.head(torch.cat(hidden, dim=-1).to(kind)).unbind(-1)
        arrow = self.head_dipole(vectors.to(kind)).squeeze(-1)
        # What a masked atom adds must vanish everywhere: in the weights of a mean, and in the centre.
        shown = torch.where(real, used[-1].to(kind).mean(dim=-1), 0)
        weights = (shown * torch.sigmoid(importance), shown * pairs.weight.to(kind))
        every = readouts(y, arrow, *weights, pairs.pos.to(kind), batch, batch_size)
        return (every * self.select.to(kind)).sum(dim=-1, keepdim=True) + self.offset.to(kind), used

    def __repr__(self) -> str:
        return (
            f"{self.__class__.__name__}({self.in_channels}, {self.hidden_channels}, num_layers={self.num_layers}, "
            f"multi_channel={self.multi_channel}, readout={self.readout!r}, num_radial={self.basis.num_radial}, "
            f"cutoff={self.basis.cutoff})"
        )


def select(readout: str) -> Tensor:
    """A readout, one-hot among :data:`READOUTS`: the buffer ``select`` of a model."""
    return (torch.arange(len(READOUTS)) == READOUTS.index(readout)).float()
