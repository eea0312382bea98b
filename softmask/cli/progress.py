"""A progress bar over epochs on the terminal; nothing where the output is piped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def epoch_bar(what: str, epochs: int) -> Iterator[Callable[[int, Callable[[], str]], None]]:
    """Gives a function to call after every epoch, with the epoch and a function that gives a short text.

    The text is asked for a few times a second only, since it may have to wait for the device.
    """
    console = Console(stderr=True)
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
