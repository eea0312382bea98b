"""The graphlet kernel: shares of small induced subgraphs, by sampling."""

import functools
from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, block, pointers
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, linear_and_gaussian
from softmask.data.store import GraphStore


@dataclass(frozen=True)
class Graphlet:
    r"""Which share of all sets of k nodes induces each of the graphs with k nodes, connected or not.

    .. math:: k(G, G') = \langle f(G), f(G') \rangle, \qquad
        f_j(G) = \Pr[G[S] \cong g_j],\; S \text{ uniform among the k-subsets of nodes}

    normalised, as in its paper, or a Gaussian kernel of the same shares: those of sparse graphs are all but equal, and
    a linear kernel wants a C beyond the range there. That and the size k are chosen within the training graphs.

    Sampled as its paper does, with ``samples`` sets for each graph and size, and random numbers of its own for each
    graph (shared ones would let the order of nodes be learned from, see
    :class:`~softmask.baselines.shallow.anonymous_walks.AnonymousWalks`). Node labels are not looked at. A graph with
    fewer than k nodes has no features.
    """

    sizes: tuple[int, ...] = (3, 4, 5)
    samples: int = 5000
    seed: int = 0
    name: str = "gk"
    needs_labels: bool = False
    cite: str = "Shervashidze et al., Efficient graphlet kernels for large graph comparison, AISTATS 2009"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        pairs = sum(k * (k - 1) for k in self.sizes)
        seconds = store.num_graphs * pairs * self.samples * 1e-8 + float((store.sizes.double() ** 2).sum()) * 1e-9
        largest = float(store.sizes.max()) if store.num_graphs else 0.0
        here = Cost(seconds / 60, (store.num_edges * 48 + largest**2) / 1e9)
        return here + of_machine(store, 4 * len(self.sizes), 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        matrix, ptr = adjacency(store), pointers(store)
        shares = [np.zeros((store.num_graphs, number_of_kinds(k))) for k in self.sizes]
        for g in range(store.num_graphs):
            pause()
            draws = np.random.Generator(np.random.PCG64([self.seed, g])).random((self.samples, max(self.sizes)))
            dense = block(matrix, ptr[g], ptr[g + 1]).toarray().astype(bool)
            for k, share in zip(self.sizes, shares):
                if len(dense) >= k:
                    share[g] = graphlet_shares(dense, distinct_nodes(draws[:, :k], len(dense)))
        grams = (inner_products(sparse.csr_array(share), pause) for share in shares)
        return Kernels([kernel for gram in grams for kernel in linear_and_gaussian(gram)])


def graphlet_shares(dense: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """The share of each kind among the subgraphs that rows of nodes ``[samples, k]`` induce, ``[kinds]``."""
    k = nodes.shape[1]
    code = np.zeros(len(nodes), dtype=np.int64)
    flat = dense.reshape(-1)
    for bit, (i, j) in enumerate(combinations(range(k), 2)):
        code |= flat[nodes[:, i] * len(dense) + nodes[:, j]].astype(np.int64) << bit
    return np.bincount(kinds(k)[code], minlength=number_of_kinds(k)) / len(nodes)


def distinct_nodes(draws: np.ndarray, n: int) -> np.ndarray:
    """Uniform numbers ``[samples, k]`` to k different nodes of n: the i-th is the so-manieth that is still free."""
    chosen = np.empty(draws.shape, dtype=np.int64)
    for i in range(draws.shape[1]):
        node = (draws[:, i] * (n - i)).astype(np.int64)
        for taken in np.sort(chosen[:, :i], axis=1).T:
            node += node >= taken
        chosen[:, i] = node
    return chosen


@functools.cache
def kinds(k: int) -> np.ndarray:
    """The kind of each graph on k numbered nodes, given as one bit for each pair: equal exactly if isomorphic."""
    pairs = list(combinations(range(k), 2))
    place = {pair: bit for bit, pair in enumerate(pairs)}
    codes = np.arange(2 ** len(pairs))
    least = codes.copy()
    for order in permutations(range(k)):
        turned = np.zeros_like(codes)
        for bit, (i, j) in enumerate(pairs):
            turned |= (codes >> bit & 1) << place[min(order[i], order[j]), max(order[i], order[j])]
        least = np.minimum(least, turned)
    return np.unique(least, return_inverse=True)[1]


def number_of_kinds(k: int) -> int:
    """How many graphs with k nodes there are: 4, 11, 34 for k = 3, 4, 5."""
    return int(kinds(k).max()) + 1
