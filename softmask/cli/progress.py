"""A progress bar over epochs on the terminal; where the output is piped, nothing or a line a minute."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def epoch_bar(what: str, epochs: int) -> Iterator[Callable[[int, Callable[[], str]], None]]:
    """Gives a function to call after every epoch, with the epoch and a function that gives a short text.

    The text is asked for a few times a second only, since it may have to wait for the device.
    """
    console = Console(stderr=True, emoji=False)
    columns = (
        *(TextColumn("[b]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=epochs, note="")
        shown = 0.0

        def update(epoch: int, note: Callable[[], str]) -> None:
            nonlocal shown
            if not progress.disable and (epoch == epochs or monotonic() - shown > 0.2):
                shown = monotonic()
                progress.update(task, completed=epoch, note=note())

        yield update


@contextmanager
def epoch_log(what: str, epochs: int) -> Iterator[Callable[..., None]]:
    """Gives a function as :func:`epoch_bar` does: a bar on the terminal; a line a minute where the output is piped.

    For trainings that run for long where nobody watches: the log says how far they came, and how fast.
    """
    with epoch_bar(what, epochs) as bar:
        first, begin, told = 0, 0.0, 0.0

        def update(epoch: int, note: Callable[[], str] = str) -> None:
            nonlocal first, begin, told
            bar(epoch, note)
            now = monotonic()
            if not first:  # it had to compile
                first, begin, told = epoch, now, now - 60
            if now - told >= 60 and not sys.stderr.isatty():
                told = now
                speed = f", {(now - begin) / (epoch - first):.2f} s an epoch" if epoch > first else ""
                print(f"{what}: epoch {epoch} of {epochs}{speed}", file=sys.stderr, flush=True)

        yield update


@contextmanager
def study_bar() -> Iterator[Callable[[str, int, int, int, int], None]]:
    """Gives a function to call now and then with a stage, its finished jobs, its jobs, an epoch and its epochs.

    It moves a bar on the terminal, and where the output is piped, it writes a line a minute.
    """
    console = Console(stderr=True, emoji=False)
    columns = (
        *(TextColumn("[b]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, TaskID] = {}
        # The epoch of each job that was the first to end, which may have been slower than others, and when that was.
        begun: dict[tuple[str, int], tuple[int, float]] = {}
        told = monotonic()

        def update(stage: str, finished: int, jobs: int, epoch: int, epochs: int) -> None:
            nonlocal told
            now = monotonic()
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=jobs * epochs)
            many = f", job {min(finished + 1, jobs)} of {jobs}" if jobs > 1 else ""
            done = finished * epochs + epoch
            first, when = begun.setdefault((stage, finished), (epoch, now)) if epoch else (0, now)
            if progress.disable and now - told >= 60:
                told = now
                far = f"epoch {epoch} of {epochs}" if epoch and epochs > 1 else "under way"
                if epoch > first > 0:
                    far += _pace((now - when) / (epoch - first), jobs * epochs - done)
                print(f"{stage}{many}: {far}", file=sys.stderr, flush=True)
            progress.update(tasks[stage], completed=done, description=f"{stage}{many}")

        yield update


def _pace(seconds: float, left: int) -> str:
    """How long an epoch takes, and all that are left."""
    hours, minutes = divmod(round(seconds * left / 60), 60)
    told = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else "less than a minute"
    return f", {f'{seconds:.0f}' if seconds >= 10 else f'{seconds:.2g}'} s each, {told} left"
