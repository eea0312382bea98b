"""Fleets of models for graphs in space, on real molecules."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from softmask.data.atom_references import atom_masses
from softmask.data.catalog import open_data
from softmask.data.synthetic import motif
from softmask.errors import SettingError
from softmask.fleet import Fleet, Replica
from softmask.fleet.batches import deal, plan, with_layout
from softmask.fleet.pairs import StorePairs, fewest_pairs
from softmask.nn import GeometricSoftMaskGNN
from softmask.nn.geometric_gnn import select
from softmask.ops.pair_blocks import num_pairs


@pytest.fixture(scope="module")
def store():
    return open_data("qm9-sample").select(range(60))


def _kinds(store):
    return (store.edge_label[:, :1] == torch.tensor([1, 2, 3, 12])).int().argmax(dim=1) + 1


def _fleet(store, replicas, precision="float64", layers=2):
    return Fleet(
        lambda: GeometricSoftMaskGNN(11, 6, layers, num_radial=8, cutoff=6.0),
        *(store, store.node_attr.double(), replicas),
        batch_size=16,
        loss="mae",
        precision=precision,
        pairs=StorePairs.of(store, _kinds(store), atom_masses(store)),
    )


def _own(readout, offset=0.0):
    return {"select": select(readout).tolist(), "offset": [offset]}


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(1, 4))
def test_no_other_blocks_have_fewer_pairs(sizes, most):
    sizes = np.sort(np.array(sizes))[::-1]
    blocks = fewest_pairs(sizes, most)
    assert sum(graphs for graphs, _ in blocks) == len(sizes)
    assert len(blocks) <= most
    room = np.repeat([places for _, places in blocks], [graphs for graphs, _ in blocks])
    assert (room >= sizes).all()
    best = min(
        sum((b - a) * max(int(sizes[a]), 1) ** 2 for a, b in itertools.pairwise((0, *cuts, len(sizes))))
        for k in range(most)
        for cuts in itertools.combinations(range(1, len(sizes)), k)
    )
    assert num_pairs(blocks) == best


def test_every_batch_fits_its_places(store):
    parts = [np.arange(60), np.arange(7, 40)]
    other = plan([np.arange(5), np.arange(20)], store.sizes, 16)
    for made in with_layout([plan(parts, store.sizes, 16), other], store.sizes):
        room = torch.tensor([places for graphs, places in made.layout.blocks for _ in range(graphs)])
        for keys in (None, torch.tensor([3, 4])):
            table = deal(made, keys)
            size = torch.where(table >= 0, store.sizes[table.clamp(min=0)], 0)
            assert (size <= room).all()
            assert (table >= 0).sum() == made.counts.sum()
        assert made.nodes == int(room.sum())
        assert 0 <= made.padding < 1


def test_a_fleet_computes_what_the_model_does_on_pyg_batches(store):
    ids = np.arange(60)
    cases = [(2, "mean", 0.0), (0, "dipole", -1.5), (5, "extent", 0.0), (7, "sum", 0.0)]
    replicas = [
        Replica(seed, ids, {"all": ids}, lr=1e-15, target=t, buffers=_own(readout, offset))
        for seed, (t, readout, offset) in enumerate(cases)
    ]
    fleet = _fleet(store, replicas)
    history = fleet.train(1)
    datas = []
    for g in range(60):
        data = store[g]
        kind = (data.edge_label[:, :1] == torch.tensor([1, 2, 3, 12])).int().argmax(dim=1) + 1
        first, last = int(store.node_ptr[g]), int(store.node_ptr[g + 1])
        mass = atom_masses(store)[first:last]
        datas.append(
            Data(
                x=store.node_attr[first:last].double(),
                edge_index=data.edge_index,
                edge_kind=kind,
                pos=store.pos[first:last].double(),
                mass=mass,
            )
        )
    batch = Batch.from_data_list(datas)
    for r, (target, readout, offset) in enumerate(cases):
        state = history.weights[r]
        assert state["select"].tolist() == select(readout).tolist()
        model = GeometricSoftMaskGNN(11, 6, 2, num_radial=8, cutoff=6.0, readout=readout).double()
        model.load_state_dict(state)
        with torch.no_grad():
            out = model.eval()(
                *(batch.x, batch.edge_index, batch.batch),
                pos=batch.pos,
                edge_kind=batch.edge_kind,
                mass=batch.mass,
            )
        assert float(model.offset) == offset
        y = store.y[:, target : target + 1]
        scaled = (y - y.mean()) / (y - y.mean()).square().mean().sqrt()
        assert history.loss["all"][r, -1] == pytest.approx((out - scaled).abs().mean().item(), abs=1e-9)


def test_a_replica_does_not_depend_on_its_company_and_learns(store):
    replicas = [
        Replica(s, np.arange(40 + s), {"test": np.arange(45, 60)}, lr=3e-3, target=0, buffers=_own(readout))
        for s, readout in enumerate(("mean", "sum", "sum"))
    ]
    together = _fleet(store, replicas).train(10)
    alone = _fleet(store, replicas[1:2]).train(10)
    np.testing.assert_allclose(together.train_loss[1], alone.train_loss[0], atol=1e-9)
    assert (together.train_loss[:, -1] < together.train_loss[:, 0]).all()
    assert together.weights[0]["select"].tolist() == select("mean").tolist()


@pytest.mark.slow
def test_it_compiles_whole_and_in_half_precision(store):
    """What runs on CUDA, as far as a CPU can tell: one graph, without a break, that gives the same numbers."""
    fleet = _fleet(store, [Replica(0, np.arange(40), target=0), Replica(1, np.arange(40), target=1)], "bf16", 1)
    fleet.begin()
    (crew,) = fleet.crews
    prepared = fleet._prepare(0, crew)
    again = torch.compile(fleet._prepare, backend="aot_eager", fullgraph=True, dynamic=False)(0, crew)
    torch.testing.assert_close(again[0].pairs, prepared[0].pairs)
    plain = fleet._loss(crew, *prepared)[0]
    torch._dynamo.reset()
    compiled = torch.compile(fleet._loss, backend="aot_eager", fullgraph=True, dynamic=False)(crew, *prepared)[0]
    torch.testing.assert_close(compiled, plain, rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad(compiled, list(crew.parameters.values()))
    assert all(bool(torch.isfinite(g).all()) for g in gradients)


def test_bad_input(store):
    plain = motif(num_graphs=4, seed=0)
    with pytest.raises(SettingError, match="no positions"):
        StorePairs.of(plain, torch.ones(plain.num_edges), torch.ones(plain.num_nodes))
    with pytest.raises(SettingError, match="no persistent buffer 'wish'"):
        _fleet(store, [Replica(0, [0, 1], target=0, buffers={"wish": [1.0]})])
