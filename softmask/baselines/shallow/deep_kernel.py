"""DGK, the deep Weisfeiler-Lehman kernel: colours as words, graphs as texts."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from softmask.baselines.shallow.cost import Cost, of_machine
from softmask.baselines.shallow.graphs import adjacency, colours, counts, graph_of_node, pointers
from softmask.baselines.shallow.protocol import Pause, no_pause
from softmask.baselines.shallow.svm import Kernels, inner_products, normalised_and_scaled
from softmask.baselines.shallow.weisfeiler_lehman import refine
from softmask.data.store import GraphStore
from softmask.errors import CannotRun

# Of a longer text, gensim reads only so many words.
LONGEST = 10_000


@dataclass(frozen=True)
class DeepKernel:
    r"""The Weisfeiler-Lehman kernel with a learned matrix between colours,

    .. math:: k(G, G') = \phi(G)^\top \mathbf{M} \, \phi(G')

    with :math:`\phi(G)` how often each colour of the rounds 0 to ``depth`` occurs in G, and :math:`v_i` a vector for
    each colour by word2vec (skip-gram, hierarchical softmax): a graph is a text, its words are its colours, round after
    round, equal ones beside each other. M has the two forms of the authors' code (deep_kernel.py): full, with
    :math:`\mathbf{M}_{ij} = \langle v_i, v_j \rangle`, or diagonal, with :math:`\mathbf{M}_{ii} = \lVert v_i \rVert`.
    The form, the size of the vectors and whether the kernel is normalised are chosen within the training graphs. A set
    without labels begins with degrees, as for ``wl``.

    This is one of the paper's three kernels; the other two have graphlets and shortest paths for words.
    """

    depth: int = 2
    sizes: tuple[int, ...] = (5, 25)
    window: int = 5
    seed: int = 0
    name: str = "dgk"
    needs_labels: bool = False
    cite: str = "Yanardag and Vishwanathan, Deep graph kernels, KDD 2015 (of Weisfeiler-Lehman colours)"

    def cost(self, store: GraphStore) -> Cost:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        words = store.num_nodes * (self.depth + 1)
        here = Cost(words * len(self.sizes) * 8e-5 / 60, (store.num_edges * 48 + words * 700) / 1e9)
        return here + of_machine(store, 4 * len(self.sizes), 4)

    def prepare(self, store: GraphStore, force: bool = False, pause: Pause = no_pause) -> Kernels:
        """See :class:`~softmask.baselines.shallow.protocol.Shallow`."""
        self.cost(store).check(self.name, store, force)
        matrix, graph = adjacency(store), graph_of_node(store)
        rounds = refine(colours(store, matrix), matrix, self.depth)
        texts, table = texts_of(rounds, pointers(store)), all_counts(rounds, graph, store.num_graphs)
        grams: list[np.ndarray] = []
        for size in self.sizes:
            pause()
            vectors = word_vectors(texts, table.shape[1], size, self.window, self.seed)
            # K = (phi V)(phi V)': the full M, as large as the square of all colours, is never made.
            sums = table @ vectors
            weighted = table @ sparse.diags_array(np.sqrt(np.linalg.norm(vectors, axis=1)))
            for gram in (sums @ sums.T, inner_products(weighted.tocsr(), pause)):
                grams += normalised_and_scaled(gram)
        return Kernels(grams)


def all_counts(rounds: list[np.ndarray], graph: np.ndarray, num_graphs: int) -> sparse.csr_array:
    """How often each colour of each round occurs in each graph, ``[graphs, colours]``, round after round."""
    return sparse.hstack([counts(graph, colour, num_graphs) for colour in rounds], format="csr")


def texts_of(rounds: list[np.ndarray], ptr: np.ndarray) -> list[np.ndarray]:
    """The colours of each graph, numbered through all rounds, sorted: the words of its text."""
    first = np.cumsum([0, *(int(c.max(initial=0)) + 1 for c in rounds[:-1])])
    words = np.stack([colour + start for colour, start in zip(rounds, first)])
    return [np.sort(words[:, a:b], axis=1).reshape(-1) for a, b in pairwise(ptr)]


def word_vectors(texts: list[np.ndarray], words: int, size: int, window: int, seed: int) -> np.ndarray:
    """A vector for each word, ``[words, size]``: zero for a word that no text has."""
    try:
        from gensim.models import Word2Vec
    except ImportError:
        raise CannotRun("dgk learns vectors with gensim: pip install 'softmask[dgk]'") from None
    pieces = [
        [str(word) for word in text[start : start + LONGEST]]
        for text in texts
        for start in range(0, len(text), LONGEST)
    ]
    found = np.zeros((words, size))
    if pieces:
        settings: dict[str, Any] = {"vector_size": size, "window": window, "min_count": 0, "sg": 1, "hs": 1}
        # With more than one thread the result would depend on which is faster.
        model = Word2Vec(pieces, **settings, negative=0, sample=0, workers=1, seed=seed)
        found[[int(word) for word in model.wv.index_to_key]] = model.wv.vectors
    return found
