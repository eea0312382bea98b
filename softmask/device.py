"""Where to compute, and how."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch

from softmask.errors import SettingError

# Of glibc's mallopt: its names for what is set, what it begins with, and the largest sizes to which it adapts itself.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER, _MOST_MAPPED, _LARGEST_MAPPED = -1, 65536, 32 * 2**20
# How many pieces of work keep memory now; the first begins it and the last ends it, in whatever thread.
_keeping, _lock = 0, Lock()


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """The device of the given name; ``auto`` is the GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        picked = torch.device(device)
    except RuntimeError:
        raise SettingError(f"unknown device {device!r}; use auto, cpu or cuda") from None
    if picked.type not in ("cpu", "cuda"):
        raise SettingError(f"device {str(device)!r} is not supported; use auto, cpu or cuda")
    if picked.type == "cuda" and not torch.cuda.is_available():
        raise SettingError("device='cuda', but PyTorch finds no GPU here; use auto or cpu")
    return picked


def device_name(device: torch.device | str) -> str:
    """What a device is called in results: the name of its GPU, or ``cpu``."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else "cpu"


@contextmanager
def matmul_precision(tf32: bool) -> Iterator[None]:
    """While active, float32 products on CUDA use TF32 or not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def freed_memory_kept(device: torch.device) -> Iterator[None]:
    """While active, memory that tensors on a CPU leave is kept for the next ones.

    By default the C library gives large pieces back at once, and the system hands them out again page by page, which
    takes longer than computing with them. Kept pieces with small ones between them do not join, so the process may grow
    beyond what it ever holds at once. At the end all that is free is given back, and the thresholds are those that the
    library would adapt to by itself, whatever they were. Where the C library is not glibc, nothing happens.
    """
    libc = _glibc() if device.type == "cpu" else None
    if libc is None:
        yield
        return
    _keep(libc, 1)
    try:
        yield
    finally:
        _keep(libc, -1)


def _keep(libc: ctypes.CDLL, more: int) -> None:
    global _keeping
    with _lock:
        before, _keeping = _keeping, _keeping + more
        if not before:
            libc.mallopt(_MMAP_MAX, 0)
            libc.mallopt(_TRIM_THRESHOLD, _NEVER)
        elif not _keeping:
            libc.mallopt(_MMAP_MAX, _MOST_MAPPED)
            libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MAPPED)
            libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_MAPPED)
            libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (AttributeError, OSError, TypeError):
        return None
