import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from softmask.data.networkx import from_networkx
from softmask.errors import SettingError
from softmask.explain.statistics import ROLES, Structure, agreement, layer_statistics, rank_correlations, risers


@st.composite
def many_graphs(draw):
    seeds = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=4))
    return [nx.gnp_random_graph(2 + s % 9, draw(st.sampled_from([0.0, 0.2, 0.5, 1.0])), seed=s) for s in seeds]


def _masks(graphs, seed=0):
    draw = np.random.default_rng(seed)
    return draw.choice([0.0, 0.01, 0.2, 0.5, 0.9, 1.0], size=sum(map(len, graphs)))


def _split(values, graphs):
    return np.split(values, np.cumsum([len(g) for g in graphs])[:-1])


@given(graphs=many_graphs(), seed=st.integers(0, 100))
def test_correlations_are_those_of_scipy_graph_by_graph(graphs, seed):
    structure = Structure.of(from_networkx(graphs))
    mask = _masks(graphs, seed)
    found = rank_correlations(mask, structure.degree, structure.graph)
    for value, part, graph in zip(found, _split(mask, graphs), graphs, strict=True):
        degree = [d for _, d in graph.degree()]
        if np.ptp(part) == 0 or np.ptp(degree) == 0:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(spearmanr(part, degree).statistic)


@given(graphs=many_graphs())
def test_distances_are_those_of_networkx(graphs):
    structure = Structure.of(from_networkx(graphs))
    for found, roles, graph in zip(_split(structure.distance, graphs), _split(structure.role, graphs), graphs):
        degree = [d for _, d in graph.degree()]
        hub = int(np.argmax(degree))
        assert np.flatnonzero(roles == ROLES.index("hub")).tolist() == [hub]
        lengths = nx.single_source_shortest_path_length(graph, hub)
        assert found.tolist() == [lengths.get(v, -1) for v in graph]
        leaves = [v for v in graph if degree[v] == 1 and v != hub]
        assert np.flatnonzero(roles == ROLES.index("leaves")).tolist() == leaves


@given(graphs=many_graphs(), seed=st.integers(0, 100))
def test_numbers_of_a_layer_graph_by_graph(graphs, seed):
    mask = _masks(graphs, seed)
    structure = Structure.of(from_networkx(graphs))
    found = layer_statistics(mask, structure)
    parts, roles = _split(mask, graphs), _split(structure.role, graphs)
    assert found["within"]["mean"] == pytest.approx(np.mean([p.std() for p in parts]))
    assert found["within"]["std"] == pytest.approx(np.std([p.std() for p in parts]))
    assert found["closed"] == pytest.approx(np.mean(mask < 0.05))
    for r, name in enumerate(ROLES):
        shares = [p[q == r].sum() / p.sum() for p, q in zip(parts, roles) if p.sum()]
        means = [p[q == r].mean() for p, q in zip(parts, roles) if (q == r).any()]
        for key, values in (("share", shares), ("role", means)):
            assert found[key][name]["graphs"] == len(values)
            assert found[key][name]["mean"] == (pytest.approx(np.mean(values)) if values else None)
    assert sum(structure.role_shares().values()) == pytest.approx(1)


def test_masks_that_are_the_degree_or_the_distance():
    graphs = [nx.random_labeled_tree(30, seed=s) for s in range(3)]
    structure = Structure.of(from_networkx(graphs))
    rising = layer_statistics(structure.degree / 100, structure)["degree"]
    assert (rising["mean"], rising["std"], rising["graphs"]) == (pytest.approx(1), pytest.approx(0), 3)
    assert layer_statistics(1 - structure.degree / 100, structure)["degree"]["mean"] == pytest.approx(-1)
    assert layer_statistics(structure.distance / 100, structure)["distance"]["mean"] == pytest.approx(1)


def test_a_star():
    structure = Structure.of(from_networkx([nx.star_graph(9)]))
    numbers = layer_statistics(np.array([0.6] + [0.1] * 9), structure)
    assert {name: share["mean"] for name, share in numbers["share"].items()} == pytest.approx(
        {"leaves": 0.6, "between": 0.0, "hub": 0.4}
    )
    assert structure.role_shares() == pytest.approx({"leaves": 0.9, "between": 0.0, "hub": 0.1})
    assert numbers["role"]["between"] == {"mean": None, "std": None, "graphs": 0}
    assert numbers["at_distance"] == [0.6, pytest.approx(0.1), None, None]
    assert numbers["degree"]["mean"] == pytest.approx(1)


def test_rounding_of_the_arithmetic_does_not_decide_on_ranks():
    structure = Structure.of(from_networkx([nx.star_graph(200)]))
    noise = 1e-6 * np.random.default_rng(0).random(201)
    mask = np.array([0.0] + [0.7] * 200) + noise
    assert layer_statistics(mask, structure)["degree"]["mean"] == pytest.approx(-1)


def test_how_much_of_the_masks_a_label_explains():
    structure = Structure.of(from_networkx([nx.path_graph(4)]))
    mask = np.array([0.2, 0.2, 0.8, 0.8])
    assert layer_statistics(mask, structure, np.array([5, 5, 7, 7]))["label"] == pytest.approx(1)
    assert layer_statistics(mask, structure, np.array([5, 7, 5, 7]))["label"] == pytest.approx(0)
    # Means 0.45 and 0.65 around 0.55: 4 * 0.1 ** 2 of 0.25 ** 2 + 2 * 0.05 ** 2 + 0.15 ** 2.
    assert layer_statistics(np.array([0.3, 0.6, 0.6, 0.7]), structure, np.array([0, 0, 1, 1]))[
        "label"
    ] == pytest.approx(0.04 / 0.09)
    assert layer_statistics(np.full(4, 0.5), structure, np.array([0, 0, 1, 1]))["label"] is None
    assert "label" not in layer_statistics(mask, structure)


def test_nodes_that_rise():
    graph = np.zeros(6, dtype=int)
    up, down = np.linspace(0, 1, 6), np.linspace(1, 0, 6)
    assert risers(np.stack([up, up], axis=1), graph) == [0, 0]
    # The two lowest become the two highest, and stay counted.
    assert risers(np.stack([up, down, up], axis=1), graph) == pytest.approx([0, 1 / 3, 2 / 3])
    assert risers(np.full((6, 2), 0.5), graph) == [0, 0]


def test_a_rise_in_rank_is_none_if_the_mask_hardly_rose():
    graph = np.zeros(6, dtype=int)
    up, down = np.linspace(0, 1, 6), np.linspace(1, 0, 6)
    assert risers(0.5 + 0.09 * np.stack([up, down], axis=1), graph) == [0, 0]
    # From 0.5 to 0.6 counts for the lowest node; the next one rises from 0.52 to 0.58.
    assert risers(0.5 + 0.1 * np.stack([up, down], axis=1), graph) == pytest.approx([0, 1 / 6])
    # All masks fall, those of the lowest nodes least.
    assert risers(np.stack([0.5 + up / 10, down / 10], axis=1), graph) == [0, 0]
    # It is high in the second layer, but rises only up to the third.
    assert risers(0.5 + np.stack([0.09 * up, 0.09 * down, down / 2], axis=1), graph) == pytest.approx([0, 0, 1 / 3])


def test_agreement_of_models():
    graph = np.repeat([0, 1], 5)
    a = np.tile(np.linspace(0, 1, 5), 2)[:, None]
    same, opposite = agreement([a, a], graph), agreement([a, 1 - a], graph)
    assert same == [{"mean": pytest.approx(1), "std": pytest.approx(0), "graphs": 2}]
    assert opposite[0]["mean"] == pytest.approx(-1)
    assert agreement([a, a, 1 - a], graph)[0]["mean"] == pytest.approx(-1 / 3)
    assert agreement([a], graph) == [{"mean": None, "std": None, "graphs": 0}]


def test_values_of_other_lengths_are_refused():
    with pytest.raises(SettingError, match="2, 3 and 3 nodes"):
        rank_correlations([1, 2], [1, 2, 3], np.zeros(3, dtype=int))
