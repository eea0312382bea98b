"""What all shallow baselines share when they learn: inner folds, and scores in the order of the classes."""

import numpy as np

from softmask.data.splits import holdout, stratified_folds
from softmask.errors import SettingError

INNER_FOLDS = 5
MOST_TO_CHOOSE_ON = 4500
"""Training graphs on which an SVM's settings are chosen, at a cost that grows with their square."""


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


def some_to_choose_on(y: np.ndarray, seed: int) -> np.ndarray:
    """Places of the training graphs to choose settings on: of all, or of about so many, with the classes in their
    shares, but of a rare one as many as there are inner folds.
    """
    share = MOST_TO_CHOOSE_ON / max(len(y), 1)
    if share >= 1:
        return np.arange(len(y))
    if is_regression(y):
        return holdout(y, (share, 1 - share), seed)[0]
    _, index, size = np.unique(y, return_inverse=True, return_counts=True)
    rare = size * share < INNER_FOLDS + 1
    often = np.flatnonzero(~rare[index])
    of = y[often] if (~rare).sum() > 1 else len(often)
    kept = [often[holdout(of, (share, 1 - share), seed)[0]]] if len(often) else []
    order = np.random.default_rng(seed).permutation(len(y))
    kept += [order[index[order] == c][:INNER_FOLDS] for c in np.flatnonzero(rare)]
    return np.sort(np.concatenate(kept))


def columns(scores: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Scores as scikit-learn gives them, to one column for each class from 0; ``-inf`` for one never trained on."""
    if scores.ndim == 1:
        scores = np.stack([-scores, scores], axis=1)
    placed = np.full((len(scores), int(classes.max()) + 1), -np.inf)
    placed[:, classes] = scores
    return placed
