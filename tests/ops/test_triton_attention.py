"""The Triton kernels of the attention against the definition: on the GPU where there is one, else in Triton's
interpreter, in a process of their own, as in `test_triton_sums`.
"""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from interpreter import CUDA, DEVICE, INTERPRETED, cuda, kernels, outside, run_in_the_interpreter
from theory.graphs import Graphs, graphs

from softmask.data.networkx import from_networkx
from softmask.fleet.quotient import quotient
from softmask.ops import Neighbours, as_neighbours, attention_sum

triton = pytest.importorskip("triton", reason="triton is not installed")

if CUDA or INTERPRETED:
    from softmask.ops.triton_attention import AttentionConfig, attend, attend_backward

# bfloat16 in, bfloat16 out (which the interpreter cuts off instead of rounding); weights and sums are float32.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


@outside
def test_in_the_interpreter():
    run_in_the_interpreter(__file__)


def star(leaves, directed=False):
    edges = [(v, 0) for v in range(1, leaves + 1)]
    edges += [] if directed else [(t, s) for s, t in edges]
    return Graphs(tuple(edges), (0,) * (leaves + 1), 1, 0)


def values(nodes, heads, channels, dtype, score_dtype, seed=0):
    """x, both scores and the gradient of the result."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(nodes, heads, channels), (nodes, heads), (nodes, heads), (nodes, heads, channels)]
    drawn = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    # Scores far apart, so that the maximum matters.
    drawn[1] *= 8
    types = (dtype, score_dtype, score_dtype, dtype)
    return [t.to(DEVICE, kind) for t, kind in zip(drawn, types)]


def both_ways(neighbours):
    """The rows of a graph, and of the graph with all edges turned round."""
    rows = (*neighbours[:3], neighbours.weight)
    turned = (*neighbours[:3], neighbours.weight_t) if neighbours.col_t is None else (*neighbours[4:7], None)
    return rows, turned


def computed(x, source, target, grad, neighbours, **options):
    """The result and the gradients by the kernels; NaN wherever they do not write."""
    rows, turned = both_ways(neighbours)
    torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
    try:
        out, log_total = attend(x, source, target, *rows[:3], neighbours.base, rows[3], **options)
        assert torch.isfinite(log_total).all()
        base = neighbours.base
        return out, *attend_backward(grad, x, source, target, log_total, rows, turned, base, **options)
    finally:
        torch.use_deterministic_algorithms(False)


def definition(x, source, target, grad, neighbours, itself):
    neighbours = Neighbours(*(t.cpu() if isinstance(t, torch.Tensor) else t for t in neighbours))
    inputs = [t.cpu().double().requires_grad_() for t in (x, source, target)]
    out = attention_sum(*inputs, neighbours, itself=itself)
    return out.detach(), *torch.autograd.grad(out, inputs, grad.cpu().double())


def assert_equal(results, expected, tolerance):
    for name, a, b in zip(("y", "grad x", "grad source", "grad target"), results, expected, strict=True):
        assert a.shape == b.shape
        a = a.cpu().double()
        assert torch.isfinite(a).all(), name
        # The gradients of the scores are differences of numbers as large as the gradient of x.
        assert (a - b).norm() <= tolerance * max(b.norm(), expected[1].norm()), name


def compare(graph, heads, channels, dtype, itself, score_dtype=None, undirected=False, **options):
    neighbours = as_neighbours(graph.edge_index.to(DEVICE), graph.num_nodes)
    neighbours = Neighbours(*neighbours[:3]) if undirected else neighbours
    inputs = values(graph.num_nodes, heads, channels, dtype, score_dtype or dtype)
    results = computed(*inputs, neighbours, itself=itself, **options)
    assert [t.dtype for t in results] == [dtype, dtype, score_dtype or dtype, score_dtype or dtype]
    assert_equal(results, definition(*inputs, neighbours, itself), TOLERANCE[dtype])


@kernels
@settings(max_examples=8, phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes in the interpreter
@given(
    graphs(max_nodes=9, max_graphs=2),
    st.integers(1, 3),
    st.sampled_from([1, 3, 8, 17]),
    st.sampled_from(list(TOLERANCE)),
    st.booleans(),
    st.booleans(),
)
def test_against_the_definition(graph, heads, channels, dtype, itself, hubs):
    """Directed or not, with isolated nodes, self loops and edges that stand twice; every second row a hub."""
    compare(graph, heads, channels, dtype, itself, hubs=hubs, config=AttentionConfig(hub=2))


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize(("itself", "directed"), [(False, False), (True, True)])
def test_a_hub(dtype, itself, directed):
    """More neighbours than a program takes in one step."""
    compare(star(300, directed), 2, 8, dtype, itself, undirected=not directed)


@kernels
def test_a_row_longer_than_a_step_without_hubs():
    compare(star(70), 2, 8, torch.float32, True, undirected=True, hubs=False)


@kernels
@pytest.mark.parametrize("itself", [False, True])
def test_half_precision_with_scores_in_full(itself):
    compare(star(40), 4, 32, torch.bfloat16, itself, score_dtype=torch.float32, undirected=True)


@kernels
def test_rows_of_a_store_and_padding():
    """Two graphs of a store out of order, 32-bit columns, rubbish between the rows, and two nodes of padding."""
    start = torch.tensor([5, 8, 1, 2, 4, 0, 0], device=DEVICE)
    end = torch.tensor([7, 10, 2, 4, 5, 0, 0], device=DEVICE)
    col = torch.tensor([99, 1, 0, 2, 1, 1, 0, 99, 0, 1], dtype=torch.int32, device=DEVICE)
    base = torch.tensor([0, 0, 2, 2, 2, 0, 0], device=DEVICE)
    neighbours = Neighbours(start, end, col, base)
    for itself in (False, True):
        inputs = values(7, 2, 5, torch.float64, torch.float64)
        results = computed(*inputs, neighbours, itself=itself)
        assert_equal(results, definition(*inputs, neighbours, itself), 1e-12)
        if not itself:
            assert all((t[5:] == 0).all() for t in results)


@kernels
@pytest.mark.parametrize("dtype", list(TOLERANCE))
@pytest.mark.parametrize("hub", [2, 32])
def test_entries_that_count_several_times(dtype, hub):
    """The quotients of a star, a clique and a tree: classes that are their own neighbours, and others."""
    store = from_networkx([nx.star_graph(5), nx.complete_graph(4), nx.random_labeled_tree(12, seed=0)])
    made = quotient(store, torch.zeros(store.num_nodes, dtype=torch.long))
    rows = made.store.to(DEVICE)
    base = rows.node_ptr[:-1][rows.batch]
    weights = {"weight": made.weight.double().to(DEVICE), "weight_t": made.weight_t.double().to(DEVICE)}
    neighbours = Neighbours(rows.row_ptr[:-1], rows.row_ptr[1:], rows.col, base, **weights)
    assert (made.weight > 1).any()
    for itself in (False, True):
        inputs = values(rows.num_nodes, 2, 5, dtype, dtype)
        results = computed(*inputs, neighbours, itself=itself, config=AttentionConfig(hub=hub))
        assert_equal(results, definition(*inputs, neighbours, itself), TOLERANCE[dtype])


@kernels
def test_strided_input():
    neighbours = as_neighbours(star(5).edge_index.to(DEVICE), 6)
    x, source, target, grad = values(6, 2, 4, torch.float64, torch.float64)
    strided = [t.transpose(0, -1).contiguous().transpose(0, -1) for t in (x, source, target, grad)]
    expected = computed(x, source, target, grad, neighbours)
    for a, b in zip(computed(*strided, neighbours), expected):
        assert torch.equal(a, b)


@kernels
def test_nothing():
    nothing = as_neighbours(torch.empty(2, 0, dtype=torch.long, device=DEVICE), 0)
    assert [len(t) for t in computed(*values(0, 2, 3, torch.float32, torch.float32), nothing)] == [0] * 4
    alone = as_neighbours(torch.empty(2, 0, dtype=torch.long, device=DEVICE), 3)
    assert all((t == 0).all() for t in computed(*values(3, 2, 3, torch.float32, torch.float32), alone))


@kernels
@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")  # of the interpreter
def test_a_replica_that_diverges_touches_no_other():
    neighbours = as_neighbours(torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]], device=DEVICE), 4)
    inputs = values(4, 1, 4, torch.float32, torch.float32)
    expected = computed(*inputs, neighbours, itself=True)
    for t in inputs:
        t[:2] = torch.nan
    x, source, target, grad = inputs
    out, log_total = attend(x, source, target, *neighbours[:3], itself=True)
    assert torch.isnan(out[:2]).all()
    results = out, *attend_backward(grad, x, source, target, log_total, *both_ways(neighbours), itself=True)
    assert all(torch.equal(a[2:], b[2:]) for a, b in zip(results, expected))


@cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_gpu_computes_what_the_cpu_computes(dtype):
    """The operator itself, with its gradients, and under vmap."""
    rng = np.random.default_rng(0)
    edges = torch.from_numpy(rng.integers(0, 200, (2, 3000)))
    edges = torch.cat([edges, torch.stack([torch.arange(200), torch.zeros(200, dtype=torch.long)])], dim=1)
    inputs = [t.cpu() for t in values(200, 4, 32, dtype, dtype)]
    weight = inputs.pop()
    grads = []
    for device in ("cpu", "cuda"):
        own = [torch.stack([t, 2 * t, -t]).to(device).requires_grad_() for t in inputs]
        neighbours = as_neighbours(edges.to(device), 200)
        out = torch.vmap(lambda *t, n=neighbours: attention_sum(*t, n, itself=True))(*own)
        grads.append((out, *torch.autograd.grad((out * weight.to(device)).sum(), own)))
    for a, b in zip(*grads):
        # The gradients of the scores are differences of nearly equal sums: float32 keeps four digits of them.
        assert (a - b.cpu()).norm() <= {torch.float64: 1e-12, torch.float32: 1e-4}[dtype] * a.norm()


@cuda
def test_capture_and_equal_bits_from_run_to_run():
    neighbours = as_neighbours(star(500).edge_index.to(DEVICE), 501)
    inputs = values(501, 4, 32, torch.bfloat16, torch.float32)

    def run():
        x, source, target, grad = inputs
        rows, turned = both_ways(neighbours)
        out, log_total = attend(x, source, target, *rows[:3], itself=True)
        return out, *attend_backward(grad, x, source, target, log_total, rows, turned, itself=True)

    run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        replayed = run()
    for t, new in zip(inputs, values(501, 4, 32, torch.bfloat16, torch.float32, seed=1)):
        t.copy_(new)
    captured.replay()
    once = [t.clone() for t in replayed]
    captured.replay()
    for a, b, c in zip(once, replayed, run()):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    assert_equal(once, definition(*inputs, neighbours, True), TOLERANCE[torch.bfloat16])
