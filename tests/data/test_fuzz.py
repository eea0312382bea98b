"""Whatever bytes are given, the readers answer with a store or with an error of their own."""

import zipfile

import pytest
from data.toy import FILES
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.data.files import load_store, save_store
from softmask.data.raw import OPTIONAL, REQUIRED
from softmask.data.store import GraphStore
from softmask.data.tu import read_tu
from softmask.errors import DataError, SoftmaskError

numbers = st.one_of(
    st.integers(-3, 9).map(str),
    st.sampled_from(["", " ", "nan", "1e400", "-", "1.0", "+2", "9" * 30, "x", "1_0"]),
)
lines = st.lists(st.lists(numbers, min_size=1, max_size=3).map(",".join), max_size=6).map("\n".join).map(str.encode)
content = st.one_of(st.binary(max_size=40), lines)


def consistent(store: GraphStore) -> None:
    assert int(store.node_ptr[-1]) == store.num_nodes
    assert int(store.row_ptr[-1]) == store.num_edges
    source, target = store.edges()
    assert bool((store.batch[source] == store.batch[target]).all())
    for data in store:
        data.validate()


def attempt(read, path) -> None:
    try:
        store = read(path)
    except SoftmaskError:
        return
    consistent(store)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(REQUIRED + OPTIONAL), content), content, content)
def test_any_files(tmp_path_factory, files, edges, indicator):
    folder = tmp_path_factory.mktemp("fuzz")
    for kind, data in {"A": edges, "graph_indicator": indicator, **files}.items():
        (folder / f"F_{kind}.txt").write_bytes(data)
    attempt(read_tu, folder)


@settings(max_examples=200)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_spoiled_files(tmp_path_factory, kind, data):
    """A good set with a few bytes cut out, put in or exchanged."""
    folder = tmp_path_factory.mktemp("fuzz")
    for name, text in FILES.items():
        (folder / f"F_{name}.txt").write_text(text)
    (folder / f"F_{kind}.txt").write_bytes(data.draw(spoiled(FILES[kind].encode())))
    attempt(read_tu, folder)


@settings(max_examples=150)
@given(st.data(), st.sampled_from([zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]))
def test_spoiled_zip(tmp_path_factory, data, method):
    path = tmp_path_factory.mktemp("fuzz") / "F.zip"
    with zipfile.ZipFile(path, "w", method) as out:
        for name, text in FILES.items():
            out.writestr(f"F/F_{name}.txt", text)
    path.write_bytes(data.draw(spoiled(path.read_bytes())))
    attempt(read_tu, path)


def test_a_zip_whose_inner_name_is_no_text(tmp_path):
    """A spoiled archive once found: the name in front of a member says it is UTF-8 and is not."""
    path = tmp_path / "F.zip"
    with zipfile.ZipFile(path, "w") as out:
        for name, text in FILES.items():
            out.writestr(f"F/F_{name}.txt", text)
    content = bytearray(path.read_bytes())
    content[7] |= 0x08  # bit 11 of the first member's flags
    content[30] = 0x80  # the first byte of its name
    path.write_bytes(content)
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_tu(path)


@settings(max_examples=200)
@given(st.data())
def test_spoiled_store(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    for name, text in FILES.items():
        (folder / f"F_{name}.txt").write_text(text)
    path = folder / "F.safetensors"
    save_store(read_tu(folder), path)
    path.write_bytes(data.draw(spoiled(path.read_bytes())))
    attempt(load_store, path)


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "F.bin"
    path.write_bytes(data)
    attempt(read_tu, path)
    attempt(load_store, path)


@st.composite
def spoiled(draw, good: bytes) -> bytes:
    out = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(out)))
        end = draw(st.integers(at, min(len(out), at + 8)))
        out[at:end] = draw(
            st.one_of(st.binary(max_size=6), st.sampled_from([b"\n", b",", b"-1", b"0", b"7", b"99999"]))
        )
    return bytes(out)
