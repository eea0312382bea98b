import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.data.store import GraphStore
from softmask.errors import DataError
from softmask.ops import bitmaps as module
from softmask.ops.bitmaps import bitmap_words, bitmaps


def store_of(matrices):
    """A store of the graphs with these adjacency matrices."""
    sizes = [len(a) for a in matrices]
    degree = np.concatenate([[0], *(a.sum(1) for a in matrices)])
    col = np.concatenate([np.zeros(0), *(a.nonzero()[1] for a in matrices)])
    return GraphStore(
        torch.tensor([0, *np.cumsum(sizes)]), torch.tensor(degree.cumsum()).long(), torch.tensor(col).int()
    )


def symmetric(size, density, seed):
    """A random adjacency matrix, self loops included."""
    upper = np.triu(np.random.default_rng(seed).random((size, size)) < density)
    return upper | upper.T


@given(
    st.lists(st.tuples(st.integers(1, 100), st.floats(0, 1), st.integers(0, 999)), max_size=5),
    st.sampled_from([7, 1 << 22]),
)
def test_every_pair_of_nodes_has_its_bit(shapes, block):
    matrices = [symmetric(*shape) for shape in shapes]
    store = store_of(matrices)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        bits, bit_row = bitmaps(store)
    assert bits.dtype == torch.int32
    assert bits.numel() == bitmap_words(store)
    as_bits = np.unpackbits(bits.numpy().view(np.uint8), bitorder="little")
    v = 0
    for a in matrices:
        for i, neighbours in enumerate(a):
            words = -(-len(a) // 32)
            row = as_bits[32 * int(bit_row[v]) : 32 * (int(bit_row[v]) + words)]
            expected = np.zeros(32 * words)
            expected[: len(a)] = neighbours
            expected[i] = 0
            assert row.tolist() == expected.tolist()
            v += 1


def test_an_edge_that_stands_twice_is_refused():
    store = GraphStore(torch.tensor([0, 2]), torch.tensor([0, 2, 4]), torch.tensor([1, 1, 0, 0]).int())
    with pytest.raises(DataError, match="stands twice"):
        bitmaps(store)


def test_a_directed_set_is_refused():
    ptr, col = torch.tensor([0, 1, 1]), torch.tensor([1]).int()
    ptr_t, col_t = torch.tensor([0, 0, 1]), torch.tensor([0]).int()
    with pytest.raises(DataError, match="undirected"):
        bitmaps(GraphStore(torch.tensor([0, 2]), ptr, col, ptr_t, col_t))
