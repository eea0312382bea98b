import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import examples, graphs
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.transforms import ToSparseTensor

from softmask.ops import Neighbours, as_neighbours


def rows(start, end, col, base):
    """The sorted entries of every row, by hand."""
    out = []
    for v in range(len(start)):
        add = 0 if base is None else int(base[v])
        out.append(sorted(int(c) + add for c in col[int(start[v]) : int(end[v])]))
    return out


def lists(neighbours: Neighbours):
    return rows(*neighbours[:4])


def expected_lists(graph):
    out = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edges:
        out[target].append(source)
    return [sorted(row) for row in out]


def turned(graph):
    out = [[] for _ in range(graph.num_nodes)]
    for source, target in graph.edges:
        out[source].append(target)
    return [sorted(row) for row in out]


@examples(50)
@given(graphs())
def test_tensor(graph):
    neighbours = as_neighbours(graph.edge_index, graph.num_nodes)
    assert lists(neighbours) == expected_lists(graph)
    assert lists(neighbours.transpose()) == turned(graph)
    assert lists(neighbours.transpose().transpose()) == expected_lists(graph)


@examples(30)
@given(graphs(), st.sampled_from([None, "row", "col"]))
def test_edge_index(graph, sort_order):
    size = (graph.num_nodes, graph.num_nodes)
    edge_index = EdgeIndex(graph.edge_index, sparse_size=size)
    if sort_order is not None:
        edge_index = edge_index.sort_by(sort_order).values
    neighbours = as_neighbours(edge_index, graph.num_nodes)
    assert lists(neighbours) == expected_lists(graph)
    assert lists(neighbours.transpose()) == turned(graph)


@examples(30)
@given(graphs(directed=False, messy=False))
def test_an_undirected_edge_index_needs_no_transpose(graph):
    size = (graph.num_nodes, graph.num_nodes)
    neighbours = as_neighbours(EdgeIndex(graph.edge_index, sparse_size=size, is_undirected=True), graph.num_nodes)
    assert neighbours.col_t is None
    assert lists(neighbours) == expected_lists(graph)
    assert neighbours.transpose() is neighbours


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
@examples(25)
@given(graph=graphs(messy=False))
def test_sparse_rows_are_targets(layout, graph):
    n = graph.num_nodes
    adj_t = torch.sparse_coo_tensor(
        graph.edge_index.flip(0), torch.ones(len(graph.edges)), (n, n), check_invariants=True
    )
    neighbours = as_neighbours(adj_t.coalesce().to_sparse(layout=layout), n)
    assert lists(neighbours) == expected_lists(graph)
    assert lists(neighbours.transpose()) == turned(graph)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")
def test_the_adj_t_of_pyg():
    data = Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 2, 1], [1, 1, 2]]))
    adj_t = ToSparseTensor(layout=torch.sparse_csr)(data).adj_t
    assert lists(as_neighbours(adj_t, 3)) == [[], [0, 2], [1]]


def test_neighbours_pass_through():
    neighbours = as_neighbours(torch.tensor([[0], [1]]), 2)
    assert as_neighbours(neighbours, 2) is neighbours


def test_integers_of_32_bits():
    edge_index = torch.tensor([[0, 2, 1], [1, 1, 2]], dtype=torch.int32)
    assert lists(as_neighbours(edge_index, 3)) == [[], [0, 2], [1]]


@pytest.mark.parametrize(
    "edge_index",
    [
        torch.zeros(3, 4, dtype=torch.long),
        torch.zeros(4, dtype=torch.long),
        torch.zeros(2, 4),
        torch.zeros(1, 2, 4, dtype=torch.long),
    ],
)
def test_wrong_shapes(edge_index):
    with pytest.raises(ValueError, match=r"edge_index must be .* shape \[2, edges\]") as error:
        as_neighbours(edge_index, 4)
    assert str(list(edge_index.shape)) in str(error.value)


def test_a_sparse_tensor_of_another_size():
    with pytest.raises(ValueError, match=r"must be \[4, 4\] here, got \[3, 3\]"):
        as_neighbours(torch.eye(3).to_sparse(), 4)
