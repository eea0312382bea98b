"""Classes of sizes: what they promise, for any sizes and for real sets, and fleets that train by them."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.baselines.batch_norm import MaskedBatchNorm
from softmask.baselines.ppgn import PPGN
from softmask.data import Features
from softmask.data.catalog import open_data
from softmask.data.convert import as_store
from softmask.data.splits import stratified_folds
from softmask.data.synthetic import motif
from softmask.errors import CannotRun
from softmask.fleet import Fleet, Replica, train_in_waves, waves
from softmask.fleet.batches import blocks_of, deal, plan, with_layout
from softmask.fleet.by_size import SizeClass, evenly, size_classes
from softmask.fleet.program import Program
from softmask.fleet.snapshot import Snapshot
from softmask.nn import KeyedDropout
from softmask.ops.pair_blocks import num_pairs


def classes_of(sizes, batch_size, whole=1):
    return size_classes(torch.tensor(sizes), batch_size, whole)


def pairs_of(made, whole):
    """Pairs of places of one batch, and of all batches of an epoch."""
    pairs = num_pairs(blocks_of([made[0]], made[1], whole))
    return pairs, pairs * made[0].steps


def planned(sizes, one, ids=None):
    sizes = torch.tensor(sizes)
    ids = range(len(sizes)) if ids is None else ids
    return plan([one.members(ids, sizes)], sizes, one.batch_size), sizes


# Many small sizes and a few large ones.
tailed = st.lists(st.integers(0, 9) | st.integers(10, 60), min_size=1, max_size=40)


@given(tailed, st.integers(1, 9), st.sampled_from([1, 4]))
def test_every_graph_is_of_one_class_and_no_batch_needs_more_room(sizes, batch_size, whole):
    classes = classes_of(sizes, batch_size, whole)
    assert 1 <= len(classes) <= 3
    for larger, smaller in itertools.pairwise(classes):
        assert larger.least > smaller.most
    members = [one.members(range(len(sizes)), torch.tensor(sizes)) for one in classes]
    assert sorted(np.concatenate(members)) == list(range(len(sizes)))
    mixed = planned(sizes, SizeClass(0, max(sizes), batch_size, 1))
    room, before = pairs_of(mixed, whole)
    total = 0
    for one, ids in zip(classes, members):
        assert 1 <= one.batch_size <= batch_size
        assert one.batches == -(-len(ids) // one.batch_size)
        pairs, of_class = pairs_of(planned(sizes, one), whole)
        assert pairs <= room
        total += of_class
    # One class is all graphs in batches as large as asked for; more must be worth it.
    if len(classes) == 1:
        assert (classes[0].batch_size, total) == (batch_size, before)
    else:
        assert total <= 0.9 ** (len(classes) - 1) * before


def test_a_few_large_graphs_are_by_themselves():
    sizes = [100] * 2 + [10] * 200
    large, small = classes_of(sizes, 20)
    assert (large.least, large.most) == (100, 100)
    assert (small.least, small.most) == (10, 10)
    assert large.batch_size == 1  # 100 * 100 pairs, as the only place for a large graph among twenty would have
    assert small.batch_size == 20
    assert classes_of([10] * 50, 20) == [SizeClass(10, 10, 20, 3)]


@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_the_order_of_batches_does_not_depend_on_how_many_others_have(batches, fewer, more):
    classes = [SizeClass(0, 0, 1, b) for b in batches]
    few = [max(b - f, 0) for b, f in zip(batches, fewer)]
    many = [f + m for f, m in zip(few, more)]
    short, long = evenly(classes, few), evenly(classes, many)
    assert [long.count(k) for k in range(len(classes))] == many
    seen = [0] * len(classes)
    kept = []
    for k in long:
        seen[k] += 1
        if seen[k] <= few[k]:
            kept.append(k)
    assert kept == short


def test_classes_take_turns():
    order = evenly([SizeClass(5, 9, 1, 2), SizeClass(0, 4, 1, 8)], [2, 8])
    assert order == [1, 1, 0, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.real
@pytest.mark.parametrize("name", ["MUTAG", "PROTEINS", "ENZYMES", "IMDB-BINARY", "IMDB-MULTI", "NCI1"])
def test_real_sets_need_far_fewer_pairs(real_set, name):
    """Beside batches of 5 graphs of all sizes, and of 32; every batch of every fold fits its places."""
    store = open_data(real_set(name))
    parts = [train for train, _ in stratified_folds(store.y.numpy(), 10, 0)]

    def mixed(batch_size):
        made = plan(parts, store.sizes, batch_size)
        return num_pairs(blocks_of([made], store.sizes, 4)) * made.steps

    total = 0
    for one in size_classes(store.sizes, 5, 4):
        made = plan([one.members(part, store.sizes) for part in parts], store.sizes, one.batch_size)
        (made,) = with_layout([made], store.sizes, 4)
        total += num_pairs(made.layout.blocks) * made.steps
        room = torch.tensor([places for graphs, places in made.layout.blocks for _ in range(graphs)])
        table = deal(made, torch.arange(10))
        assert (torch.where(table >= 0, store.sizes[table.clamp(min=0)], 0) <= room).all()
    if name == "MUTAG":
        assert total == mixed(5)
    else:
        assert total < 0.5 * mixed(5)
        assert total < 0.9 * mixed(32)


SMALL, MIDDLE, LARGE = (motif(num_graphs=60, seed=2, background=size) for size in ((5, 9), (15, 18), (30, 40)))
STORE = as_store([LARGE[g] if g % 10 == 3 else MIDDLE[g] if g % 5 == 1 else SMALL[g] for g in range(60)])
FEATURES = Features.of(STORE)


class Norm(PPGN):
    """With batch norm and dropout of what it says of graphs."""

    def __init__(self):
        super().__init__(FEATURES.channels, 6, 2, 2)
        self.norm, self.drop = MaskedBatchNorm(2), KeyedDropout(0.3)

    def forward(self, x, edge_index, batch, batch_size, pair_blocks):
        out = super().forward(x, edge_index, batch, batch_size, pair_blocks)
        there = (batch.last > batch.first).unsqueeze(1)
        return out + self.drop(self.norm(out, there))


def fleet(replicas, model=Norm, **options):
    options = {"batch_size": 4, "precision": "float64"} | options
    return Fleet(model, STORE, FEATURES(STORE), replicas, **options)


def replicas():
    """One with graphs of all sizes, one without the small, one without the large, one with the large alone."""
    rng, sizes = np.random.default_rng(0), STORE.sizes.numpy()
    ids = [rng.permutation(np.flatnonzero(of)) for of in (sizes > 0, sizes > 12, sizes < 25, sizes > 25)]
    parts = [{}, {"other": rng.permutation(60)[:7]}, {}, {}]
    return [
        Replica(seed, own[:-3], {"test": own[-3:]} | part, lr=1e-2, weight_decay=1e-3, average=float(seed % 3))
        for seed, (own, part) in enumerate(zip(ids, parts))
    ]


@pytest.fixture(scope="module")
def together():
    made = fleet(replicas())
    assert len(made.classes) == 3
    assert len({tuple(plan.batches.tolist()) for plan in made.train_plans}) > 1
    return made.train(3)


@pytest.mark.parametrize("r", range(4))
def test_batch_norm_dropout_and_averages_are_a_replicas_own(together, r):
    alone = fleet([replicas()[r]]).train(3)
    assert any("running" in name for name in alone.weights[0])
    for name, t in alone.weights[0].items():
        torch.testing.assert_close(t, together.weights[r][name], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(alone.train_loss[0], together.train_loss[r], atol=1e-9)
    for part, loss in alone.loss.items():
        np.testing.assert_allclose(loss[0], together.loss[part][r], atol=1e-9)


def assert_same(found, expected):
    for own, other in zip(found.weights, expected.weights):
        assert all(torch.equal(t, other[name]) for name, t in own.items())
    np.testing.assert_array_equal(found.train_loss, expected.train_loss)
    for part, loss in expected.loss.items():
        np.testing.assert_array_equal(found.loss[part], loss)


def test_an_interrupted_training_goes_on(together, tmp_path):
    snapshot = Snapshot(tmp_path / "state.safetensors", every=0)
    cut = fleet(replicas()).train(3, on_epoch=lambda epoch, _: epoch == 2, snapshot=snapshot)
    assert cut.interrupted
    assert_same(fleet(replicas()).train(3, snapshot=snapshot), together)


def test_another_dealing_does_not_go_on_from_it(tmp_path):
    snapshot = Snapshot(tmp_path / "state.safetensors", every=0)
    fleet(replicas()).train(3, on_epoch=lambda epoch, _: epoch == 2, snapshot=snapshot)
    other = fleet(replicas(), batch_size=3)
    assert_same(other.train(3, snapshot=snapshot), fleet(replicas(), batch_size=3).train(3))


def test_warming_up_changes_nothing(together, monkeypatch):
    """What comes before a capture on CUDA: every program runs, and what it says it changes is put back."""
    seen = set()

    def warmed(program):
        if program not in seen:
            before = [t.clone() for t in program.changes]
            for _ in range(3):
                program.run()
            for t, old in zip(program.changes, before):
                t.copy_(old)
        seen.add(program)
        program.run()

    monkeypatch.setattr(Program, "__call__", warmed)
    assert_same(fleet(replicas()).train(3), together)
    assert len(seen) == 1 + 3 + 2  # the beginning of an epoch, a step of each class, two parts


def test_whether_to_compile_follows_from_the_batches_that_there_are(monkeypatch):
    asked = []

    def begin(*args, compiles, **options):
        asked.append(compiles)
        raise CannotRun("not begun")

    held = sum(made.steps * Norm().numbers_held(made.rows, made.slots) for made in fleet(replicas()).train_plans)
    enough = 3 * waves._WORTH_COMPILING / (4 * 8 * held)  # three classes; four replicas in float64
    monkeypatch.setattr(waves, "Fleet", begin)
    for epochs in (int(0.99 * enough), int(1.01 * enough)):
        with pytest.raises(CannotRun, match="not begun"):
            train_in_waves(Norm, STORE, FEATURES(STORE), replicas(), epochs, batch_size=4, precision="float64")
    assert asked == [False, True]


def test_what_needs_most_memory_is_captured_first(monkeypatch):
    """On CUDA; and nothing is captured of a class that no replica trains on."""
    captured = []
    monkeypatch.setattr("softmask.fleet.fleet.capture_all", captured.append)
    large, middle, _ = fleet(replicas()).classes
    ids = [*large.members(range(60), STORE.sizes), *middle.members(range(60), STORE.sizes)]
    without_small = fleet([Replica(0, ids)])
    without_small.train_epoch()
    [programs] = captured
    rows = [without_small.train_plans[without_small.steps.index(program)].rows for program in programs]
    assert len(rows) == 2
    assert rows == sorted(rows, reverse=True)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_several_classes_need_no_more_memory_than_one():
    def reserved(train):
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        made = fleet(
            [Replica(s, train, lr=1e-3) for s in range(4)],
            lambda: PPGN(FEATURES.channels, 128, 3, 2),
            **{"device": "cuda", "precision": "float32", "compiles": False},
        )
        made.train(1)
        return torch.cuda.max_memory_reserved() - before

    reserved(range(60))  # what the libraries keep for themselves
    each = [reserved(one.members(range(60), STORE.sizes)) for one in fleet(replicas()).classes]
    assert reserved(range(60)) < 1.2 * max(each) < 0.8 * sum(each)
