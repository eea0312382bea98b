"""A support vector machine on Gram matrices, its settings chosen within the training graphs."""

import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from softmask.baselines.shallow.choice import columns, inner_folds, is_regression, numbers, some_to_choose_on
from softmask.baselines.shallow.protocol import Pause, Scorer, no_pause

PENALTIES = tuple(10.0**e for e in range(-3, 4))
SHARPNESS = (0.1, 1.0, 10.0)
"""Of Gaussian kernels, in units of the median distance: from almost linear to neighbours alone."""
MOST_STEPS = 200_000
"""Of the SVM's solver; a penalty of 1000 on classes that overlap would go on for hours, for no gain."""


@dataclass(frozen=True)
class Kernels:
    """Gram matrices of a whole set, one for each value of the kernel's own parameter.

    Classes are learned by ``SVC``, numbers by kernel ridge regression with alpha = 1 / C. The matrix and C (1e-3 to
    1e3) are those with the best mean score over five folds of the training graphs, of very many over folds of some
    (:func:`~softmask.baselines.shallow.choice.some_to_choose_on`); of equals, the first matrix and the smallest C.
    Values of C and inner folds are tried side by side, on as many cores as there are.

    Args:
        grams: ``[graphs, graphs]`` each.
    """

    grams: Sequence[np.ndarray]

    def fit(self, train: np.ndarray, y: np.ndarray, seed: int, pause: Pause = no_pause) -> Scorer:
        """See :class:`~softmask.baselines.shallow.protocol.Prepared`."""
        train, y = np.asarray(train), np.asarray(y)
        regression = is_regression(y)
        y = numbers(y) if regression else y
        learn = _ridge if regression else _machine

        def score(task: tuple[tuple[np.ndarray, ...], float]) -> float:
            (among, across, inner, held), penalty = task
            found = learn(among, y[inner], penalty)(across)
            right = -np.abs(found - y[held]) if regression else found.argmax(1) == y[held]
            return float(right.mean())

        best, chosen = -np.inf, (0, PENALTIES[0])
        some = some_to_choose_on(y, seed)
        folds = [(some[inner], some[held]) for inner, held in inner_folds(y[some], seed)]
        cores = min(len(folds) * len(PENALTIES), os.cpu_count() or 1)
        together = -(-cores // len(PENALTIES))
        # The solver works outside of Python's lock. That it may stop at MOST_STEPS is no news.
        with _no_news(), ThreadPoolExecutor(cores) as threads:
            for which, gram in enumerate(self.grams):
                scores = np.zeros(len(PENALTIES))
                for start in range(0, len(folds), together):
                    parts = [_parts(gram, train, *fold) for fold in folds[start : start + together]]
                    # The largest C, which takes the longest, goes first.
                    waiting = [threads.submit(score, task) for task in product(parts, PENALTIES[::-1])]
                    try:
                        for done, future in enumerate(waiting):
                            scores[-1 - done % len(PENALTIES)] += future.result()
                            pause()
                    finally:
                        for future in waiting:
                            future.cancel()
                if scores.max() > best + 1e-12:
                    best, chosen = scores.max(), (which, PENALTIES[int(scores.argmax())])
        gram = self.grams[chosen[0]]
        with _no_news():
            predict = learn(_part(gram, train, train), y, chosen[1])
        return lambda ids: predict(_part(gram, np.asarray(ids), train))


def normalised(gram: np.ndarray) -> np.ndarray:
    r"""Every graph at length 1: :math:`K_{ij} / \sqrt{K_{ii} K_{jj}}`; rows of a graph without features stay 0."""
    length = np.sqrt(gram.diagonal())
    scale = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    gram = gram * scale[:, None]
    gram *= scale
    return gram


def scaled(gram: np.ndarray) -> np.ndarray:
    """Graphs as long as they are, in units of the median of all, those to test on among them (no target is looked at):
    so that one range of C suits every set.
    """
    length = np.median(gram.diagonal()) if len(gram) else 0.0
    return gram / length if length > 0 else gram


def normalised_and_scaled(gram: np.ndarray) -> Iterator[np.ndarray]:
    """The kernels of counts that are offered to choose from: without and with the size of a graph."""
    yield normalised(gram).astype(np.float32)
    yield scaled(gram).astype(np.float32)


def linear_and_gaussian(gram: np.ndarray) -> Iterator[np.ndarray]:
    r"""The kernels of feature vectors that are offered to choose from: linear and normalised, and Gaussian ones,

    .. math:: \exp(-g \, d_{ij}^2 / m), \qquad d_{ij}^2 = K_{ii} + K_{jj} - 2 K_{ij}

    with m the median of all distances but those of equal graphs, those to graphs to test on among them (no target is
    looked at), and g of ``SHARPNESS``. The vectors of a Gaussian
    kernel are as long as they are: counts that grow with a graph tell how large it is.
    """
    yield normalised(gram).astype(np.float32)
    length = gram.diagonal()
    # In place: at most three matrices of float64 are there at once.
    distance = length[:, None] + length
    distance -= 2 * gram
    np.maximum(distance, 0, out=distance)
    apart = distance[distance > 0]
    unit = float(np.median(apart, overwrite_input=True)) if len(apart) else 1.0
    del apart
    for sharpness in SHARPNESS:
        kernel = distance * (-sharpness / unit)
        yield np.exp(kernel, out=kernel).astype(np.float32)


def inner_products(table: Any, pause: Pause = no_pause) -> np.ndarray:
    """The Gram matrix of sparse rows, dense, a stripe at a time: the sparse product would need three times as much."""
    stripes = range(0, table.shape[0], 512)
    turned = table.T.tocsr()
    gram = np.empty((table.shape[0],) * 2)
    for start in stripes:
        pause()
        gram[start : start + 512] = (table[start : start + 512] @ turned).toarray()
    return gram


def _part(gram: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    return gram[np.ix_(rows, columns)].astype(np.float64)


def _parts(gram: np.ndarray, train: np.ndarray, inner: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the machine of an inner fold is trained on and what it is tested on, and their places in `train`."""
    return _part(gram, train[inner], train[inner]), _part(gram, train[held], train[inner]), inner, held


@contextmanager
def _no_news() -> Iterator[None]:
    """Leaves out the solver's warnings: around all threads, since what is left out holds for the whole process."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def _machine(gram: np.ndarray, y: np.ndarray, penalty: float) -> Scorer:
    from sklearn.svm import SVC

    machine = SVC(C=penalty, kernel="precomputed", max_iter=MOST_STEPS, cache_size=500).fit(gram, y)
    return lambda across: columns(machine.decision_function(across), machine.classes_)


def _ridge(gram: np.ndarray, y: np.ndarray, penalty: float) -> Scorer:
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KernelCenterer

    # Features and targets around their means: the same as an intercept that is not punished.
    mean = y.mean()
    machine = make_pipeline(KernelCenterer(), KernelRidge(alpha=1 / penalty, kernel="precomputed")).fit(gram, y - mean)
    return lambda across: machine.predict(across) + mean
