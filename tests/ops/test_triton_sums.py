"""The Triton kernels against the definition: on the GPU where there is one, else in Triton's interpreter.

The interpreter is chosen when triton is imported, for the whole process. So on the CPU the tests of this file
run in a process of their own, which `test_in_the_interpreter` starts.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter
from torch import Tensor

from softmask.ops import Neighbours, graph_sum, neighbour_sum

triton = pytest.importorskip("triton", reason="triton is not installed")

if CUDA or INTERPRETED:
    from softmask.ops import triton_sums
    from softmask.ops.triton_sums import BitsConfig, CsrConfig


def poisoned(name):
    """The function with that name; its output is NaN wherever the kernel does not write."""

    def call(*args, **kwargs):
        torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
        try:
            return getattr(triton_sums, name)(*args, **kwargs)
        finally:
            torch.use_deterministic_algorithms(False)

    return call


csr_sum, bits_sum = poisoned("csr_sum"), poisoned("bits_sum")
segment_sum = poisoned("segment_sum")

EXAMPLES = settings(max_examples=15)
# bfloat16 in, bfloat16 out (which the interpreter cuts off instead of rounding); the sum between is float32.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@outside
def test_in_the_interpreter():
    run_in_the_interpreter(__file__)


class Batch(NamedTuple):
    """Graphs side by side and then padding, as both kernels want them."""

    start: Tensor
    end: Tensor
    col: Tensor
    base: Tensor
    bits: Tensor
    bit_row: Tensor
    size: Tensor

    @property
    def nodes(self):
        return self.start.numel()

    @property
    def lists(self):
        return self.start, self.end, self.col, self.base

    @property
    def maps(self):
        return self.bits, self.bit_row, self.base, self.size


def batch_of(matrices, padding=0, replicas=1):
    """The same graphs (adjacency matrices, self loops allowed) for each replica, rubbish between the rows."""
    start, end, base, size, bit_row, col, bits = [], [], [], [], [], [7], []
    for _ in range(replicas):
        first = len(start)
        for a in matrices:
            for v, neighbours in enumerate(a):
                start.append(len(col))
                col += neighbours.nonzero()[0].tolist()
                end.append(len(col))
                col.append(len(a) + 5)
                base.append(first)
                size.append(len(a))
                bit_row.append(len(bits))
                row = np.zeros(-(-len(a) // 32) * 32, np.uint8)
                row[: len(a)] = neighbours
                row[v] = 0
                bits += np.packbits(row, bitorder="little").view(np.int32).tolist()
            first += len(a)
        for array in (start, end, base, size, bit_row):
            array += [0] * padding
    as_long = [torch.tensor(t, dtype=torch.int64, device=DEVICE) for t in (start, end, base, bit_row)]
    as_int = [torch.tensor(t, dtype=torch.int32, device=DEVICE) for t in (col, bits, size)]
    return Batch(as_long[0], as_long[1], as_int[0], as_long[2], as_int[1], as_long[3], as_int[2])


def symmetric(size, density, seed):
    upper = np.triu(np.random.default_rng(seed).random((size, size)) < density)
    return upper | upper.T


def star(leaves):
    a = np.zeros((leaves + 1, leaves + 1), bool)
    a[0, 1:] = a[1:, 0] = True
    return a


def numbers(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def mask_of(kind, nodes, channels, dtype):
    shape = {"none": None, "one": (nodes, 1), "all": (nodes, channels)}[kind]
    return None if shape is None else numbers(*shape, dtype=dtype, seed=1).sigmoid()


def definition(x, mask, batch):
    lists = Neighbours(*(t.cpu() for t in batch.lists))
    return neighbour_sum(x.cpu().double(), lists, None if mask is None else mask.cpu().double())


def assert_near(out, expected, tolerance):
    assert out.shape == expected.shape
    out, expected = out.cpu().double(), expected.cpu().double()
    assert torch.isfinite(out).all()
    assert (out - expected).norm() <= tolerance * expected.norm()


def masks():
    return st.sampled_from(["none", "one", "all"])


def channels():
    return st.sampled_from([1, 3, 8, 37])


def shapes():
    return st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1), st.integers(0, 999)), max_size=4)


@kernels
@EXAMPLES
@given(shapes(), st.integers(0, 9), channels(), masks(), st.sampled_from(list(TOLERANCE)), st.booleans())
def test_csr_sum(shapes, padding, channels, kind, dtype, hubs):
    batch = batch_of([symmetric(*shape) for shape in shapes], padding)
    x = numbers(batch.nodes, channels, dtype=dtype)
    mask = mask_of(kind, batch.nodes, channels, dtype)
    out = csr_sum(x, mask, *batch.lists, hubs=hubs, config=CsrConfig(hub=4))
    assert out.dtype == dtype
    assert_near(out, definition(x, mask, batch), TOLERANCE[dtype])


@kernels
@EXAMPLES
@given(shapes(), st.integers(0, 9), channels(), masks(), st.sampled_from(list(TOLERANCE)), st.booleans())
def test_csr_sum_with_weights(shapes, padding, channels, kind, dtype, hubs):
    """Weights of the entries, self loops included, against the dense matrix."""
    batch = batch_of([symmetric(*shape) | np.eye(shape[0], dtype=bool) for shape in shapes], padding)
    x = numbers(batch.nodes, channels, dtype=dtype)
    mask = mask_of(kind, batch.nodes, channels, dtype)
    start, end, col, base = batch.lists
    weight = (numbers(max(col.numel(), 1), seed=2).abs() * 5).ceil()[: col.numel()]
    out = csr_sum(x, mask, *batch.lists, hubs=hubs, weight=weight, config=CsrConfig(hub=4))
    matrix = torch.zeros(batch.nodes, batch.nodes, dtype=torch.float64)
    for v in range(batch.nodes):
        for e in range(int(start[v]), int(end[v])):
            matrix[v, int(base[v] + col[e])] += float(weight[e])
    rows = x.cpu().double() * (1 if mask is None else mask.cpu().double())
    assert_near(out, matrix @ rows, TOLERANCE[dtype])


@kernels
@pytest.mark.parametrize("kind", ["none", "one", "all"])
@pytest.mark.parametrize("apart", [32, 19])
def test_rows_that_lie_apart(kind, apart):
    """One half of a product; and rows that cannot be read 16 bytes at a time."""
    batch = batch_of([symmetric(20, 0.3, 0), star(40)], padding=2)
    x = numbers(batch.nodes, apart)[:, apart - 16 :]
    mask = mask_of(kind, batch.nodes, 16, x.dtype)
    assert_near(csr_sum(x, mask, *batch.lists), definition(x, mask, batch), 1e-6)
    assert_near(bits_sum(x, mask, *batch.maps), definition(x, mask, batch), 1e-6)


@kernels
@EXAMPLES
@given(
    shapes(),
    st.integers(0, 9),
    channels(),
    masks(),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
    st.sampled_from([32, 64]),
)
def test_bits_sum(shapes, padding, channels, kind, dtype, columns):
    batch = batch_of([symmetric(*shape) for shape in shapes], padding)
    x = numbers(batch.nodes, channels, dtype=dtype)
    mask = mask_of(kind, batch.nodes, channels, dtype)
    expected = definition(x, mask, batch)
    out = bits_sum(x, mask, *batch.maps, config=BitsConfig(columns=columns))
    assert out.dtype == dtype
    assert_near(out, expected, TOLERANCE[dtype])
    assert_near(bits_sum(x, mask, *batch.maps, precision="tf32"), expected, max(TOLERANCE[dtype], 1e-4))


@kernels
@pytest.mark.parametrize("kind", ["none", "one", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hub_and_a_dense_graph(kind, dtype):
    batch = batch_of([star(300), symmetric(130, 0.6, 0), star(70), np.ones((33, 33), bool)], padding=11)
    x = numbers(batch.nodes, 16, dtype=dtype)
    mask = mask_of(kind, batch.nodes, 16, dtype)
    expected = definition(x, mask, batch)
    assert_near(csr_sum(x, mask, *batch.lists), expected, TOLERANCE[dtype])
    assert_near(bits_sum(x, mask, *batch.maps), expected, TOLERANCE[dtype])


@kernels
def test_more_channels_than_one_program_takes():
    batch = batch_of([symmetric(20, 0.3, 0)], padding=2)
    x = numbers(batch.nodes, 300)
    assert_near(csr_sum(x, None, *batch.lists), definition(x, None, batch), 1e-6)
    assert_near(bits_sum(x, None, *batch.maps), definition(x, None, batch), 1e-6)
    first, last = torch.tensor([0, 5], device=DEVICE), torch.tensor([5, 22], device=DEVICE)
    assert_near(segment_sum(x, first, last), torch.stack([x[:5].sum(0), x[5:].sum(0)]), 1e-6)


@kernels
def test_lists_without_base_of_32_bits_and_strided_rows():
    batch = batch_of([symmetric(30, 0.3, 0)])
    x = numbers(8, batch.nodes).T
    mask = numbers(1, 1).expand(batch.nodes, 8)
    expected = definition(x, mask, batch)
    start, end, col, _ = batch.lists
    assert_near(csr_sum(x, mask, start.int(), end.int(), col), expected, 1e-6)
    assert_near(
        bits_sum(x, mask, batch.bits, batch.bit_row.int(), batch.base.int(), batch.size.long()),
        expected,
        1e-6,
    )


@kernels
def test_one_replica_does_not_touch_another():
    batch = batch_of([symmetric(20, 0.5, 0)], padding=3, replicas=3)
    x = numbers(batch.nodes, 8)
    expected = definition(x, None, batch)
    x[:23] = torch.nan
    for out in (csr_sum(x, None, *batch.lists), bits_sum(x, None, *batch.maps, replicas=3)):
        assert_near(out[23:], expected[23:], 1e-6)


@kernels
def test_wrong_arguments():
    batch = batch_of([symmetric(4, 0.5, 0)])
    x = numbers(4, 8)
    with pytest.raises(ValueError, match="expected \\[4, 1\\]"):
        csr_sum(x, numbers(4, 2), *batch.lists)
    with pytest.raises(TypeError, match="float64"):
        bits_sum(x.double(), None, *batch.maps)
    with pytest.raises(ValueError, match="3 replicas"):
        bits_sum(x, None, *batch.maps, replicas=3)
    with pytest.raises(ValueError, match="precision"):
        bits_sum(x, None, *batch.maps, precision="half")


@kernels
def test_nothing_to_add():
    nothing = batch_of([])
    for x in (numbers(0, 8), numbers(0, 0)):
        assert csr_sum(x, None, *nothing.lists).shape == x.shape
        assert bits_sum(x, None, *nothing.maps).shape == x.shape
    padding = batch_of([], padding=5)
    assert csr_sum(numbers(5, 8), None, *padding.lists).abs().sum() == 0
    assert bits_sum(numbers(5, 8), None, *padding.maps).abs().sum() == 0
    none = torch.zeros(0, dtype=torch.long, device=DEVICE)
    empty = torch.zeros(3, dtype=torch.long, device=DEVICE)
    assert segment_sum(numbers(4, 8), none, none).shape == (0, 8)
    assert segment_sum(numbers(4, 8), empty, empty).abs().sum() == 0
    assert segment_sum(numbers(0, 8), empty, empty).abs().sum() == 0


@kernels
@EXAMPLES
@given(
    st.lists(st.sampled_from([0, 1, 2, 18, 70]), min_size=1, max_size=6),
    st.integers(0, 9),
    channels(),
    st.sampled_from(list(TOLERANCE)),
)
def test_segment_sum(sizes, padding, channels, dtype):
    nodes = sum(sizes) + padding
    x = numbers(nodes, channels, dtype=dtype)
    last = torch.tensor(sizes, device=DEVICE).cumsum(0)
    first = last - torch.tensor(sizes, device=DEVICE)
    graph = torch.cat([torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)), torch.full((padding,), -1)])
    expected = graph_sum(x.cpu().double(), graph, len(sizes))
    out = segment_sum(x, first, last)
    assert out.dtype == dtype
    assert_near(out, expected, TOLERANCE[dtype])
    if dtype == torch.bfloat16:
        wide = segment_sum(x, first, last, dtype=torch.float32)
        assert wide.dtype == torch.float32
        assert_near(wide, expected, 1e-6)


@kernels
@pytest.mark.parametrize("sizes", [[3000], [1, 900, 2]])
def test_long_segments_are_split(sizes):
    x = numbers(sum(sizes), 16)
    last = torch.tensor(sizes, device=DEVICE).cumsum(0)
    first = last - torch.tensor(sizes, device=DEVICE)
    expected = torch.stack([part.double().sum(0) for part in x.split(sizes)])
    assert_near(segment_sum(x, first, last), expected, 1e-6)


@cuda
def test_capture_and_equal_bits_from_run_to_run():
    batch = batch_of([star(500), symmetric(130, 0.6, 0)], padding=40)
    x = numbers(batch.nodes, 128)
    mask = mask_of("one", batch.nodes, 128, x.dtype)
    first, last = torch.tensor([0, 501], device=DEVICE), torch.tensor([501, 631], device=DEVICE)

    def all_three():
        sums = segment_sum(x, first, last)
        lists, maps = csr_sum(x, mask, *batch.lists), bits_sum(x, mask, *batch.maps)
        return lists, maps, sums

    all_three()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        replayed = all_three()
    x.copy_(numbers(batch.nodes, 128, seed=5))
    captured.replay()
    once = [t.clone() for t in replayed]
    captured.replay()
    for a, b, c in zip(once, replayed, all_three()):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert_near(once[0], definition(x, mask, batch), 1e-6)
    assert_near(once[1], definition(x, mask, batch), 1e-6)


@cuda
def test_more_numbers_than_32_bits_count():
    if torch.cuda.mem_get_info()[0] < 24 << 30:
        pytest.skip("needs 24 GiB of free device memory")
    nodes, width = (1 << 24) + 5, 136
    x = torch.randn(nodes, width, device=DEVICE, dtype=torch.bfloat16)
    row = torch.arange(nodes, device=DEVICE)
    out = csr_sum(x, None, row, row + 1, row.flip(0).int())
    some = torch.cat([row[:9], row[-9:]])  # not the middle row, whose only neighbour is itself
    assert torch.equal(out[some], x[nodes - 1 - some])
    out = segment_sum(x, row[-2:], row[-2:] + 1)
    assert torch.equal(out, x[-2:])
    # Two nodes a graph, joined by an edge.
    pair = row - row % 2
    bits = torch.tensor([2, 1], dtype=torch.int32, device=DEVICE)
    out = bits_sum(x[:-1], None, bits, row[:-1] % 2, pair[:-1], torch.full_like(row[:-1], 2).int())
    assert torch.equal(out[-9:], x[:-1][(row[:-1] ^ 1)[-9:]])
