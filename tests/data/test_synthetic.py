import networkx as nx
import numpy as np
import pytest
import torch

from softmask.data import Features
from softmask.data.convert import to_networkx
from softmask.data.splits import holdout
from softmask.data.synthetic import SYNTHETIC, ba2motifs, hierarchy, motif
from softmask.errors import SettingError
from softmask.nn import SoftMaskGNN

both = pytest.mark.parametrize("name", ["hierarchy", "motif"])
every = pytest.mark.parametrize("name", list(SYNTHETIC))


@every
def test_shape_of_the_set(name):
    store = SYNTHETIC[name](60, seed=5)
    assert store.num_graphs == 60
    assert not store.directed
    assert torch.bincount(store.y).tolist() == [30, 30]
    assert len(store.info["classes"]) == len(store.info["roles"]) == 2
    assert (store.info["name"], store.info["seed"]) == (name, 5)
    assert store.info["source"].startswith(f"softmask.data.synthetic.{name}(num_graphs=60, seed=5")
    assert store.node_role.dtype == torch.int8
    for graph in to_networkx(store):
        assert type(graph) is nx.Graph  # no edge twice
        assert nx.number_of_selfloops(graph) == 0
        assert nx.is_connected(graph)


@every
def test_the_seed_decides_everything_and_a_small_set_begins_a_large_one(name):
    make = SYNTHETIC[name]
    assert make(20, seed=1).content_hash() == make(20, seed=1).content_hash()
    assert not torch.equal(make(20, seed=1).col[:50], make(20, seed=2).col[:50])
    begin = make(50, seed=1).select(range(20))
    for key, tensor in make(20, seed=1).tensors().items():
        assert torch.equal(tensor, getattr(begin, key))


@pytest.mark.parametrize(
    ("name", "digest"),
    [("hierarchy", "aa8f9ba2cc416538"), ("motif", "a8cc72f4868e9e82"), ("ba2motifs", "dd5dd9708ce0db66")],
)
def test_sets_are_the_same_on_every_machine(name, digest):
    """The digests were recorded once; another version of a library must not change the graphs."""
    assert SYNTHETIC[name](50, seed=0).content_hash()[:16] == digest


def test_hierarchy_joins_its_parts_through_roots():
    store = hierarchy(40, seed=3)
    for data, graph in zip(store, to_networkx(store), strict=True):
        roots = np.flatnonzero(data.node_role.numpy())
        circle = graph.subgraph(roots)
        assert nx.is_isomorphic(circle, nx.cycle_graph(len(roots)))
        parts = graph.copy()
        parts.remove_edges_from(circle.edges)
        kind = {}
        for nodes in nx.connected_components(parts):
            part = parts.subgraph(nodes)
            (root,) = nodes & set(roots.tolist())
            clique = nx.is_isomorphic(part, nx.complete_graph(len(nodes)))
            assert clique or nx.is_isomorphic(part, nx.star_graph(len(nodes) - 1))
            assert clique or part.degree(root) == 1
            kind[root] = clique
        assert sum(kind.values()) * 2 == len(roots)
        unlike = sum(kind[u] != kind[v] for u, v in circle.edges)
        # Where the circle changes kind: everywhere, or at the two seams.
        expected = {"alternating": len(roots), "grouped": 2}
        assert unlike == expected[store.info["classes"][int(data.y)]]


def test_motif_is_the_one_of_its_class_and_hangs_by_one_edge():
    store = motif(40, seed=3)
    # networkx's own house, and K(2,3).
    shapes = {"house": nx.house_graph(), "biclique": nx.complete_bipartite_graph(2, 3)}
    for data, graph in zip(store, to_networkx(store), strict=True):
        planted = set(np.flatnonzero(data.node_role.numpy()).tolist())
        assert nx.is_isomorphic(graph.subgraph(planted), shapes[store.info["classes"][int(data.y)]])
        assert len(list(nx.edge_boundary(graph, planted))) == 1
        assert 5 * len(planted) <= data.num_nodes - len(planted) <= 10 * len(planted)
        assert nx.is_connected(graph.subgraph(set(graph) - planted))


def test_ba2motifs_hang_a_house_or_a_cycle_on_a_tree():
    store = ba2motifs(40, seed=3)
    shapes = {"house": nx.house_graph(), "cycle": nx.cycle_graph(5)}
    for data, graph in zip(store, to_networkx(store), strict=True):
        planted = set(np.flatnonzero(data.node_role.numpy()).tolist())
        assert nx.is_isomorphic(graph.subgraph(planted), shapes[store.info["classes"][int(data.y)]])
        assert len(list(nx.edge_boundary(graph, planted))) == 1
        rest = graph.subgraph(set(graph) - planted)
        assert len(rest) == 20
        assert nx.is_tree(rest)


def test_ba2motifs_attach_in_proportion_to_the_degree():
    """The third node joins either end of one edge; the fourth the middle of a path of three half the time."""
    store = ba2motifs(2000, seed=1, background=(5, 5))
    middle = []
    for data, graph in zip(store, to_networkx(store), strict=True):
        rest = graph.subgraph(np.flatnonzero(data.node_role.numpy() == 0).tolist())
        middle.append(max(d for _, d in rest.degree))
    # Trees of 5 nodes: the star with the chance 1/2 * 3/6, the path with 1/2 * 2/6.
    shares = np.bincount(middle, minlength=5)[2:] / len(middle)
    np.testing.assert_allclose(shares, [1 / 6, 7 / 12, 1 / 4], atol=4 * 0.5 / np.sqrt(2000))


def test_background_without_extra_edges_is_a_tree():
    store = motif(10, background=(6, 6), extra_edges=0.0)
    for data, graph in zip(store, to_networkx(store), strict=True):
        assert nx.is_tree(graph.subgraph(np.flatnonzero(data.node_role.numpy() == 0)))


@every
def test_three_rounds_of_colour_refinement_tell_the_classes_apart(name):
    """1-WL bounds what message passing can tell apart, so it must be enough, within the model's layers."""
    store = SYNTHETIC[name](100)
    seen: list[set] = [set(), set()]
    for y, graph in zip(store.y.tolist(), to_networkx(store), strict=True):
        colour = dict(graph.degree)
        for _ in range(3):
            colour = {v: hash((colour[v], tuple(sorted(colour[u] for u in graph[v])))) for v in graph}
        seen[y].add(tuple(sorted(colour.values())))
    assert not seen[0] & seen[1]


def test_motifs_have_the_same_degrees(monkeypatch):
    """The same draws with the other motif: every graph keeps the degrees of its nodes."""
    import softmask.data.synthetic as module

    mine = motif(20)
    house, biclique = module.HOUSE, module.BICLIQUE
    monkeypatch.setattr(module, "HOUSE", biclique)
    monkeypatch.setattr(module, "BICLIQUE", house)
    other = motif(20)
    assert not torch.equal(mine.col, other.col)
    assert torch.equal(mine.degree(), other.degree())


@both
def test_counts_and_degrees_stay_near_chance(name):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    store = SYNTHETIC[name](1000)
    degree, graph = store.degree(), store.batch
    table = torch.zeros(1000, int(degree.max()) + 1)
    table.index_put_((graph, degree), torch.ones(len(graph)), accumulate=True)
    edges = (table * torch.arange(table.size(1))).sum(dim=1, keepdim=True)
    x = torch.cat([store.sizes.unsqueeze(1), edges, table], dim=1).numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    folds = StratifiedKFold(10, shuffle=True, random_state=0)
    accuracy = cross_val_score(model, x, store.y.numpy(), cv=folds).mean()
    # 1000 fair coins stay within four standard deviations of one half, but once in 16000 times.
    assert abs(accuracy - 0.5) < 4 * 0.5 / np.sqrt(1000)


@pytest.mark.slow
@both
def test_soft_mask_networks_solve_it(name):
    store = SYNTHETIC[name](500, seed=1)
    train, test = holdout(store.y, (0.8, 0.2), seed=0)
    features = Features.of(store)
    torch.manual_seed(0)
    model = SoftMaskGNN(features.channels, 32, 4, 2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    rng = np.random.default_rng(0)

    def logits(ids):
        batch = store.select(ids)
        return model(features(batch), torch.stack(batch.edges()), batch.batch), batch.y

    for epoch in range(60):
        for ids in np.array_split(rng.permutation(train), len(train) // 32):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(*logits(ids)).backward()
            optimizer.step()
        # It may stop early, but on what it has learned from alone.
        if epoch % 4 == 3:
            with torch.no_grad():
                out, y = logits(train)
            if (out.argmax(dim=1) == y).float().mean() > 0.995:
                break
    with torch.no_grad():
        out, y = logits(test)
    accuracy = float((out.argmax(dim=1) == y).float().mean())
    assert accuracy >= 0.95


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (hierarchy, {"num_graphs": 1}),
        (hierarchy, {"num_graphs": 10.0}),
        (hierarchy, {"seed": -1}),
        (hierarchy, {"seed": "0"}),
        (hierarchy, {"parts": (2, 8)}),
        (hierarchy, {"parts": (4, 7)}),
        (hierarchy, {"parts": (8, 4)}),
        (hierarchy, {"parts": 4}),
        (hierarchy, {"leaves": (1, 3)}),
        (hierarchy, {"leaves": (2, 3, 4)}),
        (ba2motifs, {"num_graphs": 1}),
        (ba2motifs, {"background": (4, 9)}),
        (motif, {"num_graphs": 0}),
        (motif, {"background": (4, 9)}),
        (motif, {"background": (9, 8)}),
        (motif, {"extra_edges": -0.1}),
        (motif, {"extra_edges": float("nan")}),
        (motif, {"extra_edges": None}),
    ],
)
def test_wrong_settings_name_themselves(make, wrong):
    (name,) = wrong
    with pytest.raises(SettingError, match=f"{name}="):
        make(**wrong)


@every
def test_numpy_integers_are_whole_numbers_too(name):
    mine = SYNTHETIC[name](np.int64(4), seed=np.int64(2))
    assert mine.content_hash() == SYNTHETIC[name](4, seed=2).content_hash()
