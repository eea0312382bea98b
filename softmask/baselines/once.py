"""Kernels and features: models without epochs, fitted once for each training part."""

from collections.abc import Callable, Sequence
from time import monotonic

import numpy as np

from softmask.baselines.shallow import SHALLOW
from softmask.data.store import GraphStore
from softmask.errors import SettingError, StudyInterrupted
from softmask.fleet.history import History
from softmask.fleet.replica import Replica

# Seconds between two questions whether to stop: more often than this nobody notices.
_ASK_EVERY = 0.2


def fit_once(
    name: str,
    store: GraphStore,
    replicas: Sequence[Replica],
    force: bool = False,
    on_step: Callable[[], bool | None] | None = None,
) -> History:
    """Fits a model of :data:`softmask.baselines.shallow.SHALLOW` to each training part; a history of one epoch.

    The features or kernels are those of the whole set, made once; no target is looked at for them. Replicas with the
    same graphs and seed share one fit. There is no loss: its columns are NaN.

    Args:
        name: of the model.
        store: the graphs, with targets.
        replicas: the training parts, what to score, and seeds; rates have no effect.
        force: go on even where the work is estimated to be beyond reason.
        on_step: called a few times a second, also while features or kernels are computed; True ends the
            work with :class:`~softmask.errors.StudyInterrupted`. Nothing of it is kept.
    """
    assert store.y is not None
    y = store.y.cpu().numpy()
    pause = _Pause(on_step)
    prepared = SHALLOW[name].prepare(store, force, pause)
    parts = list(dict.fromkeys(part for r in replicas for part in r.evaluate))
    metric = {part: np.full((len(replicas), 1), np.nan) for part in ("train", *parts)}
    fits: dict[tuple[int, bytes], list[Callable[[np.ndarray], np.ndarray]]] = {}
    for place, replica in enumerate(replicas):
        replica.check(store.num_graphs, place)
        train, key = np.asarray(replica.train, dtype=np.int64), _key(replica)
        if key not in fits:
            # Several targets are learned one by one.
            columns = [y] if y.ndim == 1 else list(y.T)
            fits[key] = [prepared.fit(train, column[train], replica.seed, pause) for column in columns]
        for part, ids in {"train": train, **replica.evaluate}.items():
            metric[part][place] = _metric(fits[key], np.asarray(ids, dtype=np.int64), y, name)
    nothing = np.full((len(replicas), 1), np.nan)
    return History(
        train_loss=nothing,
        train_metric=metric.pop("train"),
        loss=dict.fromkeys(parts, nothing),
        metric=metric,
        weights=[{} for _ in replicas],
        epoch=np.ones(len(replicas), dtype=int),
    )


def number_of_fits(replicas: Sequence[Replica]) -> int:
    """How many models :func:`fit_once` fits: one for all replicas with the same training graphs and seed."""
    return len({_key(replica) for replica in replicas})


class _Pause:
    """Asks now and then whether to stop."""

    def __init__(self, on_step: Callable[[], bool | None] | None):
        self.on_step, self.asked = on_step, -np.inf

    def __call__(self) -> None:
        if self.on_step is None or monotonic() - self.asked < _ASK_EVERY:
            return
        self.asked = monotonic()
        if self.on_step():
            raise StudyInterrupted


def _key(replica: Replica) -> tuple[int, bytes]:
    return replica.seed, np.sort(np.asarray(replica.train, dtype=np.int64)).tobytes()


def _metric(fits: Sequence[Callable[[np.ndarray], np.ndarray]], ids: np.ndarray, y: np.ndarray, name: str) -> float:
    """Accuracy, or mean absolute error over all targets."""
    if y.ndim == 1:
        scores = np.asarray(fits[0](ids))
        if scores.ndim != 2 or len(scores) != len(ids):
            raise SettingError(f"{name} gave scores of shape {list(scores.shape)} for {len(ids)} graphs")
        return float((scores.argmax(axis=1) == y[ids]).mean())
    guesses = np.stack([np.asarray(fit(ids)).reshape(len(ids)) for fit in fits], axis=1)
    return float(np.abs(guesses - y[ids]).mean())
