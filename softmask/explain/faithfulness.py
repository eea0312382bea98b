"""What the model says when some nodes are shut out.

A node is shut by a mask of 0 in every layer; the others keep the masks they have. By Theorem 1 this is the prediction
on the subgraph of the nodes that stay: a shut node becomes zero and is invisible to its neighbours and the readout, if
that is a sum. A mean still counts it, so there it is the prediction on the graph with the other nodes empty.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from softmask.data.convert import as_store
from softmask.data.store import GraphStore
from softmask.device import pick_device
from softmask.errors import SettingError
from softmask.explain.explanation import Explanation

# Enough nodes to keep a device busy, few enough for any memory.
_NODES = 32768


@torch.no_grad()
def predict_kept(model: Any, graphs: Any, keep: Sequence[np.ndarray], masks_anew: bool = False) -> list[np.ndarray]:
    """Predictions when only some nodes are let in, for many choices of them.

    Args:
        model: a fitted or loaded estimator.
        graphs: as for :func:`explain`.
        keep: for each graph ``[choices, nodes]``, true for the nodes that stay; as many choices for every graph.
        masks_anew: let the model compute its masks on the subgraph itself, as if the others had never been there,
            instead of keeping those of the whole graph. The nodes' input stays that of the whole graph (a node's
            degree, say). This is the usual question for explainers that know nothing of masks.

    Returns:
        For each graph ``[choices, classes or targets]``: probabilities, or numbers in the unit of the targets. Where
        no node stays it is what the model says of nothing, that is, of a readout of zero.
    """
    store, trained = as_store(graphs), model.trained_
    chosen = torch.from_numpy(_table(keep, store.sizes.tolist()))
    network = trained.model.to(pick_device(model.device)).eval()
    edge_x = None if trained.edge_features is None else trained.edge_features(store)
    x, ends = trained.features(store), torch.stack(store.edges())
    x, ends, chosen, batch = (t.to(next(network.parameters()).device) for t in (x, ends, chosen, store.batch))
    said: list[np.ndarray] = []
    for (first, last), nodes, edges in _parts(store):
        whole = _Subgraph(x[nodes], ends[:, edges] - nodes.start, batch[nodes] - first, _rows(edge_x, edges, x.device))
        masks = whole(network, last - first, return_masks=True)[1]
        outs = []
        for stays in chosen[nodes].t():
            if masks_anew:
                outs.append(whole.induced(stays)(network, last - first))
            else:
                outs.append(whole(network, last - first, masks=[m * stays.unsqueeze(1) for m in masks]))
        said.append(_in_units(model, torch.stack(outs, dim=1)))
    return list(np.concatenate(said))


def threshold_curve(model: Any, explanations: Sequence[Explanation], thresholds: Sequence[float]) -> list[np.ndarray]:
    """How the prediction changes as less and less important nodes are shut out.

    Args:
        model: the estimator that was explained.
        explanations: of :func:`explain`.
        thresholds: a node stays if its importance is at least that.

    Returns:
        For each graph ``[thresholds, classes or targets]``, as of :func:`predict_kept`.
    """
    limits = np.asarray(thresholds, dtype=np.float64).reshape(-1, 1)
    return predict_kept(model, [e.data for e in explanations], [e.importance >= limits for e in explanations])


def removal_curve(model: Any, explanations: Sequence[Explanation], shares: Sequence[float]) -> np.ndarray:
    """How far the prediction moves as nodes are shut out, the least important first, against the importance removed.

    A curve that stays near 0 until much is removed says that the nodes called unimportant are so to the model.

    Args:
        model: the estimator that was explained.
        explanations: of :func:`explain`.
        shares: from 0 to 1, how much of each graph's total importance is removed: as many of the least important
            nodes as fit into it.

    Returns:
        ``[graphs, shares]``: for classes the change in total variation, half the sum of the absolute changes of all
        probabilities (0 to 1); for targets the mean absolute change.
    """
    limits = np.asarray(shares, dtype=np.float64).reshape(-1, 1)
    if not ((limits >= 0) & (limits <= 1)).all():
        raise SettingError(f"shares={list(shares)!r}: must lie from 0 to 1")
    # The first choice keeps all: it is the prediction that the others are compared with.
    keep = [np.vstack([np.ones((1, len(e.importance)), dtype=bool), _rest(e.importance, limits)]) for e in explanations]
    said = np.stack(predict_kept(model, [e.data for e in explanations], keep))
    change = np.abs(said[:, 1:] - said[:, :1])
    return change.sum(axis=2) / 2 if explanations[0].probabilities is not None else change.mean(axis=2)


def _rest(importance: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Which nodes stay, ``[shares, nodes]``, if the least important ones up to a share of the total go."""
    order = np.argsort(importance, kind="stable")
    gone = np.empty(len(order))
    gone[order] = np.cumsum(importance[order])
    # To rounding: a share of 1 removes everything.
    return gone > shares * importance.sum() * (1 + 1e-9)


class _Subgraph(NamedTuple):
    """Some graphs as the network takes them: input, edges, graph of each node, and what the edges carry."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    edge_attr: Tensor | None

    def __call__(self, network: Any, graphs: int, **options: Any) -> Any:
        return network(self.x, self.edge_index, self.batch, graphs, edge_attr=self.edge_attr, **options)

    def induced(self, stays: Tensor) -> "_Subgraph":
        """The same on the nodes that stay."""
        inner = stays[self.edge_index].all(dim=0)
        number = stays.cumsum(0) - 1
        carried = None if self.edge_attr is None else self.edge_attr[inner]
        return _Subgraph(self.x[stays], number[self.edge_index[:, inner]], self.batch[stays], carried)


def _parts(store: GraphStore) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    """Runs of graphs of about _NODES nodes each: first graph and the one behind the last, their nodes, their edges."""
    node_ptr, row_ptr = store.node_ptr.cpu().numpy(), store.row_ptr.cpu().numpy()
    cuts = np.flatnonzero(np.diff(node_ptr[:-1] // _NODES)) + 1
    for first, last in pairwise([0, *cuts.tolist(), store.num_graphs]):
        nodes = slice(int(node_ptr[first]), int(node_ptr[last]))
        yield (first, last), nodes, slice(int(row_ptr[nodes.start]), int(row_ptr[nodes.stop]))


def _rows(values: Tensor | None, rows: slice, device: torch.device) -> Tensor | None:
    return None if values is None else values[rows].to(device)


def _table(keep: Sequence[np.ndarray], sizes: list[int]) -> np.ndarray:
    """The choices of all graphs one below the other, ``[nodes, choices]``."""
    if len(keep) != len(sizes):
        raise SettingError(f"choices of nodes for {len(keep)} graphs were given, but there are {len(sizes)} graphs")
    parts = [np.atleast_2d(np.asarray(k)) for k in keep]
    for g, (part, size) in enumerate(zip(parts, sizes)):
        if part.shape[1] != size or len(part) != len(parts[0]):
            raise SettingError(
                f"graph {g}: choices of shape {list(part.shape)} were given, expected [{len(parts[0])}, {size}]"
            )
    return np.concatenate(parts, axis=1).T.astype(bool)


def _in_units(model: Any, out: Tensor) -> np.ndarray:
    """The network's output ``[graphs, choices, outputs]`` as probabilities or targets."""
    values, probabilities = model._read(out.flatten(0, 1).double().cpu())
    read = values if probabilities is None else probabilities
    return np.asarray(read).reshape(out.size(0), out.size(1), -1)
