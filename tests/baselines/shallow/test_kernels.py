"""Gram matrices and features against GraKeL, networkx and plain float64 numpy."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
import torch
from baselines.shallow.random_graphs import (
    degree_labelled,
    grakel_gram,
    grakel_kernel,
    labelled,
    shuffled,
    store_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from softmask.baselines.shallow.anonymous_walks import AnonymousWalks, anonymous, random_walks
from softmask.baselines.shallow.fgsd import SpectralDistances, harmonic_distances
from softmask.baselines.shallow.graphlet import Graphlet, distinct_nodes, graphlet_shares, kinds, number_of_kinds
from softmask.baselines.shallow.graphs import adjacency
from softmask.baselines.shallow.propagation import Propagation
from softmask.baselines.shallow.random_walk import RandomWalk, common_walks, decay_for, walk_counts
from softmask.baselines.shallow.svm import SHARPNESS, linear_and_gaussian
from softmask.baselines.shallow.weisfeiler_lehman import WeisfeilerLehman
from softmask.data.store import GraphStore

few = settings(max_examples=20)


def assert_same(gram, wanted, of_any_unit):
    """Another unit of what is not normalised only shifts the range of C."""
    unit = wanted.diagonal().sum() / gram.diagonal().sum() if of_any_unit else 1.0
    np.testing.assert_allclose(gram * unit, wanted, rtol=1e-5, atol=1e-6)


def test_adjacency_is_simple_and_undirected():
    directed = GraphStore(
        node_ptr=torch.tensor([0, 2, 5]),
        row_ptr=torch.tensor([0, 2, 2, 2, 5, 5]),
        col=torch.tensor([0, 1, 0, 0, 2], dtype=torch.int32),  # a loop; an edge that stands twice
        row_ptr_t=torch.tensor([0, 1, 2, 4, 4, 5]),
        col_t=torch.tensor([0, 0, 1, 1, 1], dtype=torch.int32),
    )
    dense = adjacency(directed).toarray()
    assert np.argwhere(dense).tolist() == [[0, 1], [1, 0], [2, 3], [3, 2], [3, 4], [4, 3]]
    assert set(dense.ravel()) == {0.0, 1.0}


@given(graphs=labelled())
@few
def test_weisfeiler_lehman_is_that_of_grakel(graphs):
    for given_labels in (True, False):
        grams = WeisfeilerLehman(depth=3).prepare(store_of(graphs, given_labels)).grams
        for i, gram in enumerate(grams):
            kernel = grakel_kernel("WeisfeilerLehman", n_iter=i // 2 + 1, normalize=i % 2 == 0)
            wanted = grakel_gram(kernel, graphs if given_labels else degree_labelled(graphs))
            assert_same(gram, wanted, of_any_unit=i % 2 == 1)


@given(graphs=labelled())
@few
def test_propagation_is_that_of_grakel(graphs):
    # The bins follow from the same stream of random numbers only if labels are numbered alike.
    labels = sorted({label for graph in graphs for _, label in graph.nodes(data="label")})
    for graph in graphs:
        nx.set_node_attributes(graph, {v: labels.index(graph.nodes[v]["label"]) for v in graph}, "label")
    grams = Propagation(steps=4, seed=3).prepare(store_of(graphs)).grams
    for steps in (1, 4):
        for normalize, gram in zip((True, False), grams[2 * steps - 2 : 2 * steps], strict=True):
            kernel = grakel_kernel("Propagation", t_max=steps, w=1e-5, random_state=3, normalize=normalize)
            assert_same(gram, grakel_gram(kernel, graphs), of_any_unit=not normalize)


@given(graphs=labelled(max_nodes=5))
@few
def test_random_walk_is_that_of_grakel(graphs):
    store = store_of(graphs)
    matrix, ptr, labels = adjacency(store), store.node_ptr.numpy(), store.node_label[:, 0].numpy()
    decay = decay_for(matrix)
    plain = grakel_kernel("RandomWalk", lamda=decay, method_type="baseline")
    walks = np.stack(list(walk_counts(matrix, ptr, decay)), axis=1)
    wanted = grakel_gram(plain, graphs)
    np.testing.assert_allclose(walks @ walks.T, wanted, rtol=1e-6)
    normal, scaled = RandomWalk().prepare(store_of(graphs, labels=False)).grams
    length = np.sqrt(wanted.diagonal())
    assert_same(normal, wanted / length[:, None] / length, of_any_unit=False)
    assert_same(scaled, wanted, of_any_unit=True)
    product = grakel_gram(grakel_kernel("RandomWalkLabeled", lamda=decay, method_type="baseline"), graphs)
    sizes = np.diff(ptr)
    for g in range(len(graphs)):
        ours = common_walks(matrix, ptr, labels, decay, g)
        for other in range(g, len(graphs)):
            # GraKeL counts pairs of unequal labels as walks of no step; the product graph does not have them.
            a, b = (labels[ptr[i] : ptr[i + 1]] for i in (g, other))
            unequal = sizes[g] * sizes[other] - (a[:, None] == b).sum()
            assert ours[other - g] == pytest.approx(product[g, other] - unequal, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("degree", "wanted"), [(0, 0.1), (1, 0.1), (3, 0.1), (4, 0.01), (10, 0.001), (31, 1e-3)])
def test_decay_is_the_largest_power_of_ten_below(degree, wanted):
    star = sparse.csr_array(nx.to_numpy_array(nx.star_graph(degree)))
    assert decay_for(star) == pytest.approx(wanted)


@given(graphs=labelled(min_nodes=4, max_nodes=6, graphs=3))
@settings(max_examples=10)
def test_graphlets_of_all_subsets_are_those_of_networkx(graphs):
    for k in (3, 4):
        named = [g for g in nx.graph_atlas_g() if len(g) == k]
        assert number_of_kinds(k) == len(named)
        for graph in graphs:
            nodes = np.array(list(combinations(range(len(graph)), k)))
            dense = nx.to_numpy_array(graph).astype(bool)
            shares = graphlet_shares(dense, nodes)
            kind = [next(i for i, g in enumerate(named) if nx.is_isomorphic(g, graph.subgraph(s))) for s in nodes]
            assert sorted(shares[shares > 0]) == pytest.approx(
                sorted(np.unique(kind, return_counts=True)[1] / len(nodes))
            )


def test_graphlet_kinds_are_the_graphs_of_five_nodes():
    assert number_of_kinds(5) == 34
    assert len(kinds(5)) == 1024


@given(n=st.integers(5, 40), seed=st.integers(0, 1000))
@few
def test_sampled_nodes_differ_and_every_subset_is_as_likely(n, seed):
    chosen = distinct_nodes(np.random.default_rng(seed).random((300, 4)), n)
    assert chosen.min() >= 0
    assert chosen.max() < n
    assert all(len(set(row)) == 4 for row in chosen)
    # All numbers of the first places, each once: a bijection from places to subsets in order.
    grid = np.stack(np.meshgrid(*((np.arange(5 - i) + 0.5) / (5 - i) for i in range(3))), axis=-1).reshape(-1, 3)
    assert len({tuple(row) for row in distinct_nodes(grid, 5)}) == 60


def test_sampled_graphlets_come_close_to_all_of_them():
    graph = nx.gnp_random_graph(15, 0.4, seed=1)
    dense = nx.to_numpy_array(graph).astype(bool)
    every = graphlet_shares(dense, np.array(list(combinations(range(15), 4))))
    draws = np.random.default_rng(0).random((20000, 4))
    # Twenty thousand samples: five standard errors of a share are below 0.018.
    np.testing.assert_allclose(graphlet_shares(dense, distinct_nodes(draws, 15)), every, atol=0.018)


@given(graphs=labelled(max_nodes=9))
@few
def test_harmonic_distances_by_eigenvectors(graphs):
    for graph in graphs:
        adjacent = nx.to_numpy_array(graph)
        values, vectors = np.linalg.eigh(np.diag(adjacent.sum(1)) - adjacent)
        wanted = np.zeros_like(adjacent)
        for value, vector in zip(values, vectors.T):
            if value > 1e-9:
                wanted += (vector[:, None] - vector) ** 2 / value
        np.testing.assert_allclose(harmonic_distances(sparse.csr_array(adjacent)), wanted, atol=1e-9)


def test_harmonic_distance_is_the_resistance():
    # On a tree the length of the path; on a circle of 6, one edge beside five: 5/6.
    tree = harmonic_distances(sparse.csr_array(nx.to_numpy_array(nx.path_graph(5))))
    assert tree[0, 4] == pytest.approx(4)
    circle = harmonic_distances(sparse.csr_array(nx.to_numpy_array(nx.cycle_graph(6))))
    assert circle[0, 1] == pytest.approx(5 / 6)


def test_spectral_histogram_counts_pairs():
    graphs = [nx.path_graph(3), nx.path_graph(4), nx.path_graph(2)]
    grams = SpectralDistances(widths=(0.1,)).prepare(store_of(graphs, labels=False)).grams
    # Distances 1, 1, 2, and 1, 1, 1, 2, 2, 3, and 1.
    a, b, c = np.array([2, 1, 0]), np.array([3, 2, 1]), np.array([1, 0, 0])
    assert grams[0][0, 1] == pytest.approx(a @ b / np.sqrt(a @ a * (b @ b)), rel=1e-6)
    # Squared distances 3, 2 and 9: 3 is the median.
    for sharpness, gram in zip((0.1, 1, 10), grams[1:], strict=True):
        for (i, x), (j, y) in combinations(enumerate((a, b, c)), 2):
            assert gram[i, j] == pytest.approx(np.exp(-sharpness * ((x - y) ** 2).sum() / 3), rel=1e-5)


@given(rows=arrays(np.int64, st.tuples(st.integers(1, 8), st.just(3)), elements=st.integers(0, 5)))
@few
def test_gaussian_kernels_are_those_of_scikit_learn(rows):
    linear, *gaussian = linear_and_gaussian((rows @ rows.T).astype(float))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0)
    np.testing.assert_allclose(linear, unit @ unit.T, atol=1e-6)
    squared = [d for a, b in combinations(rows, 2) if (d := int(((a - b) ** 2).sum()))]
    for sharpness, gram in zip(SHARPNESS, gaussian, strict=True):
        wanted = rbf_kernel(rows.astype(float), gamma=sharpness / np.median(squared) if squared else 1.0)
        np.testing.assert_allclose(gram, wanted, atol=1e-6)


def exact_anonymous(graph: nx.Graph, steps: int) -> dict[tuple[int, ...], float]:
    """The distribution of anonymous walks, by following every walk."""
    able = [v for v in graph if graph.degree(v)]
    walks = [((v,), 1 / len(able)) for v in able]
    for _ in range(steps):
        walks = [((*w, u), p / graph.degree(w[-1])) for w, p in walks for u in graph[w[-1]]]
    shares: dict[tuple[int, ...], float] = {}
    for walk, p in walks:
        pattern = tuple(walk.index(v) for v in walk)
        shares[pattern] = shares.get(pattern, 0) + p
    return shares


@pytest.mark.parametrize("graph", [nx.house_graph(), nx.path_graph(4), nx.star_graph(3)])
def test_anonymous_walks_come_close_to_all_of_them(graph):
    wanted = exact_anonymous(graph, 4)
    draws = np.random.default_rng(0).random((5, 20000))
    met = anonymous(random_walks(sparse.csr_array(nx.to_numpy_array(graph)), draws))
    patterns, times = np.unique(met, axis=1, return_counts=True)
    found = {tuple(p.tolist()): t / 20000 for p, t in zip(patterns.T, times)}
    assert found.keys() == wanted.keys()
    for pattern, share in wanted.items():
        assert found[pattern] == pytest.approx(share, abs=0.018), pattern


def test_anonymous_walks_are_counted_by_nodes():
    """Two houses have the shares of one, and twice as many nodes; a node without neighbours counts for nothing."""
    graphs = [nx.house_graph(), nx.disjoint_union(nx.house_graph(), nx.house_graph()), nx.path_graph(4)]
    patterns = sorted({p for graph in graphs for p in exact_anonymous(graph, 4)})
    rows = np.array([[len(g) * exact_anonymous(g, 4).get(p, 0.0) for p in patterns] for g in graphs])
    graphs[0].add_node("alone")
    found = AnonymousWalks(lengths=(4,), walks=20000).prepare(store_of(graphs, labels=False)).grams
    for gram, wanted in zip(found, linear_and_gaussian(rows @ rows.T), strict=True):
        np.testing.assert_allclose(gram, wanted, atol=0.03)
    assert found[0][0, 1] > 0.99
    assert found[2][0, 1] < 0.8


def test_anonymous_walks_tell_regular_graphs_apart():
    # Both have degree 2 throughout, and no other statistic of degrees differs: only triangles close in three steps.
    graphs = [nx.disjoint_union(nx.cycle_graph(3), nx.cycle_graph(3)), nx.cycle_graph(6)]
    gram = AnonymousWalks(lengths=(4,), walks=2000).prepare(store_of(graphs, labels=False)).grams[0]
    assert gram[0, 1] < 0.95


@given(graphs=labelled(), seed=st.integers(0, 100))
@few
def test_the_order_of_nodes_does_not_matter(graphs, seed):
    # The sampled ones are the same in distribution only: above.
    one, other = store_of(graphs), store_of(shuffled(graphs, seed))
    for baseline in (WeisfeilerLehman(), Propagation(), RandomWalk(), SpectralDistances()):
        for a, b in zip(baseline.prepare(one).grams, baseline.prepare(other).grams, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=baseline.name)


@given(graphs=labelled())
@few
def test_gram_matrices_are_kernels(graphs):
    store = store_of(graphs)
    baselines = WeisfeilerLehman(), Propagation(), RandomWalk(), SpectralDistances()
    sampled = Graphlet(samples=50), AnonymousWalks(walks=50)
    for baseline in (*baselines, *sampled):
        for gram in baseline.prepare(store).grams:
            np.testing.assert_allclose(gram, gram.T, atol=1e-6)
            assert np.linalg.eigvalsh(gram.astype(np.float64)).min() > -1e-5, baseline.name
            if baseline.name in ("fgsd", "gk", "awe"):
                assert set(np.round(gram.diagonal(), 5)) <= {0.0, 1.0}


def test_a_graph_has_the_same_features_in_any_set():
    graphs = [nx.cycle_graph(7), nx.path_graph(8), nx.complete_graph(6), nx.star_graph(5)]
    whole, part = store_of(graphs, labels=False), store_of(graphs[1:], labels=False)
    for baseline in (WeisfeilerLehman(), SpectralDistances()):
        pairs = zip(baseline.prepare(whole).grams, baseline.prepare(part).grams, strict=True)
        for i, (a, b) in enumerate(pairs):
            a, b = a[1:, 1:].astype(np.float64), b.astype(np.float64)
            if baseline.name == "fgsd" and i % 4:  # Gaussian: of distances, in units that follow from all graphs
                a, b = -np.log(a), -np.log(b)
            if i % 4 if baseline.name == "fgsd" else i % 2:  # not normalised: in such units, too
                a *= b.sum() / a.sum()
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6, err_msg=baseline.name)


def test_graphs_without_nodes_or_edges():
    graphs = [nx.empty_graph(0), nx.empty_graph(3), nx.path_graph(6)]
    store = store_of(graphs, labels=False)
    for baseline in (WeisfeilerLehman(), Graphlet(), RandomWalk(), SpectralDistances(), AnonymousWalks()):
        for gram in baseline.prepare(store).grams:
            assert np.isfinite(gram).all(), baseline.name
            assert gram[2, 2] > 0, baseline.name
            # Without features: alike to nothing, or in a Gaussian kernel as the zero vector is.
            assert not gram[0].any() or gram[0, 0] == 1 > gram[0, 2] > 0, baseline.name
