"""Which epoch, which settings: choices that are made on validation parts, and the one the paper makes on test folds."""

import numpy as np


def best_epoch(metric: np.ndarray, loss: np.ndarray, higher: bool, patience: int | None = None) -> int:
    """The epoch (from 0) with the best metric of a validation part; among equals the one with the smallest loss.

    Small parts give many equal accuracies, and the first of them would be an early one.

    Args:
        metric: ``[epochs]``, of the validation part.
        loss: ``[epochs]``, of the validation part.
        higher: whether a higher metric is better.
        patience: what comes after so many epochs without a better metric is not looked at.
    """
    score = np.where(np.isfinite(metric), metric if higher else -metric, -np.inf)
    if patience is not None:
        best = np.maximum.accumulate(score)
        # The epoch at which the best so far was first reached.
        reached = np.maximum.accumulate(np.where(np.r_[True, best[1:] > best[:-1]], np.arange(len(score)), 0))
        late = np.flatnonzero(np.arange(len(score)) - reached >= patience)
        if late.size:
            score, loss = score[: late[0] + 1], loss[: late[0] + 1]
    equals = np.flatnonzero(score == score.max())
    return int(equals[np.argmin(np.where(np.isfinite(loss[equals]), loss[equals], np.inf))])


def best_common_epoch(curves: np.ndarray, higher: bool) -> int:
    """The epoch (from 0) that is best in the mean over folds, ``[folds, epochs]``: the paper's choice."""
    mean = curves.mean(axis=0)
    score = np.where(np.isfinite(mean), mean if higher else -mean, -np.inf)
    return int(score.argmax())
