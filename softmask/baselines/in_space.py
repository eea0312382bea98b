"""What networks of all pairs of atoms start from: atoms in blocks, and how far apart they are."""

import torch
from torch import Tensor

from softmask.nn.readout import as_batch
from softmask.ops import Neighbours, Segments, as_segments
from softmask.ops.pair_blocks import PairBlocks, as_pair_blocks, num_places, put, split_nodes


class NetworkInSpace(torch.nn.Module):
    """A network of molecules in space, from a fleet's form of a batch or from PyG's: what it does with all pairs of
    atoms is :meth:`of_pairs`.

    Shapes:
        - **pos:** ``[nodes, 3]``, in Angstrom; or blocks of positions, in whose order the nodes then stand
        - **edge_kind:** ``[edges]``, the kinds of the bonds, from 1 on; all 1 if not given
        - all others as for :class:`softmask.nn.GAT`
    """

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | Neighbours,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        pos: Tensor | PairBlocks | None = None,
        edge_kind: Tensor | None = None,
    ) -> Tensor:
        """"""  # noqa: D419
        batch, graphs = as_batch(batch, batch_size, x)
        graph = as_segments(batch).graph
        if isinstance(pos, PairBlocks):
            return self.of_pairs(x, graph >= 0, pos)
        if pos is None or not isinstance(edge_index, Tensor):
            raise ValueError("this model needs pos, beside an edge_index of shape [2, edges]")
        pairs, at = as_pair_blocks(pos, graph, graphs, edge_index, edge_kind)
        places = num_places(pairs.blocks)
        return self.of_pairs(put(x, at, places), put(graph >= 0, at, places), pairs)

    def of_pairs(self, x: Tensor, real: Tensor, pairs: PairBlocks) -> Tensor:
        """The outputs, of the input of all places, which of them hold an atom, and the pairs."""
        raise NotImplementedError


def distances(pairs: PairBlocks, real: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Block by block, how far apart the nodes of each graph are, ``[graphs, places, places]``, and which pairs are two
    nodes of a graph; zero for others. In the type of the positions, whatever that of the layers is.
    """
    found = []
    for pos, here in zip(split_nodes(pairs.pos, pairs.blocks), split_nodes(real, pairs.blocks)):
        there = here.unsqueeze(2) & here.unsqueeze(1)
        there = there & ~torch.eye(pos.size(1), dtype=torch.bool, device=pos.device)
        square = (pos.unsqueeze(2) - pos.unsqueeze(1)).square().sum(dim=-1)
        found.append((torch.where(there, square, 0).sqrt(), there))
    return found
