"""Dropout whose choices follow from a key alone."""

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.ops.keyed import keyed_uniform


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
        place = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        keep = keyed_uniform(self.key, place) >= self.rate
        return torch.where(keep, x / (1 - self.rate), 0)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}(p={self.p})"
