"""Learning curves of many models as one: the mean, and a band of one standard deviation over folds."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from softmask.study.record import Record
from softmask.study.report.models import group_models, rows_where

POINTS = 180  # of a drawn curve; a chart is some 330 units wide


@dataclass(frozen=True)
class Curve:
    """The mean of a column over models, epoch by epoch.

    Args:
        epochs: ``[E]``, from 1.
        mean: ``[E]``, over repeats, then folds, then runs.
        std: ``[E]``, over folds, then the mean over runs, as the figures of a study have it.
        folds: ``[E]``, how many folds of all runs have a value.
    """

    epochs: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    folds: np.ndarray

    @property
    def complete(self) -> int:
        """The last epoch that all folds reached: behind it the mean is over fewer, as some stopped early."""
        return int(self.epochs[self.folds == self.folds.max()].max(initial=0))

    def thinned(self, keep: list[int] | None = None, points: int = POINTS) -> "Curve":
        """At evenly spaced epochs, the first, the last and those of `keep` among them."""
        if len(self.epochs) <= points:
            return self
        chosen = np.linspace(0, len(self.epochs) - 1, points).round().astype(int)
        kept = np.flatnonzero(np.isin(self.epochs, keep or []))
        chosen = np.unique(np.concatenate([chosen, kept]))
        return Curve(self.epochs[chosen], self.mean[chosen], self.std[chosen], self.folds[chosen])


def mean_curve(record: Record, value: str, **where: Any) -> Curve | None:
    """The mean curve of the models that fit; None where they have no such value.

    Models may have different numbers of epochs. Values that are not finite are left out.

    Args:
        record: the study.
        value: a column, such as ``"test_metric"``.
        where: columns and what they must be: ``role="paper"``.
    """
    metrics, rows = record.metrics, _finite(record, value, where)
    if not len(rows):
        return None
    runs, run = np.unique(metrics["run"][rows], return_inverse=True)
    folds, fold = np.unique(metrics["fold"][rows], return_inverse=True)
    epoch = metrics["epoch"][rows].astype(int) - 1
    shape = (len(runs), len(folds), int(epoch.max()) + 1)
    place = np.ravel_multi_index((run, fold, epoch), shape)
    size = int(np.prod(shape))
    repeats = np.bincount(place, minlength=size)
    with np.errstate(invalid="ignore"):
        sums = np.bincount(place, metrics[value][rows].astype(float), minlength=size)
        by_fold = (sums / repeats).reshape(shape)
    there = ~np.isnan(by_fold)
    run_mean, run_std = _mean_std(by_fold, axis=1)
    return Curve(
        epochs=np.arange(1, shape[2] + 1),
        mean=_mean_std(run_mean, axis=0)[0],
        std=_mean_std(run_std, axis=0)[0],
        folds=there.sum(axis=(0, 1)),
    )


def best_epochs(record: Record, value: str, **where: Any) -> np.ndarray:
    """For each model that fits, the first epoch at which the value was best (highest for an accuracy, else lowest)."""
    rows = _finite(record, value, where)
    epoch = record.metrics["epoch"][rows].astype(int)
    score = record.metrics[value][rows].astype(float) * (-1 if record.classes else 1)
    _, model = group_models(record, rows)
    order = np.lexsort((epoch, score, model))
    _, first = np.unique(model[order], return_index=True)
    return np.sort(epoch[order][first])


def _finite(record: Record, value: str, where: dict[str, Any]) -> np.ndarray:
    rows = rows_where(record, **where)
    return rows[np.isfinite(record.metrics[value][rows].astype(float))]


def _mean_std(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean and population deviation of what is there; NaN where nothing is."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        mean = np.where(there, values, 0).sum(axis) / there.sum(axis)
        away = np.where(there, values - np.expand_dims(mean, axis), 0)
        return mean, np.sqrt((away**2).sum(axis) / there.sum(axis))
