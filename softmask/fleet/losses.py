"""Losses and metrics per replica; empty slots do not count."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Module

from softmask.errors import SettingError

# Each takes the output [..., outputs] and the target, and gives one number a graph.


def _cross_entropy(out: Tensor, y: Tensor) -> Tensor:
    out = out if out.dtype == torch.float64 else out.float()
    return F.cross_entropy(out.flatten(0, -2), y.flatten(), reduction="none").reshape(y.shape)


def _mse(out: Tensor, y: Tensor) -> Tensor:
    return (out - y).square().mean(dim=-1)


def _mae(out: Tensor, y: Tensor) -> Tensor:
    return (out - y).abs().mean(dim=-1)


def _accuracy(out: Tensor, y: Tensor) -> Tensor:
    # A diverged replica gives NaN, which argmax would take for a choice; it counts as wrong.
    return (out.argmax(dim=-1) == y) & torch.isfinite(out).all(dim=-1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": _cross_entropy,
    "mse": _mse,
    "mae": _mae,
}
METRICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross_entropy": _accuracy,
    "mse": _mae,
    "mae": _mae,
}


def check_loss(loss: str) -> None:
    """Refuses an unknown loss."""
    if loss not in LOSSES:
        raise SettingError(f"unknown loss {loss!r}; known are {', '.join(LOSSES)}")


def own_loss(model: Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The loss that a model brings along, its method ``loss_per_graph(out, y)``, held to one number a graph."""

    def loss_per_graph(out: Tensor, y: Tensor) -> Tensor:
        # Of all replicas at once: each graph by itself.
        y = y.flatten(0, out.dim() - 2)
        each = model.loss_per_graph(out.flatten(0, -2), y)  # type: ignore[operator]
        if not isinstance(each, Tensor) or each.shape != (len(y),):
            shape = list(each.shape) if isinstance(each, Tensor) else type(each).__name__
            raise SettingError(
                f"the loss_per_graph of {type(model).__name__} must give one number a graph; for {len(y)} graphs it "
                f"gave {shape}"
            )
        return each.reshape(out.shape[:-1])

    return loss_per_graph
