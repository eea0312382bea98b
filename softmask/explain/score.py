"""How well masks find the nodes that are known to matter."""

from typing import Any

import numpy as np

from softmask.errors import SettingError


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
    score, true, graph = (_flat(values) for values in (mask, truth, batch))
    if not len(score) == len(true) == len(graph):
        raise SettingError(f"mask, truth and batch are of {len(score)}, {len(true)} and {len(graph)} nodes")
    if not np.isfinite(score).all():
        raise SettingError(f"the mask of node {int(np.argmin(np.isfinite(score)))} is not a finite number")
    if len(score) == 0:
        raise SettingError("there are no nodes to score")
    true = true != 0
    _, graph = np.unique(graph, return_inverse=True)
    rank = _ranks(score, graph)
    nodes = np.bincount(graph)
    hits = np.bincount(graph, weights=true)
    known = (hits > 0) & (hits < nodes)
    if not known.any():
        raise SettingError("no graph has both true and other nodes: there is nothing to find")
    total = np.bincount(graph, weights=np.where(true, rank, 0.0))
    area = (total - hits * (hits + 1) / 2)[known] / (hits * (nodes - hits))[known]
    return float(area.mean())


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
