"""The graphs that a command works on: a set, or a table of molecules."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from softmask.errors import SettingError

if TYPE_CHECKING:
    import numpy as np

    from softmask.data.molecule_table import MoleculeTable
    from softmask.data.store import GraphStore


# Files in which people have molecules, and which are not read.
_NO_TABLES = (".txt", ".xlsx", ".xls", ".ods", ".sdf", ".mol", ".gz", ".json")


class Dataset(NamedTuple):
    """Graphs, and the table that they are from, if they are from one."""

    store: "GraphStore"
    table: "MoleculeTable | None" = None


def open_dataset(
    data: str,
    data_dir: Path | None = None,
    smiles: str | None = None,
    targets: Sequence[str] | None = None,
    task: str | None = None,
    skip_invalid: bool = False,
    learn: bool = False,
    quiet: bool = False,
) -> Dataset:
    """Opens what DATA names. Says on the standard error what was decided of a table, and which rows were left out.

    Args:
        data: a set, or a table of molecules by its ending.
        data_dir: where sets are looked for.
        smiles: the table's column of SMILES.
        targets: columns of the table, or targets of the set, to learn.
        task: ``classification`` or ``regression``, for a table.
        skip_invalid: leave out rows of the table that cannot be used.
        learn: refuse graphs without classes or targets.
        quiet: say nothing; for all processes but the first.
    """
    from softmask.data.sheet import is_sheet

    if is_sheet(data):
        from softmask.data.molecule_table import read_molecules

        with _reading(data, quiet) as progress:
            table = read_molecules(data, smiles, targets or (), task, skip_invalid, progress)  # type: ignore[arg-type]
        if learn and not targets:
            columns = ", ".join(name for name in table.columns if name != table.column)
            raise SettingError(f"{data}: name the column to learn with --target; its other columns are {columns}")
        if not quiet:
            _say(data, table)
        if learn:
            _check_varied(data, table.store)
        return Dataset(table.store, table)
    for option, given in (("--smiles", smiles), ("--task", task), ("--skip-invalid", skip_invalid or None)):
        if given is not None:
            raise SettingError(
                f"{option} belongs to a table of molecules (.csv, .tsv, .parquet or .smi), not to {data}"
            )
    if Path(data).suffix.lower() in _NO_TABLES and Path(data).is_file():
        raise SettingError(
            f"{data}: cannot be read as it is; save a table of molecules as .csv, .tsv, .parquet or .smi"
        )
    from softmask.data.catalog import open_data
    from softmask.data.statistics import direction
    from softmask.data.targets import pick_targets

    store = open_data(data, data_dir)
    if learn and store.y is None:
        raise SettingError(f"{data} has no graph labels or targets to learn")
    if learn and store.directed and not quiet:
        print(f"{data}: {direction(store)}", file=sys.stderr)
    return Dataset(pick_targets(store, targets) if targets else store)


def _check_varied(data: str, store: "GraphStore") -> None:
    """Refuses numbers that are all the same; of classes the classifier itself says so."""
    if store.y is None or not store.y.is_floating_point():
        return
    for name, column in zip(store.info["targets"], store.y.t()):
        if bool((column == column[0]).all()):
            raise SettingError(
                f"{data}: {name} is {column[0]:g} for every molecule that can be used ({store.num_graphs}), so there "
                "is nothing to learn"
            )


def _say(data: str, table: "MoleculeTable") -> None:
    for row in table.skipped:
        print(f"left out: {row}", file=sys.stderr)
    count = len(table.skipped)
    out = f", {count} {'row' if count == 1 else 'rows'} left out" if count else ""
    decided = f"; {table.decided}" if table.decided else ""
    print(f"{data}: {table.store.num_graphs} molecules{out}{decided}", file=sys.stderr)


@contextmanager
def _reading(data: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal while molecules are read."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True, emoji=False)
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as progress:
        task = progress.add_task(f"reading {data}", total=None)
        yield lambda done, rows: progress.update(task, completed=done, total=rows)


def part_of(loaded: Any, store: "GraphStore", part: str | None) -> "np.ndarray":
    """The graphs of one part of the set that a model was trained and tested on; all, if no part is asked for."""
    import numpy as np

    from softmask.data.splits import holdout

    if part is None:
        return np.arange(len(store))
    names, summary = ("train", "validation", "test"), loaded.trained_.summary
    if part not in names:
        raise SettingError(f"--part {part}: use {', '.join(names)}")
    split = summary.get("split")
    if split is None:
        raise SettingError("--part: the model's file says nothing of parts; it was trained on all graphs it was given")
    if split["graphs"] != len(store):
        raise SettingError(
            f"--part {part}: the model was trained on a part of {summary['data']} with {split['graphs']:,} graphs; "
            f"{store.info.get('name', 'this set')} has {len(store):,}. Leave --part out to take them all"
        )
    return np.sort(holdout(len(store), tuple(split["ratios"]), split["seed"])[names.index(part)])
