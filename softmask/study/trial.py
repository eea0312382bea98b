"""One training of a study, and the jobs that trainings are bundled into."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from softmask.baselines.registry import way_of
from softmask.fleet import Replica
from softmask.fleet.committee import members_of
from softmask.study.grid import by_shape
from softmask.study.settings import Settings


@dataclass(frozen=True, eq=False)
class Trial:
    """One training of a study.

    Args:
        role: what its scores are for: ``paper``, ``fair``, ``holdout``, ``select`` or an earlier ``rung``.
        setting: index of its settings in the study's list.
        run, fold, repeat: its place.
        seed: of its weights, shuffles and dropout.
        epochs: how long it trains.
        train: graphs to train on.
        validation: graphs that choose its epoch, if any.
        test: graphs to test on, if any.
    """

    role: str
    setting: int
    run: int
    fold: int
    repeat: int
    seed: int
    epochs: int
    train: np.ndarray
    validation: np.ndarray | None = None
    test: np.ndarray | None = None

    def replicas(self, settings: Settings) -> list[Replica]:
        """The models of a fleet that do this training: one, or a committee."""
        parts = {"validation": self.validation, "test": self.test}
        seed, train = self.seed, self.train
        if way_of(settings.model) == "once":
            # The same fit for all protocols and repeats, which differ in the epoch that they choose: here is none.
            seed = seed_of("once", self.run, self.fold)
        replica = Replica(
            seed=seed,
            train=train,
            evaluate={name: ids for name, ids in parts.items() if ids is not None},
            lr=settings.lr,
            decay=settings.decay,
            decay_every=settings.decay_every,
            dropout=settings.dropout,
            average=settings.average,
        )
        return members_of(replica, settings.committee)


@dataclass(frozen=True, eq=False)
class Job:
    """Trainings of one shape, which one device does together: a fleet."""

    name: str
    trials: tuple[Trial, ...]


def seed_of(*place: object) -> int:
    """A seed that follows from a place in a study and from nothing else."""
    return int.from_bytes(hashlib.sha256(repr(place).encode()).digest()[:4], "little")


def jobs_of(stage: str, trials: Sequence[Trial], settings: Sequence[Settings], pieces: int) -> list[Job]:
    """Bundles the trainings that share shapes and epochs, and cuts each bundle into so many pieces."""
    jobs = []
    shape = {i: s for s, group in enumerate(by_shape(settings)) for i in group}
    bundles: dict[tuple[int, int], list[Trial]] = {}
    for trial in trials:
        bundles.setdefault((shape[trial.setting], trial.epochs), []).append(trial)
    for number, bundle in enumerate(bundles.values()):
        for piece, part in enumerate(np.array_split(np.arange(len(bundle)), min(pieces, len(bundle)))):
            jobs.append(Job(f"{stage}-{number}-{piece}", tuple(bundle[i] for i in part)))
    return jobs
