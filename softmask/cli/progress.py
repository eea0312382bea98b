"""A progress bar over epochs on the terminal; nothing where the output is piped."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@contextmanager
def epoch_bar(what: str, epochs: int) -> Iterator[Callable[[int, str], None]]:
    """Gives a function to call with the epoch and a short text after every epoch."""
    console = Console(stderr=True)
    columns = (
        *(TextColumn("[b]{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs")),
        *(TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=epochs, note="")
        yield lambda epoch, note: progress.update(task, completed=epoch, note=note)
