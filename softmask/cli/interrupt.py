"""What Ctrl-C does: it ends a training between two epochs, and anything else at once, and says so."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(BaseException):
    """The user pressed Ctrl-C where nothing is worth keeping."""


def raise_interrupted(signum: int, frame: Any) -> None:
    """The handler outside trainings. It raises an exception of our own, since typer ends silently on Python's."""
    raise Interrupted


class Stop:
    """Whether the user asked to stop."""

    asked = False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """While active, the first Ctrl-C asks to stop; a second one interrupts at once."""
    stop = Stop()

    def ask(signum: int, frame: Any) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
