"""The trainings that each protocol asks for."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from softmask.baselines.registry import way_of
from softmask.data.fold_files import Fold
from softmask.data.splits import holdout, inner_validation, stratified_folds
from softmask.errors import SettingError
from softmask.study.question import Question
from softmask.study.trial import Trial, seed_of

# A run and a fold of it.
Place = tuple[int, int]

# By how much successive halving shortens the first rungs and thins out the settings after each.
HALVING = 3


def run_seed(seed: int, run: int) -> int:
    """The seed of a run."""
    return (seed + run) % 2**32


def make_splits(y: np.ndarray, folds: int, runs: int, seed: int) -> list[dict[str, Any]]:
    """The test graphs of every fold, run by run, stratified."""
    seeds = [run_seed(seed, run) for run in range(runs)]
    return [{"seed": s, "test": [test.tolist() for _, test in stratified_folds(y, folds, s)]} for s in seeds]


def given_splits(folds: Sequence[Fold], runs: int, seed: int) -> list[dict[str, Any]]:
    """Folds that were given; every run has the same, with other weights."""
    split: dict[str, Any] = {"test": [fold.test.tolist() for fold in folds]}
    for name in ("train", "validation"):
        parts = [getattr(fold, name) for fold in folds]
        if all(part is not None for part in parts):
            split[name] = [part.tolist() for part in parts]
    return [{"seed": run_seed(seed, run), **split} for run in range(runs)]


def holdout_splits(y: np.ndarray, ratios: Sequence[float], runs: int, seed: int) -> list[dict[str, Any]]:
    """Train, validation and test by ratio, drawn anew for every run."""
    if len(ratios) != 3:
        raise SettingError(f"a holdout needs three ratios (train, validation, test), got {len(ratios)}")
    splits = []
    for run in range(runs):
        train, validation, test = holdout(y, ratios, run_seed(seed, run))
        parts = {"train": [train.tolist()], "validation": [validation.tolist()], "test": [test.tolist()]}
        splits.append({"seed": run_seed(seed, run), **parts})
    return splits


def splits_hash(splits: list[dict[str, Any]]) -> str:
    """Tells splits apart."""
    return sha256(json.dumps(splits, sort_keys=True).encode()).hexdigest()


class Protocol:
    """Makes the trainings of a study.

    Args:
        question: what is asked.
        splits: see :func:`make_splits`.
        y: classes or targets of all graphs.
    """

    def __init__(self, question: Question, splits: list[dict[str, Any]], y: np.ndarray):
        self.question, self.splits, self.y = question, splits, y

    def _outside(self, run: int, fold: int) -> np.ndarray:
        """The training part of a fold: as given, or all graphs that it does not test on."""
        split = self.splits[run]
        if "train" in split:
            parts = [split["train"][fold], *([split["validation"][fold]] if "validation" in split else [])]
            return np.sort(np.concatenate([np.asarray(p, dtype=np.int64) for p in parts]))
        return np.setdiff1d(np.arange(len(self.y)), split["test"][fold])

    def _inner(self, run: int, fold: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        split = self.splits[run]
        if "validation" in split:
            chosen = np.asarray(split["validation"][fold], dtype=np.int64)
            return np.setdiff1d(self._outside(run, fold), chosen), chosen
        return inner_validation(self.y, self._outside(run, fold), self.question.validation, seed)

    def _places(self) -> list[tuple[int, int, np.ndarray]]:
        return [
            (run, fold, np.asarray(test, dtype=np.int64))
            for run, split in enumerate(self.splits)
            for fold, test in enumerate(split["test"])
        ]

    def paper(self) -> list[Trial]:
        """Every fold of every run, trained on all of its training part, tested after every epoch."""
        epochs = self.question.settings[0].epochs
        return [
            Trial(
                *("paper", 0, run, fold, 0, (self.splits[run]["seed"] * 1000 + fold) % 2**32, epochs),
                train=self._outside(run, fold),
                test=test,
            )
            for run, fold, test in self._places()
        ]

    def tested(self, chosen: dict[Place, int], role: str, repeats: int) -> list[Trial]:
        """Every fold with the settings chosen for it: a validation part chooses the epoch, the test part is scored."""
        trials = []
        for run, fold, test in self._places():
            for repeat in range(repeats):
                seed = seed_of(role, self.splits[run]["seed"], fold, repeat)
                setting = chosen[run, fold]
                # What trains once has no epoch to choose, and learns from the whole training part.
                once = way_of(self.question.settings[setting].model) == "once"
                train, validation = (self._outside(run, fold), None) if once else self._inner(run, fold, seed)
                epochs = self.question.settings[setting].epochs
                trials.append(Trial(role, setting, run, fold, repeat, seed, epochs, train, validation, test))
        return trials

    def selection(self, kept: dict[Place, list[int]], role: str = "select", shorter: int = 1) -> list[Trial]:
        """Every fold with each of its settings: validation parts only. All settings meet the same parts and seeds."""
        trials = []
        for run, fold, _ in self._places():
            seed = seed_of("select", self.splits[run]["seed"], fold)
            train, validation = self._inner(run, fold, seed)
            for setting in kept[run, fold]:
                epochs = -(-self.question.settings[setting].epochs // shorter)
                trials.append(Trial(role, setting, run, fold, 0, seed, epochs, train, validation))
        return trials
