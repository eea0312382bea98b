"""Ctrl-C ends a training between two epochs, not in the middle of a step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Stop:
    """Whether the user asked to stop."""

    asked = False


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """While active, the first Ctrl-C asks to stop; a second one interrupts at once, as usual."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(signum, frame):
        stop.asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
