"""Baselines without a neural network on the graph: kernels and features with an SVM, histograms with a classifier.

All of them see a graph as simple and undirected, and nothing of a target but those of the training graphs.
"""

from softmask.baselines.shallow.anonymous_walks import AnonymousWalks
from softmask.baselines.shallow.deep_kernel import DeepKernel
from softmask.baselines.shallow.fgsd import SpectralDistances
from softmask.baselines.shallow.graphlet import Graphlet
from softmask.baselines.shallow.histogram import Histogram
from softmask.baselines.shallow.propagation import Propagation
from softmask.baselines.shallow.protocol import Prepared, Scorer, Shallow
from softmask.baselines.shallow.random_walk import RandomWalk
from softmask.baselines.shallow.weisfeiler_lehman import WeisfeilerLehman

_ALL: tuple[Shallow, ...] = (
    WeisfeilerLehman(),
    Graphlet(),
    RandomWalk(),
    Propagation(),
    SpectralDistances(),
    AnonymousWalks(),
    DeepKernel(),
    Histogram("logistic"),
    Histogram("mlp"),
    Histogram("logistic", degree=True),
    Histogram("mlp", degree=True),
)

SHALLOW: dict[str, Shallow] = {baseline.name: baseline for baseline in _ALL}
"""The baselines by name."""

__all__ = ["SHALLOW", "Prepared", "Scorer", "Shallow"]
