"""What goes into a store comes out again."""

import dataclasses
from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

from softmask.data.convert import (
    as_store,
    from_data,
    from_networkx,
    from_smiles,
    to_networkx,
    to_smiles,
    with_targets,
)
from softmask.errors import DataError

finite = st.floats(-1e6, 1e6, width=32)
integer = st.integers(-(2**31), 2**31 - 1)


@st.composite
def pyg_sets(draw) -> list[Data]:
    """Graphs with isolated nodes, self loops, parallel and one-way edges; all with the same fields."""
    kinds = {name: draw(st.sampled_from([None, "label", "attr", "both"])) for name in ("node", "edge")}
    columns = {name: draw(st.integers(1, 2)) for name in ("node", "edge")}
    target = draw(st.sampled_from([None, "class", "targets"]))
    both_ways = draw(st.booleans())
    out = []
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 5))
        node = st.integers(0, n - 1)
        edges = draw(st.lists(st.tuples(node, node), max_size=8))
        if both_ways:
            edges += [(v, u) for u, v in edges]
        data = Data(edge_index=torch.tensor(edges, dtype=torch.long).reshape(-1, 2).t(), num_nodes=n)
        for name, field, rows in (("node", "x", n), ("edge", "edge_attr", len(edges))):
            for kind, numbers, dtype in (("label", integer, torch.long), ("attr", finite, torch.float32)):
                if kinds[name] in (kind, "both"):
                    size = rows * columns[name]
                    table = torch.tensor(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=dtype)
                    key = field if kind == "attr" or kinds[name] == "label" else f"{name}_label"
                    data[key] = table.reshape(rows, columns[name])
        if target == "class":
            data.y = torch.tensor([draw(st.integers(-3, 10**12))])
        elif target == "targets":
            data.y = torch.tensor([[draw(st.floats(-1e6, 1e6)), draw(st.floats(-1e6, 1e6))]], dtype=torch.float64)
        out.append(data)
    return out


def edges_of(data: Data) -> Counter:
    """The edges with all they carry, however they are ordered."""
    rows = list(zip(*data.edge_index.tolist())) if data.edge_index.numel() else []
    for name in ("edge_attr", "edge_label"):
        if data.get(name) is not None:
            rows = [(*row, *values) for row, values in zip(rows, data[name].tolist())]
    return Counter(rows)


@given(pyg_sets())
def test_pyg_round_trip(graphs):
    store = from_data(graphs)
    for data, again in zip(graphs, store, strict=True):
        assert again.num_nodes == data.num_nodes
        assert set(again.keys()) == set(data.keys())
        assert edges_of(again) == edges_of(data)
        for name in ("x", "node_label", "y"):
            if data.get(name) is not None:
                assert again[name].dtype == data[name].dtype
                assert torch.equal(again[name], data[name])
    assert from_data(list(store)).content_hash() == store.content_hash()


@given(pyg_sets())
def test_networkx_round_trip(graphs):
    store = from_data(graphs)
    made = to_networkx(store)
    again = from_networkx(made)
    assert again.num_graphs == store.num_graphs
    assert again.directed == store.directed
    assert again.info == store.info
    # Labels of edges need edges to carry them; of parallel edges the order is free: compared below.
    for name, t in store.tensors().items():
        if name not in ("edge_label", "edge_attr"):
            assert torch.equal(again.tensors()[name].to(t.dtype), t), name
    if store.num_edges:
        assert [edges_of(data) for data in again] == [edges_of(data) for data in store]


@st.composite
def networkx_sets(draw) -> list[nx.Graph]:
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]))
    out = []
    for _ in range(draw(st.integers(1, 3))):
        graph = kind(y=draw(st.sampled_from(["yes", "no"])))
        names = draw(st.lists(st.one_of(st.integers(0, 9), st.text(max_size=2)), min_size=1, max_size=5, unique=True))
        for node in names:
            graph.add_node(
                node,
                label=draw(integer),
                attr=[draw(st.floats(-1, 1)), 0.5],
                role=draw(st.sampled_from("ab")),
            )
        for _ in range(draw(st.integers(0, 6))):
            graph.add_edge(
                draw(st.sampled_from(names)),
                draw(st.sampled_from(names)),
                label=draw(integer),
                attr=draw(st.floats(-1, 1)),
            )
        out.append(graph)
    return out


@given(networkx_sets())
def test_networkx_first(graphs):
    """Any kind of networkx graph: the one that comes back is the same, but for the names of its nodes."""
    back = to_networkx(from_networkx(graphs))
    for graph, again in zip(graphs, back, strict=True):
        renamed = nx.convert_node_labels_to_integers(graph)
        assert dict(again.nodes(data=True)) == dict(renamed.nodes(data=True))
        assert again.graph == graph.graph
        assert marked(again) == marked(renamed)


def marked(graph: nx.Graph) -> Counter:
    """All edges with their data, an undirected one both ways."""
    edges = [(u, v, d["label"], d["attr"]) for u, v, d in graph.edges(data=True)]
    if not graph.is_directed():
        edges += [(v, u, *rest) for u, v, *rest in edges if u != v]
    return Counter(edges)


def test_edges_that_differ_by_direction_stay_apart():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([[1], [2]]), num_nodes=2)
    (graph,) = to_networkx(from_data([data]))
    assert graph.is_directed()
    assert graph.edges[0, 1]["label"] == 1
    assert graph.edges[1, 0]["label"] == 2


@pytest.mark.parametrize(
    ("y", "classes"),
    [([3, -1, 3], [-1, 3]), (["b", "a", "b"], ["a", "b"]), ([True, False, True], [False, True])],
)
def test_classes_come_back(y, classes):
    store = from_networkx([nx.path_graph(2)] * 3, y)
    assert store.info["classes"] == classes
    assert [g.graph["y"] for g in to_networkx(store)] == y
    if not isinstance(y[0], str):
        assert [data.y.item() for data in store] == y


def test_targets_come_back():
    store = from_networkx([nx.path_graph(2)] * 2, np.array([[0.5, 1.0], [2.0, 3.0]]))
    assert [g.graph["y"] for g in to_networkx(store)] == [[0.5, 1.0], [2.0, 3.0]]
    assert from_networkx(to_networkx(store)).content_hash() == store.content_hash()


def test_edge_index_of_pyg_and_half_precision():
    index = EdgeIndex([[0, 1], [1, 0]], sparse_size=(2, 2), is_undirected=True)
    store = from_data([Data(edge_index=index, x=torch.ones(2, 1, dtype=torch.float16))])
    assert store.col.tolist() == [1, 0]
    assert store.node_attr.dtype == torch.float32


def graph_of(**fields) -> Data:
    return Data(**{"edge_index": torch.tensor([[0], [1]]), "num_nodes": 2, **fields})


BAD_DATA = {
    "nothing": ([], "no graphs"),
    "no edges": ([Data(x=torch.zeros(2, 1))], "graph 0 has no edge_index"),
    "outside": (
        [graph_of(), graph_of(edge_index=torch.tensor([[0], [2]]))],
        "graph 1 has an edge to a node outside 0 to 1",
    ),
    "negative": ([graph_of(edge_index=torch.tensor([[0], [-1]]))], "graph 0 has an edge to a node outside"),
    "shape": (
        [graph_of(edge_index=torch.zeros(3, 2, dtype=torch.long))],
        "graph 0: edge_index must be integers",
    ),
    "float edges": ([graph_of(edge_index=torch.zeros(2, 2))], "graph 0: edge_index must be integers"),
    "rows": ([graph_of(x=torch.zeros(3, 1))], "expected 2 rows"),
    "some": ([graph_of(x=torch.zeros(2, 1)), graph_of()], "graph 1 has no x, but others have"),
    "columns": ([graph_of(x=torch.zeros(2, 1)), graph_of(x=torch.zeros(2, 2))], "graph 1: x has 2 columns"),
    "kinds": (
        [graph_of(x=torch.zeros(2, 1)), graph_of(x=torch.zeros(2, 1).long())],
        "graph 1: x holds torch.int64",
    ),
    "nan": (
        [graph_of(x=torch.full((2, 1), torch.nan))],
        "graph 0: x has a value that is not a finite number",
    ),
    "complex": ([graph_of(x=torch.zeros(2, 1, dtype=torch.complex64))], "graph 0: x must be a plain tensor"),
    "large": ([graph_of(x=torch.full((2, 1), 2**40))], "1099511627776 is outside"),
    "some y": ([graph_of(y=1), graph_of()], "graph 1 has no y"),
    "nan y": ([graph_of(y=float("nan"))], "graph 0: y is not a finite number"),
    "word y": ([graph_of(y="a")], "graph 0: y must be numbers"),
    "two classes": ([graph_of(y=torch.tensor([1, 2]))], "2 integers a graph"),
    "lengths": ([graph_of(y=torch.ones(1)), graph_of(y=torch.ones(2))], "y differs in length"),
}


@pytest.mark.parametrize(("graphs", "message"), BAD_DATA.values(), ids=BAD_DATA.keys())
def test_bad_data(graphs, message):
    with pytest.raises(DataError, match=message):
        from_data(graphs)


def marks(*values, key="label") -> nx.Graph:
    graph = nx.Graph()
    for i, value in enumerate(values):
        graph.add_node(i, **({} if value is None else {key: value}))
    return graph


BAD_NETWORKX = {
    "some nodes": (marks(1, None), "graph 0: node 1 has no 'label', but others have"),
    "fraction": (marks(1, 1.5), "graph 0: node 1: label must be integers, not 1.5"),
    "word": (marks("C"), "graph 0: node 0: label must be integers, not 'C'"),
    "ragged": (marks([1, 2], [1]), "graph 0: node 1: label has 1 numbers, those before have 2"),
    "uneven": (marks([1, [2, 3]]), "label must be integers"),
    "nan": (marks(float("nan"), key="attr"), "attr must be finite numbers, not nan"),
    "none": (marks(0.5, "x", key="attr"), "graph 0: node 1: attr must be finite numbers, not 'x'"),
}


@pytest.mark.parametrize(("graph", "message"), BAD_NETWORKX.values(), ids=BAD_NETWORKX.keys())
def test_bad_networkx(graph, message):
    with pytest.raises(DataError, match=message):
        from_networkx([graph])


def test_bad_targets():
    store = from_networkx([nx.path_graph(2)] * 2)
    for y, message in (
        ([1], "2 graphs but 1 targets"),
        (1, "2 graphs but one targets"),
        ([0.5, float("inf")], "graph 1: its target is not a finite number"),
        ([[1, 2], [3, 4]], "a class is one value a graph"),
        ([None, "a"], "cannot be put in order"),
        ([[1.0], [1.0, 2.0]], "differ in length"),
    ):
        with pytest.raises(DataError, match=message):
            with_targets(store, y)


SMILES = ["C", "c1ccccc1O", "CC(=O)[O-].[Na+]", "C#N", "N[C@@H](C)C(=O)O", "[H][H]"]


def test_smiles():
    pytest.importorskip("rdkit")
    store = from_smiles(SMILES, y=[1.5, 2, 3, 4, 5, 6])
    assert to_smiles(store) == SMILES
    assert to_smiles(store.select([3, 0])) == ["C#N", "C"]
    assert from_smiles(to_smiles(store), y=store.y.numpy()).content_hash() == store.content_hash()
    acid = store[2]
    assert acid.node_label.reshape(-1).tolist() == [6, 6, 8, 8, 11]
    # aromatic, sp, sp2, sp3, hydrogens, charge, ring
    assert acid.x[3].tolist() == [0, 0, 1, 0, 0, -1, 0]
    assert acid.x[0].tolist() == [0, 0, 0, 1, 3, 0, 0]
    assert store[1].x[0].tolist() == [1, 0, 1, 0, 1, 0, 1]
    assert store[3].x[0].tolist() == [0, 1, 0, 0, 1, 0, 0]
    assert edges_of(acid) == Counter([(0, 1, 1), (1, 0, 1), (1, 2, 2), (2, 1, 2), (1, 3, 1), (3, 1, 1)])
    assert set(store[1].edge_attr.reshape(-1).tolist()) == {1, 12}


@given(st.lists(st.sampled_from(SMILES), min_size=1, max_size=6))
def test_smiles_round_trip(smiles):
    pytest.importorskip("rdkit")
    store = from_smiles(smiles)
    assert to_smiles(store) == smiles
    assert [data.num_nodes for data in store] == [from_smiles([s]).num_nodes for s in smiles]
    # Through PyG and networkx the molecules stay what they are.
    assert from_data(list(store), names=smiles).content_hash() == store.content_hash()
    if store.num_edges:
        back = from_networkx(to_networkx(store), names=smiles)
        back = dataclasses.replace(back, node_attr=back.node_attr.float())  # numbers of networkx are float64
        assert back.content_hash() == store.content_hash()


def test_bad_smiles(capfd):
    pytest.importorskip("rdkit")
    for text, message in (
        ("C1CC", "molecule 1: RDKit cannot read the SMILES 'C1CC'"),
        ("", "molecule 1: .* has no atoms"),
        ("C(C)(C)(C)(C)C", "molecule 1: .*valence"),
        # Of these RDKit by itself reads the first half.
        ("CC O", "molecule 1: RDKit cannot read"),
        ("CC\u00d6", "molecule 1: RDKit cannot read"),
    ):
        with pytest.raises(DataError, match=message):
            from_smiles(["C", text])
    assert capfd.readouterr() == ("", "")
    with pytest.raises(DataError, match="was not made from SMILES"):
        to_smiles(from_networkx([nx.path_graph(2)]))


def test_as_store():
    store = from_networkx([nx.path_graph(2)])
    assert as_store(store) is store
    assert as_store(list(store)).content_hash() == as_store([nx.path_graph(2)]).content_hash()
    assert as_store(["CC"]).num_nodes == 2
    for bad, message in (
        ("CC", "put it into a list"),
        (3, "must be"),
        ([], "no graphs"),
        (["C", nx.Graph()], "got Graph, str"),
    ):
        with pytest.raises(DataError, match=message):
            as_store(bad)
