"""What `evaluate` and `tune` share: running a study, and telling its answer."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from softmask.cli.interrupt import Stop, stop_on_interrupt
from softmask.cli.progress import study_bar
from softmask.errors import SettingError, StudyInterrupted

if TYPE_CHECKING:
    from softmask.study.record import Record
    from softmask.study.study import Study

Runner = Annotated[
    str, typer.Option("--executor", help="local, or ray: a cluster of machines (needs softmask\\[ray]).")
]
Address = Annotated[
    str | None, typer.Option(help="Of the Ray cluster, such as HOST:6379; without it one is started on this machine.")
]
Jobs = Annotated[
    int, typer.Option(help="Into how many jobs each fleet is cut: at least as many as there are devices or machines.")
]
Devices = Annotated[str, typer.Option(help="auto, cpu or cuda; several, such as cuda:0,cuda:1, share the jobs.")]
Patience = Annotated[int | None, typer.Option(help="Stop early: so many epochs without a better validation score.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Folder of the study; by default one under studies, named by the question."),
]
Sample = Annotated[int | None, typer.Option(help="Try only so many points of the grid, drawn by seed.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw away what an earlier study left in the folder.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write event files for TensorBoard.")]


def run_study(
    study: "Study",
    executor: str,
    address: str | None,
    device: str,
    fresh: bool,
    tensorboard: bool,
    more: bool = False,
) -> "Record":
    """Runs a study with progress on the terminal, and writes its reports; for `more`, see :func:`resumable`."""
    from softmask.atomic import atomic_path
    from softmask.baselines.registry import way_of
    from softmask.study.executors import Executor, Local
    from softmask.study.report import html_report, markdown_report, write_events

    runner: Executor
    if executor == "local":
        runner = Local(_devices(device, study.question.jobs))
    elif executor == "ray":
        from softmask.study.ray_executor import OnRay

        runner = OnRay(address, "cuda" if _devices(device, 1)[0].startswith("cuda") else "cpu")
    else:
        raise SettingError(f"unknown executor {executor!r}; use local or ray")
    if address is not None and executor != "ray":
        raise SettingError("--address belongs to --executor ray")
    kept = any(way_of(s.model) != "once" for s in study.question.settings)
    if fresh or not (study.folder / "result.json").is_file():
        _announce(study)
    with resumable(study.folder, more, kept) as stop, study_bar() as bar:
        record = study.run(runner, lambda *progress: bar(*progress) or stop.asked, fresh=fresh)
    if not record.jobs and (record.folder / "report.md").is_file():
        return record  # the numbers of its epochs are not here, and the report that was made from them is
    for name, text in (("report.md", markdown_report(record)), ("report.html", html_report(record))):
        with atomic_path(record.folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if tensorboard:
        write_events(record, record.folder / "events")
    return record


@contextmanager
def resumable(folder: Path, more: bool = False, kept: bool = True) -> Iterator[Stop]:
    """While active, Ctrl-C asks to stop; if that was done, it is said that the same command goes on.

    Args:
        folder: where what was trained is kept.
        more: whether the command has more to train. It is not begun, if Ctrl-C came too late to end this one early:
            in its last epoch, or while its files were written.
        kept: whether what was trained is kept, which a fit without epochs is not.
    """
    try:
        with stop_on_interrupt() as stop:
            yield stop
            if more and stop.asked:
                raise StudyInterrupted
    except StudyInterrupted:
        goes_on = f"{folder} keeps what was trained, and the same command goes on"
        told = goes_on if kept else "of a fit without epochs nothing is kept, and the same command begins it anew"
        print(f"interrupted; {told}", file=sys.stderr)
        raise typer.Exit(130) from None


def _announce(study: "Study") -> None:
    """Says how long kernels will take, if more than a minute: they have no epochs that a bar could show."""
    from softmask.baselines.registry import way_of
    from softmask.baselines.shallow import SHALLOW

    for name in dict.fromkeys(s.model for s in study.question.settings if way_of(s.model) == "once"):
        cost = SHALLOW[name].cost(study.store)
        if cost.minutes > 1 and (study.force or cost.bearable):
            print(cost.sentence(name, study.store), file=sys.stderr)


def tell(record: "Record", as_json: bool) -> None:
    """Prints a study's answer."""
    from rich.console import Console

    from softmask.study.report import print_report

    if as_json:
        print(json.dumps({"folder": str(record.folder), "question": record.question, "result": record.result}))
        return
    console = Console(emoji=False)
    print_report(record, console)
    page = record.folder / "report.html"
    seen = f"; to look at: {page}" if page.is_file() else ""
    console.print(f"\nthe study: {record.folder}{seen}", soft_wrap=True, highlight=False)


def _devices(device: str, jobs: int) -> list[str]:
    import torch

    from softmask.device import pick_device

    if device == "auto" and jobs > 1 and torch.cuda.device_count() > 1:
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return [str(pick_device(name.strip())) for name in device.split(",")]
