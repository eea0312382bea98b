"""What the model says when some nodes are shut out.

A node is shut by a mask of 0 in every layer; the others keep the masks they have. By Theorem 1 this is the prediction
on the subgraph of the nodes that stay: a shut node becomes zero and is invisible to its neighbours and the readout, if
that is a sum. A mean still counts it, so there it is the prediction on the graph with the other nodes empty.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from softmask.data.convert import as_store
from softmask.data.store import GraphStore
from softmask.device import pick_device
from softmask.errors import SettingError
from softmask.explain.explanation import Explanation
from softmask.fleet.predict import runs


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
    x, edge_x, atoms = trained.inputs(store)
    of_nodes = {} if atoms is None else {"pos": atoms.pos, "mass": atoms.mass.to(atoms.pos.dtype)}
    of_edges = {"edge_attr": edge_x, "edge_kind": None if atoms is None else atoms.kind}
    given = {name: t for name, t in of_edges.items() if t is not None}
    device, base = next(network.parameters()).device, None
    if trained.geometric is not None:  # of the atoms that stay
        base = torch.stack([trained.geometric.reference(store.to("cpu"), stays) for stays in chosen.t()], dim=1)
    x, ends, chosen, batch = (t.to(device) for t in (x, torch.stack(store.edges()), chosen, store.batch))
    said: list[np.ndarray] = []
    for (first, last), nodes, edges in _parts(store, device, atoms is not None):
        whole = _Subgraph(
            *(x[nodes], ends[:, edges] - nodes.start, batch[nodes] - first),
            of_nodes={name: t[nodes].to(device) for name, t in of_nodes.items()},
            of_edges={name: t[edges].to(device) for name, t in given.items()},
        )
        masks = whole(network, last - first, return_masks=True)[1]
        outs = []
        for stays in chosen[nodes].t():
            if masks_anew:
                outs.append(whole.induced(stays)(network, last - first))
            else:
                outs.append(whole(network, last - first, masks=[m * stays.unsqueeze(1) for m in masks]))
        said.append(_in_units(model, torch.stack(outs, dim=1), None if base is None else base[first:last]))
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


def shut_one(model: Any, explanations: Sequence[Explanation]) -> list[np.ndarray]:
    """How the prediction changes when one node alone is shut out, for every node: for small graphs.

    Args:
        model: the estimator that was explained.
        explanations: of :func:`explain`.

    Returns:
        For each graph ``[nodes, classes or targets]``: the prediction without the node less that with all nodes.
    """
    most = max(len(e.importance) for e in explanations)
    # The first choice keeps all; behind the last node of a smaller graph nothing is shut.
    keep = [~np.eye(most + 1, len(e.importance), k=-1, dtype=bool) for e in explanations]
    said = predict_kept(model, [e.data for e in explanations], keep)
    return [s[1 : len(e.importance) + 1] - s[:1] for s, e in zip(said, explanations)]


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
    """Some graphs as the network takes them: input, edges, graph of each node, and what else nodes and edges have."""

    x: Tensor
    edge_index: Tensor
    batch: Tensor
    of_nodes: dict[str, Tensor]
    of_edges: dict[str, Tensor]

    def __call__(self, network: Any, graphs: int, **options: Any) -> Any:
        return network(self.x, self.edge_index, self.batch, graphs, **self.of_nodes, **self.of_edges, **options)

    def induced(self, stays: Tensor) -> "_Subgraph":
        """The same on the nodes that stay."""
        inner = stays[self.edge_index].all(dim=0)
        number = stays.cumsum(0) - 1
        of_nodes = {name: t[stays] for name, t in self.of_nodes.items()}
        of_edges = {name: t[inner] for name, t in self.of_edges.items()}
        return _Subgraph(self.x[stays], number[self.edge_index[:, inner]], self.batch[stays], of_nodes, of_edges)


def _parts(store: GraphStore, device: torch.device, paired: bool) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    """Runs of graphs: first graph and the one behind the last, their nodes, their edges."""
    for first, last in runs(store, device, paired):
        nodes = slice(int(store.node_ptr[first]), int(store.node_ptr[last]))
        yield (first, last), nodes, slice(int(store.row_ptr[nodes.start]), int(store.row_ptr[nodes.stop]))


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


def _in_units(model: Any, out: Tensor, base: Tensor | None) -> np.ndarray:
    """The network's output ``[graphs, choices, outputs]``, and what it need not learn, as probabilities or targets."""
    values, probabilities = model._read(out.flatten(0, 1).double().cpu(), None if base is None else base.flatten())
    read = values if probabilities is None else probabilities
    return np.asarray(read).reshape(out.size(0), out.size(1), -1)
