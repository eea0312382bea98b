"""The graphs of a store as bits: what the neighbour sum on the tensor cores reads instead of lists."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from softmask.errors import DataError

if TYPE_CHECKING:
    from softmask.data.store import GraphStore

# Entries of `col` worked on at a time, so that what is needed on the way stays small beside the store.
BLOCK = 1 << 22


def bitmap_words(store: "GraphStore") -> int:
    """How many words of 32 bits :func:`bitmaps` needs: n ceil(n / 32) for a graph of n nodes."""
    sizes = store.sizes
    return int((sizes * _words(sizes)).sum())


def bitmaps(store: "GraphStore") -> tuple[Tensor, Tensor]:
    """The adjacency matrix of every graph, a bit for each pair of its nodes.

    Bit c % 32 of word ``bit_row[v] + c // 32`` is 1 if node c of v's graph is a neighbour of v. The row of a
    node in a graph of n nodes has ceil(n / 32) words, and its bits from n on are 0. A node is not its own
    neighbour.

    Args:
        store: an undirected set in which no edge stands twice; any other is refused.

    Returns:
        ``bits`` ``[words]`` int32 and ``bit_row`` ``[nodes]`` int64, on the store's device.
    """
    if store.directed:
        raise DataError("only undirected graphs can be kept as bits; use the neighbour lists of a directed set")
    device, sizes = store.device, store.sizes
    row_words = torch.repeat_interleave(_words(sizes), sizes)
    bit_row = row_words.cumsum(0) - row_words
    # Powers of two are added: where no edge stands twice, the sum of a word's bits is the word.
    word = torch.zeros(bitmap_words(store), dtype=torch.int64, device=device)
    row = torch.repeat_interleave(torch.arange(store.num_nodes, device=device), store.row_ptr.diff())
    place = torch.arange(store.num_nodes, device=device) - torch.repeat_interleave(store.node_ptr[:-1], sizes)
    entries = 0
    for row_part, col_part in zip(row.split(BLOCK), store.col.split(BLOCK)):
        col = col_part.long()
        bit = torch.bitwise_left_shift(torch.ones_like(col), col & 31)
        bit[col == place[row_part]] = 0
        word.index_add_(0, bit_row[row_part] + (col >> 5), bit)
        entries += int(bit.count_nonzero())
    # A power that stands twice carries into the next bit, and then there are fewer bits than entries.
    if int(np.bitwise_count(word.cpu().numpy()).sum(dtype=np.int64)) != entries:
        raise DataError("graphs in which an edge stands twice cannot be kept as bits; use their neighbour lists")
    return word.to(torch.int32), bit_row


def _words(sizes: Tensor) -> Tensor:
    return (sizes + 31) // 32
