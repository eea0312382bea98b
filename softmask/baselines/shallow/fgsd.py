"""FGSD: the histogram of spectral distances between nodes."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, block, counted, pointers
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, linear_and_gaussian
from softmask.data.store import GraphStore

EDGE = 1 / np.sqrt(3)
"""Where a bin begins. The distances are rational: none of them lies on an irrational edge, to be rounded by chance."""


@dataclass(frozen=True)
class SpectralDistances:
    r"""How often each distance occurs between two nodes of a graph, in bins, with the harmonic spectral distance

    .. math:: S(x, y) = \sum_{k: \lambda_k > 0} \frac{1}{\lambda_k} (\varphi_k(x) - \varphi_k(y))^2

    over eigenvalues and eigenvectors of the Laplacian :math:`L = D - A`: the effective resistance, if x and y are
    connected. The kernel of two histograms is linear, normalised, or Gaussian, of the counts, as in the authors' code
    (fgsd_svm_demo.py); that and the width of the bins are chosen within the training graphs. Node labels are not
    looked at. The cost is cubic in the nodes of a graph.
    """

    widths: tuple[float, ...] = (0.001, 0.01, 0.1)
    name: str = "fgsd"
    needs_labels: bool = False
    cite: str = "Verma and Zhang, Hunt for the unique, stable, sparse and fast feature learning on graphs, NIPS 2017"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        nodes = store.sizes.double()
        squared, cubed = float((nodes**2).sum()), float((nodes**3).sum())
        largest = float(nodes.max()) if store.num_graphs else 0.0
        seconds = cubed * 4e-10 + squared * len(self.widths) * 1e-7 + store.num_graphs * 5e-4
        # As many bins as pairs of nodes, or as there are up to a distance of 20, which few graphs exceed.
        bins = sum(float((nodes**2 / 2).clamp(max=20 / width).sum()) for width in self.widths)
        here = Cost(seconds / 60, (largest**2 * 40 + bins * 40) / 1e9)
        return here + of_machine(store, 4 * len(self.widths), 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        matrix, ptr = adjacency(store), pointers(store)
        found: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in self.widths]
        for g in range(store.num_graphs):
            pause()
            distance = harmonic_distances(block(matrix, ptr[g], ptr[g + 1]))
            distance = distance[np.triu_indices(len(distance), 1)]
            for width, histogram in zip(self.widths, found):
                histogram.append(np.unique(np.floor(distance / width + EDGE), return_counts=True))
        grams = (inner_products(counted(histogram), pause) for histogram in found)
        return Kernels([kernel for gram in grams for kernel in linear_and_gaussian(gram)])


def harmonic_distances(matrix: sparse.csr_array) -> np.ndarray:
    """The distance between every two nodes of one graph, ``[nodes, nodes]``.

    With P the projection onto vectors constant on each component, the pseudoinverse of L is (L + P)^-1 - P: one
    Cholesky factorisation instead of an eigendecomposition.
    """
    if matrix.shape[0] == 0:
        return np.zeros((0, 0))
    part = connected_components(matrix, directed=False)[1]
    same = (part[:, None] == part) / np.bincount(part)[part]
    laplacian = np.diag(matrix.sum(axis=1)) - matrix.toarray()
    inverse = cho_solve(cho_factor(laplacian + same), np.eye(len(same))) - same
    own = inverse.diagonal()
    return own[:, None] + own - 2 * inverse
