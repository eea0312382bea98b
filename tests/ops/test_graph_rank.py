import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import examples

from softmask.ops import Segments, graph_rank

# Few scores, so that nodes tie; graphs in any order, without nodes, padding anywhere.
nodes = st.lists(st.tuples(st.integers(-1, 3), st.sampled_from([-np.inf, -1.5, -0.0, 0.0, 0.25, 3.0])), max_size=14)


def by_hand(graph, score):
    """For every node its place in Python's own list of its graph's nodes."""
    rank = [-1] * len(graph)
    for g in set(graph) - {-1}:
        own = [v for v in range(len(graph)) if graph[v] == g]
        for place, v in enumerate(sorted(own, key=lambda v: (-score[v], v))):
            rank[v] = place
    return rank


@examples(150)
@given(nodes, st.sampled_from([torch.int64, torch.int32]), st.sampled_from([torch.float64, torch.float32]))
def test_against_a_sorted_list(nodes, integer, real):
    graph, score = [n[0] for n in nodes], [n[1] for n in nodes]
    given_ = (torch.tensor(score, dtype=real), torch.tensor(graph, dtype=integer))
    found = graph_rank(*given_, 4)
    assert found.dtype == torch.int64
    assert found.tolist() == by_hand(graph, score)
    assert torch.equal(graph_rank(given_[0], Segments(given_[1]), 4), found)


@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, None), (None, 1)])
def test_vmap_is_a_loop(dims):
    generator = torch.Generator().manual_seed(0)
    scores = [torch.randint(0, 4, (9,), generator=generator).double() for _ in range(3)]
    graphs = [torch.randint(-1, 3, (9,), generator=generator) for _ in range(3)]
    rows = [[ts[0]] * 3 if dim is None else ts for ts, dim in zip((scores, graphs), dims)]
    given_ = [r[0] if dim is None else torch.stack(r, dim) for r, dim in zip(rows, dims)]
    found = torch.vmap(lambda score, graph: graph_rank(score, graph, 3), dims)(*given_)
    assert torch.equal(found, torch.stack([graph_rank(*pair, 3) for pair in zip(*rows)]))


def test_what_is_no_number_takes_nobodys_rank():
    found = graph_rank(torch.tensor([0.5, torch.nan, 0.7, torch.nan]), torch.tensor([0, 0, 0, 0]), 1)
    assert found.tolist() == [3, 0, 2, 1]


def test_it_has_no_gradient_and_opcheck_and_compile_know_it():
    score, graph = torch.tensor([0.1, 0.3, 0.2, 0.4], requires_grad=True), torch.tensor([0, 0, -1, 1])
    assert not graph_rank(score, graph, 3).requires_grad
    torch.library.opcheck(torch.ops.softmask.graph_rank.default, (score.detach(), graph, 3))
    torch.compiler.reset()
    compiled = torch.compile(lambda s, g: graph_rank(s.cos(), g, 3) + 1, fullgraph=True, backend="aot_eager")
    assert compiled(score, graph).tolist() == [1, 2, 0, 1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_without_waiting_for_it():
    generator = torch.Generator().manual_seed(0)
    score = torch.randint(0, 50, (5000,), generator=generator).float()
    graph = torch.randint(-1, 40, (5000,), generator=generator)
    given_ = score.cuda(), graph.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = graph_rank(*given_, 40)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(found.cpu(), graph_rank(score, graph, 40))
