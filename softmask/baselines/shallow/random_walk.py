"""The random walk kernel: walks that two graphs have in common."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, block, degrees, node_labels, pointers
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, normalised_and_scaled
from softmask.data.store import GraphStore

NEGLIGIBLE = 1e-10
"""Share of the sum below which further walks are left out."""


@dataclass(frozen=True)
class RandomWalk:
    r"""The geometric random walk kernel: common walks of every length, the longer the less they count.

    .. math:: k(G, G') = \sum_{t=0}^{\infty} \lambda^t \, \mathbf 1^\top W_\times^t \mathbf 1

    with :math:`W_\times` the adjacency matrix of the direct product graph, whose nodes are the pairs of nodes with
    equal labels (all pairs, where a set has no labels). Lambda is the largest power of ten below
    :math:`1 / d^2`, d the largest degree in the set, for which the sum always converges. Whether the kernel is
    normalised, which hides how large a graph is, is chosen within the training graphs.

    Without labels :math:`W_\times = A \otimes A'` and a term is the product of the numbers of walks in each graph: the
    cost is linear. With labels every pair of graphs has its own product graph: the cost grows with nodes times edges
    of the whole set.
    """

    name: str = "rw"
    needs_labels: bool = False
    cite: str = "Gärtner et al., On graph kernels: hardness results and efficient alternatives, COLT 2003"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        here = Cost(store.num_edges * 1e-7 / 60, store.num_edges * 48 / 1e9)
        if store.node_label is not None:
            largest = float(store.sizes.max()) if store.num_graphs else 0.0
            work = store.num_nodes * float(store.num_edges + store.num_nodes * 4)
            here += Cost(work * 2e-8 / 60, store.num_nodes * largest * 32 / 1e9)
        return here + of_machine(store, 2, 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        matrix, ptr, labels = adjacency(store), pointers(store), node_labels(store)
        decay = decay_for(matrix)
        if labels is None:
            walks = np.stack(list(walk_counts(matrix, ptr, decay)), axis=1)
            return Kernels([*normalised_and_scaled(walks @ walks.T)])
        gram = np.zeros((store.num_graphs,) * 2)
        for g in range(store.num_graphs):
            pause()
            gram[g, g:] = common_walks(matrix, ptr, labels, decay, g)
        return Kernels([*normalised_and_scaled(gram + np.triu(gram, 1).T)])


def decay_for(matrix: sparse.csr_array) -> float:
    """The largest power of ten below 1 / d**2, d the largest degree."""
    degree = degrees(matrix)
    largest = int(degree.max()) if len(degree) else 0
    # In whole numbers: of degree 10, 1 / d**2 is itself a power of ten, which is not below.
    return 10.0 ** -len(str(largest**2)) if largest > 1 else 0.1


def walk_counts(matrix: sparse.csr_array, ptr: np.ndarray, decay: float) -> Iterator[np.ndarray]:
    r"""For t = 0, 1, ... the number of walks of t steps in each graph, times :math:`\lambda^{t/2}`."""
    reached = np.ones(matrix.shape[0])
    total = np.zeros(len(ptr) - 1)
    while True:
        now = _by_graph(reached, ptr)
        yield now
        total += now**2
        if (now**2 <= NEGLIGIBLE * total).all():
            return
        reached = np.sqrt(decay) * (matrix @ reached)


def common_walks(matrix: sparse.csr_array, ptr: np.ndarray, labels: np.ndarray, decay: float, graph: int) -> np.ndarray:
    """The kernel between one graph and each from it on, before normalising: ``[graphs - graph]``."""
    first, end = ptr[graph], ptr[graph + 1]
    ours = block(matrix, first, end)
    theirs = block(matrix, first, ptr[-1])
    equal = (labels[first:, None] == labels[None, first:end]).astype(np.float64)
    reached = equal  # a number for each node of the product graphs: [nodes of all, nodes of ours]
    total = np.zeros(len(ptr) - 1 - graph)
    while True:
        now = _by_graph(reached.sum(1), ptr[graph:] - first)
        total += now
        if (now <= NEGLIGIBLE * total).all():
            return total
        reached = theirs @ (reached @ ours)
        reached *= equal
        reached *= decay


def _by_graph(values: np.ndarray, ptr: np.ndarray) -> np.ndarray:
    running = np.concatenate([np.zeros(1), values])
    sums = np.add.reduceat(np.append(running, 0.0), ptr + 1)[:-1]
    return np.where(np.diff(ptr) > 0, sums, 0.0)
