"""softmask results"""

import json
from pathlib import Path
from typing import Annotated

import typer

from softmask.cli import options
from softmask.cli.app import App
from softmask.cli.study import tell

app = App(no_args_is_help=True, help="Look at studies: list, show, compare.")
Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="The folder of a study.", show_default=False)]


@app.command("list")
def list_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the studies lie.")] = Path("studies"),
    as_json: options.Json = False,
) -> None:
    """List the studies in a folder, with their figures.

    [b]Example:[/b] softmask results list
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from softmask.baselines.registry import title_of
    from softmask.errors import DataError, SoftmaskError
    from softmask.study.record import read_json, read_question
    from softmask.study.report.wording import data

    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; softmask evaluate makes studies under studies, or at --out")
    found = []
    for path in sorted(folder.rglob("study.json")):
        try:
            question = read_question(path.parent)
            result = path.with_name("result.json")
            figures = read_json(result)["figures"] if result.is_file() else None
            found.append((str(path.parent), question, figures))
        except (SoftmaskError, KeyError, TypeError) as error:
            typer.echo(f"skipped {path.parent}: {error}", err=True)
    if as_json:
        print(json.dumps([{"folder": f, "question": q, "figures": r} for f, q, r in found]))
        return
    table = Table(title=f"{len(found)} studies in {folder}", caption="paper: epoch chosen on the test folds")
    for column in ("#", "data", "model", "protocol", "runs x folds"):
        table.add_column(column, overflow="fold")
    table.add_column("figures", justify="right", no_wrap=True)
    for number, (_, question, figures) in enumerate(found, start=1):
        scale, unit, digits = (100, " %", 1) if question["task"] == "classification" else (1, "", 4)
        said = "not finished" if figures is None else "settings chosen"
        if figures:
            said = "\n".join(
                f"{name} {scale * f['mean']:.{digits}f}"
                + ("" if f["std"] is None else f" ± {scale * f['std']:.{digits}f}")
                + unit
                for name, f in figures.items()
            )
        models = ", ".join(dict.fromkeys(map(title_of, question["settings"])))
        shape = f"{question['runs']} x {question['folds']}"
        table.add_row(str(number), escape(data(question)), escape(models), question["protocol"], shape, said)
    console = Console(emoji=False)
    console.print(table)
    # Whole, to be copied: a column would fold them.
    for number, (place, _, _) in enumerate(found, start=1):
        console.print(f"{number:>3}  {place}", soft_wrap=True, highlight=False, markup=False)


@app.command()
def show(study: Folder, as_json: options.Json = False) -> None:
    """Show a study, finished or not.

    [b]Example:[/b] softmask results show studies/MUTAG-smg-jk-fair-1a2b3c4d
    """
    from softmask.study.record import read_record

    tell(read_record(study), as_json)


@app.command()
def compare(
    first: Folder,
    second: Folder,
    figure: Annotated[
        str | None, typer.Option(help="fair, holdout or paper; by default the first of these that both have.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Is one model better than another? Two studies over the same folds, with a corrected resampled t-test.

    The test is that of Nadeau and Bengio (2003), which allows for the overlap of the training parts.

    [b]Example:[/b] softmask results compare studies/A studies/B
    """
    from rich.console import Console

    from softmask.study.compare import compare_studies
    from softmask.study.record import read_record

    found = compare_studies(read_record(first), read_record(second), figure)
    if as_json:
        content = {"figure": found.figure, "first": found.name_a, "second": found.name_b}
        means = {"mean_first": found.mean_a, "mean_second": found.mean_b}
        print(json.dumps(content | means | found.comparison.to_json() | {"sentence": found.sentence()}))
        return
    Console(emoji=False).print(found.sentence(), highlight=False)
