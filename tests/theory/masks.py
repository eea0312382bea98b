"""The paper's mask assignments for a subset of the nodes."""

import torch
from theory.graphs import Graphs, Numbers
from torch import Tensor


def lemma_masks(graph: Graphs, inside: list[bool], num_layers: int, numbers: Numbers) -> list[Tensor]:
    """Lemma 1: 1 on S; 0 on a neighbour of S in odd layers (k = 1, 3, ...); the rest is free, hence random.

    The paper's graphs are undirected. In a directed one those with an edge into S must be shut.
    """
    touches = [False] * graph.num_nodes
    for source, target in graph.edges:
        if inside[target] and not inside[source]:
            touches[source] = True
    masks = []
    for k in range(1, num_layers + 1):
        mask = numbers.mask(graph.num_nodes, 1)
        for v in range(graph.num_nodes):
            if inside[v]:
                mask[v] = 1.0
            elif touches[v] and k % 2 == 1:
                mask[v] = 0.0
        masks.append(mask)
    return masks


def theorem_masks(graph: Graphs, inside: list[bool], num_layers: int, numbers: Numbers) -> list[Tensor]:
    """Theorem 1: those of the lemma, and 0 outside S in the last layer."""
    masks = lemma_masks(graph, inside, num_layers, numbers)
    masks[-1][~torch.tensor(inside, dtype=torch.bool)] = 0.0
    return masks


def ones(num_nodes: int, num_layers: int) -> list[Tensor]:
    return [torch.ones(num_nodes, 1, dtype=torch.float64) for _ in range(num_layers)]
