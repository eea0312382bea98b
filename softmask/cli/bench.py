"""softmask bench"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.atomic import atomic_path
from softmask.cli import options
from softmask.errors import DataError, SettingError


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="Sets of the paper; by default all that are found.", show_default=False),
    ] = None,
    device: options.Device = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="Of the fleet: auto, float64, float32, tf32-gradients, tf32 or bf16. The usual way takes float32."
        ),
    ] = "auto",
    seconds: Annotated[float, typer.Option(help="About how long each side of each set is measured.")] = 20.0,
    runs: Annotated[int, typer.Option(help="Cross validations side by side: 10 times as many replicas.", min=1)] = 1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results; made if it is not there.")] = Path(
        "results/bench"
    ),
    growth: Annotated[
        bool, typer.Option("--growth", help="Measure how a step grows with nodes and replicas; sets only if named.")
    ] = False,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Time the fleet beside the usual way: 10 folds of a set, with the paper's settings.

    The usual way is a loop over folds with PyG's layers and DataLoader. Both sides train and then evaluate the test
    part, every epoch. A set that fails is reported, and the others go on; the exit code is then 1.

    [b]Example:[/b] softmask bench MUTAG PROTEINS --seconds 10
    """
    import torch

    from softmask.bench.attempt import attempt
    from softmask.bench.ceilings import measure_ceilings
    from softmask.data.catalog import find
    from softmask.device import pick_device
    from softmask.fleet.precision import resolve
    from softmask.paper import paper_settings

    if not seconds > 0:
        raise SettingError(f"--seconds must be positive, got {seconds}")
    picked = pick_device(device)
    resolve(precision, picked)  # type: ignore[arg-type]
    sets = list(dict.fromkeys(names or ([] if growth else _found(data_dir))))
    for name in sets:
        paper_settings(name)
        find(name, data_dir)
    if not sets and not growth:
        raise DataError(
            "none of the paper's sets was found; say where they are with --data-dir FOLDER or SOFTMASK_DATA"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {out}: {error.strerror}") from None

    short = _file_name(torch.cuda.get_device_name(picked)) if picked.type == "cuda" else "cpu"
    records: list[dict[str, Any]] = []
    failures: list[str] = []
    with _status() as say:
        if sets:
            say("ceilings of the machine")
            ceilings = measure_ceilings(picked, precision, min(seconds, 2.0))  # type: ignore[arg-type]
        for name in sets:
            path = out / f"fleet-{short}-{name}{f'-runs{runs}' if runs > 1 else ''}.json"
            record = attempt(_one_set, name, data_dir, runs, picked, precision, seconds, ceilings, path, say)
            if "failed" in record:
                failures.append(f"{name}: {record['failed']}")
            else:
                records.append(record)
                failures += [f"{name}, {s}: {record[s]['failed']}" for s in ("usual", "fleet") if "failed" in record[s]]
            if not _usable(picked):
                failures.append(f"the device does not answer any more; nothing after {name} was measured")
                break
        grown = None
        if growth and _usable(picked):
            grown = attempt(_growth, picked, precision, seconds, out / f"growth-{short}.json", say)
            if "failed" in grown:
                failures.append(f"growth: {grown['failed']}")
                grown = None
    if as_json:
        print(json.dumps({"sets": records, "growth": grown, "failures": failures}))
    else:
        _print(records, grown)
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


def _one_set(
    name: str,
    data_dir: Path | None,
    runs: int,
    device: Any,
    precision: Any,
    seconds: float,
    ceilings: Any,
    path: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    from softmask.bench.compare import compare
    from softmask.data.catalog import open_data
    from softmask.study.provenance import provenance

    say(f"{name}: reading")
    store = open_data(name, data_dir)
    record = compare(
        name, store, runs=runs, device=device, precision=precision, seconds=seconds, ceilings=ceilings, say=say
    )
    record["provenance"] = provenance(seed=0)
    if "failed" not in record["fleet"]:
        _write(record, path)
    return record


def _growth(device: Any, precision: Any, seconds: float, path: Path, say: Callable[[str], None]) -> dict[str, Any]:
    from softmask.bench.growth import growth, plot
    from softmask.study.provenance import provenance

    record = growth(device, precision, seconds, say=say) | {"provenance": provenance(seed=0)}
    _write(record, path)
    try:
        plot(record, path.with_suffix(".png"))
    except ImportError as error:
        print(f"no plot: {error}; pip install 'softmask[draw]'", file=sys.stderr)
    return record


def _found(data_dir: Path | None) -> list[str]:
    from softmask.data.catalog import TU_SETS, find

    if data_dir is not None and not data_dir.is_dir():
        raise DataError(f"--data-dir {data_dir}: there is no such folder")
    found = []
    for name in TU_SETS:
        try:
            find(name, data_dir)
        except DataError:
            continue
        found.append(name)
    return found


def _file_name(device: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")


def _usable(device: Any) -> bool:
    """Whether the device still answers: some failures of a GPU last until the process ends."""
    from softmask.bench.clock import synchronise

    try:
        synchronise(device)
    except RuntimeError:
        return False
    return True


def _write(record: dict[str, Any], path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path}", file=sys.stderr)


@contextmanager
def _status() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows what is being done, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True, emoji=False)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("")
        yield lambda what: progress.update(task, description=what)


def _print(records: list[dict[str, Any]], grown: dict[str, Any] | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from softmask.bench.report import short

    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    if records:
        table = Table(title=f"an epoch of 10 folds on {records[0]['device']}: train, then evaluate the test part")
        table.add_column("set", no_wrap=True)
        table.add_column("models", justify="right")
        for column in (
            *("usual, ms", "fleet, ms", "ratio", "step, ms", "floor, ms", "step / floor"),
            *("of matrix rate", "nodes", "padding", "GB", "first epoch, s"),
        ):
            table.add_column(column, justify="right")
        for record in records:
            table.add_row(record["name"], str(record["replicas"]), *_cells(record))
        console.print(table)
        ceilings = records[0]["ceilings"]
        console.print(
            f"ceilings: copy {ceilings['copy_bytes_per_s'] / 1e9:,.1f} GB/s (read and written), "
            f"{ceilings['precision']} products {ceilings['matrix_flop_per_s'] / 1e9:,.0f} GFLOP/s",
            highlight=False,
        )
    if grown is not None:
        table = Table(title=f"growth of a training step on {grown['device']}")
        for column in ("by", "to", "ms per step", "R²", "GB", "R²"):
            table.add_column(column, justify="right")
        for by in ("nodes", "replicas"):
            last, lines = grown[by]["points"][-1], grown[by]["lines"]
            table.add_row(
                *(by, f"{last[by]:,}", short(last["ms_per_step"]), f"{lines['ms_per_step']['r2']:.4f}"),
                *(f"{last['peak_bytes'] / 1e9:.3g}", f"{lines['peak_bytes']['r2']:.4f}"),
            )
        console.print(table)


def _cells(record: dict[str, Any]) -> list[str]:
    from softmask.bench.report import short

    usual, fleet = record["usual"], record["fleet"]
    cells = ["failed" if "failed" in usual else short(usual["ms_per_epoch"])]
    if "failed" in fleet:
        return [*cells, "failed"]
    return [
        *cells,
        short(fleet["ms_per_epoch"]),
        "" if record["ratio"] is None else f"{record['ratio']:.1f}",
        short(fleet["ms_per_step"]),
        short(fleet["floor"]["ms"]),
        f"{fleet['step_over_floor']:.2f}",
        f"{100 * fleet['share_of_matrix_rate']:.0f} %",
        f"{100 * fleet['nodes_computed'] / record['nodes']:.0f} %",
        f"{100 * fleet['padding']:.1f} %",
        f"{fleet['peak_bytes'] / 1e9:.2f}",
        f"{fleet['first_epoch_s']:.1f}",
    ]
