"""Batch normalisation in a padded batch."""

import torch
from torch import Tensor


class MaskedBatchNorm(torch.nn.Module):
    r"""Batch normalisation (`"Batch Normalization" <https://arxiv.org/abs/1502.03167>`_) over the rows that count,

    .. math::
        \mathbf{y} = \frac{\mathbf{x} - \boldsymbol{\mu}}{\sqrt{\boldsymbol{\sigma}^2 + \epsilon}} \odot
        \boldsymbol{\gamma} + \boldsymbol{\beta}

    It computes what ``torch.nn.BatchNorm1d`` does on those rows alone and has its parameters by their names, but
    assigns its running statistics anew instead of changing them in place, so that every model of a fleet keeps its own
    (see :class:`softmask.fleet.stack.Stack`). In training the mean and deviation are those of the batch, in evaluation
    the running ones. A batch of no rows leaves the statistics as they are.

    Args:
        channels: size of each row.
        eps: added to the variance.
        momentum: share of a batch in the running statistics.

    Shapes:
        - **x:** ``[rows, channels]``
        - **real:** ``[rows, 1]``, whether a row counts; the others become zero
        - **times:** ``[rows, 1]``, how often it does, if not once
        - **output:** ``[rows, channels]``
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.channels, self.eps, self.momentum = channels, eps, momentum
        self.weight = torch.nn.Parameter(torch.ones(channels))
        self.bias = torch.nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def reset_parameters(self) -> None:
        """Forgets all statistics."""
        with torch.no_grad():
            self.weight.fill_(1)
            self.bias.zero_()
        self.running_mean, self.running_var = torch.zeros_like(self.weight), torch.ones_like(self.weight)

    def forward(self, x: Tensor, real: Tensor, times: Tensor | None = None) -> Tensor:
        """"""  # noqa: D419
        # Half precision has 8 bits: a mean over thousands of rows needs more.
        wide = x if x.dtype == torch.float64 else x.float()
        mean, var = self.running_mean, self.running_var
        if self.training:
            count = (real if times is None else torch.where(real, times, 0)).sum().to(wide.dtype)
            mean = _sum(wide, real, times) / count.clamp(min=1)
            var = _sum((wide - mean).square(), real, times) / count.clamp(min=1)
            share = self.momentum * (count > 0).to(wide.dtype)
            unbiased = var * count / (count - 1).clamp(min=1)
            self.running_mean = torch.lerp(self.running_mean, mean.detach(), share)
            self.running_var = torch.lerp(self.running_var, unbiased.detach(), share)
        y = (wide - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias
        return torch.where(real, y, 0).to(x.dtype)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.channels})"


def _sum(x: Tensor, real: Tensor, times: Tensor | None) -> Tensor:
    return torch.where(real, x if times is None else x * times, 0).sum(dim=0)
