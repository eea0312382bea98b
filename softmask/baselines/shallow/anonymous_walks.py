"""AWE, feature-based: shares of anonymous walks."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, block, counted, degrees, graph_of_node, pointers
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, linear_and_gaussian
from softmask.data.store import GraphStore


@dataclass(frozen=True)
class AnonymousWalks:
    r"""How often each anonymous walk occurs: a random walk in which a node is known only by when it was first met.

    .. math:: f_a(G) = \sum_{v \in G} \Pr[\text{a random walk of } \ell \text{ steps from } v
        \text{ has the pattern } a]

    The kernel of two graphs is linear, :math:`\langle f(G), f(G') \rangle`, normalised, so that only shares of patterns
    matter; or Gaussian, in which the number of nodes matters too. Its authors' code (AnonymousWalkKernel.py) has shares
    and such counts, in linear, polynomial and Gaussian kernels. That and the length are chosen within the training
    graphs.

    Sampled, ``walks`` for each graph, as its paper does, every graph with random numbers of its own: were they shared,
    graphs whose nodes stand in a like order would have like errors of sampling, and the order of nodes (along the
    protein, in ENZYMES) would be learned from. This is the form that its paper calls feature-based; the data-driven one
    (vectors learned as those of documents) is another method. Node labels are not looked at. Nodes without neighbours
    start no walk.
    """

    lengths: tuple[int, ...] = (4, 7, 10)
    walks: int = 10000
    seed: int = 0
    name: str = "awe"
    needs_labels: bool = False
    cite: str = "Ivanov and Burnaev, Anonymous walk embeddings, ICML 2018 (feature-based)"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        longest = max(self.lengths)
        walks = store.num_graphs * self.walks
        seconds = walks * longest**2 * 6e-9 + walks * store.num_graphs * 1e-9
        here = Cost(seconds / 60, (store.num_edges * 48 + walks * 40) / 1e9)
        return here + of_machine(store, 4 * len(self.lengths), 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        longest = max(self.lengths)
        matrix, ptr = adjacency(store), pointers(store)
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in self.lengths]
        for g in range(store.num_graphs):
            pause()
            draws = np.random.Generator(np.random.PCG64([self.seed, g])).random((longest + 1, self.walks))
            met = anonymous(random_walks(block(matrix, ptr[g], ptr[g + 1]), draws))
            for length, patterns in zip(self.lengths, found):
                patterns.append(np.unique(pattern_codes(met[: length + 1]), return_counts=True))
        # From shares to the sum over the nodes that start a walk.
        able = np.bincount(graph_of_node(store), degrees(matrix) > 0, store.num_graphs)
        nodes = sparse.diags_array(able / self.walks)
        grams = (inner_products((nodes @ counted(patterns)).tocsr(), pause) for patterns in found)
        return Kernels([kernel for gram in grams for kernel in linear_and_gaussian(gram)])


def random_walks(matrix: sparse.csr_array, draws: np.ndarray) -> np.ndarray:
    """The nodes of random walks, ``[steps + 1, walks]``, made from uniform numbers of the same shape."""
    degree = degrees(matrix)
    able = np.flatnonzero(degree)
    if len(able) == 0:
        return np.zeros((len(draws), 0), dtype=np.int64)
    at = np.empty(draws.shape, dtype=np.int64)
    at[0] = able[(draws[0] * len(able)).astype(np.int64)]
    for step in range(1, len(draws)):
        here = at[step - 1]
        at[step] = matrix.indices[matrix.indptr[here] + (draws[step] * degree[here]).astype(np.int64)]
    return at


def anonymous(at: np.ndarray) -> np.ndarray:
    """For each place of a walk, the place where its node was first met: equal exactly if the anonymous walks are."""
    first = np.repeat(np.arange(len(at))[:, None], at.shape[1], axis=1)
    for place in range(len(at) - 1, -1, -1):
        np.putmask(first[place:], at[place:] == at[place], place)
    return first


def pattern_codes(met: np.ndarray) -> np.ndarray:
    """One whole number for each anonymous walk, from its places of first meeting."""
    code = np.zeros(met.shape[1], dtype=np.int64)
    for row in met:
        code = code * len(met) + row
    return code
