"""DGK against its definition: loops over all pairs of colours, colours by networkx, a word2vec trained here again."""

from collections import Counter
from itertools import product

import networkx as nx
import numpy as np
import pytest
from baselines.shallow.random_graphs import labelled, molecules, store_of
from hypothesis import given, settings

from softmask.baselines.shallow.deep_kernel import LONGEST, DeepKernel, all_counts, texts_of, word_vectors
from softmask.baselines.shallow.graphs import adjacency, colours, graph_of_node, pointers
from softmask.baselines.shallow.weisfeiler_lehman import refine

few = settings(max_examples=15)


def words_of(store, depth=2):
    matrix = adjacency(store)
    rounds = refine(colours(store, matrix), matrix, depth)
    table = all_counts(rounds, graph_of_node(store), store.num_graphs)
    return texts_of(rounds, pointers(store)), table


@given(graphs=labelled())
@few
def test_a_text_has_the_colours_of_networkx(graphs):
    """Round 0 is the label; then hashes of subtrees. Two words are the same exactly if round and hash are."""
    texts, table = words_of(store_of(graphs))
    meaning = {}
    for graph, text, row in zip(graphs, texts, table.toarray(), strict=True):
        hashes = nx.weisfeiler_lehman_subgraph_hashes(graph, node_attr="label", iterations=2, digest_size=8)
        theirs = Counter((0, graph.nodes[v]["label"]) for v in graph)
        theirs += Counter((t + 1, hashes[v][t]) for v in graph for t in range(2))
        ours = Counter(text.tolist())
        assert sorted(ours.values()) == sorted(theirs.values())
        # Round after round, equal words beside each other.
        assert text.tolist() == sorted(text.tolist())
        assert {word: row[word] for word in ours} == ours
        assert row.sum() == len(text) == 3 * len(graph)
        for t in range(3):
            mine = sorted(n for w, n in ours.items() if w in text[t * len(graph) : (t + 1) * len(graph)])
            assert mine == sorted(n for (k, _), n in theirs.items() if k == t)
        meaning |= dict.fromkeys(text.tolist())
    everything = {(0, g.nodes[v]["label"]) for g in graphs for v in g}
    for g in graphs:
        found = nx.weisfeiler_lehman_subgraph_hashes(g, node_attr="label", iterations=2, digest_size=8)
        everything |= {(t + 1, found[v][t]) for v in g for t in range(2)}
    assert len(meaning) == len(everything)


def test_the_kernel_is_its_double_sum():
    pytest.importorskip("gensim")
    graphs, _ = molecules(seed=1)
    store = store_of(graphs[:6])
    texts, table = words_of(store)
    vectors = word_vectors(texts, table.shape[1], 4, window=5, seed=3)
    lengths = [np.sqrt((v**2).sum()) for v in vectors]
    full, diagonal = np.zeros((6, 6)), np.zeros((6, 6))
    for g, h in product(range(6), repeat=2):
        ours, theirs = Counter(texts[g].tolist()), Counter(texts[h].tolist())
        full[g, h] = sum(a * b * (vectors[i] @ vectors[j]) for i, a in ours.items() for j, b in theirs.items())
        diagonal[g, h] = sum(a * theirs[i] * lengths[i] for i, a in ours.items())
    found = DeepKernel(sizes=(4,), seed=3).prepare(store).grams
    for normal, scaled, expected in zip(found[::2], found[1::2], (full, diagonal), strict=True):
        size = np.sqrt(np.diag(expected))
        np.testing.assert_allclose(normal, expected / size[:, None] / size, atol=1e-5)
        np.testing.assert_allclose(scaled, expected / np.median(size**2), rtol=1e-5)


def test_vectors_are_those_of_word2vec_and_the_same_again():
    gensim = pytest.importorskip("gensim")
    texts = [np.array([0, 0, 1, 3]), np.array([1, 3, 3]), np.array([], dtype=int)]
    found = word_vectors(texts, 5, 3, window=2, seed=1)
    np.testing.assert_array_equal(found, word_vectors(texts, 5, 3, window=2, seed=1))
    assert not found[[2, 4]].any()
    assert found[[0, 1, 3]].any(axis=1).all()
    told = [[str(word) for word in text] for text in texts]
    model = gensim.models.Word2Vec(
        told, vector_size=3, window=2, min_count=0, sg=1, hs=1, negative=0, sample=0, workers=1, seed=1
    )
    for word in (0, 1, 3):
        np.testing.assert_allclose(found[word], model.wv[str(word)])


def test_long_texts_are_read_to_their_end():
    """gensim reads 10,000 words of a text and no more: without cutting it up, the last would keep its first vector."""
    pytest.importorskip("gensim")
    long = np.concatenate([np.zeros(LONGEST, dtype=int), np.repeat([1, 2], 50)])
    moved = word_vectors([long], 3, 4, window=5, seed=0) - word_vectors([np.arange(3)], 3, 4, window=5, seed=0)
    assert np.abs(moved[2]).max() > 1e-3


def test_rings_are_told_from_trees():
    pytest.importorskip("gensim")
    graphs, y = molecules(seed=0)
    scores = DeepKernel().prepare(store_of(graphs, labels=False)).fit(np.arange(30), y[:30], seed=0)(np.arange(30, 40))
    assert (scores.argmax(1) == y[30:]).mean() >= 0.9
