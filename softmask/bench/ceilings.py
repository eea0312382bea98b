"""What the machine allows: how fast it copies memory, and how fast it multiplies matrices."""

from dataclasses import asdict, dataclass
from typing import Any

import torch

from softmask.bench.clock import timed
from softmask.device import matmul_precision
from softmask.fleet.precision import Precision, precision_name, resolve


@dataclass(frozen=True)
class Ceilings:
    """The two ceilings of a device.

    Args:
        copy_bytes_per_s: of a copy within the device's memory, bytes read and bytes written.
        matrix_flop_per_s: of a product of large square matrices, in the fleet's precision.
        precision: that precision, as :func:`precision_name` says it.
        width: bytes of one number in it.
        threads: in use on the CPU.
    """

    copy_bytes_per_s: float
    matrix_flop_per_s: float
    precision: str
    width: int
    threads: int

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def measure_ceilings(
    device: torch.device,
    precision: Precision = "auto",
    seconds: float = 2.0,
    copy_bytes: int | None = None,
    matrix_size: int | None = None,
) -> Ceilings:
    """Measures both ceilings by repeated runs, each for about half of `seconds`; the medians count.

    Args:
        device: what to measure.
        precision: of the matrix product.
        seconds: for both together.
        copy_bytes: size of the piece that is copied; by default 1 GiB on CUDA, 256 MiB on the CPU, more than caches.
        matrix_size: rows and columns; by default 8192 on CUDA, 1024 on the CPU.
    """
    cuda = device.type == "cuda"
    copied = _copy_bandwidth(device, copy_bytes or (2**30 if cuda else 2**28), seconds / 2)
    compute, tf32 = resolve(precision, device)[1:3]
    with matmul_precision(tf32):
        rate = _matrix_rate(device, compute, matrix_size or (8192 if cuda else 1024), seconds / 2)
    return Ceilings(copied, rate, precision_name(precision, device), compute.itemsize, torch.get_num_threads())


def _copy_bandwidth(device: torch.device, size: int, seconds: float) -> float:
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)

    def copy() -> None:
        target.copy_(source)

    copy()
    return 2 * size / timed(copy, device, seconds).median


def _matrix_rate(device: torch.device, dtype: torch.dtype, n: int, seconds: float) -> float:
    # Random numbers: products of zeros draw less power, and so run faster than any real ones.
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    out = torch.empty_like(a)

    def multiply() -> None:
        torch.mm(a, b, out=out)

    multiply()
    return 2 * n**3 / timed(multiply, device, seconds).median
