"""Text files of numbers, one row a line, numbers apart by commas."""

import array
import io
import re
import shutil
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from softmask.data.raw import RawFiles
from softmask.errors import DataError

MAX_COLUMNS = 10_000

_INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?", re.ASCII)


def read_table(raw: RawFiles, kind: str, dtype: Any, columns: int | None = None) -> list[np.ndarray]:
    """The columns of a file.

    pyarrow reads it. Where pyarrow refuses, a slow pass in Python finds the line to name; if that finds
    nothing wrong (``+1``, or ``3.0`` for 3), its numbers are taken.

    Args:
        raw: the files of the set.
        kind: which file.
        dtype: numpy type of the columns; integers must fit into it, other numbers must be finite.
        columns: how many numbers a line must have; by default as many as the first.
    """
    import pyarrow as pa
    from pyarrow import csv

    dtype = np.dtype(dtype)
    width = columns or _width(raw, kind)
    names = [str(i) for i in range(width)]
    options: dict[str, Any] = {
        "read_options": csv.ReadOptions(column_names=names, block_size=2**23),
        "parse_options": csv.ParseOptions(delimiter=",", quote_char=False, escape_char=False),
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.from_numpy_dtype(dtype)), null_values=[]
        ),
    }
    try:
        with raw.open(kind) as stream:
            table = csv.read_csv(_native(stream), **options)
        out = [table.column(i).to_numpy() for i in range(width)]
    except pa.ArrowException:
        out = _read_slowly(raw, kind, dtype, width)
    if len(out[0]) == 0:
        raise _empty(raw, kind)
    if dtype.kind == "f":
        finite = np.ones(len(out[0]), dtype=bool)
        for column in out:
            finite &= np.isfinite(column)
        if not finite.all():
            row = int(np.argmin(finite))
            value = next(c[row] for c in out if not np.isfinite(c[row]))
            raise DataError(
                f"{raw.where(kind)}, line {line_of_row(raw, kind, row)}: {value} is not a finite number "
                f"(or too large for {dtype.name}); replace it or leave the file out"
            )
    return out


def _native(stream: BinaryIO) -> Any:
    """The same bytes without a Python object that Arrow's threads would hold: one that lets go of it while the
    interpreter ends brings the whole process down.
    """
    import pyarrow as pa

    if isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO):
        return pa.OSFile(stream.name)
    copy = pa.BufferOutputStream()
    shutil.copyfileobj(stream, copy, 2**23)
    return pa.BufferReader(copy.getvalue())


def line_of_row(raw: RawFiles, kind: str, row: int) -> int:
    """Line number, from 1, of row `row`, from 0: lines without a number in them are no rows."""
    for number, line in _lines(raw, kind):
        if line and row == 0:
            return number
        row -= bool(line)
    raise IndexError(row)


def _lines(raw: RawFiles, kind: str) -> Iterator[tuple[int, str]]:
    with io.TextIOWrapper(raw.open(kind), encoding="utf-8-sig", errors="replace", newline=None) as text:
        for number, line in enumerate(text, start=1):
            yield number, line.strip()


def _width(raw: RawFiles, kind: str) -> int:
    for number, line in _lines(raw, kind):
        if line:
            width = line.count(",") + 1
            if width > MAX_COLUMNS:
                raise DataError(f"{raw.where(kind)}, line {number}: {width} numbers; at most {MAX_COLUMNS} are read")
            return width
    raise _empty(raw, kind)


def _empty(raw: RawFiles, kind: str) -> DataError:
    more = "" if kind in ("A", "graph_indicator") else "; leave the file out if there is nothing to say"
    return DataError(f"{raw.where(kind)}: the file is empty{more}")


def _read_slowly(raw: RawFiles, kind: str, dtype: np.dtype, width: int) -> list[np.ndarray]:
    code = "q" if dtype.kind == "i" else "d"
    columns = [array.array(code) for _ in range(width)]
    for number, line in _lines(raw, kind):
        if not line:
            continue
        fields = line.split(",")
        where = f"{raw.where(kind)}, line {number}"
        if len(fields) != width:
            raise DataError(f"{where}: {len(fields)} numbers, expected {width}: {_short(line)}")
        for column, field in zip(columns, fields):
            column.append(_number(field.strip(), dtype, where))
    # A float64 too large for float32 becomes infinite, which the caller refuses.
    with np.errstate(over="ignore"):
        return [np.frombuffer(column, dtype=code).astype(dtype) for column in columns]


def _number(field: str, dtype: np.dtype, where: str) -> Any:
    if dtype.kind == "f":
        try:
            return float(field.replace("_", "?"))
        except ValueError:
            raise DataError(f"{where}: {_short(field)} is not a number") from None
    if not _INTEGER.fullmatch(field):
        raise DataError(f"{where}: {_short(field)} is not an integer")
    digits = field.split(".")[0]
    limits = np.iinfo(dtype)
    if len(digits) > 1000 or not limits.min <= int(digits) <= limits.max:
        raise DataError(f"{where}: {_short(field)} is outside {limits.min} to {limits.max}")
    return int(digits)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
