"""One trained model over all graphs of a store, in their order."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from softmask.data.atoms import Atoms
from softmask.data.store import GraphStore
from softmask.fleet.edges import StoreEdges
from softmask.fleet.pairs import holds_pairs
from softmask.nn import Committee, GeometricSoftMaskGNN, SoftMaskGNN
from softmask.ops import Neighbours, as_segments

# Enough nodes to keep a device busy, few enough for any memory; or pairs, where all pairs of nodes have vectors
# and graphs are padded to the largest beside them.
_NODES, _PAIRS, _PAIRS_CUDA = 32768, 2**15, 2**18


@torch.no_grad()
def predict(
    model: Module,
    store: GraphStore,
    x: Tensor,
    edge_x: Tensor | None = None,
    atoms: Atoms | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """Outputs ``[graphs, outputs]`` and the masks of every layer ``[nodes, 1 or hidden]``, in the store's order.

    Args:
        model: the network: a soft-mask network, or any other that can be a :class:`~softmask.fleet.Fleet`, which has no
            masks to give.
        store: the graphs.
        x: the input of all their nodes.
        edge_x: what their edges carry, ``[edges, channels]`` in the order of ``col``, if the model looks at them.
        atoms: where their nodes are, for a model that sees that.
    """
    device = next(model.parameters()).device
    store, x = store.to(device), x.to(device)
    edges = None if edge_x is None else StoreEdges.of(store, edge_x.to(device))
    atoms = None if atoms is None else Atoms(*(t.to(device) for t in atoms))
    was_training = model.training
    model.eval()
    outs: list[Tensor] = []
    masks: list[list[Tensor]] = []
    for first, last in runs(store, device, holds_pairs(model)):
        neighbours, batch, nodes = consecutive(store, first, last)
        graph: Tensor | Neighbours = neighbours
        given: dict[str, Any] = {}
        if edges is not None:
            assert neighbours.base is not None
            given["edge_attr"] = edges.table(store, neighbours.start, neighbours.end, neighbours.base)
        if atoms is not None:
            graph, given = _in_space(store, neighbours, nodes, atoms)
        if isinstance(model, SoftMaskGNN | Committee | GeometricSoftMaskGNN):
            out, used = model(x[nodes], graph, batch, batch_size=last - first, return_masks=True, **given)
        else:
            taken = signature(model.forward).parameters
            given = {name: value for name, value in ({"y": None} | given).items() if name in taken}
            found = model(x[nodes], graph, as_segments(batch), batch_size=last - first, **given)
            out, used = found[0] if isinstance(found, tuple) else found, []
        outs.append(out)
        masks.append(used)
    model.train(was_training)
    return torch.cat(outs), [torch.cat(layer) for layer in zip(*masks)]


def consecutive(store: GraphStore, first: int, last: int) -> tuple[Neighbours, Tensor, slice]:
    """Graphs `first` to `last` (excluded) as a batch without padding: neighbours, graph of each node, its nodes."""
    begin, end = int(store.node_ptr[first]), int(store.node_ptr[last])
    sizes = store.sizes[first:last]
    batch = torch.repeat_interleave(torch.arange(last - first, device=store.device), sizes)
    base = (store.node_ptr[first:last] - begin)[batch]
    start, stop = store.row_ptr[begin:end], store.row_ptr[begin + 1 : end + 1]
    neighbours = Neighbours(start, stop, store.col, base)
    if store.row_ptr_t is not None:
        start_t, stop_t = store.row_ptr_t[begin:end], store.row_ptr_t[begin + 1 : end + 1]
        neighbours = neighbours._replace(start_t=start_t, end_t=stop_t, col_t=store.col_t)
    return neighbours, batch, slice(begin, end)


def runs(store: GraphStore, device: torch.device, paired: bool = False) -> list[tuple[int, int]]:
    """Runs of consecutive graphs, from one to another (excluded), that go through a model at once; one graph or more.

    Args:
        store: the graphs.
        device: of the model.
        paired: whether the model has vectors for all pairs of a graph's nodes.
    """
    most = _NODES if not paired else _PAIRS_CUDA if device.type == "cuda" else _PAIRS
    found, first, largest, nodes = [], 0, 0, 0
    for g, size in enumerate(store.sizes.tolist()):
        largest, nodes = max(largest, size), nodes + size
        held = (g + 1 - first) * largest**2 if paired else nodes
        if held > most and g > first:
            found.append((first, g))
            first, largest, nodes = g, size, size
    return [*found, (first, store.num_graphs)] if store.num_graphs else []


def _in_space(
    store: GraphStore, neighbours: Neighbours, nodes: slice, atoms: Atoms
) -> tuple[Tensor, dict[str, Tensor]]:
    """The bonds of consecutive nodes as an ``edge_index``, and what else a model that sees space takes of them."""
    pos, kind, mass = atoms
    edges = slice(int(store.row_ptr[nodes.start]), int(store.row_ptr[nodes.stop]))
    degree = neighbours.end - neighbours.start
    target = torch.repeat_interleave(torch.arange(len(degree), device=store.device), degree)
    assert neighbours.base is not None
    source = store.col[edges].long() + neighbours.base[target]
    given = {"pos": pos[nodes], "edge_kind": kind[edges], "mass": mass[nodes].to(pos.dtype)}
    return torch.stack([source, target]), given
