"""One model of a fleet: its seed, its graphs, its rates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral

import numpy as np

from softmask.errors import SettingError


def check_seed(seed: object) -> int:
    """The seed as a plain integer; refuses what is none, or out of range."""
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**32:
        raise SettingError(f"a seed must be a whole number from 0 to 2**32 - 1, got {seed!r}")
    return int(seed)


@dataclass(frozen=True, eq=False)
class Replica:
    """One model of a fleet. Its result follows from these fields alone, whatever trains beside it.

    Args:
        seed: for the initial weights, the shuffles and the dropout.
        train: ids of the graphs to train on.
        evaluate: parts to evaluate after every epoch, by name: ``{"test": ids}``.
        lr: the learning rate.
        decay, decay_every: the rate is multiplied by ``decay`` every ``decay_every`` epochs.
        dropout: the dropout rate, or ``None`` to keep the model's own.
        weight_decay: of Adam, or decoupled with AdamW.
        average: the weights that are evaluated and returned are a mean over about so many of the last epochs
            (:class:`softmask.fleet.average.Average`); 0 for the weights themselves.
        target: the column of the store's targets to learn, or ``None`` for all.
        buffers: values of persistent buffers of the model that this replica has of its own, by name.
    """

    seed: int
    train: np.ndarray | Sequence[int]
    evaluate: Mapping[str, np.ndarray | Sequence[int]] = field(default_factory=dict)
    lr: float = 5e-4
    decay: float = 1.0
    decay_every: int = 50
    dropout: float | None = None
    weight_decay: float = 0.0
    average: float = 0.0
    target: int | None = None
    buffers: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def check(self, num_graphs: int, place: int) -> None:
        """Refuses ids that are out of range or missing, and rates that make no sense, before any work starts."""
        where = f"replica {place} (seed {self.seed})"
        check_seed(self.seed)
        for name, ids in {"train": self.train, **self.evaluate}.items():
            array = np.asarray(ids)
            if array.size == 0:
                raise SettingError(f"{where}: the part {name!r} has no graphs")
            if array.dtype.kind not in "iu":
                raise SettingError(f"{where}: the part {name!r} must hold graph numbers, got {array.dtype}")
            if array.ndim != 1:
                raise SettingError(f"{where}: the part {name!r} must be a list, got an array {list(array.shape)}")
            outside = array[(array < 0) | (array >= num_graphs)]
            if outside.size:
                raise SettingError(
                    f"{where}: the part {name!r} names graph {outside[0]}; there are graphs 0 to {num_graphs - 1}"
                )
        if not 0 < self.lr < math.inf:
            raise SettingError(f"{where}: the learning rate must be a positive number, got {self.lr}")
        if not 0 <= self.weight_decay < math.inf:
            raise SettingError(f"{where}: weight_decay must be a number of at least 0, got {self.weight_decay}")
        if not 0 <= self.average < math.inf:
            raise SettingError(f"{where}: average must be a number of epochs of at least 0, got {self.average}")
        if not 0 < self.decay <= 1 or self.decay_every < 1:
            raise SettingError(f"{where}: decay must lie in (0, 1] and decay_every be at least 1")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise SettingError(f"{where}: dropout must be at least 0 and below 1, got {self.dropout}")
