import networkx as nx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softmask.data.networkx import from_networkx
from softmask.fleet.order import by_degree


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 10**6), st.booleans()), min_size=1, max_size=4))
def test_the_graphs_are_the_same_up_to_the_order_of_their_nodes(drawn):
    directed = drawn[0][2]
    made = [nx.gnp_random_graph(n, 0.4, seed=seed, directed=directed) for n, seed, _ in drawn]
    store = from_networkx(made)
    turned, order, edge = by_degree(store)
    assert sorted(order.tolist()) == list(range(store.num_nodes))
    assert sorted(edge.tolist()) == list(range(store.num_edges))
    assert torch.equal(turned.node_ptr, store.node_ptr)
    # Edge by edge: the edges between old nodes are the edges between their new places.
    source, target = turned.edges()
    was_source, was_target = store.edges()
    assert torch.equal(order[source], was_source[edge])
    assert torch.equal(order[target], was_target[edge])
    degree, graph = turned.row_ptr.diff(), turned.batch
    assert all(graph[v] != graph[v + 1] or degree[v] >= degree[v + 1] for v in range(store.num_nodes - 1))
    if store.directed:
        again = turned.row_ptr_t.diff()
        assert torch.equal(again, store.row_ptr_t.diff()[order])
