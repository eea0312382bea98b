"""softmask reproduce"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from softmask.cli import options
from softmask.errors import SettingError, nearest

_MASKS = ("figure4", "collab", "nci1", "proteins")
_WHAT = ("table1", "table2", "baselines", "figure3", *_MASKS, "all")


def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="table1, table2, baselines, figure3, figure4, collab, nci1, proteins or all.",
            show_default=False,
        ),
    ],
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only this set; may be repeated.")] = None,
    variants: Annotated[list[str] | None, typer.Option("--variant", help="Only this variant; may be repeated.")] = None,
    systems: Annotated[
        list[str] | None, typer.Option("--model", help="Only this baseline, of baselines or table2; may be repeated.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, a minute or two on a CPU; not the paper's.")
    ] = False,
    epochs: Annotated[
        int | None,
        typer.Option(help="table2: so many epochs instead of the recipe's; the table says so.", min=1),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="table2: end the training after so many minutes; what there is by then is written, and the same "
            "command goes on.",
            min=0,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")] = Path("results"),
    device: options.Device = "auto",
    data_dir: options.DataDir = None,
) -> None:
    """Regenerate what the paper shows.

    [b]table1[/b]: accuracies of SMG, SMG-JK and M-SMG-JK on the ten TU sets, and of rows of our own; the paper's alone
    with --variant smg --variant smg-jk --variant m-smg-jk.
    [b]baselines[/b]: the other systems of that table, measured by the same study.
    [b]table2[/b]: errors on QM9, of a geometric variant that is not the paper's, and of the other systems there; some
    rows alone with --variant geometric or --model mpnn.
    [b]figure3[/b]: how well GAT and SMG fit their training parts.
    [b]figure4[/b]: masks on the REDDIT sets, as pictures and as numbers.
    [b]collab[/b], [b]nci1[/b], [b]proteins[/b]: the same for the sets of the appendix.

    Everything is kept in the results' folder: an interrupted command goes on.
    Pictures come last, from the results' files: where none can be drawn, one can train.
    The full forms want a GPU, and the tables hours; --quick only shows how they work.

    [b]Example:[/b] softmask reproduce table1 --set MUTAG

    [b]Example:[/b] softmask reproduce figure4 --set REDDIT-BINARY

    [b]Example:[/b] softmask reproduce table2 --variant geometric --minutes 20
    """
    if what not in _WHAT:
        raise SettingError(f"there is no recipe {what!r}; {nearest(what.lower(), _WHAT, 'there is')}")
    if variants and what not in ("table1", "table2"):
        raise SettingError("--variant belongs to table1 and table2")
    if systems and what not in ("baselines", "table2"):
        raise SettingError("--model belongs to baselines and table2")
    if sets and what not in ("table1", "baselines", "figure3", "figure4"):
        raise SettingError("--set belongs to table1, baselines, figure3 and figure4")
    if (epochs is not None or minutes is not None) and what != "table2":
        raise SettingError("--epochs and --minutes belong to table2")
    out = out / "quick" if quick else out
    # Whether another recipe follows, which a late Ctrl-C must not let begin.
    then = what == "all"
    if what in ("table1", "all"):
        _table1(sets or [], variants or [], quick, out, device, data_dir, then)
    if what in ("baselines", "all"):
        _baselines(sets or [], systems or [], quick, out, device, data_dir, then)
    if what in ("table2", "all"):
        _table2(variants or [], systems or [], quick, epochs, minutes, out, device, data_dir, then)
    if what in ("figure3", "all"):
        _figure3(sets or [], quick, out, device, data_dir, then)
    for figure in _MASKS if what == "all" else (what,):
        if figure in _MASKS:
            _masks(figure, sets or [], quick, out, device, data_dir, then and figure != _MASKS[-1])


def _table1(
    sets: list[str], variants: list[str], quick: bool, out: Path, device: str, data_dir: Path | None, then: bool
) -> None:
    from softmask.cli.study import run_study
    from softmask.data.catalog import open_data
    from softmask.paper.table1 import cells, gather
    from softmask.paper.table1_report import markdown

    stores: dict[str, Any] = {}
    wanted = cells(sets, variants, quick)
    _find_all((cell.name for cell in wanted), data_dir)
    _folder(out / "table1")
    try:
        for cell in wanted:
            if cell.name not in stores:
                stores = {cell.name: open_data(cell.name, data_dir)}
            if (tuning := cell.tuning(stores[cell.name], out)) is not None:
                print(f"{cell.name}, {cell.variant}, its settings: {tuning.folder}", file=sys.stderr)
                run_study(tuning, "local", None, device, fresh=False, tensorboard=False, more=True)
            study = cell.study(stores[cell.name], out)
            print(f"{cell.name}, {cell.variant}: {study.folder}", file=sys.stderr)
            run_study(study, "local", None, device, fresh=False, tensorboard=False, more=then or cell is not wanted[-1])
    finally:
        # Also of what there is when it was interrupted.
        if gather(out):
            _tell(markdown(out), out / "table1.md")


def _baselines(
    sets: list[str], systems: list[str], quick: bool, out: Path, device: str, data_dir: Path | None, then: bool
) -> None:
    from softmask.cli.study import run_study
    from softmask.data.catalog import open_data
    from softmask.errors import CannotRun
    from softmask.paper.baselines import SystemCell, cells, markdown

    stores: dict[str, Any] = {}
    wanted = cells(sets, systems, quick)
    _find_all((cell.name for cell in wanted), data_dir)
    _folder(out / "baselines")
    for cell in wanted:
        if cell.name not in stores:
            stores = {cell.name: open_data(cell.name, data_dir)}
        print(f"{cell.name}, {cell.variant}: {cell.folder(out)}", file=sys.stderr)
        try:
            study = cell.study(stores[cell.name], out)
            run_study(study, "local", None, device, fresh=False, tensorboard=False, more=then or cell is not wanted[-1])
        except CannotRun as error:
            # It lacks what the system needs, or would take beyond reason: the table says so, and the others go on.
            print(f"not run: {error}", file=sys.stderr)
            if isinstance(cell, SystemCell):
                cell.refuse(out, str(error))
    _tell(markdown(out), out / "baselines.md")


def _figure3(sets: list[str], quick: bool, out: Path, device: str, data_dir: Path | None, then: bool) -> None:
    from softmask.cli.progress import epoch_log
    from softmask.cli.study import resumable
    from softmask.data.catalog import open_data
    from softmask.device import pick_device
    from softmask.paper.figure3 import fits, markdown, plot

    picked, wanted = str(pick_device(device)), fits(sets, quick)
    _find_all((fit.name for fit in wanted), data_dir)
    _folder(out / "figure3")
    stores: dict[str, Any] = {}
    for fit in wanted:
        if fit.name not in stores:
            stores = {fit.name: open_data(fit.name, data_dir)}
        if fit.done(stores[fit.name], out):
            continue
        more = then or fit is not wanted[-1]
        with resumable(out, more) as stop, epoch_log(f"{fit.name}, {fit.model}", fit.settings.epochs) as bar:
            fit.run(
                stores[fit.name],
                out,
                picked,
                lambda epoch, metrics: (
                    bar(epoch, lambda: f"training accuracy {100 * metrics['train'].mean():.1f} %") or stop.asked
                ),
            )
    _tell(markdown(out), out / "figure3" / "claims.md")
    for path in plot(out):
        print(path)


def _masks(
    figure: str, sets: list[str], quick: bool, out: Path, device: str, data_dir: Path | None, then: bool
) -> None:
    from functools import partial

    from softmask.cli.progress import epoch_log
    from softmask.cli.study import resumable
    from softmask.data.catalog import open_data
    from softmask.device import pick_device
    from softmask.paper.figure4 import FIGURES, draw_missing, gather, mask_settings, reproduce_masks
    from softmask.paper.mask_report import markdown, summary
    from softmask.paper.published import QUICK

    if unknown := sorted(set(sets) - set(FIGURES[figure])):
        own = next((other for other, names in FIGURES.items() if unknown[0].upper() in names and other != figure), None)
        hint = nearest(unknown[0].upper(), FIGURES[figure]) if own is None else f"softmask reproduce {own} draws it"
        raise SettingError(f"{figure} has no set {unknown[0]!r}; {hint}")
    wanted, picked, made = sets or FIGURES[figure], str(pick_device(device)), []
    _find_all(wanted, data_dir)
    place = _folder(out / figure)
    for name in wanted:
        epochs = mask_settings(name, None, quick).epochs
        with resumable(place, then or name != wanted[-1]) as stop, epoch_log(f"{name}, masks", epochs) as bar:
            made.append(
                reproduce_masks(
                    *(name, open_data(name, data_dir), place, picked),
                    quick=quick,
                    on_epoch=lambda epoch, metrics: (
                        bar(epoch, lambda: f"validation accuracy {100 * metrics['validation'].mean():.1f} %")
                        or stop.asked
                    ),
                )
            )
    # Those of an earlier command for other sets too.
    records = gather(place, figure)
    print(*([QUICK] if quick else []), summary(records), sep="\n\n", end="\n\n")
    print(_write(markdown(records), place / "masks.md"))
    # Last: a machine with a GPU may lack what draws, and the same command draws elsewhere without training again.
    for record in made:
        for path in draw_missing(record, partial(open_data, record["set"], data_dir), place):
            print(path)


def _table2(
    variants: list[str],
    systems: list[str],
    quick: bool,
    epochs: int | None,
    minutes: float | None,
    out: Path,
    device: str,
    data_dir: Path | None,
    then: bool,
) -> None:
    from time import monotonic

    from softmask.cli.progress import epoch_log
    from softmask.cli.study import resumable
    from softmask.data.catalog import open_data
    from softmask.device import pick_device
    from softmask.errors import StudyInterrupted
    from softmask.paper.table2 import markdown, rows

    end = None if minutes is None else monotonic() + 60 * minutes

    def late() -> bool:
        return end is not None and monotonic() > end

    wanted = rows(quick, variants, epochs, systems)
    picked, store = str(pick_device(device)), open_data("qm9-sample" if quick else "qm9", data_dir)
    _folder(out / "table2")
    trained = False
    try:
        for row in wanted:
            if (late() and trained) or row.done(store, out):
                continue
            trained, more = True, then or row is not wanted[-1]
            with resumable(out, more) as stop, epoch_log(f"QM9, {row.variant}", row.settings.epochs) as bar:
                try:
                    row.run(*(store, out, picked), lambda epoch, metrics: bar(epoch) or stop.asked or late())
                except StudyInterrupted:
                    if stop.asked:
                        raise
    finally:
        # Also of what was cut: its record says how far it came.
        if any(row.path(out).is_file() for row in wanted):
            _tell(markdown(out), out / "table2.md")
    if late():
        print(f"the time is up; {out} keeps what was trained, and the same command goes on", file=sys.stderr)


def _find_all(names: Iterable[str], data_dir: Path | None) -> None:
    """Misses a set before any other is trained."""
    from softmask.data.catalog import find

    for name in dict.fromkeys(names):
        find(name, data_dir)


def _folder(path: Path) -> Path:
    """Makes the folder and sees that it can be written, before any work."""
    from softmask.atomic import check_writable

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"cannot make the folder {path}: {error.strerror}") from None
    check_writable(path / "record.json")
    return path


def _write(text: str, path: Path) -> Path:
    from softmask.atomic import atomic_path

    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


def _tell(text: str, path: Path) -> None:
    """Writes a table, and prints it."""
    _write(text, path)
    print(text)
