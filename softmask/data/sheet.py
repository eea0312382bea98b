"""Tables as people keep them: CSV and TSV with a line of names, Parquet, lists of SMILES."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from softmask.errors import DataError

SUFFIXES = (".csv", ".tsv", ".parquet", ".smi")


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table.

    Args:
        columns: their names.
        rows: the cells of each row, text or what Parquet holds, ``None`` where there is nothing.
        where: of each row, where it stands in the file, as a message should say it.
        decimal_comma: whether numbers may be written with a comma.
    """

    columns: list[str]
    rows: list[list[Any]]
    where: list[str]
    decimal_comma: bool = False


def is_sheet(data: str | Path) -> bool:
    """Whether this names a table, by its ending."""
    return Path(data).suffix.lower() in SUFFIXES


def read_sheet(path: str | Path) -> Sheet:
    """Reads a table. A file that is none is refused, with the line that shows it.

    Args:
        path: a file ``.csv``, ``.tsv``, ``.parquet``, or ``.smi``: a SMILES a line and, after a space, its name.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path}: a table is a file {', '.join(SUFFIXES)}")
    try:
        sheet = _parquet(path) if suffix == ".parquet" else _text(path, suffix)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not sheet.rows:
        raise DataError(f"{path}: the table has no rows")
    return sheet


def _text(path: Path, suffix: str) -> Sheet:
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{path}, line {line}: not UTF-8 text; save the table as CSV in UTF-8") from None
    if suffix == ".smi":
        return _smi(text)
    # A first line that tells Excel what is between the cells; emptied, so that lines keep their numbers.
    said = re.match(r"(?i)sep=([,;\t])\r?\n?", text)
    if said is not None:
        text = "\n" + text[said.end() :]
    # Of the names, without those in quotation marks, which may hold anything.
    first = re.sub(r'"[^"]*"', "", text[:100_000].lstrip()).split("\n", 1)[0]
    # Where a comma marks decimals, spreadsheets put semicolons between the cells.
    delimiter = "\t" if suffix == ".tsv" else max((",", ";", "\t"), key=first.count)
    if said is not None:
        delimiter = said[1]
    rows = _rows(path, text, delimiter)
    _, header = next(rows, (0, []))
    if not header:
        raise DataError(f"{path}: the file is empty; its first line must name the columns")
    found, where = [], []
    for line, cells in rows:
        if len(cells) != len(header):
            raise DataError(
                f"{path}, line {line}: {len(cells)} cells, but the first line names {len(header)} columns (text with "
                f"{delimiter!r} in it must stand in quotation marks)"
            )
        found.append(cells)
        where.append(f"line {line}")
    return Sheet([name.strip() for name in header], found, where, decimal_comma=delimiter == ";")


def _rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[Any]]]:
    """The rows with the number of their first line; empty lines are none."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}, line {line}: not a table ({error})") from None


def _smi(text: str) -> Sheet:
    """A SMILES a line, and after a space its name; the first line may name the columns."""
    found, where = [], []
    for number, line in enumerate(text.splitlines(), start=1):
        cells = line.split(maxsplit=1)
        if cells and not (number == 1 and cells[0].lower() == "smiles"):
            found.append([cells[0], cells[1].strip() if len(cells) > 1 else None])
            where.append(f"line {number}")
    return Sheet(["smiles", "name"], found, where)


def _parquet(path: Path) -> Sheet:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        columns = [column.to_pylist() for column in table.columns]
    except pa.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file, or damaged ({str(error).splitlines()[0]:.200})") from None
    rows = [list(cells) for cells in zip(*columns)]
    return Sheet(list(table.column_names), rows, [f"row {i + 1}" for i in range(len(rows))])
