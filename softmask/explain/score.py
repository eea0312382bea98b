"""How good an explanation is: against known nodes, against the model, and against other seeds."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from softmask.data.convert import as_store
from softmask.errors import SettingError
from softmask.explain.faithfulness import predict_kept


def mask_auc(mask: Any, truth: Any, batch: Any) -> float:
    r"""Mean over graphs of the area under the ROC curve with which node scores find the true nodes.

    The area is the chance that a true node has a larger score than another node of its graph, ties counted
    half:

    .. math::
        \mathrm{AUC}_g = \frac{\sum_{v \in T_g} r_v - |T_g| (|T_g| + 1) / 2}{|T_g| \, (n_g - |T_g|)}

    with the rank :math:`r_v` of a node's score within its graph (the mean rank for ties). 1: every true
    node is above every other one; 0.5: chance; 0: the masks suppress just the true nodes.

    Args:
        mask: ``[nodes]`` or ``[nodes, 1]``, a score for each node: the mask of a layer, or a mean over
            layers.
        truth: ``[nodes]``, true or not 0 for the nodes to be found.
        batch: ``[nodes]``, the graph of each node. Graphs in which all nodes or none are true are left out.
    """
    score, true, graph = _checked(mask, truth, batch)
    rank = _ranks(score, graph)
    nodes = np.bincount(graph)
    hits = np.bincount(graph, weights=true)
    known = (hits > 0) & (hits < nodes)
    total = np.bincount(graph, weights=np.where(true, rank, 0.0))
    area = (total - hits * (hits + 1) / 2)[known] / (hits * (nodes - hits))[known]
    return float(area.mean())


def precision_at_k(mask: Any, truth: Any, batch: Any, k: int | None = None) -> float:
    r"""Mean over graphs of the share of true nodes among the `k` of the largest score.

    Nodes that tie for the last places are counted as if drawn from them at random: the expected share.

    Args:
        mask: ``[nodes]`` or ``[nodes, 1]``, a score for each node.
        truth: ``[nodes]``, true or not 0 for the nodes to be found.
        batch: ``[nodes]``, the graph of each node. Graphs in which all nodes or none are true are left out.
        k: how many nodes; by default as many as there are true ones in the graph.
    """
    score, true, graph = _checked(mask, truth, batch)
    if k is not None and k < 1:
        raise SettingError(f"k={k!r}: must be at least 1")
    found = []
    for g in range(graph.max() + 1):
        s, t = score[graph == g], true[graph == g]
        if 0 < t.sum() < len(t):
            places = int(t.sum()) if k is None else min(int(k), len(t))
            last = np.sort(s)[-places]
            above, ties = s > last, s == last
            drawn = places - above.sum()
            found.append((t[above].sum() + t[ties].mean() * drawn) / places)
    return float(np.mean(found))


class Fidelity(NamedTuple):
    """How well some nodes of each graph stand for the whole, by what the model says without them and of them alone.

    Args:
        plus: share of graphs whose predicted class changes without these nodes (1 is best); for regression the mean
            absolute change of the prediction (large is good).
        minus: share of graphs whose predicted class changes if only these nodes are left (0 is best); for regression
            the mean absolute change (small is good).
        sparsity: mean over graphs of the share of nodes that were not chosen.
    """

    plus: float
    minus: float
    sparsity: float

    @property
    def characterization(self) -> float:
        """The harmonic mean of `plus` and 1 - `minus`, one number for both; for classes only."""
        return 0.0 if self.plus == 0 or self.minus == 1 else 2 / (1 / self.plus + 1 / (1 - self.minus))


def fidelity(model: Any, graphs: Any, nodes: Sequence[np.ndarray], masks_anew: bool = True) -> Fidelity:
    """Fidelity+ and fidelity- of chosen nodes, as defined in
    `"GraphFramEx: Towards Systematic Evaluation of Explainability Methods for Graph Neural Networks"
    <https://arxiv.org/abs/2206.09677>`_ for explanations of a model.

    Args:
        model: a fitted or loaded estimator.
        graphs: as for :func:`~softmask.explain.explain`.
        nodes: the chosen nodes of each graph, such as ``explanation.subgraph(size=5)``.
        masks_anew: see :func:`~softmask.explain.faithfulness.predict_kept`.
    """
    store = as_store(graphs)
    sizes = store.sizes.tolist()
    if len(nodes) != len(sizes):
        raise SettingError(f"nodes of {len(nodes)} graphs were given, but there are {len(sizes)} graphs")
    keep = []
    for chosen, size in zip(nodes, sizes):
        inside = np.zeros(size, dtype=bool)
        inside[np.asarray(chosen, dtype=np.int64)] = True
        keep.append(np.stack([np.ones(size, dtype=bool), ~inside, inside]))
    said = np.stack(predict_kept(model, store, keep, masks_anew))
    if model.task == "classification":
        kind = said.argmax(axis=2)
        change = (kind[:, 1:] != kind[:, :1]).astype(np.float64)
    else:
        change = np.abs(said[:, 1:] - said[:, :1]).mean(axis=2)
    plus, minus = change.mean(axis=0).tolist()
    sparsity = np.mean([1 - k[2].mean() for k in keep if k.shape[1]])
    return Fidelity(plus, minus, float(sparsity))


def stability(importance: Sequence[Sequence[np.ndarray]]) -> float:
    """Spearman's rank correlation of the importances that two models give the nodes of a graph, in the mean over all
    graphs and all pairs of models, such as models that differ in their training seed alone.

    Args:
        importance: of each model, for each graph ``[nodes]``. Graphs in which a model finds all nodes equal are left
            out.
    """
    from softmask.explain.statistics import rank_correlations  # which takes its ranks from here

    if len(importance) < 2:
        raise SettingError("stability needs the importances of at least two models")
    graph = np.repeat(np.arange(len(importance[0])), [len(g) for g in importance[0]])
    flat = [np.concatenate(list(one)) for one in importance]
    pairs = [rank_correlations(a, b, graph) for i, a in enumerate(flat) for b in flat[:i]]
    known = np.concatenate(pairs)
    known = known[~np.isnan(known)]
    if len(known) == 0:
        raise SettingError("the importances are the same for all nodes of every graph: there is nothing to correlate")
    return float(known.mean())


def _checked(mask: Any, truth: Any, batch: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Score, truth and graph (numbered from 0) of each node; refuses what cannot be scored."""
    score, true, graph = (_flat(values) for values in (mask, truth, batch))
    if not len(score) == len(true) == len(graph):
        raise SettingError(f"mask, truth and batch are of {len(score)}, {len(true)} and {len(graph)} nodes")
    if not np.isfinite(score).all():
        raise SettingError(f"the mask of node {int(np.argmin(np.isfinite(score)))} is not a finite number")
    if len(score) == 0:
        raise SettingError("there are no nodes to score")
    true = true != 0
    _, graph = np.unique(graph, return_inverse=True)
    hits = np.bincount(graph, weights=true)
    if not ((hits > 0) & (hits < np.bincount(graph))).any():
        raise SettingError("no graph has both true and other nodes: there is nothing to find")
    return score, true, graph


def _ranks(score: np.ndarray, graph: np.ndarray) -> np.ndarray:
    """The rank of each score within its graph, from 1; ties share the mean of their ranks."""
    order = np.lexsort((score, graph))
    s, g = score[order], graph[order]
    # A run is a stretch of equal scores of one graph.
    begins = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (g[1:] != g[:-1])]))
    lengths = np.diff(np.append(begins, len(s)))
    first_of_graph = np.searchsorted(g, g[begins])
    rank = np.empty(len(s))
    rank[order] = np.repeat(begins - first_of_graph + (lengths + 1) / 2, lengths)
    return rank


def _flat(values: Any) -> np.ndarray:
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise SettingError(f"one number for each node was expected, got shape {list(array.shape)}")
    return array
