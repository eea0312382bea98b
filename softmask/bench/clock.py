"""Time and memory of a piece of work on a device."""

import gc
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

# Waiting for a GPU costs some microseconds; between two waits lies at least this much work.
_SECONDS_BETWEEN_WAITS = 0.05
_MOST_SAMPLES = 25


class Timing(NamedTuple):
    """Seconds of one run: the median, the least and the most over samples, and how many runs there were."""

    median: float
    least: float
    most: float
    runs: int


def synchronise(device: torch.device) -> None:
    """Waits until the device has done all work given to it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def once(run: Callable[[], object], device: torch.device) -> float:
    """Seconds of a single run, from an idle device to an idle device."""
    synchronise(device)
    begin = perf_counter()
    run()
    synchronise(device)
    return perf_counter() - begin


def timed(run: Callable[[], object], device: torch.device, seconds: float) -> Timing:
    """Seconds of a run, measured by many; it must have run before, so that it is warm.

    A sample is as many runs as take some hundredths of a second, with a wait for the device before and after. Samples
    are taken for about `seconds`, at least one.
    """
    end = perf_counter() + seconds
    single = once(run, device)
    if single >= seconds:
        return Timing(single, single, single, 1)
    length = max(1, round(_SECONDS_BETWEEN_WAITS / max(single, 1e-9)))

    def sample() -> None:
        for _ in range(length):
            run()

    samples = [once(sample, device) / length]
    while len(samples) < _MOST_SAMPLES and perf_counter() + samples[-1] * length < end:
        samples.append(once(sample, device) / length)
    return Timing(median(samples), min(samples), max(samples), len(samples) * length)


def forget(device: torch.device) -> None:
    """Gives back what is not used any more, and starts a new peak of memory."""
    if device.type == "cuda":
        # One process compiles for many sets; the compiler gives up on a function that it had to compile too often.
        torch.compiler.reset()
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):  # where this is not Linux, the peak is that of the whole process so far
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(device: torch.device) -> int:
    """The most memory since :func:`forget`: in tensors on CUDA, of the whole process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if platform.system() == "Darwin" else used * 1024
