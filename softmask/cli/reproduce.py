"""softmask reproduce"""

from pathlib import Path
from typing import Annotated

import typer

from softmask.cli import options
from softmask.errors import SettingError

_WHAT = ("table1",)


def reproduce(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="table1.", show_default=False)],
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be given again.")] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="Only this variant; may be repeated.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, a minute on a CPU; not the paper's.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("results"),
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
) -> None:
    """Regenerate what the paper shows.

    Every study is kept in the results' folder, so the command goes on where it was interrupted.

    [b]Example:[/b] softmask reproduce table1 --set MUTAG
    """
    if what not in _WHAT:
        raise SettingError(f"there is no recipe {what!r}; there is {', '.join(_WHAT)}")
    _table1(sets or [], variants or [], quick, out / "quick" if quick else out, device, data_dir)


def _table1(sets: list[str], variants: list[str], quick: bool, out: Path, device: str, data_dir: Path | None) -> None:
    import sys

    from softmask.atomic import atomic_path
    from softmask.cli.study import run_study
    from softmask.data.catalog import open_data
    from softmask.paper.table1 import cells, markdown

    stores: dict[str, object] = {}
    for cell in cells(sets, variants, quick):
        if cell.name not in stores:
            stores = {cell.name: open_data(cell.name, data_dir)}
        study = cell.study(stores[cell.name], out)  # type: ignore[arg-type]
        print(f"{cell.name}, {cell.variant}: {study.folder}", file=sys.stderr)
        run_study(study, "local", None, device, fresh=False, tensorboard=False)
    text = markdown(out)
    with atomic_path(out / "table1.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)
