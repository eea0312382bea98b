"""The settings of one model and its training."""

import math
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal

from softmask.data.features import Features
from softmask.errors import SettingError
from softmask.nn import VARIANTS, SoftMaskGNN

# Larger numbers are mistakes, and no memory holds them.
_MOST = 1_000_000


@dataclass(frozen=True)
class Settings:
    """The settings of one model and its training.

    Args:
        variant: ``smg``, ``smg-jk``, ``m-smg`` or ``m-smg-jk``.
        hidden: size of the hidden vectors.
        layers: number of soft-mask layers.
        epochs: how often every training graph is seen.
        lr: learning rate of Adam.
        decay, decay_every: the rate is multiplied by ``decay`` every ``decay_every`` epochs.
        batch_size: graphs in a batch.
        dropout: dropout in the head.
        readout: ``sum`` or ``mean``.
        attributes: use the continuous node attributes beside the labels.
        norm: divide every node's vector by its root mean square in every layer; not of the paper.
    """

    variant: str = "smg-jk"
    hidden: int = 64
    layers: int = 3
    epochs: int = 200
    lr: float = 1e-3
    decay: float = 1.0
    decay_every: int = 50
    batch_size: int = 128
    dropout: float = 0.5
    readout: Literal["sum", "mean"] = "sum"
    attributes: bool = False
    norm: bool = False

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise SettingError(f"unknown variant {self.variant!r}; known are {', '.join(VARIANTS)}")
        if self.readout not in ("sum", "mean"):
            raise SettingError(f"readout must be 'sum' or 'mean', got {self.readout!r}")
        for name in ("hidden", "layers", "epochs", "decay_every", "batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise SettingError(f"{name} must be a whole number of at least 1, got {value!r}")
            if int(value) > _MOST:
                raise SettingError(f"{name} must be at most {_MOST}, got {value}")
            object.__setattr__(self, name, int(value))
        for name in ("attributes", "norm"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in ("lr", "decay", "dropout"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Real):
                raise SettingError(f"{name} must be a number, got {value!r}")
            object.__setattr__(self, name, float(value))
        if not 0 < self.lr < math.inf:
            raise SettingError(f"lr must be a positive number, got {self.lr}")
        if not 0 < self.decay <= 1:
            raise SettingError(f"decay must lie in (0, 1], got {self.decay}")
        if not 0 <= self.dropout < 1:
            raise SettingError(f"dropout must be at least 0 and below 1, got {self.dropout}")

    def build(self, features: Features, outputs: int, task: str) -> SoftMaskGNN:
        """A model with fresh weights for these settings."""
        return SoftMaskGNN(
            features.channels,
            self.hidden,
            self.layers,
            outputs,
            readout=self.readout,
            dropout=self.dropout,
            norm=self.norm,
            head="classifier" if task == "classification" else "regressor",
            **VARIANTS[self.variant],
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)
