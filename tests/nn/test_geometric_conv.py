import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.nn.models.schnet import CFConv

from softmask.nn import GeometricSoftMaskConv
from softmask.nn.geometric_basis import GeometricBasis
from softmask.ops.pair_blocks import as_pair_blocks

D, RADIAL, KINDS, CUTOFF = 3, 5, 2, 2.5


def _geometry(pos, graph, kinds=None):
    pairs, at = as_pair_blocks(pos, graph.batch_vector, graph.num_graphs, graph.edge_index, kinds)
    real = torch.zeros(len(pairs.pos), dtype=torch.bool).index_fill(0, at, True)
    return GeometricBasis(RADIAL, CUTOFF, KINDS)(pairs, real, torch.float64), at


def _spread(values, at, places):
    return values.new_zeros(places, *values.shape[1:]).index_copy(0, at, values)


def _basis(r, kind):
    """The numbers of one pair, in numpy."""
    step = CUTOFF / (RADIAL - 1)
    gauss = [np.exp(-((r - k * step) ** 2) / (2 * step**2)) for k in range(RADIAL)]
    hot = [float(kind == k) for k in range(1, KINDS + 1)]
    return 0.5 * (np.cos(np.pi * r / CUTOFF) + 1) * np.array(gauss + hot) if r < CUTOFF else np.zeros(RADIAL + KINDS)


def _reference(conv, x, vectors, pos, batch, kinds, mask):
    """The equations of the docstring, pair by pair, in numpy."""
    w = {name.removesuffix(".weight"): p.detach().numpy() for name, p in conv.named_parameters()}
    h, m, pos, vectors = x.numpy(), np.broadcast_to(mask.numpy(), x.shape), pos.numpy(), vectors.numpy()
    p, q = w["lin_vectors"][:D], w["lin_vectors"][D:]
    out, space = np.zeros_like(h), np.zeros_like(vectors)
    for v in range(len(h)):
        s, t = np.zeros(D), vectors[v].copy()
        for u in range(len(h)):
            if u == v or batch[u] != batch[v]:
                continue
            apart = pos[v] - pos[u]
            r = np.sqrt((apart**2).sum())
            filters = w["lin_filter"] @ _basis(r, kinds.get((u, v), 0))
            seen = w["lin_in"] @ (m[u] * h[u])
            s += filters * seen
            for k in range(3):
                t[k] += filters * (seen * apart[k] / r + m[u] * vectors[u, k])
        product = sum((p @ t[k]) * (q @ t[k]) for k in range(3))
        product = product / (1 + product**2) ** 0.25
        z = m[v] * (w["lin_root"] @ h[v] + w["lin_rel"] @ np.concatenate([s, product]))
        a = z / (1 + np.exp(-z))
        out[v] = m[v] * (h[v] + w["lin_out"][:D] @ a)
        for k in range(3):
            space[v, k] = m[v] * (vectors[v, k] + (w["lin_out"][D:] @ a) * (p @ t[k]))
    return out, space


@examples(40)
@given(graphs(directed=False), st.booleans())
def test_against_the_equations(graph, multi):
    numbers, n = graph.numbers(), graph.num_nodes
    conv = numbers.fill(GeometricSoftMaskConv(D, RADIAL + KINDS))
    pos, x, mask = numbers.normal(n, 3), numbers.normal(n, D), numbers.mask(n, D if multi else 1)
    vectors = numbers.normal(n, 3, D)
    by_pair = {}
    for s, t in graph.edges:
        if s != t:
            by_pair[s, t] = (s + t) % KINDS + 1
    kinds = torch.tensor([by_pair.get(edge, 1) for edge in graph.edges], dtype=torch.long)
    geometry, at = _geometry(pos, graph, kinds)
    places = sum(a * b for a, b in geometry.blocks)
    made = conv(*(_spread(t, at, places) for t in (x, vectors)), geometry, _spread(mask, at, places))
    expected = _reference(conv, x, vectors, pos, graph.batch, by_pair, mask)
    for found, wanted in zip(made, expected):
        np.testing.assert_allclose(found[at].detach().numpy(), wanted, atol=1e-10)
    none = conv(_spread(x, at, places), None, geometry, _spread(mask, at, places))
    zero = conv(_spread(x, at, places), torch.zeros(places, 3, D).double(), geometry, _spread(mask, at, places))
    torch.testing.assert_close(none, zero, **EXACT)


def test_with_masks_of_1_it_holds_schnets_convolution():
    """Where the other terms are off, what goes into SiLU is PyG's continuous-filter convolution."""
    numbers, n = Numbers(0), 6
    pos, x = numbers.normal(n, 3), numbers.normal(n, D)
    pairs, _ = as_pair_blocks(pos, torch.zeros(n, dtype=torch.long), 1, torch.zeros(2, 0, dtype=torch.long))
    geometry = GeometricBasis(RADIAL, CUTOFF, 0)(pairs, torch.ones(n, dtype=torch.bool), torch.float64)
    conv = numbers.fill(GeometricSoftMaskConv(D, RADIAL))
    with torch.no_grad():
        conv.lin_root.weight.zero_()
        conv.lin_rel.weight[:, D:] = 0
        conv.lin_out.weight[:D] = torch.eye(D)
    filters = torch.nn.Linear(RADIAL, D, bias=False)
    theirs = CFConv(D, D, D, filters, CUTOFF).double()
    with torch.no_grad():
        filters.weight.copy_(conv.lin_filter.weight)
        theirs.lin1.weight.copy_(conv.lin_in.weight)
        theirs.lin2.weight.copy_(conv.lin_rel.weight[:, :D])
        theirs.lin2.bias.zero_()
    distance = torch.cdist(pos, pos)
    source, target = ((distance < CUTOFF) & ~torch.eye(n, dtype=torch.bool)).nonzero().t()
    length = distance[source, target]
    step = CUTOFF / (RADIAL - 1)
    gauss = torch.exp(-0.5 * (length.unsqueeze(1) / step - torch.arange(RADIAL)).square())
    theirs_out = theirs(x, torch.stack([source, target]), length, gauss)
    ours, _ = conv(x, None, geometry, torch.ones(n, 1, dtype=torch.float64))
    torch.testing.assert_close(ours, x + torch.nn.functional.silu(theirs_out), rtol=1e-8, atol=1e-8)


@examples(40)
@given(graphs(directed=False, min_nodes=1), st.data())
def test_a_node_with_mask_0_is_inaccessible(graph, data):
    numbers, n = graph.numbers(), graph.num_nodes
    conv = numbers.fill(GeometricSoftMaskConv(D, RADIAL + KINDS))
    pos, x, mask = numbers.normal(n, 3), numbers.normal(n, D), numbers.mask(n, 1)
    shut = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    mask[shut] = 0.0
    vectors = numbers.normal(n, 3, D)

    def run(x, vectors, pos):
        geometry, at = _geometry(pos, graph)
        places = sum(a * b for a, b in geometry.blocks)
        made = conv(*(_spread(t, at, places) for t in (x, vectors)), geometry, _spread(mask, at, places))
        return [t[at] for t in made]

    out = run(x, vectors, pos)
    assert all((t[shut] == 0).all() for t in out)
    x[shut], vectors[shut], pos[shut] = numbers.normal(len(shut), D), numbers.normal(len(shut), 3, D), 0.5
    pos[shut] += numbers.normal(len(shut), 3)
    torch.testing.assert_close(run(x, vectors, pos), out, **EXACT)


@examples(30)
@given(graphs(directed=False, min_nodes=1))
def test_vectors_turn_with_the_molecule(graph):
    numbers, n = graph.numbers(), graph.num_nodes
    conv = numbers.fill(GeometricSoftMaskConv(D, RADIAL + KINDS))
    pos, x, mask, vectors = numbers.normal(n, 3), numbers.normal(n, D), numbers.mask(n, 1), numbers.normal(n, 3, D)
    turn, _ = torch.linalg.qr(numbers.normal(3, 3))

    def run(pos, vectors):
        geometry, at = _geometry(pos, graph)
        places = sum(a * b for a, b in geometry.blocks)
        made = conv(*(_spread(t, at, places) for t in (x, vectors)), geometry, _spread(mask, at, places))
        return [t[at] for t in made]

    out, space = run(pos, vectors)
    again, turned = run(pos @ turn + numbers.normal(3), torch.einsum("nkd,kl->nld", vectors, turn))
    torch.testing.assert_close(out, again, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(torch.einsum("nkd,kl->nld", space, turn), turned, rtol=1e-8, atol=1e-8)


def test_the_basis_ends_smoothly_and_in_float32():
    basis = GeometricBasis(8, 3.0, 1)
    r = torch.tensor([2.999, 3.0, 3.1], dtype=torch.float64)
    for distance, bound in zip(r.tolist(), (1e-5, 0.0, 0.0)):
        pos = torch.tensor([[0.0, 0, 0], [distance, 0, 0]])
        pairs, _ = as_pair_blocks(pos, torch.zeros(2, dtype=torch.long), 1, torch.tensor([[0, 1], [1, 0]]))
        geometry = basis(pairs, torch.ones(2, dtype=torch.bool), torch.bfloat16)
        assert geometry.attr.dtype == torch.bfloat16
        assert geometry.attr.abs().max() <= bound
    with pytest.raises(ValueError, match="cutoff positive"):
        GeometricBasis(8, 0.0, 1)
    assert repr(basis) == "GeometricBasis(num_radial=8, cutoff=3.0, kinds=1)"
    assert repr(GeometricSoftMaskConv(3, 9)) == "GeometricSoftMaskConv(3, pair_channels=9)"


def test_gradients_also_of_positions():
    numbers = Numbers(3)
    pos, x, mask, vectors = numbers.normal(4, 3), numbers.normal(4, 2), numbers.mask(4, 1), numbers.normal(4, 3, 2)
    conv = numbers.fill(GeometricSoftMaskConv(2, 3))
    basis, batch = GeometricBasis(3, 4.0, 0), torch.tensor([0, 0, 0, 1])

    def run(pos, x, mask, vectors):
        pairs, at = as_pair_blocks(pos, batch, 2, torch.zeros(2, 0, dtype=torch.long))
        places = len(pairs.pos)
        real = torch.zeros(places, dtype=torch.bool).index_fill(0, at, True)
        geometry = basis(pairs, real, torch.float64)
        return conv(*(_spread(t, at, places) for t in (x, vectors)), geometry, _spread(mask, at, places))

    assert torch.autograd.gradcheck(run, [t.requires_grad_() for t in (pos, x, mask, vectors)])
