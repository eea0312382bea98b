"""Dropout whose choices follow from a key alone."""

import torch
import torch.nn.functional as F
from torch import Tensor


class KeyedDropout(torch.nn.Module):
    r"""Dropout that draws from PyTorch's generator as usual, or, with :attr:`keyed`, from the buffer ``key``.

    A keyed draw depends on the key and on the entry's place alone, so that a model trained beside others (see
    :mod:`softmask.fleet`) drops what it would drop alone.

    Args:
        p: the share of entries set to zero in training.
    """

    key: Tensor
    rate: Tensor

    def __init__(self, p: float = 0.5):
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, got {p}")
        self.p = p
        self.keyed = False
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("rate", torch.tensor(float(p)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """"""  # noqa: D419
        if not self.training:
            return x
        if not self.keyed:
            return F.dropout(x, self.p)
        keep = _uniform(self.key, x) >= self.rate
        return torch.where(keep, x / (1 - self.rate), 0)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(p={self.p})"


def _uniform(key: Tensor, like: Tensor) -> Tensor:
    """Numbers in [0, 1) of the shape of `like`: the finaliser of MurmurHash3 (32 bits) over key and place."""
    mask = 0xFFFFFFFF
    bits = torch.arange(like.numel(), device=like.device).reshape(like.shape)
    for word in (key & mask, key >> 32 & mask):
        bits = (bits * 0x9E3779B1 + word) & mask
        bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & mask
        bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & mask
        bits = bits ^ (bits >> 16)
    # 24 bits are exact in float32, so every device and precision compares the same numbers.
    return (bits >> 8).to(torch.float32) * 2**-24
