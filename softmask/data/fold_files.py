"""Folds and holdouts that are given as files, as benchmark splits are published."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from softmask.errors import DataError, SettingError

# A name such as 1.txt, test_idx-1.txt, fold_03.txt: what it is for, and which fold.
_NUMBERED = re.compile(r"(?P<kind>.*?)(?P<number>[0-9]+)\.txt", re.IGNORECASE)
# How a word in the name begins; any other name is that of a test part.
_ROLES = {"train": "train", "validation": "val"}
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, eq=False)
class Fold:
    """One way to split the graphs: ids, int64 and ascending.

    Args:
        test: the graphs to test on.
        train: the graphs to train on, or ``None`` where they are all that are in no other part.
        validation: the graphs that choose the epoch and the settings, or ``None`` where none were given.
    """

    test: np.ndarray
    train: np.ndarray | None = None
    validation: np.ndarray | None = None


@dataclass(frozen=True)
class _Part:
    """Ids as they were read, and where each of them stands."""

    name: str
    ids: list[int]
    where: Callable[[int], str]

    def array(self) -> np.ndarray:
        return np.sort(np.asarray(self.ids, dtype=np.int64))


@dataclass(frozen=True)
class _Parts:
    test: _Part
    train: _Part | None = None
    validation: _Part | None = None

    def given(self) -> list[_Part]:
        return [part for part in (self.train, self.validation, self.test) if part is not None]

    def fold(self) -> Fold:
        train = self.train.array() if self.train is not None else None
        validation = self.validation.array() if self.validation is not None else None
        return Fold(self.test.array(), train, validation)


def read_folds(path: str | Path, num_graphs: int) -> list[Fold]:
    """Reads the folds of a cross validation. Every graph must be in exactly one test part.

    Args:
        path: one of

            - a folder with a text file of test ids for each fold, ``1.txt`` or ``test_idx-1.txt`` and so on, taken
              in the order of their numbers. Files of the same numbers with ``train`` or ``val`` in their names are
              the other parts (the layout that the authors of GIN published); other files are left alone;
            - a JSON file with a list of lists of test ids;
            - a JSON file as Errica et al. (ICLR 2020) published: a list of ``{"test": [...], "model_selection":
              [{"train": [...], "validation": [...]}]}``.
        num_graphs: of the set. Ids count from 0.

    Training and validation ids may be missing; where training ids are given, they and the validation ids must be all
    the graphs that are not in the fold's test part.
    """
    path = Path(path)
    if path.is_dir():
        folds = _in_folder(path)
    elif path.is_file():
        folds = _in_json(path)
    else:
        raise DataError(f"{path}: there is no such file or folder; folds are a folder of text files or one JSON file")
    if len(folds) < 2:
        raise SettingError(f"{path} has {len(folds)} fold; at least 2 are needed, one to test on and one to train on")
    _check_ids([part for fold in folds for part in fold.given()], num_graphs)
    _check_apart([fold.test for fold in folds], num_graphs)
    _check_whole([fold.test for fold in folds], np.arange(num_graphs), f"{path}: ", "no fold's test part")
    for fold in folds:
        _check_apart(fold.given(), num_graphs)
        if fold.train is not None:
            start = f"{fold.train.name} does not hold all the rest of {fold.test.name}: "
            _check_whole(fold.given(), np.arange(num_graphs), start, "no part of this fold")
        elif sum(len(part.ids) for part in fold.given()) == num_graphs:
            raise DataError(f"{fold.test.name}: the other parts of this fold leave no graph to train on")
    return [fold.fold() for fold in folds]


def read_parts(paths: Mapping[str, str | Path], num_graphs: int) -> Fold:
    """Reads a holdout: one file of ids for each part.

    Graphs in no part are left out of the study, as when a smaller training part is wanted.

    Args:
        paths: the files by part: ``"train"``, ``"test"`` and, if there is one, ``"validation"``. Ids stand one a line,
            or apart by spaces or commas.
        num_graphs: of the set. Ids count from 0.
    """
    if unknown := sorted(set(paths) - {"train", "validation", "test"}):
        raise SettingError(f"unknown part {unknown[0]!r} of a holdout; known are train, validation and test")
    for name in ("train", "test"):
        if name not in paths:
            raise SettingError(f"a holdout needs a file of the graphs to {name} on")
    parts = _Parts(**{name: _text(Path(path)) for name, path in paths.items()})
    _check_ids(parts.given(), num_graphs)
    _check_apart(parts.given(), num_graphs)
    return parts.fold()


def _in_folder(folder: Path) -> list[_Parts]:
    files: dict[str, dict[int, Path]] = {"test": {}, "train": {}, "validation": {}}
    for file in sorted(folder.iterdir()):
        match = _NUMBERED.fullmatch(file.name)
        if match is None or file.name.startswith(".") or not file.is_file():
            continue
        kind, number = match["kind"].lower(), int(match["number"])
        role = next((role for role, start in _ROLES.items() if re.search(rf"(?<![a-z]){start}", kind)), "test")
        if number in files[role]:
            raise DataError(
                f"{folder}: {files[role][number].name} and {file.name} are both the {role} part of one fold"
            )
        files[role][number] = file
    if not files["test"]:
        raise DataError(f"{folder} has no fold files; they are called 1.txt, 2.txt or test_idx-1.txt, test_idx-2.txt")
    for role in ("train", "validation"):
        if files[role] and files[role].keys() != files["test"].keys():
            odd = min(files[role].keys() ^ files["test"].keys())
            has, lacks = (role, "test") if odd in files[role] else ("test", role)
            raise DataError(
                f"{folder}: {files[has][odd].name} has no {lacks} file beside it; give one for every fold, or none"
            )
    return [
        _Parts(**{role: _text(numbered[number]) for role, numbered in files.items() if numbered})
        for number in sorted(files["test"])
    ]


def _text(file: Path) -> _Part:
    text = _read(file)
    ids, lines = [], []
    for line, content in enumerate(text.split("\n"), start=1):
        for word in content.replace(",", " ").split():
            if not _WHOLE.fullmatch(word):
                raise DataError(f"{file}, line {line}: {_short(word)} is not the number of a graph")
            ids.append(int(word))
            lines.append(line)
    return _Part(str(file), ids, lambda place: f"{file}, line {lines[place]}")


def _in_json(file: Path) -> list[_Parts]:
    text = _read(file)
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{file}, line {error.lineno}: not JSON ({error.msg}); folds are a JSON file or a folder"
        ) from None
    except (RecursionError, ValueError):
        raise DataError(f"{file}: not a list of folds, nested too deeply or with a number too long") from None
    if not isinstance(content, list) or not content:
        raise DataError(f"{file}: a list of folds was expected, got {_short(content)}")
    return [_json_fold(file, number, fold) for number, fold in enumerate(content, start=1)]


def _json_fold(file: Path, number: int, fold: Any) -> _Parts:
    where = f"{file}, fold {number}"
    if isinstance(fold, list):
        return _Parts(_json_part(where, fold))
    if not isinstance(fold, dict) or "test" not in fold:
        raise DataError(f"{where}: a list of test ids or an object with 'test' was expected, got {_short(fold)}")
    test = _json_part(f"{where}, test", fold["test"])
    inner = fold.get("model_selection", [])
    if not isinstance(inner, list) or not all(isinstance(split, dict) for split in inner):
        raise DataError(f"{where}: 'model_selection' must be a list of objects with 'train' and 'validation'")
    if not inner:
        return _Parts(test)
    if len(inner) > 1:
        raise DataError(f"{where} has {len(inner)} splits for model selection; one is supported: keep one of them")
    if missing := [name for name in ("train", "validation") if name not in inner[0]]:
        raise DataError(f"{where}: 'model_selection' has no {missing[0]!r}")
    return _Parts(test, *(_json_part(f"{where}, {name}", inner[0][name]) for name in ("train", "validation")))


def _json_part(where: str, ids: Any) -> _Part:
    if not isinstance(ids, list):
        raise DataError(f"{where}: a list of ids was expected, got {_short(ids)}")
    for place, value in enumerate(ids, start=1):
        if isinstance(value, bool) or not isinstance(value, int):
            raise DataError(f"{where}, entry {place}: {_short(value)} is not the number of a graph")
    return _Part(where, ids, lambda place: f"{where}, entry {place + 1}")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{file} is not text (UTF-8)") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _check_ids(parts: Sequence[_Part], num_graphs: int) -> None:
    """Refuses parts that are empty, ids out of range, and ids that stand twice in a part."""
    for part in parts:
        if not part.ids:
            raise DataError(f"{part.name} is empty: it names no graph")
    lowest, highest = min(min(part.ids) for part in parts), max(max(part.ids) for part in parts)
    for part in parts:
        seen: dict[int, int] = {}
        for place, graph in enumerate(part.ids):
            if not 0 <= graph < num_graphs:
                hint = ""
                if lowest == 1 and highest == num_graphs:
                    hint = ". The ids seem to count from 1, as no file names graph 0: subtract 1 from each"
                raise DataError(
                    f"{part.where(place)}: there is no graph {graph}, the set has graphs 0 to {num_graphs - 1}{hint}"
                )
            if graph in seen:
                raise DataError(f"{part.where(place)}: graph {graph} stands already in {part.where(seen[graph])}")
            seen[graph] = place


def _check_apart(parts: Sequence[_Part], num_graphs: int) -> None:
    """Refuses a graph that is in two parts."""
    owner = np.full(num_graphs, -1)
    for number, part in enumerate(parts):
        ids = np.asarray(part.ids)
        if (taken := np.flatnonzero(owner[ids] >= 0)).size:
            place = int(taken[0])
            other = parts[owner[ids[place]]]
            raise DataError(
                f"{part.where(place)}: graph {ids[place]} is also in {other.where(other.ids.index(ids[place]))}; "
                "the parts must not overlap"
            )
        owner[ids] = number


def _check_whole(parts: Sequence[_Part], wanted: np.ndarray, start: str, none: str) -> None:
    """Refuses parts that together lack some of the graphs wanted."""
    missing = np.setdiff1d(wanted, np.concatenate([part.ids for part in parts]))
    if missing.size:
        graphs = f"{missing.size} graphs are" if missing.size > 1 else "1 graph is"
        first = f"the first is graph {missing[0]}" if missing.size > 1 else f"graph {missing[0]}"
        raise DataError(f"{start}{graphs} in {none} ({first})")
