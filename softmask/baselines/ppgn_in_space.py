"""PPGN on molecules in space: its matrices are of distances and bonds."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential

from softmask.baselines.entry import Inputs
from softmask.baselines.in_space import NetworkInSpace, distances
from softmask.baselines.ppgn import BlockStack, beside_matrices, map_channels, on_diagonal, read_out
from softmask.nn.embed import mapped
from softmask.ops.pair_blocks import PairBlocks, split_nodes, split_pairs

if TYPE_CHECKING:
    from softmask.study.settings import Settings


class PPGNInSpace(NetworkInSpace):
    r"""Provably powerful graph network of a molecule in space: a tensor ``[atoms, atoms, channels]`` of how far apart
    the atoms are, which of them are bonded, and by which kind of bond (one-hot), with the atoms' features on the
    diagonal. Only after the last block are the maxima over the diagonal and over the rest read out; they go through a
    perceptron (the first of the two suffixes of its paper).

    Memory and time grow as for :class:`~softmask.baselines.ppgn.PPGN`.

    Args:
        in_channels: number of node features (of kinds of token, for integer input).
        hidden_channels: number of channels.
        num_layers: number of blocks.
        out_channels: number of targets or classes.
        num_kinds: number of kinds of bonds.
        head_channels: widths of the perceptron.

    Shapes:
        - as for :class:`~softmask.baselines.in_space.NetworkInSpace`
    """

    # What a fleet that computes in half precision leaves in float32.
    full_precision = ("head",)
    multiplies_pairs = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        num_kinds: int = 4,
        head_channels: tuple[int, int] = (512, 256),
    ):
        super().__init__()
        self.in_channels, self.hidden_channels, self.num_kinds = in_channels, hidden_channels, num_kinds
        self.blocks = BlockStack(2 + num_kinds + in_channels, hidden_channels, num_layers)
        wide, narrow = head_channels
        self.head = Sequential(
            *(Linear(2 * hidden_channels, wide), ReLU(), Linear(wide, narrow), ReLU(), Linear(narrow, out_channels))
        )

    def of_pairs(self, x: Tensor, real: Tensor, pairs: PairBlocks) -> Tensor:
        """"""  # noqa: D419
        weight, bias = self.blocks.first()
        far, bonded, kinds, own = weight.split([1, 1, self.num_kinds, self.in_channels], dim=1)
        # A bond is in two channels: that of all bonds, and that of its kind.
        bonds = bonded + kinds
        known = beside_matrices(torch.arange(1, self.num_kinds + 1, device=x.device))
        nodes = (split_nodes(t, pairs.blocks) for t in (mapped(x, own), real))
        read = []
        for features, there, (distance, apart), kind in zip(
            *nodes, distances(pairs, real), split_pairs(pairs.kind, pairs.blocks)
        ):
            hot = ((kind == known) & apart).to(weight.dtype)
            # No product for distances, which TF32 would round, and in their own precision, which half of it would too.
            z = (distance * beside_matrices(far).to(distance.dtype)).to(weight.dtype) + beside_matrices(bias)
            z = z + map_channels(hot, bonds) + on_diagonal(features)
            read.append(read_out(self.blocks(z, there)[-1], there))
        return self.head(torch.cat(read).to(next(self.head.parameters()).dtype))

    def numbers_held(self, pairs: int, graphs: int) -> int:
        """About how many numbers a step of training holds for a batch with so many pairs of places."""
        return self.blocks.numbers_held(pairs) + pairs * (1 + self.num_kinds)


def build_ppgn_in_space(inputs: Inputs, settings: "Settings") -> PPGNInSpace:
    """PPGN of molecules in space; those that are too large for the memory are refused when it trains."""
    return PPGNInSpace(inputs.channels, settings.hidden, settings.layers, inputs.outputs)
