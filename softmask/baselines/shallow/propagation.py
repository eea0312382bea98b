"""The propagation kernel: how node labels spread."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, counts, degrees, graph_of_node, node_labels
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, normalised_and_scaled
from softmask.data.store import GraphStore
from softmask.errors import CannotRun


@dataclass(frozen=True)
class Propagation:
    r"""Counts of bins into which the label distributions of nodes fall, while labels spread over the graph.

    .. math:: P_{t+1} = D^{-1} A P_t, \qquad k(G, G') = \sum_{t < T} \langle \phi_t(G), \phi_t(G') \rangle

    :math:`P_0` is one-hot labels; a row p of :math:`P_t` falls into bin :math:`\lfloor (p \cdot u_t + b_t) / w \rfloor`
    with u Cauchy and b uniform, so that rows close in total variation share one. The number of steps T, 1 to ``steps``,
    and whether the kernel is normalised, which hides how large a graph is, are chosen within the training graphs. The
    width is that of the authors' code (run_default_PK.m). A node without neighbours has zeros from step 1 on.

    Needs node labels: without them there is nothing to spread.
    """

    steps: int = 6
    width: float = 1e-5
    seed: int = 0
    name: str = "pk"
    needs_labels: bool = True
    cite: str = "Neumann et al., Propagation kernels, Machine Learning 2016"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        labels = node_labels(store)
        kinds = int(labels.max()) + 1 if labels is not None and len(labels) else 1
        seconds = self.steps * (store.num_edges * kinds * 2e-9 + store.num_nodes * 1e-6 + store.num_graphs**2 * 5e-7)
        here = Cost(seconds / 60, (store.num_nodes * kinds * 24 + store.num_edges * 48) / 1e9)
        return here + of_machine(store, 2 * self.steps, 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        labels = node_labels(store)
        if labels is None:
            raise CannotRun(
                f"pk spreads node labels, and {store.info.get('name', 'this set')} has none; "
                "wl and rw also work without labels"
            )
        self.cost(store).check(self.name, store, force)
        kinds = int(labels.max()) + 1 if len(labels) else 1
        matrix, graph = adjacency(store), graph_of_node(store)
        random = np.random.RandomState(self.seed)
        gram = np.zeros((store.num_graphs,) * 2)
        grams: list[np.ndarray] = []
        for distribution in spread(labels, matrix, self.steps):
            direction, offset = random.randn(kinds) / random.randn(kinds), self.width * random.rand()
            bins = np.unique(in_bins(distribution, direction, offset, self.width), return_inverse=True)[1]
            gram += inner_products(counts(graph, bins, store.num_graphs), pause)
            grams += normalised_and_scaled(gram)
        return Kernels(grams)


def spread(labels: np.ndarray, matrix: sparse.csr_array, steps: int) -> list[np.ndarray]:
    """The label distribution of each node, ``[nodes, labels]``, after 0, 1, ... steps; as many as asked for."""
    degree = degrees(matrix)
    share = sparse.diags_array(np.divide(1.0, degree, out=np.zeros(len(degree)), where=degree > 0))
    walk = (share @ matrix).tocsr()
    found = [np.eye(int(labels.max()) + 1 if len(labels) else 1)[labels]]
    while len(found) < steps:
        found.append(walk @ found[-1])
    return found


def in_bins(distribution: np.ndarray, direction: np.ndarray, offset: float, width: float) -> np.ndarray:
    """The bin of each row along a random direction (locality-sensitive hashing)."""
    return np.floor((distribution @ direction + offset) / width)
