"""Kernels and features: models without epochs, fitted once for each training part."""

from collections.abc import Callable, Sequence

import numpy as np

from softmask.baselines.shallow import SHALLOW
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.fleet.history import History
from softmask.fleet.replica import Replica


def fit_once(
    name: str,
    store: GraphStore,
    replicas: Sequence[Replica],
    force: bool = False,
    on_fit: Callable[[], bool | None] | None = None,
) -> History:
    """Fits a model of :data:`softmask.baselines.shallow.SHALLOW` to each training part; a history of one epoch.

    The features or kernels are those of the whole set, made once; no target is looked at for them. Replicas with the
    same graphs and seed share one fit. There is no loss: its columns are NaN.

    Args:
        name: of the model.
        store: the graphs, with targets.
        replicas: the training parts, what to score, and seeds; rates have no effect.
        force: go on even where the work is estimated to be beyond reason.
        on_fit: called after every fit; True ends the work.
    """
    assert store.y is not None
    y = store.y.cpu().numpy()
    prepared = SHALLOW[name].prepare(store, force)
    parts = list(dict.fromkeys(part for r in replicas for part in r.evaluate))
    metric = {part: np.full((len(replicas), 1), np.nan) for part in ("train", *parts)}
    fits: dict[tuple[int, bytes], list[Callable[[np.ndarray], np.ndarray]]] = {}
    interrupted = False
    for place, replica in enumerate(replicas):
        replica.check(store.num_graphs, place)
        train = np.asarray(replica.train, dtype=np.int64)
        key = replica.seed, np.sort(train).tobytes()
        if key not in fits:
            # Several targets are learned one by one.
            columns = [y] if y.ndim == 1 else list(y.T)
            fits[key] = [prepared.fit(train, column[train], replica.seed) for column in columns]
        for part, ids in {"train": train, **replica.evaluate}.items():
            metric[part][place] = _metric(fits[key], np.asarray(ids, dtype=np.int64), y, name)
        if on_fit is not None and on_fit() and place + 1 < len(replicas):
            interrupted = True
            break
    nothing = np.full((len(replicas), 1), np.nan)
    return History(
        train_loss=nothing,
        train_metric=metric.pop("train"),
        loss=dict.fromkeys(parts, nothing),
        metric=metric,
        weights=[{} for _ in replicas],
        epoch=np.ones(len(replicas), dtype=int),
        interrupted=interrupted,
    )


def _metric(fits: Sequence[Callable[[np.ndarray], np.ndarray]], ids: np.ndarray, y: np.ndarray, name: str) -> float:
    """Accuracy, or mean absolute error over all targets."""
    if y.ndim == 1:
        scores = np.asarray(fits[0](ids))
        if scores.ndim != 2 or len(scores) != len(ids):
            raise SettingError(f"{name} gave scores of shape {list(scores.shape)} for {len(ids)} graphs")
        return float((scores.argmax(axis=1) == y[ids]).mean())
    guesses = np.stack([np.asarray(fit(ids)).reshape(len(ids)) for fit in fits], axis=1)
    return float(np.abs(guesses - y[ids]).mean())
