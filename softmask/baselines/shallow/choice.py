"""What all shallow baselines share when they learn: inner folds, and scores in the order of the classes."""

import numpy as np

from softmask.data.splits import stratified_folds
from softmask.errors import SettingError

INNER_FOLDS = 5


def is_regression(y: np.ndarray) -> bool:
    """Whether these are numbers to predict rather than classes."""
    return y.dtype.kind == "f"


def numbers(y: np.ndarray) -> np.ndarray:
    """One number for each graph, ``[n]`` float64."""
    if y.ndim > 1 and y.shape[1] != 1:
        raise SettingError(f"{y.shape[1]} targets at once: a shallow baseline learns one number; choose a target")
    return y.reshape(-1).astype(np.float64)


def inner_folds(y: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Five folds of the training graphs, or as many as the rarest class allows."""
    if is_regression(y):
        return stratified_folds(y, min(INNER_FOLDS, len(y)), seed)
    classes, size = np.unique(y, return_counts=True)
    if len(classes) > 1 and size.min() < 2:
        raise SettingError(
            f"class {classes[size.argmin()]} has one graph to train on: settings are chosen by cross-validation, which "
            "needs two; leave the class out"
        )
    return stratified_folds(y, int(min(INNER_FOLDS, size.min())), seed)


def columns(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Scores as scikit-learn gives them, to one column for each class from 0; ``-inf`` for one never trained on."""
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], axis=1)
    placed = np.full((len(scores), int(classes.max()) + 1), -np.inf)
    placed[:, classes] = scores
    return placed
