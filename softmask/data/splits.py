"""Which graphs train and which test: the same on every machine for the same seed."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np

from softmask.errors import SettingError

Ids = np.ndarray


def stratified_folds(y: Any, folds: int = 10, seed: int = 0) -> list[tuple[Ids, Ids]]:
    """Splits graphs into folds, each with the classes in about the same shares.

    The folds are those of scikit-learn's ``StratifiedKFold(folds, shuffle=True, random_state=seed)``, which
    the authors of the paper used; for regression those of ``KFold``. Both draw from numpy's frozen
    ``RandomState``.

    Args:
        y: ``[graphs]`` classes of any type, or floating-point targets (regression), ``[graphs, ...]``.
        folds: number of folds.
        seed: any integer from 0 to 2**32 - 1.

    Returns:
        For each fold, the graphs to train on and the graphs to test on, int64 and ascending.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    y = _targets(y)
    _check_seed(seed)
    if not isinstance(folds, Integral) or folds < 2:
        raise SettingError(f"folds={folds!r}: at least 2 folds are needed, one to test on and one to train on")
    if folds > len(y):
        raise SettingError(f"{folds} folds of {len(y)} graphs: every fold needs a graph; use fewer folds")
    if _regression(y):
        splits = KFold(folds, shuffle=True, random_state=seed).split(y)
    else:
        classes, index = _classes(y)
        counts = np.bincount(index)
        if counts.min() < folds:
            rare = int(counts.argmin())
            fewer = f"use at most {counts[rare]} folds or " if counts[rare] > 1 else ""
            raise SettingError(
                f"class {classes[rare]} has fewer graphs ({counts[rare]}) than there are folds ({folds}); "
                f"{fewer}leave the class out"
            )
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(index, index)
    return [(train.astype(np.int64), test.astype(np.int64)) for train, test in splits]


def holdout(y: Any, ratios: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> tuple[Ids, ...]:
    """Splits graphs once into parts of the given shares, such as for training, validation and test.

    With classes, each part has them in about the same shares: the graphs of every class are shuffled and
    spread evenly over one long row, and the row is cut.

    Args:
        y: classes or floating-point targets as for :func:`stratified_folds`, or the number of graphs.
        ratios: share of each part, adding up to 1. The first part is the one to train on.
        seed: any integer from 0 to 2**32 - 1.

    Returns:
        The graphs of each part, int64 and ascending.
    """
    y = np.zeros(int(y)) if isinstance(y, Integral) else _targets(y)
    _check_seed(seed)
    shares = np.asarray(ratios, dtype=np.float64).reshape(-1)
    if len(shares) < 2 or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise SettingError(f"ratios={tuple(ratios)!r}: must be at least two shares above 0 that add up to 1")
    # Only Generator.random is drawn from: its stream is the same in every version of numpy.
    draw = np.random.Generator(np.random.PCG64(int(seed))).random(len(y))
    shuffled = np.argsort(draw, kind="stable")
    classes, index = (None, np.zeros(len(y), dtype=np.int64)) if _regression(y) else _classes(y)
    grouped = shuffled[np.argsort(index[shuffled], kind="stable")]
    counts = np.bincount(index)
    place = np.arange(len(y)) - np.repeat(counts.cumsum() - counts, counts)
    row = grouped[np.lexsort((draw[grouped], (place + 0.5) / np.repeat(counts, counts)))]
    cuts = np.rint(shares.cumsum()[:-1] * len(y)).astype(np.int64)
    parts = tuple(np.sort(part).astype(np.int64) for part in np.split(row, cuts))
    if any(len(part) == 0 for part in parts):
        raise SettingError(f"ratios={tuple(ratios)!r}: {len(y)} graphs are too few, a part would be empty")
    if classes is not None:
        missing = np.bincount(index[parts[0]], minlength=len(classes)) == 0
        if missing.any():
            rare = int(missing.argmax())
            raise SettingError(
                f"class {classes[rare]} has {counts[rare]} of {len(y)} graphs, and none would be trained on; "
                "give the first part a larger share or leave the class out"
            )
    return parts


def inner_validation(y: Any, train_ids: Any, share: float = 0.1, seed: int = 0) -> tuple[Ids, Ids]:
    """Takes a validation part out of the graphs to train on, by :func:`holdout`.

    With classes, it holds them in about the same shares, and each of them at least once: a part without every class
    could not choose between models that differ on the missing one.

    Args:
        y: classes or floating-point targets of all graphs, as for :func:`stratified_folds`.
        train_ids: the graphs to take from.
        share: of the graphs to take from, how many go to the validation part.
        seed: any integer from 0 to 2**32 - 1.

    Returns:
        The graphs that remain to train on and those of the validation part, int64 and ascending.
    """
    y = _targets(y)
    ids = np.sort(np.asarray(train_ids, dtype=np.int64))
    if not 0 < share < 1:
        raise SettingError(f"a validation part of share {share!r}: must lie between 0 and 1")
    if len(ids) == 0:
        raise SettingError("no graphs to take a validation part from")
    train, validation = (ids[part] for part in holdout(y[ids], (1 - share, share), seed))
    if not _regression(y):
        missing = np.setdiff1d(y[ids], y[validation])
        if missing.size:
            raise SettingError(
                f"a validation part without every class: class {missing[0]} has {(y[ids] == missing[0]).sum()} of "
                f"{len(ids)} graphs to train on, and none of them would be in a share of {share:g}; use a larger "
                "share (--validation 0.3) or leave the class out"
            )
    return train, validation


def _targets(y: Any) -> np.ndarray:
    # A tensor of classes may lie on a device.
    values = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if values.ndim == 0 or len(values) == 0:
        raise SettingError("no graphs to split: y must have an entry for each graph")
    if not _regression(values) and values.ndim != 1:
        raise SettingError(f"y has shape {list(values.shape)}: one class for each graph was expected")
    return values


def _regression(y: np.ndarray) -> bool:
    return y.dtype.kind == "f"


def _classes(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes, index = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise SettingError(f"all {len(y)} graphs are of class {classes[0]}: there is nothing to tell apart")
    return classes, index


def _check_seed(seed: int) -> None:
    if not isinstance(seed, Integral) or not 0 <= seed < 2**32:
        raise SettingError(f"seed={seed!r}: must be a whole number from 0 to 2**32 - 1")
