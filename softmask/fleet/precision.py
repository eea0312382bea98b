"""In which precision a fleet computes."""

from typing import Literal, NamedTuple, get_args

import torch

from softmask.errors import SettingError

Precision = Literal["auto", "float64", "float32", "tf32-gradients", "tf32", "bf16"]


class Arithmetic(NamedTuple):
    """What a precision means.

    Args:
        parameters: their type.
        compute: the type of the arithmetic.
        tf32: whether float32 products may use TF32.
        tf32_gradients: whether those of the backward pass may.
    """

    parameters: torch.dtype
    compute: torch.dtype
    tf32: bool
    tf32_gradients: bool


def resolve(precision: Precision, device: torch.device) -> Arithmetic:
    """What a precision means on a device.

    ``auto`` is bf16 on CUDA and float32 on the CPU. With bf16, the parameters, the sums inside every product, the
    readout and the head stay in float32. ``tf32-gradients`` is float32 where values are computed, and TF32 where their
    gradients are: for targets that are large beside the error that is aimed at.

    With float32, tf32-gradients and tf32, layers with edge features round on CUDA what they multiply with the matrices
    of edges (:func:`softmask.ops.mixed_sum.mixed_sum`).
    """
    if precision == "auto":
        precision = "bf16" if device.type == "cuda" else "float32"
    if precision == "float64":
        return Arithmetic(torch.float64, torch.float64, False, False)
    if precision in ("float32", "tf32-gradients", "tf32"):
        tf32 = precision == "tf32"
        return Arithmetic(
            torch.float32, torch.float32, tf32, tf32 or (precision != "float32" and device.type == "cuda")
        )
    if precision == "bf16":
        return Arithmetic(torch.float32, torch.bfloat16, True, True)
    raise SettingError(f"unknown precision {precision!r}; use auto, float64, float32, tf32-gradients, tf32 or bf16")


def precision_name(precision: Precision, device: torch.device) -> str:
    """What a precision is on a device: the first of ``float64``, ``float32``, ... that means the same there."""
    meant = resolve(precision, device)
    return next(name for name in get_args(Precision) if name != "auto" and resolve(name, device) == meant)
