import json
import re
import struct
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from softmask.data.convert import from_data
from softmask.data.files import FORMAT, KEY, load_store, save_store
from softmask.data.tu import read_tu
from softmask.errors import DataError


@pytest.fixture
def saved(write_tu, tmp_path) -> Path:
    path = tmp_path / "toy.safetensors"
    save_store(read_tu(write_tu()), path)
    return path


def test_round_trip(saved, write_tu):
    store, again = read_tu(write_tu()), load_store(saved, verify=True)
    assert again.info == store.info
    assert again.tensors().keys() == store.tensors().keys()
    assert all(torch.equal(t, again.tensors()[name]) for name, t in store.tensors().items())
    assert again.content_hash() == store.content_hash()


def test_directed_and_empty(tmp_path):
    data = from_data([_graph([[0], [1]], 2), _graph([[], []], 1)])
    for store in (data, data.select([1])):
        save_store(store, tmp_path / "s.safetensors")
        assert load_store(tmp_path / "s.safetensors", verify=True).content_hash() == store.content_hash()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_arrays_are_mapped(saved):
    store = load_store(saved)
    spans = [
        line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines() if str(saved) in line
    ]
    for name, t in store.tensors().items():
        assert any(int(a, 16) <= t.data_ptr() < int(b, 16) for a, b in spans), name


def test_a_failed_write_leaves_nothing(write_tu, tmp_path, monkeypatch):
    store = read_tu(write_tu())

    def fail(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    target = tmp_path / "out" / "s.safetensors"
    target.parent.mkdir()
    target.write_bytes(b"before")
    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(DataError, match="No space left"):
        save_store(store, target)
    assert [f.name for f in target.parent.iterdir()] == ["s.safetensors"]
    assert target.read_bytes() == b"before"


def test_no_such_folder(write_tu, tmp_path):
    with pytest.raises(DataError, match="cannot be written"):
        save_store(read_tu(write_tu()), tmp_path / "nowhere" / "s.safetensors")


def test_truncated(saved):
    data = saved.read_bytes()
    for keep, message in (
        (len(data) - 1, "truncated: "),
        (100, "truncated: 100 bytes"),
        (4, "not a store"),
        (0, "not a store"),
    ):
        saved.write_bytes(data[:keep])
        with pytest.raises(DataError, match=message):
            load_store(saved)


def test_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        load_store(tmp_path / "nothing.safetensors")


def test_not_a_store(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"PK\3\4" * 100)
    with pytest.raises(DataError, match="no safetensors file"):
        load_store(path)
    save_file({"lin.weight": torch.zeros(2)}, path, metadata={"format": "pt"})
    with pytest.raises(DataError, match="of another kind"):
        load_store(path)


def test_the_same_store_makes_the_same_file(saved, write_tu, tmp_path):
    save_store(read_tu(write_tu()), tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "3", "null"])
def test_metadata_that_is_not_ours(tmp_path, text):
    save_file({"col": torch.zeros(1)}, tmp_path / "x.safetensors", metadata={KEY: text})
    with pytest.raises(DataError, match="of another kind"):
        load_store(tmp_path / "x.safetensors")


def test_changed_content_is_found_on_request(saved):
    data = bytearray(saved.read_bytes())
    place = data.find(struct.pack("<f", 6.5))
    data[place : place + 4] = struct.pack("<f", 7.5)
    saved.write_bytes(data)
    load_store(saved)
    with pytest.raises(DataError, match="its hash differs"):
        load_store(saved, verify=True)


def write(path: Path, store, *, without: str | None = None, metadata: dict | None = None, **changes) -> None:
    """A store with some of it replaced, as a hostile or buggy writer might make it."""
    info = changes.pop("info", store.info)
    tensors = {**store.tensors(), **changes}
    tensors.pop(without, None)
    about = {"format": FORMAT, "format_version": 1, "info": info, "content_hash": "x", **(metadata or {})}
    save_file({k: t.contiguous() for k, t in tensors.items()}, path, metadata={KEY: json.dumps(about)})


def ints(*values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


HOSTILE = {
    "newer": ({"metadata": {"format_version": 2}}, "format 2, this softmask reads up to 1"),
    "version": ({"metadata": {"format_version": "one"}}, "its header cannot be understood"),
    "infinite version": ({"metadata": {"format_version": float("inf")}}, "its header cannot be understood"),
    "no info": ({"metadata": {"info": None}}, "the information about the set is missing"),
    "unknown info": ({"info": {"evil": 1}}, "unknown fields"),
    "info list": ({"info": {"classes": "ab"}}, "classes is no list"),
    "no col": ({"without": "col"}, "the array col is missing"),
    "no node_ptr": ({"without": "node_ptr"}, "the array node_ptr is missing"),
    "half transposed": ({"col_t": ints(*[0] * 10, dtype=torch.int32)}, "row_ptr_t and col_t is missing"),
    "other array": ({"weights": torch.zeros(1)}, "it holds an array 'weights'"),
    "type": ({"col": ints(*[0] * 10)}, "col holds torch.int64, expected torch.int32"),
    "no graph pointer": ({"node_ptr": ints()}, "node_ptr does not fit row_ptr"),
    "begins late": ({"node_ptr": ints(1, 4, 7)}, "node_ptr does not fit row_ptr"),
    "ends late": ({"node_ptr": ints(0, 4, 8)}, "node_ptr does not fit row_ptr"),
    "falls": ({"node_ptr": ints(0, 9, 7)}, "node_ptr does not fit row_ptr"),
    "rows fall": ({"row_ptr": ints(0, 2, 4, 3, 8, 9, 10, 10)}, "row_ptr does not fit col"),
    "rows overflow": ({"row_ptr": ints(0, 2**63 - 1, -(2**63), 3, 8, 9, 10, 10)}, "row_ptr does not fit col"),
    "rows go round": (
        {"row_ptr": ints(0, 2**63 - 1, -(2**63), -1, 8, 9, 10, 10)},
        "row_ptr does not fit col",
    ),
    "square col": ({"col": torch.zeros(5, 2, dtype=torch.int32)}, "is no list"),
    "beyond": ({"col": ints(1, 2, 0, 2, 0, 1, 4, 2, 1, 0, dtype=torch.int32)}, "col leads out of a graph"),
    "negative": ({"col": ints(1, 2, 0, 2, 0, 1, -1, 2, 1, 0, dtype=torch.int32)}, "col leads out of a graph"),
    "short labels": (
        {"node_label": torch.zeros(6, 1, dtype=torch.int32)},
        "node_label has shape [6, 1], expected 7 rows",
    ),
    "flat labels": ({"node_label": torch.zeros(7, dtype=torch.int32)}, "node_label has shape [7]"),
    "short edges": ({"edge_label": torch.zeros(9, 1, dtype=torch.int32)}, "edge_label has shape [9, 1]"),
    "class": ({"y": ints(0, 2)}, "y names one of classes that is not there"),
    "negative class": ({"y": ints(-1, 0)}, "y names one of classes that is not there"),
    "no classes": ({"info": {}}, "the names of the classes are missing"),
    "role": ({"node_role": torch.zeros(7, dtype=torch.int8)}, "the names of the roles are missing"),
    "names": ({"info": {"classes": [0, 1], "names": ["a"]}}, "names has not one entry for each graph"),
    "nan": ({"node_attr": torch.full((7, 1), torch.nan)}, "a number that is not finite"),
}


@pytest.mark.parametrize(("changes", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_refuses(write_tu, tmp_path, changes, message):
    write(tmp_path / "s.safetensors", read_tu(write_tu()), **changes)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load_store(tmp_path / "s.safetensors")
    assert str(caught.value).startswith(str(tmp_path / "s.safetensors"))


def test_transposed_arrays_are_checked(tmp_path):
    store = from_data([_graph([[0, 1], [1, 2]], 3)])
    for name, value in (("col_t", ints(1, 3, dtype=torch.int32)), ("row_ptr_t", ints(0, 1, 2))):
        write(tmp_path / "s.safetensors", store, **{name: value})
        with pytest.raises(DataError, match=r"col_t leads out|differ in length"):
            load_store(tmp_path / "s.safetensors")


def _graph(edges, n):
    from torch_geometric.data import Data

    return Data(edge_index=torch.tensor(edges, dtype=torch.long).reshape(2, -1), num_nodes=n)
