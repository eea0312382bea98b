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
        train_metric: ``[replicas, epochs]``, the metric over the training graphs, likewise: with dropout, and with the
            weights as they were at each batch.
        loss: by part, ``[replicas, epochs]``, after each epoch; NaN for a replica without that part.
        metric: by part, ``[replicas, epochs]``: accuracy, or mean absolute error.
        weights: one state dict a replica, of the last epoch or of the best.
        epoch: ``[replicas]``, the epoch (from 1) whose weights these are; 0 for the initial weights, where the best
            was asked for and the metric never was a number.
        troubles: replicas that diverged or whose masks collapsed.
        interrupted: whether the training was ended before its last epoch.
    """

    train_loss: np.ndarray
    train_metric: np.ndarray
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


# A mask this small in all nodes of a layer lets nothing through, and hardly any gradient brings it back.
_CLOSED = 1e-3


def find_troubles(
    seeds: list[int], train_loss: np.ndarray, largest_masks: list[np.ndarray], finite: np.ndarray | None = None
) -> list[Trouble]:
    """Which replicas diverged, and which ended with masks closed everywhere; the epoch is the first of it.

    Args:
        seeds: of the replicas.
        train_loss: ``[replicas, epochs]``.
        largest_masks: for each evaluated part ``[replicas, epochs]``, the largest mask of the most closed layer; NaN
            where nothing was evaluated.
        finite: ``[replicas]``, whether all weights at the end are numbers: the last step may have spoilt them.
    """
    # A mask that is open in any part is open.
    masks = np.fmax.reduce(largest_masks) if largest_masks else np.full_like(train_loss, np.nan)
    troubles = []
    for r, seed in enumerate(seeds):
        bad = np.flatnonzero(~np.isfinite(train_loss[r]))
        if bad.size:
            what = f"the loss is {train_loss[r, bad[0]]}: the training diverged; a smaller learning rate helps"
            troubles.append(Trouble(r, seed, int(bad[0]) + 1, what))
            continue
        if finite is not None and not finite[r]:
            what = (
                "the last step left weights that are no numbers: the training diverged; a smaller learning rate helps"
            )
            troubles.append(Trouble(r, seed, train_loss.shape[1], what))
            continue
        open_epochs = np.flatnonzero(~(masks[r] < _CLOSED))
        first = int(open_epochs[-1]) + 2 if open_epochs.size else 1
        if first <= masks.shape[1]:
            what = (
                "the masks of a layer are closed (below 0.001) at every node, so nothing passes it: without JK the "
                "network is dead and predicts the same for every graph, with JK it sees at most the layers before; a "
                "smaller learning rate or another seed helps"
            )
            troubles.append(Trouble(r, seed, first, what))
    return troubles
