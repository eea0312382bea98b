import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.data.synthetic import motif
from softmask.fleet.batches import assemble, deal, plan


@st.composite
def parts(draw):
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=30))
    graphs = st.lists(st.integers(0, len(sizes) - 1), min_size=1, unique=True)
    return sizes, draw(st.lists(graphs, min_size=1, max_size=4)), draw(st.integers(1, 8))


@given(parts(), st.integers(-(2**62), 2**62))
def test_every_graph_comes_once_and_no_batch_outgrows_the_plan(case, key):
    sizes, ids, batch_size = case
    made = plan(ids, torch.tensor(sizes), batch_size)
    for keys in (None, torch.full((len(ids),), key)):
        table = deal(made, keys)
        assert table.shape == (made.steps, len(ids), made.slots)
        for r, part in enumerate(ids):
            mine = table[:, r]
            assert sorted(mine[mine >= 0].tolist()) == sorted(part)
            for step in mine:
                there = step[step >= 0]
                assert there.numel() <= batch_size
                assert sum(sizes[g] for g in there.tolist()) <= made.nodes


@given(parts(), st.integers(-(2**62), 2**62))
def test_batches_of_a_replica_do_not_depend_on_its_company(case, key):
    sizes, ids, batch_size = case
    together = deal(plan(ids, torch.tensor(sizes), batch_size), torch.full((len(ids),), key))
    for r, part in enumerate(ids):
        alone = deal(plan([part], torch.tensor(sizes), batch_size), torch.tensor([key]))
        for step in range(together.size(0)):
            mine = together[step, r]
            expected = alone[step, 0] if step < alone.size(0) else mine[:0]
            assert mine[mine >= 0].tolist() == expected[expected >= 0].tolist()


def test_shuffles_differ_from_epoch_to_epoch_and_mix_all_graphs():
    sizes = torch.randint(5, 50, (100,), generator=torch.Generator().manual_seed(0))
    made = plan([range(100)], sizes, 20)
    first = [set(deal(made, torch.tensor([k]))[0, 0].tolist()) - {-1} for k in range(50)]
    assert len({frozenset(f) for f in first}) == 50
    assert set().union(*first) == set(range(100))


def test_a_batch_is_the_graphs_of_the_store():
    store = motif(num_graphs=12, seed=0)
    x = torch.arange(store.num_nodes)
    graphs = torch.tensor([[3, 0, 7], [5, -1, -1]])
    nodes = 3 + max(int(store.sizes[[3, 0, 7]].sum()), int(store.sizes[5]))
    batch = assemble(store, x, graphs, nodes)
    for r, ids in enumerate([[3, 0, 7], [5]]):
        expected = [store[g] for g in ids]
        begin = 0
        for slot, (g, data) in enumerate(zip(ids, expected)):
            n = data.num_nodes
            rows = slice(begin, begin + n)
            assert (batch.segments.graph[r, rows] == slot).all()
            assert batch.x[r, rows].tolist() == list(range(int(store.node_ptr[g]), int(store.node_ptr[g]) + n))
            edges = set()
            for v in range(begin, begin + n):
                a, b = int(batch.neighbours.start[r, v]), int(batch.neighbours.end[r, v])
                edges |= {(int(u) + begin, v) for u in batch.neighbours.col[a:b]}
                assert int(batch.neighbours.base[r, v]) == begin
            assert edges == {(u + begin, v + begin) for u, v in data.edge_index.t().tolist()}
            begin += n
        assert (batch.segments.graph[r, begin:] == -1).all()
        assert torch.equal(batch.neighbours.start[r, begin:], batch.neighbours.end[r, begin:])


def test_padding_is_small_on_graphs_of_very_different_sizes():
    sizes = torch.from_numpy(np.random.default_rng(0).lognormal(4, 1, 2000).astype(np.int64) + 1)
    assert plan([range(2000)], sizes, 128).padding < 0.1
