"""``softmask data``: which sets there are, where they are, and what is in them."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from softmask.cli.app import App
from softmask.errors import DataError

app = App(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="List, download, describe and check data sets.",
    epilog="Example: softmask data list; softmask data info MUTAG",
)

Data = Annotated[str, typer.Argument(metavar="DATA", help="TU folder or zip, packed store, molecules, or a name.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder in which names are looked for, before SOFTMASK_DATA and the downloads."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@app.command(name="list", epilog="Example: softmask data list --data-dir ~/tu")
def list_sets(data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the sets known by name, and where each of them is."""
    from softmask.data.catalog import KNOWN, QM9_SETS, SYNTHETIC, find

    rows: list[dict[str, Any]] = []
    for name, known in KNOWN.items():
        try:
            where: str | None = str(find(name, data_dir))
        except DataError:
            if data_dir is not None and not data_dir.is_dir():
                raise
            where = None
        kind = "molecules" if name in QM9_SETS else "TU"
        row: dict[str, Any] = {"name": name, "kind": kind, "graphs": known.graphs, "classes": known.classes}
        rows.append(row | {"nodes": known.nodes, "edges": known.edges, "where": where})
    rows += [{"name": name, "kind": "synthetic", "where": "made on the spot"} for name in SYNTHETIC]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("name", box=None, pad_edge=False, header_style="bold")
    for column in ("graphs", "classes", "nodes", "edges"):
        table.add_column(column, justify="right")
    table.add_column("where", overflow="fold")
    for row in rows:
        numbers = [
            f"{row[c]:,}" if row.get(c) else "any" * (c == "graphs") for c in ("graphs", "classes", "nodes", "edges")
        ]
        table.add_row(row["name"], *numbers, escape(row["where"] or f"softmask data get {row['name']}"))
    _console().print(table)


@app.command(epilog="Example: softmask data get MUTAG")
def get(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names in the TU collection, or qm9.")],
    data_dir: Annotated[Path | None, typer.Option(help="Folder for the files; by default the cache.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Download even what is there.")] = False,
) -> None:
    """Download sets of the TU collection. Any name of the collection will do, not only the listed ones.

    qm9 is not downloaded but made from the package qm9pack (pip install 'softmask\\[qm9]'), in two minutes.
    """
    import warnings

    from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn

    from softmask.data.download import get as download
    from softmask.data.qm9 import UnmatchedMoleculeWarning

    console = Console(stderr=True, emoji=False)
    for name in names:
        amount = TaskProgressColumn() if name == "qm9" else DownloadColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), amount)
        with (
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always", UnmatchedMoleculeWarning)
            task = progress.add_task(name, total=None)

            def show(done: int, total: int | None, progress: Progress = progress, task: Any = task) -> None:
                progress.update(task, completed=done, total=total)

            path = download(name, data_dir, again, show)
        for warning in caught:
            console.print(f"[yellow]warning:[/] {escape(str(warning.message))}", highlight=False, soft_wrap=True)
        print(path)


@app.command(epilog="Example: softmask data info MUTAG --data-dir ~/tu")
def info(data: Data, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Print what a set holds: graphs, classes, sizes, labels, and which features a model would use."""
    with _busy(f"reading {data}"):
        from softmask.data.catalog import open_data
        from softmask.data.statistics import statistics

        found = statistics(open_data(data, data_dir))
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _console().print(_table(found))


@app.command(epilog="Example: softmask data check ./MUTAG.zip")
def check(data: Data, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Read a set from beginning to end and report what is wrong with it. Exits with 2 if anything is."""
    with _busy(f"checking {data}"):
        from softmask.data.check import check_data

        report = check_data(data, data_dir)
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        console = Console(soft_wrap=True, highlight=False, emoji=False)
        for problem in report.problems:
            console.print(f"[bold red]problem:[/] {escape(problem)}")
        for remark in report.remarks:
            console.print(f"[bold]note:[/] {escape(remark)}")
        if not report.problems:
            known = ", the counts are those known of it" if report.known else ""
            console.print(f"[bold green]fine:[/] {escape(report.summary)}{known}")
    if report.problems:
        raise typer.Exit(2)


def _console() -> Console:
    # Eighty columns are what rich takes for a pipe; they would break paths and hashes in two.
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=200, emoji=False)


def _busy(what: str) -> Any:
    return Console(stderr=True, emoji=False).status(escape(what))


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")

    def add(name: str, value: Any) -> None:
        if value not in (None, [], ""):
            table.add_row(name, escape(f"{value:,}" if isinstance(value, int) else str(value)))

    add("name", found["name"])
    add("source", found["source"])
    add("graphs", found["graphs"])
    if found["classes"] is not None:
        add("classes", f"{len(found['classes'])}: " + ", ".join(f"{c} ({n:,})" for c, n in found["classes"]))
    elif found["targets"]:
        named = found["target_names"] or []
        if found["target_units"]:
            named = [f"{name} ({unit})" for name, unit in zip(named, found["target_units"])]
        names = f": {', '.join(named)}" if named else ""
        add("targets", f"{found['targets']:,}{names}")
    else:
        add("classes", "none: good for prediction, not for training")
    add("nodes", found["nodes"])
    add("nodes a graph", f"{found['nodes_min']:,} to {found['nodes_max']:,}, mean {found['nodes_mean']:,.1f}")
    if found["directed"]:
        add("edges", f"{found['edges']:,}, directed")
    else:
        proper = (found["edges"] - found["self_loops_kept"]) // 2
        add("edges", f"{proper:,}, undirected")
    add("self loops dropped", found["self_loops_dropped"])
    add("isolated nodes", found["isolated_nodes"])
    add("largest degree", found["largest_degree"])
    for what in ("node", "edge"):
        labels = found[f"{what}_labels"]
        add(f"{what} labels", " and ".join(f"{n} values" for n in labels) or "none")
        add(f"{what} attributes", found[f"{what}_attributes"] or "none")
    add("positions", f"in {found['positions']} dimensions" if found["positions"] else None)
    add("roles known", ", ".join(found["roles"]) if found["roles"] else None)
    features = found["features"]
    add("features used", f"{features['kind']}, {features['channels']} channels")
    add("content hash", found["content_hash"])
    return table
