"""The settings of one model and its training."""

import math
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from typing import Any, Literal

from softmask.baselines.registry import SOFT_MASK, check_model
from softmask.data.edge_features import EdgeFeatures
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.nn import VARIANTS, Committee, SoftMaskGNN

# Larger numbers are mistakes, and no memory holds them.
_MOST = 1_000_000

# Fields that came after the first studies. At their default they are no part of a question, so that a study which was
# asked before they came is still the same one.
_LATER = ("model", "edges", "average", "committee")


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
        edges: use edge labels or attributes: the layers are edge-conditioned
            (:class:`~softmask.nn.EdgeSoftMaskConv`), as in the paper's regression.
        average: evaluate and keep a mean of the weights over about so many of the last epochs; 0 for the weights as
            they are; not of the paper.
        committee: so many networks in the place of one, trained each by itself from first weights of its own, and asked
            together (:class:`~softmask.nn.Committee`); not of the paper.
        model: ``soft-mask``, or the name of a baseline (see :mod:`softmask.baselines`), which does not use `variant`
            and `norm`, and perhaps not others; :func:`softmask.baselines.baseline_settings` gives a baseline's own.
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
    model: str = SOFT_MASK
    edges: bool = False
    average: float = 0.0
    committee: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", check_model(self.model))
        if self.variant not in VARIANTS:
            raise SettingError(f"unknown variant {self.variant!r}; known are {', '.join(VARIANTS)}")
        if self.readout not in ("sum", "mean"):
            raise SettingError(f"readout must be 'sum' or 'mean', got {self.readout!r}")
        for name in ("hidden", "layers", "epochs", "decay_every", "batch_size", "committee"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise SettingError(f"{name} must be a whole number of at least 1, got {value!r}")
            if int(value) > _MOST:
                raise SettingError(f"{name} must be at most {_MOST}, got {value}")
            object.__setattr__(self, name, int(value))
        if self.model == "gat" and self.hidden % 4:
            raise SettingError(f"hidden must be a multiple of 4 for gat, whose 4 heads share it, got {self.hidden}")
        for name in ("attributes", "norm", "edges"):
            object.__setattr__(self, name, bool(getattr(self, name)))
        for name in ("lr", "decay", "dropout", "average"):
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
        if not 0 <= self.average <= _MOST:
            raise SettingError(f"average must be a number of epochs from 0 to {_MOST}, got {self.average}")
        for name in ("average", "committee"):
            if getattr(self, name) != getattr(Settings, name) and self.model != SOFT_MASK:
                raise SettingError(f"{name} is for soft-mask models; leave it out for {self.model}")
        if self.edges and self.norm:
            raise SettingError("edges and norm: the layers with edge features have no norm; leave one of them off")

    def edge_features(self, store: GraphStore) -> EdgeFeatures | None:
        """What a model with these settings sees of an edge; ``None`` if it does not look at them."""
        return EdgeFeatures.of(store) if self.edges else None

    def build(
        self, features: Features, outputs: int, task: str, edge_features: EdgeFeatures | None = None
    ) -> SoftMaskGNN:
        """A soft-mask network with fresh weights for these settings: of a committee, one member."""
        if self.model != SOFT_MASK:
            raise SettingError(
                f"model is {self.model!r}: only soft-mask models can be kept and used; baselines are for evaluate"
            )
        if self.edges != (edge_features is not None):
            raise SettingError("edge features must be given where edges is on, and only there")
        return SoftMaskGNN(
            features.channels,
            self.hidden,
            self.layers,
            outputs,
            readout=self.readout,
            dropout=self.dropout,
            norm=self.norm,
            edge_channels=None if edge_features is None else edge_features.channels,
            head="classifier" if task == "classification" else "regressor",
            **VARIANTS[self.variant],
        )

    def build_whole(
        self, features: Features, outputs: int, task: str, edge_features: EdgeFeatures | None = None
    ) -> SoftMaskGNN | Committee:
        """The same, but all members of a committee as one."""
        members = [self.build(features, outputs, task, edge_features) for _ in range(self.committee)]
        return members[0] if self.committee == 1 else Committee(members, task == "classification")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    def asked(self) -> dict[str, Any]:
        """As plain JSON, in a question."""
        return {k: v for k, v in self.to_json().items() if k not in _LATER or v != getattr(Settings, k)}
