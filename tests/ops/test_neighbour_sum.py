import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Graphs, Numbers, examples, graphs
from torch_geometric import EdgeIndex

from softmask.ops import Neighbours, as_neighbours, neighbour_sum

MASKS = ("none", "one", "all")


def dense(graph):
    """The adjacency matrix: rows are targets, entries count edges, the diagonal is zero."""
    a = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for source, target in graph.edges:
        if source != target:
            a[target, source] += 1
    return a


def draw_mask(numbers, kind, nodes, channels):
    return {"none": None, "one": numbers.mask(nodes, 1), "all": numbers.mask(nodes, channels)}[kind]


def scattered(graph, numbers, directed=True, with_base=True):
    """The same graph as rows in random order with rubbish between, counted from each graph's first node."""
    rubbish = 99
    first = [graph.batch.index(g) if g in graph.batch else 0 for g in range(graph.num_graphs)]
    base = torch.tensor([first[g] for g in graph.batch], dtype=torch.long) if with_base else None

    def rows(edges):
        start, end, col = [0] * graph.num_nodes, [0] * graph.num_nodes, [rubbish]
        for v in numbers.permutation(graph.num_nodes).tolist():
            start[v] = len(col)
            col += [s - (int(base[v]) if with_base else 0) for s, t in edges if t == v]
            end[v] = len(col)
            col += [rubbish] * (v % 3)
        return torch.tensor(start).long(), torch.tensor(end).long(), torch.tensor(col)

    turned = rows([(t, s) for s, t in graph.edges]) if directed else (None, None, None)
    return Neighbours(*rows(graph.edges), base, *turned)


@pytest.mark.parametrize("kind", MASKS)
@examples(50)
@given(graph=graphs(), channels=st.integers(1, 4))
def test_against_the_dense_matrix(kind, graph, channels):
    """Forward and both gradients."""
    numbers = graph.numbers()
    x = numbers.normal(graph.num_nodes, channels).requires_grad_()
    mask = draw_mask(numbers, kind, graph.num_nodes, channels)
    inputs = [x] if mask is None else [x, mask.requires_grad_()]
    weight = numbers.normal(graph.num_nodes, channels)
    out = neighbour_sum(x, as_neighbours(graph.edge_index, graph.num_nodes), mask)
    expected = dense(graph) @ (x if mask is None else mask * x)
    torch.testing.assert_close(out, expected, **EXACT)
    grads = torch.autograd.grad((out * weight).sum(), inputs)
    for grad, grad_expected in zip(grads, torch.autograd.grad((expected * weight).sum(), inputs)):
        torch.testing.assert_close(grad, grad_expected, **EXACT)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("kind", MASKS)
@examples(20)
@given(graph=graphs(messy=False), directed=st.booleans(), with_base=st.booleans())
def test_all_forms_of_a_graph_agree(kind, graph, directed, with_base):
    numbers = graph.numbers()
    n = graph.num_nodes
    is_undirected = all((t, s) in graph.edges for s, t in graph.edges)
    directed = directed or not is_undirected
    ones = torch.ones(len(graph.edges))
    adj_t = torch.sparse_coo_tensor(graph.edge_index.flip(0), ones, (n, n), check_invariants=True)
    forms = {
        "tensor": graph.edge_index,
        "int32": graph.edge_index.int(),
        "EdgeIndex": EdgeIndex(graph.edge_index, sparse_size=(n, n)),
        "EdgeIndex, undirected": EdgeIndex(graph.edge_index, sparse_size=(n, n), is_undirected=is_undirected),
        "COO": adj_t,
        "CSR": adj_t.to_sparse_csr(),
        "scattered": scattered(graph, numbers, directed, with_base),
    }
    x, weight = numbers.normal(n, 3).requires_grad_(), numbers.normal(n, 3)
    mask = draw_mask(numbers, kind, n, 3)
    expected = dense(graph) @ (x if mask is None else mask * x)
    expected_grad = torch.autograd.grad((expected * weight).sum(), x)[0]
    for name, form in forms.items():
        out = neighbour_sum(x, as_neighbours(form, n), mask)
        grad = torch.autograd.grad((out * weight).sum(), x)[0]
        torch.testing.assert_close(out, expected, **EXACT, msg=lambda m, name=name: f"{name}: {m}")
        torch.testing.assert_close(grad, expected_grad, **EXACT, msg=lambda m, name=name: f"{name}: {m}")


def example(directed, with_base=False, seed=0):
    """Five nodes in two graphs; a self loop, an edge that stands twice, an isolated node."""
    edges = [(0, 1), (0, 1), (1, 2), (2, 2), (4, 3)]
    if not directed:
        edges += [(t, s) for s, t in edges if s != t]
    graph = Graphs(tuple(edges), (0, 0, 0, 1, 1), 2, seed)
    return graph, scattered(graph, Numbers(seed), directed, with_base)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(("directed", "with_base"), [(True, False), (False, True)])
def test_gradcheck(kind, directed, with_base):
    _, neighbours = example(directed, with_base)
    numbers = Numbers(1)
    x, mask = numbers.normal(5, 2), draw_mask(numbers, kind, 5, 2)
    inputs = [t.requires_grad_() for t in (x, mask) if t is not None]

    def f(x, mask=None):
        return neighbour_sum(x, neighbours, mask)

    assert torch.autograd.gradcheck(f, inputs)
    assert torch.autograd.gradgradcheck(f, inputs)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(("directed", "with_base"), [(True, True), (False, False)])
def test_opcheck(kind, directed, with_base):
    _, neighbours = example(directed, with_base)
    numbers = Numbers(1)
    x, mask = numbers.normal(5, 2).requires_grad_(), draw_mask(numbers, kind, 5, 2)
    mask = mask if mask is None else mask.requires_grad_()
    torch.library.opcheck(torch.ops.softmask.neighbour_sum.default, (x, mask, *neighbours))


@pytest.mark.parametrize("edges", [0, 3])
def test_opcheck_with_other_strides(edges):
    """What the compiler believes about strides must hold for any input."""
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])[:, :edges]
    x = Numbers(0).normal(4, 3).t()
    torch.library.opcheck(torch.ops.softmask.neighbour_sum.default, (x, None, *as_neighbours(edge_index, 3)))


def stack_neighbours(each, batched):
    """The fields of several Neighbours stacked where `batched` says so, and their dimensions for vmap."""
    fields, dims = [], []
    for place, field in enumerate(Neighbours._fields):
        values = [getattr(n, field) for n in each]
        if values[0] is None or not batched(field):
            fields.append(values[0])
            dims.append(None)
        else:
            dim = place % values[0].dim()
            fields.append(torch.stack(values, dim))
            dims.append(dim)
    return Neighbours(*fields), Neighbours(*dims)


def replicas(batching, directed):
    """Three graphs of one shape: the same one, or different ones."""
    if batching == "none":
        return [example(directed, with_base=True)[1]] * 3
    edge_lists = [
        [(0, 1), (1, 2), (2, 2), (4, 3), (0, 4), (3, 1)],
        [(1, 0), (1, 0), (3, 2), (0, 0), (2, 4), (4, 1)],
        [(2, 3), (3, 4), (4, 0), (1, 2), (1, 2), (1, 1)],
    ]
    if not directed:
        edge_lists = [e + [(t, s) for s, t in e] for e in edge_lists]
    each = [as_neighbours(torch.tensor(e).t(), 5) for e in edge_lists]
    return each if directed else [Neighbours(*n[:3]) for n in each]


def vmap_is_a_loop(x_dim, mask_dim, neighbours_dims, xs, masks, each, neighbours):
    """Forward, and the gradients through it: of each replica, or their sum where replicas share an input."""
    x = xs[0].clone() if x_dim is None else torch.stack(xs, x_dim)
    mask = masks[0] if mask_dim is None else torch.stack(masks, mask_dim)
    weight = Numbers(9).normal(5, 2)
    in_dims = (x_dim, mask_dim, neighbours_dims)

    def f(x, mask, neighbours):
        return neighbour_sum(x, neighbours, mask)

    def loss(x, mask, neighbours):
        return (f(x, mask, neighbours).square() * weight).sum()

    out = torch.vmap(f, in_dims)(x, mask, neighbours)
    expected = torch.stack([f(*args) for args in zip(xs, masks, each)])
    torch.testing.assert_close(out, expected, **EXACT)

    inputs = [t.requires_grad_() for t in (x, mask) if t is not None]
    grads = torch.autograd.grad(torch.vmap(loss, in_dims)(x, mask, neighbours).sum(), inputs)
    loop = []
    for r in range(3):
        own = [t[r].detach().clone().requires_grad_() for t in (xs, masks) if t[r] is not None]
        loop.append(torch.autograd.grad(loss(own[0], own[1] if len(own) > 1 else None, each[r]), own))
    for place, (grad, dim) in enumerate(zip(grads, (x_dim, mask_dim))):
        own = [g[place] for g in loop]
        torch.testing.assert_close(grad, sum(own) if dim is None else torch.stack(own, dim), **EXACT)


# (kind of mask, dimension of x, dimension of the mask, what of the graph is batched): something must be.
COMBINATIONS = [
    (kind, x_dim, mask_dim, batching)
    for kind, x_dim, mask_dim, batching in itertools.product(MASKS, [None, 0, 1], [None, 0, 1], ["none", "all"])
    if (x_dim, mask_dim, batching) != (None, None, "none") and not (kind == "none" and mask_dim is not None)
]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(("kind", "x_dim", "mask_dim", "batching"), COMBINATIONS)
def test_vmap_is_a_loop(kind, x_dim, mask_dim, batching, directed):
    each = replicas(batching, directed)
    neighbours, neighbours_dims = stack_neighbours(each, lambda field: batching == "all")
    numbers = Numbers(2)
    xs = [numbers.normal(5, 2) for _ in range(3)]
    masks = [draw_mask(numbers, kind, 5, 2) for _ in range(3)]
    xs = [xs[0]] * 3 if x_dim is None else xs
    masks = [masks[0]] * 3 if mask_dim is None else masks
    vmap_is_a_loop(x_dim, mask_dim, neighbours_dims, xs, masks, each, neighbours)


# Each replica's batch out of a store of two graphs (nodes 0 to 2, nodes 3 and 4; -1 pads), and its bases.
OWN_BASES = [
    ([0, 1, 2, 3, 4], [0, 0, 0, 3, 3]),
    ([3, 4, 0, 1, 2], [0, 0, 2, 2, 2]),
    ([3, 4, 3, 4, -1], [0, 0, 2, 2, 0]),
]
ONE_BASE = [(nodes, [0, 0, 0, 3, 3]) for nodes in ([0, 1, 2, 3, 4], [3, 4, -1, 3, 4], [0, 1, 2, -1, -1])]


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("batches", [OWN_BASES, ONE_BASE])
def test_vmap_over_batches_of_a_store(kind, directed, batches):
    """How a fleet looks into a store: every replica has its own rows (and bases), and col is the store's."""
    _, store = example(directed, with_base=True)
    each = []
    for nodes, base in batches:

        def rows(t, nodes=nodes):
            return None if t is None else torch.tensor([0 if v < 0 else int(t[v]) for v in nodes])

        start, end, start_t, end_t = (rows(t) for t in (store.start, store.end, store.start_t, store.end_t))
        each.append(Neighbours(start, end, store.col, torch.tensor(base), start_t, end_t, store.col_t))
    shared = ("col", "col_t") if batches is OWN_BASES else ("col", "col_t", "base")
    neighbours, dims = stack_neighbours(each, lambda field: field not in shared)
    numbers = Numbers(3)
    xs = [numbers.normal(5, 2) for _ in range(3)]
    masks = [draw_mask(numbers, kind, 5, 2) for _ in range(3)]
    vmap_is_a_loop(0, None if kind == "none" else 0, dims, xs, masks, each, neighbours)


def test_vmap_in_vmap():
    _, neighbours = example(directed=True, with_base=True)
    numbers = Numbers(4)
    x, mask = numbers.normal(2, 3, 5, 2), numbers.mask(3, 5, 1)
    f = torch.vmap(torch.vmap(lambda x, m: neighbour_sum(x, neighbours, m)), in_dims=(0, None))
    expected = [[neighbour_sum(x[i, j], neighbours, mask[j]) for j in range(3)] for i in range(2)]
    torch.testing.assert_close(f(x, mask), torch.stack([torch.stack(row) for row in expected]), **EXACT)


def test_vmap_of_nothing():
    neighbours = as_neighbours(torch.empty(2, 0, dtype=torch.long), 0)
    out = torch.vmap(lambda x, m: neighbour_sum(x, neighbours, m))(torch.zeros(3, 0, 2), torch.zeros(3, 0, 1))
    assert out.shape == (3, 0, 2)


def compiled_equals_eager(backend):
    def f(x, mask, edge_index):
        return neighbour_sum(x, as_neighbours(edge_index, x.size(0)), mask).sin()

    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    graph, _ = example(directed=True)
    numbers = Numbers(5)
    for channels in (1, 2):
        x, mask = numbers.normal(5, 2).requires_grad_(), numbers.mask(5, channels).requires_grad_()
        out, expected = compiled(x, mask, graph.edge_index), f(x, mask, graph.edge_index)
        torch.testing.assert_close(out, expected, **EXACT)
        grads = torch.autograd.grad(out.sum(), (x, mask))
        for grad, grad_expected in zip(grads, torch.autograd.grad(expected.sum(), (x, mask))):
            torch.testing.assert_close(grad, grad_expected, **EXACT)


def test_compile_without_graph_breaks():
    compiled_equals_eager("aot_eager")


@pytest.mark.slow
def test_compile_with_the_default_compiler():
    compiled_equals_eager("inductor")


def test_empty():
    none = torch.empty(2, 0, dtype=torch.long)
    assert neighbour_sum(torch.zeros(0, 3), as_neighbours(none, 0)).shape == (0, 3)
    x = torch.ones(4, 3, requires_grad=True)
    out = neighbour_sum(x, as_neighbours(none, 4), torch.ones(4, 1))
    assert (out == 0).all()
    out.sum().backward()
    assert (x.grad == 0).all()


def test_only_self_loops():
    loops = torch.arange(4).expand(2, 4)
    assert (neighbour_sum(torch.ones(4, 3), as_neighbours(loops, 4)) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    graph, neighbours = example(directed=True)
    x, mask = torch.randn(5, 3, dtype=dtype), torch.rand(5, 1, dtype=dtype)
    out = neighbour_sum(x, neighbours, mask)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), dense(graph) @ (mask.double() * x.double()), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("shape", [(5, 2), (4, 1), (4, 3), (6, 1), (5,), (3,), (5, 3, 1)])
def test_a_mask_that_does_not_fit(shape):
    _, neighbours = example(directed=True)
    with pytest.raises(ValueError, match="the mask"):
        neighbour_sum(torch.zeros(5, 3), neighbours, torch.zeros(shape))
