"""Rows of Table 2 for the systems that the paper compares with, measured like our own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch.nn import Module

from softmask.baselines.entry import Inputs
from softmask.baselines.registry import BASELINES
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.fleet.pairs import StorePairs
from softmask.fleet.precision import Precision
from softmask.paper.regression import Lesson, Regression


@dataclass(frozen=True, kw_only=True)
class BaselineRegression(Regression):
    """A row of a network of molecules in space: the same split, targets and choice of the epoch as our own rows have.

    Its models are not kept: ``fit`` and ``predict`` are for soft-mask models alone.

    Args:
        loss: what is minimised, on targets of mean 0 and deviation 1.
        precision: of the arithmetic.
    """

    loss: str
    precision: Precision
    keeps_models: ClassVar[bool] = False

    def model(self, features: Features) -> Module:
        """A model with fresh weights."""
        # Of the set these networks need to know no more.
        inputs = Inputs(features.channels, 1, "regression", sizes=np.zeros(0, dtype=np.int64), features=features)
        return BASELINES[self.variant].build(inputs, self.settings)

    def about(self) -> dict[str, Any]:
        """What its record says of how it was made, beside the data."""
        return super().about() | {"loss": self.loss, "precision_asked": self.precision}

    def lesson(self, store: GraphStore, train: np.ndarray) -> Lesson:
        """What its fleet is to learn, given the training molecules."""
        options = {"loss": self.loss, "pairs": StorePairs.of_atoms(store), "precision": self.precision}
        targets = store.info["targets"]
        return Lesson(store, [{} for _ in targets], options, [None for _ in targets], {})
