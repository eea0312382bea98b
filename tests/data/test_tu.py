import random
import re
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softmask.data import archive
from softmask.data.raw import RawFiles
from softmask.data.table import _native
from softmask.data.tu import read_tu
from softmask.errors import DataError


def test_reads_every_file(write_tu):
    store = read_tu(write_tu())
    assert store.info == {"name": "TOY", "source": "TU", "self_loops": 0, "classes": [-1, 1]}
    assert (store.num_graphs, store.num_nodes, store.num_edges, store.directed) == (2, 7, 10, False)
    assert store.y.tolist() == [1, 0]
    assert store.node_label.squeeze(1).tolist() == [3, 3, 5, 0, 3, 5, 0]
    assert store.node_attr[:, 0].tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    assert store.node_attr.dtype == torch.float32
    # Edges by target, then source: 2-1, 3-1, 1-2, 3-2, 1-3, 2-3, 4-3, 3-4, 6-5, 5-6.
    assert store.col.tolist() == [1, 2, 0, 2, 0, 1, 3, 2, 1, 0]
    assert store.row_ptr.tolist() == [0, 2, 4, 7, 8, 9, 10, 10]
    assert store.edge_label.squeeze(1).tolist() == [1, 3, 1, 2, 3, 2, 4, 4, 5, 5]


def test_optional_files_may_be_absent(write_tu):
    store = read_tu(write_tu(graph_labels=None, node_labels=None, node_attributes=None, edge_labels=None))
    assert set(store.tensors()) == {"node_ptr", "row_ptr", "col"}


def test_regression_targets(write_tu):
    store = read_tu(write_tu(graph_attributes="0.1, 2\n-1e3, 4\n"))
    assert store.y.tolist() == [[0.1, 2.0], [-1000.0, 4.0]]
    assert "classes" not in store.info


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_spaces_and_blank_lines_do_not_matter(write_tu, tu_files, ends):
    loose = {k: "\n" + v.replace("\n", "  \n\n").replace(",", " ,\t") + "\n" for k, v in tu_files.items()}
    loose = {k: "\ufeff" * (k == "A") + v.replace("\n", ends) for k, v in loose.items()}
    plain = read_tu(write_tu())
    assert read_tu(write_tu(folder=write_tu().parent / "loose", **loose)).content_hash() == plain.content_hash()


def test_numbers_that_only_the_slow_reader_takes(write_tu):
    store = read_tu(write_tu(node_labels="+3\n3.0\n5.\n0\n3\n5\n-0\n"))
    assert store.content_hash() == read_tu(write_tu()).content_hash()


graphs = st.lists(
    st.integers(1, 5).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=12))
    ),
    min_size=1,
    max_size=4,
)


@given(graphs, st.randoms(use_true_random=False), st.booleans())
def test_against_sets_of_pairs(tmp_path_factory, graphs, rng: random.Random, both_ways):
    """Self loops, duplicates, directed edges and any order of lines, against Python sets."""
    lines, first, wanted, loops = [], 1, [], 0
    for n, edges in graphs:
        if both_ways:
            edges = edges + [(v, u) for u, v in edges if u != v]
        lines += [(first + u, first + v) for u, v in edges]
        loops += sum(u == v for u, v in edges)
        wanted.append({(u, v) for u, v in edges if u != v})
        first += n
    if not lines:
        lines, loops = [(1, 1)], 1
    rng.shuffle(lines)
    folder = tmp_path_factory.mktemp("tu")
    (folder / "R_A.txt").write_text("".join(f"{u}, {v}\n" for u, v in lines))
    # The label of an edge says which line it stood on.
    (folder / "R_edge_labels.txt").write_text("".join(f"{i}\n" for i in range(len(lines))))
    (folder / "R_graph_indicator.txt").write_text("".join(f"{g + 1}\n" * n for g, (n, _) in enumerate(graphs)))
    store = read_tu(folder)
    assert store.info["self_loops"] == loops
    assert store.directed == any((v, u) not in edges for edges in wanted for u, v in edges)
    start = 1
    for g, (n, _) in enumerate(graphs):
        data = store[g]
        pairs = list(zip(*data.edge_index.tolist())) if data.edge_index.numel() else []
        assert data.num_nodes == n
        assert len(pairs) == len(wanted[g])
        assert set(pairs) == wanted[g]
        for (u, v), label in zip(pairs, data.edge_attr.reshape(-1).tolist()):
            assert label == lines.index((start + u, start + v))
        start += n
    if store.directed:
        source, target = store.edges()
        turned = sorted(zip(source.tolist(), target.tolist()))
        base = store.node_ptr[:-1][store.batch]
        rows = torch.repeat_interleave(torch.arange(store.num_nodes), store.row_ptr_t.diff())
        assert list(zip(rows.tolist(), (store.col_t + base[rows]).tolist())) == turned


BAD = {
    "no edges file": ({"A": None}, "no file NAME_A.txt"),
    "no indicator": ({"graph_indicator": None}, "TOY_graph_indicator.txt is missing"),
    "empty edges": ({"A": ""}, "TOY_A.txt: the file is empty"),
    "blank indicator": ({"graph_indicator": " \n\n"}, "TOY_graph_indicator.txt: the file is empty"),
    "one empty line": ({"graph_indicator": "\n"}, "TOY_graph_indicator.txt: the file is empty"),
    "empty labels": ({"node_labels": ""}, "TOY_node_labels.txt: the file is empty; leave the file out"),
    "a word": (
        {"graph_indicator": "1\n1\nx\n1\n2\n2\n2\n"},
        "TOY_graph_indicator.txt, line 3: 'x' is not an integer",
    ),
    "a fraction": (
        {"node_labels": "3\n3.5\n5\n0\n3\n5\n0\n"},
        "TOY_node_labels.txt, line 2: '3.5' is not an integer",
    ),
    "word attribute": (
        {"node_attributes": "1\n2\nx y\n4\n5\n6\n7\n"},
        "node_attributes.txt, line 3: 'x y' is not a number",
    ),
    "huge": (
        {"node_labels": "3\n3\n5\n0\n3\n5\n99999999999\n"},
        "line 7: '99999999999' is outside -2147483648 to",
    ),
    "three ends": ({"A": "1, 2\n2, 1, 3\n"}, "TOY_A.txt, line 2: 3 numbers, expected 2: '2, 1, 3'"),
    "spaces only": ({"A": "1 2\n2 1\n"}, "TOY_A.txt, line 1: 1 numbers, expected 2: '1 2'"),
    "no number": ({"A": "1, 2\n2,\n"}, "TOY_A.txt, line 2: '' is not an integer"),
    "ragged": (
        {"node_attributes": "1,2\n2,2\n3\n4,2\n5,2\n6,2\n7,2\n"},
        "node_attributes.txt, line 3: 1 numbers, expected 2",
    ),
    "no such node": (
        {"A": "1, 2\n\n2, 8\n"},
        "TOY_A.txt, line 3: edge 2, 8 names node 8, but nodes go from 1 to 7",
    ),
    "node zero": ({"A": "1, 2\n0, 1\n"}, "TOY_A.txt, line 2: edge 0, 1 names node 0"),
    "between graphs": (
        {"A": "1, 2\n2, 1\n4, 5\n", "edge_labels": None},
        "line 3: edge 4, 5 goes from graph 1 to graph 2",
    ),
    "and back": ({"A": "5, 4\n4, 5\n", "edge_labels": None}, "goes from graph"),
    "from zero": (
        {"graph_indicator": "0\n0\n0\n0\n1\n1\n1\n"},
        "graph_indicator.txt, line 1: graphs are numbered from 1, found 0",
    ),
    "not sorted": ({"graph_indicator": "1\n1\n2\n1\n2\n2\n2\n"}, "line 4: graph 1 comes after graph 2"),
    "gap": (
        {"graph_indicator": "1\n1\n1\n1\n3\n3\n3\n"},
        "line 5: graph 3 follows graph 1, so graph 2 has no nodes",
    ),
    "few labels": (
        {"graph_labels": "1\n"},
        "TOY_graph_labels.txt: 1 lines, but TOY_graph_indicator.txt has 2 graphs",
    ),
    "many labels": ({"graph_labels": "1\n1\n1\n"}, "TOY_graph_labels.txt: 3 lines"),
    "few nodes": (
        {"node_labels": "1\n"},
        "TOY_node_labels.txt: 1 lines, but TOY_graph_indicator.txt has 7 nodes",
    ),
    "few edges": ({"edge_labels": "1\n"}, "TOY_edge_labels.txt: 1 lines, but TOY_A.txt has 10 edges"),
    "nan": (
        {"node_attributes": "1\n2\n\nnan\n4\n5\n6\n7\n"},
        "node_attributes.txt, line 4: nan is not a finite number",
    ),
    "infinite": (
        {"node_attributes": "1\n2\n3\n4\n5\n6\n-inf\n"},
        "node_attributes.txt, line 7: -inf is not a finite",
    ),
    "too large": (
        {"node_attributes": "1\n1e39\n3\n4\n5\n6\n7\n"},
        "node_attributes.txt, line 2: inf is not a finite",
    ),
    "nan target": (
        {"graph_attributes": "1\nnan\n"},
        "TOY_graph_attributes.txt, line 2: nan is not a finite number",
    ),
    "binary": ({"A": b"\x00\xff\xfe1, 2\n"}, "TOY_A.txt, line 1:"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("form", ["folder", "zip"])
def test_bad_input_is_named(write_tu, changes, message, form):
    path = write_tu(**changes)
    if form == "zip":
        path = zipped(path)
    with pytest.raises(DataError, match=re.escape(message)):
        read_tu(path)


@pytest.mark.parametrize("zipped", [False, True])
def test_arrow_holds_nothing_of_python(write_tu, tmp_path, zipped):
    """A thread of Arrow's that lets go of a Python object while the interpreter ends would bring it down."""
    folder = write_tu()
    if zipped:
        with zipfile.ZipFile(tmp_path / "TOY.zip", "w") as file:
            file.write(folder / "TOY_A.txt", "TOY_A.txt")
            file.write(folder / "TOY_graph_indicator.txt", "TOY_graph_indicator.txt")
    with RawFiles(tmp_path / "TOY.zip" if zipped else folder) as raw, raw.open("A") as stream:
        source = _native(stream)
        assert isinstance(source, pa.NativeFile)
        assert not isinstance(source, pa.PythonFile)
        assert source.read() == (folder / "TOY_A.txt").read_bytes()


def test_nothing_there(tmp_path):
    with pytest.raises(DataError, match="no such file or folder"):
        read_tu(tmp_path / "nowhere")


def test_several_sets(write_tu, tmp_path):
    write_tu("ONE")
    write_tu("TWO")
    with pytest.raises(DataError, match=r"holds 2 sets \(ONE/ONE_A.txt, TWO/TWO_A.txt\); give one"):
        read_tu(tmp_path)


def zipped(folder: Path, method: int = zipfile.ZIP_DEFLATED, inside: str = "") -> Path:
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", method) as out:
        for file in folder.iterdir():
            out.write(file, inside + file.name)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("inside", ["", "TOY/"])
def test_zip(write_tu, method, inside):
    folder = write_tu()
    assert read_tu(zipped(folder, method, inside)).content_hash() == read_tu(folder).content_hash()


def test_macos_leftovers_are_ignored(write_tu):
    path = zipped(write_tu(), inside="TOY/")
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("__MACOSX/._TOY_A.txt", b"\0\5\26\7")
    assert read_tu(path).num_graphs == 2


@pytest.mark.parametrize("name", ["../TOY_A.txt", "a/../../b", "/etc/x", "C:\\x", "a\\..\\b", "\\x"])
def test_zip_paths_that_lead_out(write_tu, name):
    path = zipped(write_tu())
    with zipfile.ZipFile(path, "a") as out:
        out.writestr(zipfile.ZipInfo(name), "x")
    with pytest.raises(DataError, match="leads out of it"):
        read_tu(path)
    assert not (path.parent.parent / "TOY_A.txt").exists()


def test_zip_with_an_empty_name(write_tu):
    """Python's zipfile cuts a name at a zero byte; found by fuzzing."""
    path = zipped(write_tu())
    with zipfile.ZipFile(path, "a") as out:
        out.writestr("??", "x")
    path.write_bytes(path.read_bytes().replace(b"??", b"\0?"))
    assert read_tu(path).num_graphs == 2


def test_zip_bomb(write_tu, monkeypatch):
    monkeypatch.setattr(archive, "RATIO_FROM", 10_000)
    path = zipped(write_tu(graph_indicator="1\n" * 500_000), zipfile.ZIP_LZMA)
    with pytest.raises(DataError, match=r"TOY_graph_indicator.txt would unpack from \d+ to 1000000 bytes"):
        read_tu(path)


def test_zip_too_large_in_all(write_tu, monkeypatch):
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    with pytest.raises(DataError, match="more than 100; not read"):
        read_tu(zipped(write_tu()))


def test_zip_that_lies_about_its_size(write_tu):
    """A member that says it is small gives no more than it says, and then fails its checksum."""
    path = zipped(write_tu(graph_indicator="1\n" * 5000))
    data = path.read_bytes()
    assert data.count((10_000).to_bytes(4, "little")) == 2
    path.write_bytes(data.replace((10_000).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_tu(path)


def test_damaged_zip(write_tu):
    path = zipped(write_tu())
    data = bytearray(path.read_bytes())
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="not a zip file, or a damaged one"):
        read_tu(path)
    data[60] ^= 255
    path.write_bytes(data)
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_tu(path)


def test_encrypted_zip(write_tu):
    path = zipped(write_tu())
    data = bytearray(path.read_bytes())
    for sign, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = -1
        while (place := data.find(sign, place + 1)) >= 0:
            data[place + at] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="encrypted"):
        read_tu(path)
