"""In which precision a fleet computes."""

from typing import Literal

import torch

from softmask.errors import SettingError

Precision = Literal["auto", "float64", "float32", "tf32", "bf16"]


def resolve(precision: Precision, device: torch.device) -> tuple[torch.dtype, torch.dtype, bool]:
    """The type of the parameters, the type of the arithmetic, and whether float32 products may use TF32.

    ``auto`` is bf16 on CUDA and float32 on the CPU. With bf16, the parameters, the sums inside every product, the
    readout and the head stay in float32.
    """
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "float32"
    if precision == "float64":
        return torch.float64, torch.float64, False
    if precision in ("float32", "tf32"):
        return torch.float32, torch.float32, precision == "tf32"
    if precision == "bf16":
        return torch.float32, torch.bfloat16, True
    raise SettingError(f"unknown precision {precision!r}; use auto, float64, float32, tf32 or bf16")


def precision_name(precision: Precision, device: torch.device) -> str:
    """What ``auto`` means on this device: ``float64``, ``float32``, ``tf32`` or ``bf16``."""
    _, compute, tf32 = resolve(precision, device)
    if compute == torch.bfloat16:
        return "bf16"
    return "tf32" if tf32 else str(compute).removeprefix("torch.")
