"""One trained model over all graphs of a store, in their order."""

import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.fleet.edges import StoreEdges
from softmask.nn import SoftMaskGNN
from softmask.ops import Neighbours

# Enough nodes to keep a device busy, few enough for any memory.
_NODES = 32768


@torch.no_grad()
def predict(
    model: SoftMaskGNN, store: GraphStore, x: Tensor, edge_x: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Outputs ``[graphs, outputs]`` and the masks of every layer ``[nodes, 1 or hidden]``, in the store's order.

    Args:
        model: the network.
        store: the graphs.
        x: the input of all their nodes.
        edge_x: what their edges carry, ``[edges, channels]`` in the order of ``col``, if the model looks at them.
    """
    device = next(model.parameters()).device
    store, x = store.to(device), x.to(device)
    edges = None if edge_x is None else StoreEdges.of(store, edge_x.to(device))
    was_training = model.training
    model.eval()
    outs: list[Tensor] = []
    masks: list[list[Tensor]] = []
    for first, last in _runs(store.node_ptr.tolist()):
        neighbours, batch, nodes = consecutive(store, first, last)
        table = None
        if edges is not None:
            assert neighbours.base is not None
            table = edges.table(store, neighbours.start, neighbours.end, neighbours.base)
        out, used = model(x[nodes], neighbours, batch, batch_size=last - first, return_masks=True, edge_attr=table)
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


def _runs(node_ptr: list[int]) -> list[tuple[int, int]]:
    """Runs of consecutive graphs with about _NODES nodes each, at least one graph."""
    runs, first = [], 0
    for g in range(1, len(node_ptr)):
        if g == len(node_ptr) - 1 or node_ptr[g + 1] - node_ptr[first] > _NODES:
            runs.append((first, g))
            first = g
    return runs
