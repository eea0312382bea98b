import dataclasses

import pytest
import torch
from torch_geometric.data import Data

from softmask.data.convert import from_data
from softmask.data.features import Features
from softmask.data.files import load_store, save_store
from softmask.data.store import GraphStore
from softmask.data.tu import read_tu
from softmask.errors import DataError


@pytest.fixture
def store(write_tu) -> GraphStore:
    # Edge 1, 3 has lost its way back, so that the transposed arrays are there too.
    return read_tu(
        write_tu(
            A="1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 4\n4, 3\n5, 6\n6, 5\n",
            edge_labels="1\n2\n3\n4\n5\n6\n7\n8\n9\n",
        )
    )


def test_select_is_the_same_as_packing_the_chosen(store):
    for ids in ([0, 1], [1, 0], [1], [0, 0, 1]):
        chosen = store.select(ids)
        packed = from_data([store[i] for i in ids])
        assert {n: t.tolist() for n, t in chosen.tensors().items() if n != "y"} == {
            n: t.tolist() for n, t in packed.tensors().items() if n != "y"
        } | ({} if packed.directed else {"row_ptr_t": chosen.row_ptr_t.tolist(), "col_t": chosen.col_t.tolist()})
        assert [chosen.info["classes"][i] for i in chosen.y] == [int(store[i].y) for i in ids]


def test_select_forms(store):
    wanted = store.select([1]).content_hash()
    for ids in (
        torch.tensor([1]),
        torch.tensor([1]).numpy(),
        (i for i in [1]),
        [False, True],
        torch.tensor([False, True]),
    ):
        assert store.select(ids).content_hash() == wanted
    assert store.select([]).num_graphs == 0


@pytest.mark.parametrize("bad", [[2], [-1], [0.5], [True], [True, False, True]])
def test_select_refuses(store, bad):
    with pytest.raises(DataError):
        store.select(bad)


def test_select_keeps_names(store):
    named = dataclasses.replace(store, info={**store.info, "names": ["a", "b"]})
    assert named.select([1, 0, 1]).info["names"] == ["b", "a", "b"]


def test_content_hash_sees_everything(store):
    hashes = {store.content_hash()}
    for name, t in store.tensors().items():
        changed = t.clone()
        changed.view(-1)[-1] += 1
        hashes.add(dataclasses.replace(store, **{name: changed}).content_hash())
    hashes.add(dataclasses.replace(store, info={**store.info, "name": "other"}).content_hash())
    hashes.add(dataclasses.replace(store, node_attr=store.node_attr.double()).content_hash())
    hashes.add(dataclasses.replace(store, edge_label=None).content_hash())
    assert len(hashes) == len(store.tensors()) + 4
    assert dataclasses.replace(store, info=dict(reversed(store.info.items()))).content_hash() in hashes


def test_content_hash_is_the_same_everywhere():
    """A constant: the hash goes into results, so it must not change from version to version unnoticed."""
    store = from_data(
        [Data(edge_index=torch.tensor([[0, 1], [1, 0]]), x=torch.tensor([[1], [2]]), y=torch.tensor([4]))]
    )
    assert store.content_hash() == "12a38b72fed40e99034c3fd37ed1652f5ad5158f680f3253d876d14440479b6a"


def test_to_another_device(store):
    moved = store.to("meta")
    assert moved.device.type == "meta"
    assert {n: t.shape for n, t in moved.tensors().items()} == {n: t.shape for n, t in store.tensors().items()}
    assert moved.info == store.info
    assert store.to("cpu").content_hash() == store.content_hash()


def test_degree_leaves_loops_out():
    edges = torch.tensor([[0, 0, 1, 1, 2], [0, 0, 0, 1, 1]])
    store = from_data([Data(edge_index=edges, num_nodes=3), Data(edge_index=edges[:, :0], num_nodes=2)])
    assert store.degree().tolist() == [1, 1, 0, 0, 0]


def test_items(store):
    assert len(store) == 2
    assert store[-1].num_nodes == 3
    assert [data.num_nodes for data in store] == [4, 3]
    with pytest.raises(IndexError, match="graphs 0 to 1"):
        store[2]


def test_batch_and_edges(store):
    assert store.batch.tolist() == [0, 0, 0, 0, 1, 1, 1]
    source, target = store.edges()
    assert sorted(zip((source + 1).tolist(), (target + 1).tolist())) == [
        *((1, 2), (1, 3), (2, 1), (2, 3), (3, 2), (3, 4), (4, 3), (5, 6), (6, 5))
    ]


def test_unknown_info(store):
    with pytest.raises(ValueError, match="unknown fields in info"):
        dataclasses.replace(store, info={"colour": "red"})


def test_repr(store):
    assert repr(store).startswith("GraphStore('TOY', graphs=2, nodes=7, edges=9, directed, arrays=[node_ptr")


def test_features_of_a_selection(store):
    features = Features.of(store)
    assert torch.equal(features(store)[store.batch == 1], features(store.select([1])))


def test_positions_go_along(store, tmp_path):
    pos = torch.randn(store.num_nodes, 3)
    there = dataclasses.replace(store, pos=pos)
    assert there.content_hash() != store.content_hash()
    chosen = there.select([1])
    assert torch.equal(chosen.pos, pos[4:])
    assert torch.equal(there[1].pos, pos[4:])
    back = from_data([there[0], there[1]])
    assert torch.equal(back.pos, pos)
    save_store(there, tmp_path / "x.safetensors")
    assert torch.equal(load_store(tmp_path / "x.safetensors", verify=True).pos, pos)
    assert torch.equal(there.to("cpu").pos, pos)
    # Where a node is says nothing by itself: it would change when the graph is turned.
    assert torch.equal(Features.of(there)(there), Features.of(store)(store))
    for bad, message in ((pos[:-1], "pos has shape"), (pos / 0, "not finite"), (pos.double(), "pos holds")):
        save_store(dataclasses.replace(store, pos=bad), tmp_path / "bad.safetensors")
        with pytest.raises(DataError, match=message):
            load_store(tmp_path / "bad.safetensors")
