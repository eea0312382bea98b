"""Where to compute, and how."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from softmask.errors import SettingError


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
