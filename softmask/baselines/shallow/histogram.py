"""Baselines that look at no structure, or at hardly any: counts of labels and of degrees."""

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from softmask.baselines.shallow.choice import columns, inner_folds, is_regression, numbers
from softmask.baselines.shallow.cost import Cost
from softmask.baselines.shallow.graphs import adjacency, counts, degrees, graph_of_node, node_labels
from softmask.baselines.shallow.protocol import Pause, Scorer, no_pause
from softmask.data.store import GraphStore

EXACT_BELOW = 16
BINS_AN_OCTAVE = 8
PENALTIES = tuple(10.0**e for e in range(-3, 4))
WEIGHT_DECAYS = (1.0, 0.01)

Learner = Literal["logistic", "mlp"]


@dataclass(frozen=True)
class Histogram:
    """Counts over the nodes of a graph, learned by logistic regression or by a small perceptron.

    ``labels-*`` sees no edge: the number of nodes, and how many nodes have each label; in a set without labels, the
    means of the node attributes; in a set with neither, the number of nodes alone. What these reach, a set gives away
    without its structure. ``degrees-*`` also sees how many nodes have each degree (one by one below 16, then eight bins
    an octave), the weakest of structure: what the first sum over neighbours would find.

    Counts are scaled to mean 0 and deviation 1 of the training graphs. Numbers are learned by ridge regression in the
    place of logistic regression. The penalty (1e-3 to 1e3; weight decay 1 or 0.01 of the perceptron, of 32 hidden
    units) is chosen within the training graphs.
    """

    learner: Learner
    degree: bool = False
    needs_labels: bool = False

    @property
    def name(self) -> str:
        """As the command has it."""
        return f"{'degrees' if self.degree else 'labels'}-{self.learner}"

    @property
    def cite(self) -> str:
        """Where to read of it."""
        return "Errica et al., A fair comparison of graph neural networks for graph classification, ICLR 2020"

    def cost(self, store: GraphStore) -> Cost:
        """Seconds on any set."""
        return Cost(0.0, 0.0)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> "Table":
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        return Table(histogram(store, self.degree), self.learner)


@dataclass(frozen=True)
class Table:
    """A row of numbers for each graph, and what learns from it."""

    rows: np.ndarray
    learner: Learner

    def fit(self, train: np.ndarray, y: np.ndarray, seed: int, pause: Pause = no_pause) -> Scorer:
        """See :class:`~softmask.baselines.shallow.protocol.Prepared`."""
        train, y = np.asarray(train), np.asarray(y)
        regression = is_regression(y)
        y = numbers(y) if regression else y
        rows, folds = self.rows[train], inner_folds(y, seed)
        best, chosen = -np.inf, 0.0
        for setting in PENALTIES if self.learner == "logistic" else WEIGHT_DECAYS:
            score = 0.0
            for inner, held in folds:
                pause()
                found = self._learn(rows[inner], y[inner], setting, seed)(rows[held])
                right = -np.abs(found - y[held]) if regression else found.argmax(1) == y[held]
                score += float(right.mean())
            if score > best + 1e-12:
                best, chosen = score, setting
        predict = self._learn(rows, y, chosen, seed)
        return lambda ids: predict(self.rows[np.asarray(ids)])

    def _learn(self, rows: np.ndarray, y: np.ndarray, setting: float, seed: int) -> Scorer:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        shift, scale = (y.mean(), y.std() or 1.0) if is_regression(y) else (0, 1)
        pipeline = make_pipeline(StandardScaler(), self._model(is_regression(y), setting, seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            pipeline.fit(rows, (y - shift) / scale if is_regression(y) else y)
        if is_regression(y):
            return lambda table: pipeline.predict(table) * scale + shift
        return lambda table: columns(pipeline.predict_proba(table), pipeline.classes_)

    def _model(self, regression: bool, setting: float, seed: int) -> Any:
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.neural_network import MLPClassifier, MLPRegressor

        if self.learner == "logistic":
            return Ridge(alpha=1 / setting) if regression else LogisticRegression(C=setting, max_iter=1000)
        network = MLPRegressor if regression else MLPClassifier
        return network(hidden_layer_sizes=(32,), alpha=setting, max_iter=200, random_state=seed)


def histogram(store: GraphStore, degree: bool) -> np.ndarray:
    """Counts for each graph, ``[graphs, columns]`` float64: number of nodes, labels or means, degrees if asked for."""
    graph, labels = graph_of_node(store), node_labels(store)
    sizes = store.sizes.cpu().numpy().astype(np.float64)
    parts = [sizes[:, None]]
    if labels is not None:
        parts.append(counts(graph, labels, store.num_graphs).toarray())
    elif store.node_attr is not None:
        attributes = store.node_attr.cpu().numpy().astype(np.float64)
        sums = np.stack([np.bincount(graph, channel, store.num_graphs) for channel in attributes.T], axis=1)
        parts.append(sums / np.maximum(sizes, 1)[:, None])
    if degree:
        parts.append(counts(graph, degree_bins(degrees(adjacency(store))), store.num_graphs).toarray())
    return np.concatenate(parts, axis=1)


def degree_bins(degree: np.ndarray) -> np.ndarray:
    """The bin of each degree: the degree itself below 16, then eight bins an octave."""
    octaves = np.log2(np.maximum(degree, EXACT_BELOW) / EXACT_BELOW)
    return np.minimum(degree, EXACT_BELOW) + np.floor(BINS_AN_OCTAVE * octaves).astype(np.int64)
