"""Nodes that no sum of neighbours can tell apart, computed once: the quotient of each graph by its stable colours."""

from typing import NamedTuple

import torch
from torch import Tensor

from softmask.data.store import GraphStore

# The multipliers of the splitmix64 generator, as signed numbers.
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685


class Quotient(NamedTuple):
    """Graphs whose nodes are classes of equal nodes.

    Args:
        store: the graphs, with structure, targets and info only.
        x: input of the classes.
        size: ``[classes]``, of how many nodes each consists.
        weight: ``[edges]``, in the order of the store's ``col``: how many neighbours in that class each node of the
            row's class has.
        weight_t: the same the other way round: how many neighbours in the row's class each node of that class has.
    """

    store: GraphStore
    x: Tensor
    size: Tensor
    weight: Tensor
    weight_t: Tensor


def stable_colours(store: GraphStore, x: Tensor) -> Tensor:
    """The coarsest colouring of the nodes that colour refinement does not refine further, ``[nodes]``.

    At first two nodes share a colour if they are of one graph and have the same input. In every round they go on doing
    so if as many neighbours of each have any colour; self loops do not count. In a network whose nodes meet in sums
    over neighbours alone, nodes of one stable colour have equal vectors and masks in every layer. (That a network can
    therefore be trained on the colours is not new: `"Learning Graph Neural Networks using Exact Compression"
    <https://arxiv.org/abs/2304.14793>`_.)

    Multisets of colours are told apart by sums of 64-bit hashes: two that differ are taken for one with a chance of
    about nodes squared over 2^64.

    Returns:
        Colours from 0 on, in the order in which the nodes have them first.
    """
    row, source = edges_of(store)
    colour = store.batch
    for column in x.reshape(x.size(0), -1).unbind(1):
        # Not every device sorts half precision.
        _, value = torch.unique(column.double(), return_inverse=True)
        _, colour = torch.unique(mixed(mixed(colour) + value), return_inverse=True)
    count = -1
    while count < (count := int(colour.max()) + 1):
        hashed = mixed(colour)
        around = torch.zeros_like(hashed).index_add_(0, row, hashed[source])
        _, colour = torch.unique(mixed(mixed(around) + hashed), return_inverse=True)
    first = _firsts(colour)
    place = torch.empty_like(first)
    place[first.argsort()] = torch.arange(count, device=first.device)
    return place[colour]


def quotient(store: GraphStore, x: Tensor) -> Quotient:
    r"""The graphs with all nodes of one stable colour as one.

    A class :math:`C` has :math:`n_{CD}` neighbours in class :math:`D`, the same number for each of its nodes, so that
    sums over neighbours and over the nodes of a graph become

    .. math::
        \mathbf{y}_C = \sum_D n_{CD} \, m_D \odot \mathbf{x}_D, \qquad
        \mathbf{h}_G = \sum_C |C| \, \mathbf{h}_C .

    Args:
        store: undirected graphs.
        x: the input of all nodes.
    """
    colour = stable_colours(store, x)
    size = torch.bincount(colour)
    count = size.numel()
    row, source = edges_of(store)
    # The first node of a class speaks for it.
    first = _firsts(colour)
    speaks = first[colour[row]] == row
    pair, weight = torch.unique(colour[row[speaks]] * count + colour[source[speaks]], return_counts=True)
    c, d = pair // count, pair % count
    graph = store.batch[first]
    node_ptr = torch.searchsorted(graph, torch.arange(store.num_graphs + 1, device=graph.device))
    row_ptr = torch.searchsorted(c, torch.arange(count + 1, device=c.device))
    col = (d - node_ptr[graph[c]]).to(store.col.dtype)
    small = GraphStore(node_ptr, row_ptr, col, y=store.y, info=store.info)
    # As many edges lead from C to D as from D to C: |C| n_CD = |D| n_DC.
    return Quotient(small, x[first], size, weight, weight * size[c] // size[d])


def edges_of(store: GraphStore, loops: bool = False) -> tuple[Tensor, Tensor]:
    """Target and source of every edge, by their numbers in the store; without self loops, unless they are wanted."""
    row = torch.repeat_interleave(torch.arange(store.num_nodes, device=store.device), store.row_ptr.diff())
    source = store.col.long() + store.node_ptr[:-1][store.batch[row]]
    if loops:
        return row, source
    real = source != row
    return row[real], source[real]


def _firsts(colour: Tensor) -> Tensor:
    """The first node of each colour."""
    nodes = torch.arange(colour.numel(), device=colour.device)
    first = nodes.new_full((int(colour.max()) + 1,), colour.numel())
    return first.scatter_reduce_(0, colour, nodes, "amin")


def mixed(numbers: Tensor) -> Tensor:
    """A hash of whole numbers, one to one (splitmix64)."""
    z = numbers + _STEP
    z = (z ^ _shifted(z, 30)) * _FIRST
    z = (z ^ _shifted(z, 27)) * _SECOND
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """Shifted to the right with zeros from the left, as unsigned numbers are."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
