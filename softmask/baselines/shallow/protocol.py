"""What a baseline without a neural network on the graph must offer: kernels and features."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from softmask.baselines.shallow.cost import Cost
from softmask.data.store import GraphStore

Pause = Callable[[], None]
"""Called between two small pieces of a long work; it raises where the user asked to stop."""

Scorer = Callable[[np.ndarray], np.ndarray]
"""Takes the ids of graphs, gives ``[n, classes]`` scores whose argmax is the class, or ``[n]`` numbers."""


def no_pause() -> None:
    """The pause of who does not want to stop."""


class Prepared(Protocol):
    """A whole set of graphs as features or as a Gram matrix, made without looking at any target."""

    def fit(self, train: np.ndarray, y: np.ndarray, seed: int, pause: Pause = no_pause) -> Scorer:
        """Trains on some graphs of the set.

        Settings of the method (the SVM's C, the depth of a kernel) are chosen by cross-validation among the training
        graphs; no other target is ever seen.

        Args:
            train: ids of the graphs to train on.
            y: their classes (integers) or targets (floating point), in the order of ``train``.
            seed: for the inner folds and whatever else is drawn.
            pause: called every now and then.

        Returns:
            A function from ids of graphs to scores ``[n, classes]``, whose argmax is the class, columns from class 0
            to the largest in ``y``; or to ``[n]`` numbers for regression.
        """
        ...


class Shallow(Protocol):
    """A baseline: its name, what it needs, and how it turns a set into features or a Gram matrix."""

    @property
    def name(self) -> str:
        """What the command calls it, such as ``wl``."""
        ...

    @property
    def needs_labels(self) -> bool:
        """Whether it works only on sets with node labels."""
        ...

    @property
    def cite(self) -> str:
        """The paper it is from, in one line."""
        ...

    def cost(self, store: GraphStore) -> Cost:
        """What :meth:`prepare` and ten folds will take, estimated from the sizes of the set."""
        ...

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Prepared:
        """Features or Gram matrix of the whole set, from graphs alone; `pause` is called every now and then.

        Raises:
            SettingError: if the set lacks what the method needs, or if its :meth:`cost` is beyond reason and ``force``
                is false.
        """
        ...
