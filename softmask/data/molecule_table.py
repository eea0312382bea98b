"""Tables of molecules: a column of SMILES, and columns of what is to be predicted."""

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from softmask.data.pyg import from_data
from softmask.data.sheet import read_sheet
from softmask.data.smiles import SmilesError, smiles_graph
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError, SettingError

Task = Literal["classification", "regression"]
TASKS = ("classification", "regression")

MOST_CLASSES = 10
"""Whole numbers with at most so many values are taken for classes, with more for numbers."""

_MISSING = {"", "na", "n/a", "nan", "null"}
_NAMES = ("smiles", "canonical_smiles")
_SHOWN = 8


@dataclass(frozen=True, eq=False)
class MoleculeTable:
    """Molecules of a table, and which of its rows they are.

    Args:
        store: the molecules that can be used, with targets if any were asked for.
        smiles: of all rows, as they stand in the file.
        column: the name of the column of SMILES.
        columns: the names of all columns.
        rows: ``[molecules]``, the row of each molecule of the store, from 0.
        skipped: for each row that was left out, where it is and why.
        decided: what the targets were taken for, and why; empty without targets.
    """

    store: GraphStore
    smiles: list[str]
    column: str
    columns: list[str]
    rows: list[int]
    skipped: list[str]
    decided: str = ""


def read_molecules(
    path: str | Path,
    smiles: str | None = None,
    targets: Sequence[str] = (),
    task: Task | None = None,
    skip_invalid: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> MoleculeTable:
    """Reads molecules from a table: CSV or TSV with a line of names, Parquet, or a list of SMILES (``.smi``).

    A target whose values are numbers with fractions, or more than ten different whole numbers, is for regression; text
    and few whole numbers are classes. Several targets are always numbers.

    Args:
        path: the file.
        smiles: the column of SMILES; by default the one that is called so.
        targets: the columns to learn; none for molecules to predict for.
        task: ``classification`` or ``regression``, where the values should not decide.
        skip_invalid: leave out rows that cannot be used, and list them, instead of refusing the file.
        progress: called now and then with the rows done and all rows.
    """
    path = Path(path)
    if task is not None and task not in TASKS:
        raise SettingError(f"unknown task {task!r}; use {' or '.join(TASKS)}")
    if len(targets) > 1 and task == "classification":
        raise SettingError("one target can be classified; several targets are numbers (regression)")
    if len(set(targets)) != len(targets):
        raise SettingError(f"a target is named twice: {', '.join(targets)}")
    sheet = read_sheet(path)
    column = _smiles_column(path, sheet.columns, smiles)
    places = [_place(path, sheet.columns, name, "--target") for name in targets]
    texts = [_text(cells[column]) for cells in sheet.rows]
    values, wrong, decided = _targets(
        targets,
        [[_text(cells[place]) for cells in sheet.rows] for place in places],
        task,
        sheet.decimal_comma,
        [not _missing(text) for text in texts],
    )
    graphs, rows = [], []
    for row, text in enumerate(texts):
        if progress is not None and row % 256 == 0:
            progress(row, len(texts))
        try:
            if _missing(text):
                raise SmilesError("there is no SMILES")
            graph = smiles_graph(text)
        except SmilesError as error:
            wrong[row] = str(error)  # of two faults the molecule's is the one to tell
            continue
        if row not in wrong:
            graphs.append(graph)
            rows.append(row)
    skipped = [f"{sheet.where[row]}: {wrong[row]}" for row in sorted(wrong)]
    if skipped and not skip_invalid:
        more = [f"... and {len(skipped) - _SHOWN} more"] if len(skipped) > _SHOWN else []
        told = "\n  ".join(skipped[:_SHOWN] + more)
        advice = "Correct them, or leave them out with --skip-invalid" if graphs else "Nothing is left of the table"
        raise DataError(f"{path}: {len(skipped)} of {len(texts)} rows cannot be used:\n  {told}\n{advice}")
    if not graphs:
        raise DataError(f"{path}: none of its {len(texts)} rows can be used; {skipped[0]}")
    store = from_data(graphs, names=[texts[row] for row in rows], name=path.stem)
    if targets:
        store = with_targets(store, values[rows])
        store.info["targets"] = [sheet.columns[place] for place in places]
    return MoleculeTable(store, texts, sheet.columns[column], sheet.columns, rows, skipped, decided)


def _smiles_column(path: Path, columns: list[str], smiles: str | None) -> int:
    if smiles is not None:
        return _place(path, columns, smiles, "--smiles")
    called = [i for i, name in enumerate(columns) if name.lower() in _NAMES]
    if len(called) != 1:
        raise SettingError(
            f"{path}: say which column holds the SMILES, with --smiles COLUMN; its columns are {_listed(columns)}"
        )
    return called[0]


def _place(path: Path, columns: list[str], name: str, option: str) -> int:
    """Which column has this name, if need be in other letters, capital or small."""
    exact = [i for i, column in enumerate(columns) if column == name]
    found = exact or [i for i, column in enumerate(columns) if column.lower() == name.lower()]
    if len(found) > 1:
        raise DataError(f"{path}: {len(found)} columns are called {name!r}; give them different names")
    if not found:
        lower = {column.lower(): column for column in columns}
        close = difflib.get_close_matches(name.lower(), lower, n=1)
        hint = f" Did you mean {lower[close[0]]!r}?" if close else ""
        raise SettingError(f"{path}: there is no column {name!r} ({option}).{hint} Its columns are {_listed(columns)}")
    return found[0]


def _listed(columns: list[str]) -> str:
    more = f" and {len(columns) - 30} more" if len(columns) > 30 else ""
    return ", ".join(repr(name if len(name) <= 60 else name[:57] + "...") for name in columns[:30]) + more


def _targets(
    names: Sequence[str], texts: list[list[str]], task: Task | None, decimal_comma: bool, counted: list[bool]
) -> tuple[np.ndarray, dict[int, str], str]:
    """The targets of all rows, what is wrong with some of them, and what was decided.

    Args:
        names: of the targets.
        texts: their values, row by row.
        task: if it was said.
        decimal_comma: whether numbers may be written so.
        counted: rows that have a molecule; the others do not decide anything.
    """
    wrong: dict[int, str] = {}
    if not names:
        return np.zeros(len(counted)), wrong, ""
    numbers = [[_number(text, decimal_comma) for text in column] for column in texts]
    for name, column in zip(names, texts):
        wrong |= {row: f"{name} is missing" for row, text in enumerate(column) if _missing(text)}
    there = [row for row in range(len(counted)) if counted[row] and row not in wrong]
    why = "as asked" if task is not None else "several targets"
    if task is None and len(names) == 1:
        task, why = _decide(numbers[0], there)
    if task == "classification":
        labels = _labels(names[0], texts[0], numbers[0], there)
        return labels, wrong, f"{names[0]}: {len(np.unique(labels[there]))} classes, so classification ({why})"
    for name, column, found in zip(names, texts, numbers):
        wrong |= {row: f"{name} is {_short(column[row])}, no number" for row in there if found[row] is None}
    table = np.array([[np.nan if v is None else v for v in found] for found in numbers]).T
    used = table[[row for row in there if row not in wrong]]
    spans = [f"{name}: numbers from {c.min():g} to {c.max():g}" for name, c in zip(names, used.T) if len(c)]
    return table, wrong, f"{'; '.join(spans)}, so regression ({why})"


def _decide(numbers: list[float | None], there: list[int]) -> tuple[Task, str]:
    """What one target's values are, and why."""
    found = [v for row in there if (v := numbers[row]) is not None]
    if 2 * len(found) < len(there):
        return "classification", "text"
    # Most are numbers: what is none among them is a mistake to be told of, not a class.
    if any(v != round(v) for v in found):
        return "regression", "with fractions"
    values = len(set(found))
    return "classification" if values <= MOST_CLASSES else "regression", f"{values} different whole numbers"


def _labels(name: str, texts: list[str], numbers: list[float | None], there: list[int]) -> np.ndarray:
    """Whole numbers as such, so that 1 and 1.0 are one class; anything else as text."""
    whole = [0 if v is None or v != round(v) or abs(v) >= 2**53 else int(v) for v in numbers]
    if all(whole[row] == numbers[row] for row in there):
        return np.array(whole, dtype=np.int64)
    labels = np.array(texts, dtype=np.str_)
    kinds = len(np.unique(labels[there]))
    if len(there) > 2 and 2 * kinds > len(there):
        raise DataError(
            f"{name} has {kinds} different values in {len(there)} rows, such as {_short(texts[there[0]])}, which are "
            "no classes; give a column of plain numbers such as -1.5, or of few classes"
        )
    return labels


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell).strip()


def _missing(text: str) -> bool:
    return text.lower() in _MISSING


def _number(text: str, decimal_comma: bool) -> float | None:
    """The number that a text is, if it is one and finite; Python's own way of writing 1_000 is none."""
    if decimal_comma and "." not in text:
        text = text.replace(",", ".")
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
