"""Small pieces of work on a CPU, side by side on its cores instead of one after the other over all of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

_Work = TypeVar("_Work")
_Result = TypeVar("_Result")
# Python runs one thread at a time; more of them would wait for each other.
_MOST = 4


def side_by_side(run: Callable[[_Work], _Result], work: Sequence[_Work]) -> list[_Result]:
    """The results of `run` for every piece of work, which must not touch what others write.

    Torch shares every single operation among its threads, and those of a small model are too small for that. Here every
    piece of work has threads of its own: with two cores, two pieces at a time, on one core each. The gradient mode is
    that of a new thread.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(work), _MOST)
    # Only OpenMP lets the number of threads change once there are some.
    if workers < 2 or not torch.backends.openmp.is_available():
        return [run(piece) for piece in work]
    # New threads take this over.
    torch.set_num_threads(threads // workers)
    try:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(run, work))
    finally:
        torch.set_num_threads(threads)
