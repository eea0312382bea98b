"""What a study asks: the data, the protocol, the settings. Two studies with the same question have the same answer."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from softmask.errors import SettingError
from softmask.fleet.replica import check_seed
from softmask.study.settings import Settings

PROTOCOLS = ("fair", "paper", "both", "holdout", "tune")


@dataclass(frozen=True)
class Question:
    """What a study asks.

    Args:
        data, data_hash, graphs: name, content hash and number of the graphs.
        task: ``classification`` or ``regression``.
        protocol: ``paper``, ``fair``, ``both``, ``holdout`` or ``tune``.
        settings: the settings to try.
        folds, runs: how the graphs are split and how often.
        repeats: trainings of the chosen settings for every fold of ``fair``.
        validation: share of a training part that chooses epoch and settings.
        patience: a training counts as stopped when the validation part has not improved for so many epochs.
        halving: whether tuning drops the worse settings early.
        splits_hash: of the splits.
        seed: of the first run.
        precision: of the arithmetic.
        jobs: into how many jobs each fleet is cut.
        code: hash of the source of a model of one's own, so that a changed one is another question.
    """

    data: str
    data_hash: str
    graphs: int
    task: str
    protocol: str
    settings: tuple[Settings, ...]
    folds: int
    runs: int
    repeats: int
    validation: float
    patience: int | None
    halving: bool
    splits_hash: str
    seed: int
    precision: str
    jobs: int
    code: str | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise SettingError(f"unknown protocol {self.protocol!r}; known are {', '.join(PROTOCOLS)}")
        check_seed(self.seed)
        for name in ("runs", "repeats", "jobs"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.patience is not None and self.patience < 1:
            raise SettingError(f"patience must be at least 1 epoch, got {self.patience}")
        if not self.settings:
            raise SettingError("there are no settings to try")
        if len(self.settings) > 1 and self.protocol in ("paper", "both"):
            raise SettingError(
                f"{len(self.settings)} settings with the protocol {self.protocol!r}: settings must never be chosen on "
                "the test folds; use the protocol fair, which chooses them on validation parts, or tune first"
            )

    @property
    def metric(self) -> str:
        """What is measured."""
        return "accuracy" if self.task == "classification" else "mean absolute error"

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        fields = asdict(self)
        if self.code is None:
            del fields["code"]
        return fields | {"settings": [s.asked() for s in self.settings], "metric": self.metric}

    def hash(self) -> str:
        """Tells questions apart."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:16]
