import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Graphs, Numbers, examples, graphs

from softmask.ops import Neighbours, as_neighbours, attention_sum


def dense(x, source, target, graph, itself, slope=0.2):
    """The definition, node by node, with numpy."""
    x, source, target = (t.detach().numpy() for t in (x, source, target))
    out = np.zeros_like(x)
    for v in range(graph.num_nodes):
        near = [s for s, t in graph.edges if t == v and s != v] + [v] * itself
        for h in range(x.shape[1]):
            e = source[near, h] + target[v, h]
            weight = np.exp(np.where(e > 0, e, slope * e))
            out[v, h] = sum((w / weight.sum() * x[u, h] for w, u in zip(weight, near)), np.zeros(x.shape[2]))
    return torch.from_numpy(out)


def recorded(x, source, target, graph, itself, slope=0.2):
    """The definition as a dense softmax that autograd differentiates."""
    count = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    for s, t in graph.edges:
        count[t, s] += s != t
    count += itself * torch.eye(graph.num_nodes)
    e = torch.nn.functional.leaky_relu(target.unsqueeze(1) + source.unsqueeze(0), slope)
    weight = count.unsqueeze(-1) * e.exp()
    total = weight.sum(dim=1, keepdim=True)
    return torch.einsum("vuh,uhc->vhc", weight / torch.where(total > 0, total, 1), x)


def inputs_of(numbers, nodes, heads=2, channels=3):
    return [numbers.normal(*s).requires_grad_() for s in ((nodes, heads, channels), (nodes, heads), (nodes, heads))]


def stored(graph, numbers, directed=True):
    """The same graph as rows in random order with rubbish between, counted from each graph's first node."""
    first = [graph.batch.index(g) if g in graph.batch else 0 for g in range(graph.num_graphs)]
    base = torch.tensor([first[g] for g in graph.batch], dtype=torch.long)

    def rows(edges):
        start, end, col = [0] * graph.num_nodes, [0] * graph.num_nodes, [99]
        for v in numbers.permutation(graph.num_nodes).tolist():
            start[v] = len(col)
            col += [s - int(base[v]) for s, t in edges if t == v]
            end[v] = len(col)
            col += [99] * (v % 3)
        return torch.tensor(start).long(), torch.tensor(end).long(), torch.tensor(col)

    turned = rows([(t, s) for s, t in graph.edges]) if directed else (None, None, None)
    return Neighbours(*rows(graph.edges), base, *turned)


def example(directed=True):
    """Five nodes in two graphs; a self loop, an edge that stands twice, and, if directed, a node without neighbours."""
    edges = [(0, 1), (0, 1), (1, 2), (2, 2), (4, 3)]
    if not directed:
        edges += [(t, s) for s, t in edges if s != t]
    graph = Graphs(tuple(edges), (0, 0, 0, 1, 1), 2, 0)
    return graph, stored(graph, Numbers(0), directed)


@examples(50)
@given(graph=graphs(), heads=st.integers(1, 3), channels=st.integers(1, 4), itself=st.booleans())
def test_against_the_definition(graph, heads, channels, itself):
    """Forward and all gradients."""
    numbers = graph.numbers()
    inputs = inputs_of(numbers, graph.num_nodes, heads, channels)
    weight = numbers.normal(graph.num_nodes, heads, channels)
    out = attention_sum(*inputs, as_neighbours(graph.edge_index, graph.num_nodes), itself=itself)
    torch.testing.assert_close(out, dense(*inputs, graph, itself), **EXACT)
    expected = torch.autograd.grad((recorded(*inputs, graph, itself) * weight).sum(), inputs)
    for grad, grad_expected in zip(torch.autograd.grad((out * weight).sum(), inputs), expected):
        torch.testing.assert_close(grad, grad_expected, **EXACT)


@examples(20)
@given(graph=graphs(directed=False), itself=st.booleans())
def test_an_undirected_graph_is_its_own_transpose(graph, itself):
    numbers = graph.numbers()
    inputs = inputs_of(numbers, graph.num_nodes)
    weight = numbers.normal(graph.num_nodes, 2, 3)
    expected = torch.autograd.grad((recorded(*inputs, graph, itself) * weight).sum(), inputs)
    out = attention_sum(*inputs, stored(graph, numbers, directed=False), itself=itself)
    for grad, grad_expected in zip(torch.autograd.grad((out * weight).sum(), inputs), expected):
        torch.testing.assert_close(grad, grad_expected, **EXACT)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_gradcheck(directed, itself):
    _, neighbours = example(directed)
    assert torch.autograd.gradcheck(
        lambda *inputs: attention_sum(*inputs, neighbours, slope=0.3, itself=itself), inputs_of(Numbers(1), 5)
    )


def test_a_second_derivative_is_refused():
    _, neighbours = example()
    inputs = inputs_of(Numbers(1), 5)
    grad = torch.autograd.grad(attention_sum(*inputs, neighbours).square().sum(), inputs, create_graph=True)[1]
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), inputs)


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_opcheck(directed, itself):
    _, neighbours = example(directed)
    inputs = inputs_of(Numbers(1), 5)
    lists = (*neighbours[:7], *[None] * 6, 0.2, itself)
    torch.library.opcheck(torch.ops.softmask.attention_sum.default, (*inputs, *lists))
    inputs = [t.detach() for t in inputs]
    log_total = torch.ops.softmask.attention_sum(*inputs, *lists)[1]
    args = (Numbers(2).normal(5, 2, 3), *inputs, log_total, *lists)
    torch.library.opcheck(torch.ops.softmask.attention_sum_backward.default, args)


@pytest.mark.parametrize("edges", [0, 3])
def test_opcheck_with_other_strides(edges):
    """What the compiler believes about strides must hold for any input."""
    lists = as_neighbours(torch.tensor([[0, 1, 2], [1, 2, 0]])[:, :edges], 3)
    x, source, target = (t.detach() for t in inputs_of(Numbers(0), 3))
    strided = [t.transpose(0, -1).contiguous().transpose(0, -1) for t in (x, source, target)]
    args = (*strided, *lists[:7], *[None] * 6, 0.2, True)
    torch.library.opcheck(torch.ops.softmask.attention_sum.default, args)


# The edges of each replica: one graph for all, or one of its own, of the same number of edges.
EDGES = [
    [(0, 1), (1, 2), (2, 2), (4, 3), (0, 4), (3, 1)],
    [(1, 0), (1, 0), (3, 2), (0, 0), (2, 4), (4, 1)],
    [(2, 3), (3, 4), (4, 0), (1, 2), (1, 2), (1, 1)],
]


@pytest.mark.parametrize("itself", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("own_graphs", [False, True])
@pytest.mark.parametrize("dims", [(0, 0, 0), (2, 1, 0), (None, 0, 1), (0, None, None)])
def test_vmap_is_a_loop(dims, own_graphs, directed, itself):
    """Forward, and the gradients through it: of each replica, or their sum where replicas share an input."""
    edges = EDGES if own_graphs else EDGES[:1] * 3
    if not directed:
        edges = [e + [(t, s) for s, t in e] for e in edges]
    each = [as_neighbours(torch.tensor(e).t(), 5) for e in edges]
    each = each if directed else [Neighbours(*n[:3]) for n in each]
    neighbours, graph_dims = each[0], Neighbours(*[None] * 13)
    if own_graphs:
        neighbours = Neighbours(*(None if t[0] is None else torch.stack(t) for t in zip(*each)))
        graph_dims = Neighbours(*(None if t is None else 0 for t in neighbours))
    numbers = Numbers(2)
    shapes = ((5, 2, 3), (5, 2), (5, 2))
    inputs = [numbers.normal(*s) if d is None else numbers.normal(3, *s).movedim(0, d) for s, d in zip(shapes, dims)]
    inputs = [t.requires_grad_() for t in inputs]
    weight = numbers.normal(5, 2, 3)

    def f(x, source, target, neighbours):
        return attention_sum(x, source, target, neighbours, itself=itself) * weight

    out = torch.vmap(f, in_dims=(*dims, graph_dims))(*inputs, neighbours)
    rows = [[t if d is None else t.select(d, r) for t, d in zip(inputs, dims)] for r in range(3)]
    expected = torch.stack([f(*row, n) for row, n in zip(rows, each)])
    torch.testing.assert_close(out, expected, **EXACT)
    grads = torch.autograd.grad(out.square().sum(), inputs)
    for grad, grad_expected in zip(grads, torch.autograd.grad(expected.square().sum(), inputs)):
        torch.testing.assert_close(grad, grad_expected, **EXACT)


@pytest.mark.parametrize("with_list", [False, True])
def test_vmap_over_batches_of_a_store(with_list):
    """How a fleet looks into a store: every replica has its own rows and bases, and col is the store's."""
    _, store = example(directed=False)
    batches = [
        ([0, 1, 2, 3, 4], [0, 0, 0, 3, 3]),
        ([3, 4, 0, 1, 2], [0, 0, 2, 2, 2]),
        ([3, 4, 3, 4, -1], [0, 0, 2, 2, 0]),
    ]
    each = []
    for nodes, base in batches:
        start, end = (torch.tensor([0 if v < 0 else int(t[v]) for v in nodes]) for t in store[:2])
        each.append(Neighbours(start, end, store.col, torch.tensor(base)))
    start, end, base = (torch.stack([n[i] for n in each]) for i in (0, 1, 3))
    neighbours = Neighbours(start, end, store.col, base)
    dims = Neighbours(0, 0, None, 0)
    if with_list:
        beside = (base + 5 * torch.arange(3).unsqueeze(1)).reshape(-1)
        listed = Neighbours(start.reshape(-1), end.reshape(-1), store.col, beside).listed()
        neighbours = neighbours._replace(source=listed[0], offset=listed[1])
    numbers = Numbers(3)
    inputs = [numbers.normal(3, *s) for s in ((5, 2, 3), (5, 2), (5, 2))]
    out = torch.vmap(attention_sum, in_dims=(0, 0, 0, dims))(*inputs, neighbours)
    expected = torch.stack([attention_sum(*(t[r] for t in inputs), n) for r, n in enumerate(each)])
    torch.testing.assert_close(out, expected, **EXACT)
    assert (out[2, 4] == 0).all()


def test_gradients_under_vmap():
    """Many gradients at once, as for a Jacobian: the backward operator under vmap."""
    _, neighbours = example()
    inputs = inputs_of(Numbers(5), 5)
    out = attention_sum(*inputs, neighbours, itself=True)
    weights = Numbers(6).normal(4, 5, 2, 3)
    many = torch.autograd.grad(out, inputs, weights, is_grads_batched=True, retain_graph=True)
    for r, weight in enumerate(weights):
        for a, b in zip(many, torch.autograd.grad(out, inputs, weight, retain_graph=True)):
            torch.testing.assert_close(a[r], b, **EXACT)


def test_vmap_in_vmap():
    _, neighbours = example()
    numbers = Numbers(4)
    x, source, target = numbers.normal(2, 3, 5, 2, 3), numbers.normal(2, 3, 5, 2), numbers.normal(3, 5, 2)
    f = torch.vmap(torch.vmap(lambda *t: attention_sum(*t, neighbours)), in_dims=(0, 0, None))
    expected = [[attention_sum(x[i, j], source[i, j], target[j], neighbours) for j in range(3)] for i in range(2)]
    torch.testing.assert_close(f(x, source, target), torch.stack([torch.stack(row) for row in expected]), **EXACT)


def test_compile_without_graph_breaks():
    def f(x, source, target, edge_index):
        return attention_sum(x, source, target, as_neighbours(edge_index, x.size(0)), itself=True).sin()

    torch.compiler.reset()
    graph, _ = example()
    inputs = inputs_of(Numbers(5), 5)
    out = torch.compile(f, fullgraph=True, backend="aot_eager")(*inputs, graph.edge_index)
    expected = f(*inputs, graph.edge_index)
    torch.testing.assert_close(out, expected, **EXACT)
    for grad, grad_expected in zip(torch.autograd.grad(out.sum(), inputs), torch.autograd.grad(expected.sum(), inputs)):
        torch.testing.assert_close(grad, grad_expected, **EXACT)


def test_large_scores_do_not_overflow():
    _, neighbours = example()
    x, source, target = (t.detach() for t in inputs_of(Numbers(7), 5))
    far = [1000 * source, 1000 * target]
    inputs = [t.requires_grad_() for t in (x, *far)]
    out = attention_sum(*inputs, neighbours, itself=True)
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(out.sum(), inputs))
    # The same number added to all scores of a row changes nothing where LeakyReLU is a straight line.
    high = attention_sum(x, source + 1e4, target, neighbours)
    torch.testing.assert_close(high, attention_sum(x, source + 2e4, target, neighbours), rtol=1e-9, atol=1e-9)


def test_without_neighbours():
    none = torch.empty(2, 0, dtype=torch.long)
    x, source, target = inputs_of(Numbers(8), 4)
    out = attention_sum(x, source, target, as_neighbours(none, 4))
    assert (out == 0).all()
    assert all((g == 0).all() for g in torch.autograd.grad(out.sum(), (x, source, target)))
    loops = as_neighbours(torch.arange(4).expand(2, 4), 4)
    assert (attention_sum(x, source, target, loops) == 0).all()
    torch.testing.assert_close(attention_sum(x, source, target, loops, itself=True), x, **EXACT)
    assert attention_sum(*inputs_of(Numbers(8), 0), as_neighbours(none, 0), itself=True).shape == (0, 2, 3)


def test_half_precision_keeps_its_scores():
    graph, neighbours = example()
    x, source, target = (t.detach() for t in inputs_of(Numbers(9), 5))
    inputs = [t.requires_grad_() for t in (x.bfloat16(), source.float(), target.float())]
    out = attention_sum(*inputs, neighbours, itself=True)
    assert out.dtype == torch.bfloat16
    expected = dense(*(t.double() for t in inputs), graph, True)
    torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert [g.dtype for g in grads] == [torch.bfloat16, torch.float32, torch.float32]


def test_wrong_arguments():
    _, neighbours = example()
    x, source, target = inputs_of(Numbers(0), 5)
    with pytest.raises(ValueError, match="heads, channels"):
        attention_sum(x[:, 0], source, target, neighbours)
    with pytest.raises(ValueError, match="source has shape"):
        attention_sum(x, source[:, :1], target, neighbours)
    with pytest.raises(ValueError, match="target has shape"):
        attention_sum(x, source, target[:4], neighbours)
    with pytest.raises(ValueError, match="one type"):
        attention_sum(x, source.float(), target, neighbours)
    with pytest.raises(ValueError, match="slope"):
        attention_sum(x, source, target, neighbours, slope=0.0)
