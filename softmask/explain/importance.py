"""One importance per node from the masks of all layers."""

import torch
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.ops import Neighbours, as_neighbours, neighbour_sum


def node_importance(
    masks: Tensor, edge_index: Tensor | Neighbours, jk: bool = False, batch: Tensor | None = None
) -> Tensor:
    r"""How open the masks leave the substructure around each node, by its weight in the readout.

    In equation (3) a node takes what it holds with the factor :math:`m^{(k)}_v`, and what a neighbour holds with
    :math:`m^{(k)}_v m^{(k)}_u`. Without the matrices and the ReLU, which are the same for all nodes, the vector that
    :math:`v` adds to the readout therefore has the weight :math:`w^{(K)}_v` of

    .. math::
        w^{(k)}_v = m^{(k)}_v \Big( w^{(k-1)}_v + \sum_{u \in \mathcal{N}(v)} m^{(k)}_u \, w^{(k-1)}_u \Big) ,
        \qquad w^{(0)} = 1 ,

    and with jumping knowledge (equation (5)) :math:`\sum_k w^{(k)}_v`. This is a sum over all walks that end at
    :math:`v` and in each layer stay or go to a neighbour, each with the product of the masks on its way. It grows with
    the number of walks, and falls with every move, which passes two masks, whatever the masks say. The importance is
    therefore its ratio to the weight that the node would have if in each layer all nodes of its graph had the same
    mask, their mean: above 1 where the masks favour the node's K-hop substructure, below 1 where they shut it out, and
    the same for all nodes where the masks tell none from another. Where a layer sums over all pairs of nodes
    (:class:`~softmask.nn.GeometricSoftMaskConv`), all other nodes are neighbours (:func:`all_pairs`); how far away they
    are is left out, like the matrices.

    Args:
        masks: ``[nodes, layers]``, as :func:`~softmask.explain.node_masks` gives them.
        edge_index: the graph or graphs.
        jk: whether the model reads out all layers.
        batch: ``[nodes]``, the graph of each node; ``None`` for a single graph.

    Returns:
        ``[nodes]``: 1 where all masks of a layer are equal; 0 for a node that is shut in every layer that is read out.
    """
    weight, even = walk_weights(masks, as_neighbours(edge_index, masks.size(0)), jk, batch).unbind(dim=1)
    return torch.where(even > 0, weight / torch.where(even > 0, even, 1), 0)


def walk_weights(masks: Tensor, neighbours: Neighbours, jk: bool = False, batch: Tensor | None = None) -> Tensor:
    """The weights w of :func:`node_importance`, ``[nodes, 2]``: with the masks, and with their graph's means."""
    if batch is None:
        batch = torch.zeros(masks.size(0), dtype=torch.long, device=masks.device)
    graphs = int(batch.max()) + 1 if batch.numel() else 0
    size = torch.bincount(batch, minlength=graphs).clamp(min=1).to(masks.dtype)
    means = masks.new_zeros(graphs, masks.size(1)).index_add_(0, batch, masks) / size.unsqueeze(1)
    weight = masks.new_ones(masks.size(0), 2)
    read = torch.zeros_like(weight)
    for mask, mean in zip(masks.unbind(dim=1), means[batch].unbind(dim=1)):
        both = torch.stack([mask, mean], dim=1)
        weight = both * (weight + neighbour_sum(weight, neighbours, both))
        read = read + weight
    return read if jk else weight


def all_pairs(store: GraphStore) -> Neighbours:
    """Every node of a graph as a neighbour of every other, as the layers of a geometric model take them."""
    sizes, batch = store.sizes, store.batch
    first = (sizes**2).cumsum(0) - sizes**2
    begin, wide = store.node_ptr[:-1][batch], sizes[batch]
    start = first[batch] + (torch.arange(store.num_nodes) - begin) * wide
    col = torch.arange(int((sizes**2).sum())) - torch.repeat_interleave(start, wide)
    return Neighbours(start, start + wide, col, begin)


def largest_one(values: Tensor, batch: Tensor, graphs: int) -> Tensor:
    """The values of each graph divided by their largest, so that it is 1; zeros stay zeros.

    Args:
        values: ``[nodes]``, at least 0.
        batch: ``[nodes]``, the graph of each node.
        graphs: how many graphs there are.
    """
    largest = values.new_zeros(graphs).scatter_reduce(0, batch, values, "amax")[batch]
    return values / torch.where(largest > 0, largest, 1.0)
