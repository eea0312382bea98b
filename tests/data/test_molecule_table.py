"""Tables of molecules: what is read, what is decided, what is refused and how it is said."""

import csv
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.data.convert import from_smiles
from softmask.data.molecule_table import read_molecules
from softmask.data.sheet import is_sheet, read_sheet
from softmask.errors import DataError, SettingError, SoftmaskError

pytest.importorskip("rdkit")

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C#N", "CN", "CCl", "O", "C1CC1", "CO", "C=C", "NN", "CBr"]


def _write(path, rows, delimiter=","):
    with path.open("w", newline="") as stream:
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    return path


@pytest.fixture
def table(tmp_path):
    rows = [(i, s, i / 7, i, i % 2, "ab"[i % 2]) for i, s in enumerate(SMILES)]
    return _write(tmp_path / "molecules.csv", [("id", "Smiles", "logS", "count", "active", "kind"), *rows])


def test_it_is_what_from_smiles_makes(table):
    found = read_molecules(table, "Smiles", ["logS"])
    expected = from_smiles(SMILES, np.arange(len(SMILES)) / 7, name="molecules")
    assert found.store.info.pop("targets") == ["logS"]
    assert found.store.content_hash() == expected.content_hash()
    assert (found.rows, found.skipped, found.column) == (list(range(12)), [], "Smiles")
    assert read_molecules(table).store.y is None


def test_what_a_target_is(table):
    numbers = read_molecules(table, targets=["logS"])
    assert numbers.store.y.shape == (12, 1)
    assert "regression" in numbers.decided
    many = read_molecules(table, targets=["count"])  # 12 different whole numbers
    assert many.store.y.is_floating_point()
    assert "12 different whole numbers" in many.decided
    few = read_molecules(table, targets=["active"])
    assert few.store.info["classes"] == [0, 1]
    assert few.store.y.tolist() == [i % 2 for i in range(12)]
    assert "classification" in few.decided
    assert read_molecules(table, targets=["kind"]).store.info["classes"] == ["a", "b"]
    assert read_molecules(table, targets=["active"], task="regression").store.y.is_floating_point()
    assert len(read_molecules(table, targets=["count"], task="classification").store.info["classes"]) == 12
    both = read_molecules(table, targets=["active", "logS"])
    np.testing.assert_array_equal(both.store.y.numpy(), [[i % 2, i / 7] for i in range(12)])
    assert both.store.info["targets"] == ["active", "logS"]


def test_whole_numbers_with_a_point_are_the_same_classes(tmp_path):
    path = _write(tmp_path / "t.csv", [("smiles", "y"), ("C", "1.0"), ("CC", "0"), ("CCC", "1")])
    assert read_molecules(path, targets=["y"]).store.info["classes"] == [0, 1]


def test_other_kinds_of_file(table, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    expected = read_molecules(table, targets=["logS"]).store
    sheet = read_sheet(table)
    rows = [sheet.columns, *sheet.rows]
    comma = [sheet.columns] + [[c.replace(".", ",") for c in cells] for cells in sheet.rows]
    values = {n: [cells[i] for cells in sheet.rows] for i, n in enumerate(sheet.columns)}
    values["logS"] = [float(v) for v in values["logS"]]
    pq.write_table(pa.table(values), tmp_path / "molecules.parquet")
    for folder in ("bom", "semicolon"):
        (tmp_path / folder).mkdir()
    with_mark = tmp_path / "bom" / "molecules.csv"
    with_mark.write_bytes(b"\xef\xbb\xbf" + table.read_bytes().replace(b"\n", b"\r\n\r\n"))
    for path in (
        _write(tmp_path / "molecules.tsv", rows, "\t"),
        _write(tmp_path / "semicolon" / "molecules.csv", comma, ";"),
        tmp_path / "molecules.parquet",
        with_mark,
    ):
        assert read_molecules(path, targets=["logS"]).store.content_hash() == expected.content_hash(), path
    excel = tmp_path / "excel.csv"
    excel.write_text("sep=;\nsmiles;logS\nC;1,5\nCC;-2,5\nC(;3\n")
    found = read_molecules(excel, targets=["logS"], skip_invalid=True)
    assert found.store.y.tolist() == [[1.5], [-2.5]]
    assert found.skipped[0].startswith("line 5: ")
    quoted = tmp_path / "quoted.csv"
    quoted.write_text('"name, trivial, or none";smiles;logS\na;C;1,5\n')
    assert read_sheet(quoted).columns == ["name, trivial, or none", "smiles", "logS"]
    listed = tmp_path / "list.smi"
    listed.write_text("SMILES name\nCCO ethanol\n\nCO\n")
    assert read_molecules(listed).smiles == ["CCO", "CO"]
    assert read_sheet(listed).rows == [["CCO", "ethanol"], ["CO", None]]
    assert is_sheet("a/b.CSV")
    assert not is_sheet("MUTAG")


BAD = [
    ("smiles", "logS", "kind"),
    ("CCO", "0.5", "a"),
    ("C(C)(C)(C)(C)C", "1.5", "a"),  # line 3
    ("CC", "", "b"),  # line 4
    ("c1ccccc1", "n/a", "b"),  # line 5
    ("", "2.5", "b"),  # line 6
    ("CN", ">3", "a"),  # line 7
    ("CO", "inf", "a"),  # line 8
    ("CCC", "3.5", "a"),
]


def test_rows_that_cannot_be_used(tmp_path):
    path = _write(tmp_path / "t.csv", BAD)
    with pytest.raises(DataError, match="6 of 8 rows") as told:
        read_molecules(path, targets=["logS"])
    lines = [line.strip() for line in str(told.value).splitlines()[1:-1]]
    assert [line.split(":")[0] for line in lines] == [f"line {i}" for i in range(3, 9)]
    for line, word in zip(lines, ("valence", "missing", "missing", "no SMILES", "'>3', no number", "'inf', no number")):
        assert word in line
    found = read_molecules(path, targets=["logS"], skip_invalid=True)
    assert found.rows == [0, 7]
    assert found.store.y.reshape(-1).tolist() == [0.5, 3.5]
    assert found.skipped == lines
    # To predict, targets do not matter.
    assert read_molecules(path, skip_invalid=True).rows == [0, 2, 3, 5, 6, 7]


def test_when_no_row_is_left(tmp_path):
    path = _write(tmp_path / "t.csv", [("smiles", "a", "b"), ("C", "1.5", "x"), ("CC", "2.5", "y")])
    with pytest.raises(DataError, match="2 of 2 rows cannot be used:\n  line 2: b is 'x', no number") as caught:
        read_molecules(path, targets=["a", "b"])
    assert "--skip-invalid" not in str(caught.value)


def test_a_row_over_two_lines_is_named_by_its_first(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('smiles,note\nCC,"two\nlines"\n,x\n')
    with pytest.raises(DataError, match="line 4: there is no SMILES"):
        read_molecules(path)


def test_columns_that_are_not_there(table, tmp_path):
    with pytest.raises(
        SettingError, match=r"'logSS' \(--target\). Did you mean 'logS'\? Its columns are 'id', 'Smiles'"
    ):
        read_molecules(table, targets=["logSS"])
    with pytest.raises(SettingError, match=r"'smile' \(--smiles\). Did you mean 'Smiles'"):
        read_molecules(table, "smile")
    assert read_molecules(table, "smiles").column == "Smiles"  # other letters, and only one such column
    for header, words in ((("a", "b"), "say which column"), (("smiles", "SMILES"), "say which column")):
        path = _write(tmp_path / "t.csv", [header, ("C", "C")])
        with pytest.raises(SettingError, match=words):
            read_molecules(path)
    path = _write(tmp_path / "t.csv", [("smiles", "y", "y"), ("C", "1", "2")])
    with pytest.raises(DataError, match="2 columns are called 'y'"):
        read_molecules(path, targets=["y"])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("t.csv", b"", "empty"),
        ("t.csv", b"\n \n", "empty"),
        ("t.csv", b"smiles,y\n", "no rows"),
        ("t.csv", b"smiles,y\nC,1\nC\n", "line 3: 1 cells, but the first line names 2"),
        ("t.csv", b"smiles,y\nC,1\nC,\xff\n", "line 3: not UTF-8"),
        ("t.csv", b'smiles,y\nC,1\n"C,1\n', "line 3: not a table"),
        ("t.csv", b"smiles,y\nC," + b"1" * 200_000 + b"\n", "line 2: not a table"),
        ("t.parquet", b"PAR1 no", "not a Parquet file"),
        ("t.xlsx", b"", "a table is a file"),
        ("none/t.csv", None, "no such file"),
    ],
)
def test_files_that_are_no_tables(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_molecules(path)


def test_bad_wishes(table):
    with pytest.raises(SettingError, match="unknown task"):
        read_molecules(table, targets=["logS"], task="ranking")
    with pytest.raises(SettingError, match="several targets"):
        read_molecules(table, targets=["logS", "active"], task="classification")
    with pytest.raises(SettingError, match="named twice"):
        read_molecules(table, targets=["logS", "logS"])
    with pytest.raises(DataError, match="different values"):
        read_molecules(table, targets=["Smiles"])


cells = st.one_of(
    st.sampled_from([*SMILES, "C(", "", "1", "0.5", "nan", "inf", "1e999", "1_0", "a", '"', "C C", "Cé", "-1,5"]),
    st.text(max_size=8),
)


@settings(max_examples=150)
@given(
    st.lists(st.lists(cells, min_size=1, max_size=4), max_size=6),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([".csv", ".tsv", ".smi"]),
    st.booleans(),
)
def test_never_a_traceback(tmp_path, rows, delimiter, suffix, skip):
    path = tmp_path / f"t{suffix}"
    text = "\n".join(delimiter.join(row) for row in [["smiles", "y"], *rows])
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for targets in ([], ["y"]):
        with suppress(SoftmaskError):
            found = read_molecules(path, targets=targets, skip_invalid=skip)
            assert found.store.num_graphs == len(found.rows) == len(found.smiles) - len(found.skipped)
            assert found.store.info["names"] == [found.smiles[row] for row in found.rows]


@settings(max_examples=60)
@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".smi", ".parquet"]))
def test_never_a_traceback_on_bytes(tmp_path, content, suffix):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(content)
    with suppress(SoftmaskError):
        read_molecules(path, skip_invalid=True)
