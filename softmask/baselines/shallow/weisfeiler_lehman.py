"""The Weisfeiler-Lehman subtree kernel, on packed arrays."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, colours, counts, graph_of_node
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, normalised_and_scaled
from softmask.data.store import GraphStore


@dataclass(frozen=True)
class WeisfeilerLehman:
    r"""Counts of the colours that Weisfeiler-Lehman refinement gives to nodes, up to a depth.

    .. math:: k_h(G, G') = \sum_{t=0}^{h} \langle \phi_t(G), \phi_t(G') \rangle

    with :math:`\phi_t(G)` how often each colour of round t occurs in G. Round 0 is the node label, or the degree where
    a set has no labels, as is usual. The depth h, 1 to ``depth``, and whether the kernel is normalised, which hides how
    large a graph is, are chosen within the training graphs.

    A colour is 64 bits that follow from the colour of the node and the multiset of its neighbours' (Zobrist's sums);
    among n different neighbourhoods two coincide with a probability below :math:`n^2 / 2^{64}`.
    """

    depth: int = 5
    name: str = "wl"
    needs_labels: bool = False
    cite: str = "Shervashidze et al., Weisfeiler-Lehman Graph Kernels, JMLR 2011"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        rounds = self.depth + 1
        seconds = rounds * (store.num_edges * 4e-8 + store.num_nodes * 1e-6 + store.num_graphs**2 * 5e-7)
        here = Cost(seconds / 60, (store.num_edges * 48 + store.num_nodes * 60 * rounds) / 1e9)
        return here + of_machine(store, 2 * self.depth, 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        matrix, graph = adjacency(store), graph_of_node(store)
        gram = np.zeros((store.num_graphs,) * 2)
        grams: list[np.ndarray] = []
        for t, colour in enumerate(refine(colours(store, matrix), matrix, self.depth)):
            gram += inner_products(counts(graph, colour, store.num_graphs), pause)
            if t > 0:
                grams += normalised_and_scaled(gram)
        return Kernels(grams)


def refine(colour: np.ndarray, matrix: sparse.csr_array, rounds: int) -> list[np.ndarray]:
    """Colours of the nodes after 0, 1, ... rounds, each numbered from 0."""
    found = [colour]
    for _ in range(rounds):
        key = _mixed(colour.astype(np.uint64))
        # Wraps around 2**64; a difference of two running sums is exact all the same.
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(key[matrix.indices], dtype=np.uint64)])
        around = running[matrix.indptr[1:]] - running[matrix.indptr[:-1]]
        own = _mixed(key + np.uint64(0x9E3779B97F4A7C15))
        colour = np.unique(_mixed(own ^ _mixed(around)), return_inverse=True)[1]
        found.append(colour)
    return found


def _mixed(x: np.ndarray) -> np.ndarray:
    """Steele's splitmix64: every bit of the result depends on every bit of the argument, one to one."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
