"""What Ctrl-C does: it ends a training between two epochs, and anything else at once, and says so.

A request to terminate, as queues and `timeout` send it before they kill, ends a training in the same way.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """While active, the first Ctrl-C or request to terminate asks to stop; a second one interrupts at once."""
    stop = Stop()

    def ask(signum: int, frame: Any) -> None:
        stop.asked = True
        restore()
        # An epoch may take minutes. Not print: it may be what was interrupted. Nobody may listen any more, and an error
        # here would end the training in the middle.
        with suppress(OSError):
            os.write(2, b"stopping where nothing is lost, after this epoch at the latest; once more stops at once\n")

    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)

    for signum in before:
        signal.signal(signum, ask)
    try:
        yield stop
    finally:
        restore()
