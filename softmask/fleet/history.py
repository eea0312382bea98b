"""What a fleet reports: numbers per replica and epoch, and what went wrong."""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Trouble:
    """A replica that diverged or whose masks collapsed."""

    replica: int
    seed: int
    epoch: int
    what: str

    def __str__(self) -> str:
        return f"replica {self.replica} (seed {self.seed}), epoch {self.epoch}: {self.what}"


@dataclass(frozen=True)
class History:
    """The outcome of a training.

    Args:
        train_loss: ``[replicas, epochs]``, mean loss over the training graphs as they were trained on.
        loss: by part, ``[replicas, epochs]``, after each epoch.
        metric: by part, ``[replicas, epochs]``: accuracy, or mean absolute error.
        weights: one state dict a replica, of the last epoch or of the best.
        epoch: ``[replicas]``, the epoch (from 1) whose weights these are.
        troubles: replicas that diverged or whose masks collapsed.
        interrupted: whether the training was stopped by the user before its end.
    """

    train_loss: np.ndarray
    loss: dict[str, np.ndarray]
    metric: dict[str, np.ndarray]
    weights: list[dict[str, Tensor]]
    epoch: np.ndarray
    troubles: list[Trouble] = field(default_factory=list)
    interrupted: bool = False

    @property
    def epochs(self) -> int:
        """How many epochs were trained."""
        return self.train_loss.shape[1]
