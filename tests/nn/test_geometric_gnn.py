import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs

from softmask.nn import GeometricSoftMaskGNN
from softmask.nn.geometric_readout import READOUTS, readouts

F, D, K = 4, 3, 2


def _model(numbers, readout="sum", **options):
    return numbers.fill(
        GeometricSoftMaskGNN(F, D, K, num_kinds=2, num_radial=6, readout=readout, cutoff=4.0, **options)
    )


def _molecules(graph):
    """Features, positions, masses, and kinds of bonds that are the same both ways."""
    numbers, n = graph.numbers(), graph.num_nodes
    kinds = torch.tensor([(s + t) % 2 + 1 for s, t in graph.edges], dtype=torch.long)
    return numbers, numbers.normal(n, F), numbers.normal(n, 3), numbers.mask(n) + 0.5, kinds


def _turned(numbers, pos):
    """Moved, turned and mirrored."""
    q, _ = torch.linalg.qr(numbers.normal(3, 3))
    return pos @ q + 5 * numbers.normal(3), q


@examples(30)
@given(graphs(directed=False), st.sampled_from(READOUTS), st.booleans())
def test_it_does_not_see_how_a_molecule_lies(graph, readout, multi):
    numbers, x, pos, mass, kinds = _molecules(graph)
    model = _model(numbers, readout, multi_channel=multi)
    given_ = {"batch_size": graph.num_graphs, "edge_kind": kinds, "mass": mass}
    out = model(x, graph.edge_index, graph.batch_vector, pos=pos, **given_)
    moved, _ = _turned(numbers, pos)
    again = model(x, graph.edge_index, graph.batch_vector, pos=moved, **given_)
    torch.testing.assert_close(out, again, rtol=1e-8, atol=1e-8)


@examples(30)
@given(graphs(directed=False, messy=False), st.sampled_from(READOUTS))
def test_the_order_of_atoms_does_not_matter(graph, readout):
    numbers, x, pos, mass, kinds = _molecules(graph)
    model, order = _model(numbers, readout), numbers.permutation(graph.num_nodes)
    batch, size = graph.batch_vector, graph.num_graphs
    out, masks = model(x, graph.edge_index, batch, size, return_masks=True, pos=pos, edge_kind=kinds, mass=mass)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    again, mixed = model(
        *(x[order], place[graph.edge_index], batch[order], size),
        return_masks=True,
        pos=pos[order],
        edge_kind=kinds,
        mass=mass[order],
    )
    torch.testing.assert_close(out, again, rtol=1e-9, atol=1e-9)
    for m, other in zip(masks, mixed):
        assert m.shape == (graph.num_nodes, D)
        torch.testing.assert_close(m[order], other, rtol=1e-9, atol=1e-9)


@examples(40)
@given(graphs(directed=False, min_nodes=1), st.sampled_from(READOUTS), st.booleans(), st.data())
def test_a_masked_atom_is_as_good_as_none(graph, readout, multi, data):
    numbers, x, pos, mass, kinds = _molecules(graph)
    n, batch = graph.num_nodes, graph.batch_vector
    model = _model(numbers, readout, multi_channel=multi)
    masks = [numbers.mask(n, D if multi else 1) * 0.9 + 0.1 for _ in range(K)]
    shut = sorted(data.draw(st.sets(st.integers(0, n - 1))))
    for m in masks:
        m[shut] = 0.0
    rest = [v for v in range(n) if v not in shut]
    inside = [i for i, (s, t) in enumerate(graph.edges) if s not in shut and t not in shut]
    small = torch.tensor(graph.induced(rest), dtype=torch.long).reshape(-1, 2).t()
    out = model(x, graph.edge_index, batch, graph.num_graphs, masks, pos=pos, edge_kind=kinds, mass=mass)
    without = model(
        *(x[rest], small, batch[rest], graph.num_graphs, [m[rest] for m in masks]),
        pos=pos[rest],
        edge_kind=kinds[inside],
        mass=mass[rest],
    )
    torch.testing.assert_close(out, without, **EXACT)


def test_readouts_in_words_of_numpy():
    numbers = Numbers(0)
    y, pos = numbers.normal(7), 100 + numbers.normal(7, 3)
    weight, mass, arrow = numbers.mask(7) + 0.1, numbers.mask(7) + 0.1, numbers.normal(7, 3)
    batch = torch.tensor([0, 0, 0, 0, 2, 2, -1])
    found = readouts(y, arrow, weight, mass, pos, batch, 3).numpy()
    for g in (0, 2):
        mine = batch.numpy() == g
        q, r, w, m, a = (t.numpy()[mine] for t in (y, pos, weight, mass, arrow))
        apart = r - (m[:, None] * r).sum(axis=0) / m.sum()
        dipole = np.sqrt(((q[:, None] * apart + a).sum(axis=0) ** 2).sum())
        expected = [q.sum(), (w * q).sum() / w.sum(), dipole, (q * (apart**2).sum(axis=1)).sum()]
        np.testing.assert_allclose(found[g], expected, atol=1e-9)
    assert (found[1] == 0).all()


def test_gradients_also_where_the_dipole_vanishes():
    numbers = Numbers(1)
    pos, batch = numbers.normal(5, 3), torch.tensor([0, 0, 0, 1, -1])
    inputs = [numbers.normal(5), numbers.normal(5, 3), numbers.mask(5) + 0.1, numbers.mask(5) + 0.1]
    assert torch.autograd.gradcheck(
        lambda *given: readouts(*given, pos, batch, 2)[0], [t.requires_grad_() for t in inputs]
    )
    zero = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    readouts(zero, torch.zeros(5, 3).double(), *inputs[2:], pos, batch, 2).sum().backward()
    assert torch.isfinite(zero.grad).all()


def test_every_parameter_learns():
    numbers, n = Numbers(2), 5
    index = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
    x, pos, batch = numbers.normal(n, F), numbers.normal(n, 3), torch.tensor([0, 0, 0, 1, 1])
    model = _model(numbers, "mean")
    model.select.fill_(1)
    model(x, index, batch, pos=pos).sum().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in model.parameters())


def test_masks_begin_open_and_weights_stay_as_drawn():
    torch.manual_seed(0)
    model = GeometricSoftMaskGNN(F, 16, 2)
    x, pos = torch.randn(6, F), torch.randn(6, 3)
    _, masks = model(x, torch.tensor([[0, 1], [1, 0]]), pos=pos, return_masks=True)
    assert all(bool((m > 0.7).all()) for m in masks)
    again = GeometricSoftMaskGNN(F, 16, 2)
    again.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        again(x, torch.tensor([[0, 1], [1, 0]]), pos=pos), model(x, torch.tensor([[0, 1], [1, 0]]), pos=pos)
    )


def test_bad_input():
    model = GeometricSoftMaskGNN(F, D, K)
    x, index = torch.zeros(2, F), torch.tensor([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="needs pos"):
        model(x, index)
    with pytest.raises(ValueError, match="masks for 1 layers"):
        model(x, index, pos=torch.zeros(2, 3), masks=[torch.ones(2, 1)])
    with pytest.raises(ValueError, match="readout must be one of"):
        GeometricSoftMaskGNN(F, D, K, readout="max")
    with pytest.raises(ValueError, match="num_layers"):
        GeometricSoftMaskGNN(F, D, 0)
    # Two atoms at one place are no reason for NaN.
    assert torch.isfinite(model(x, index, pos=torch.zeros(2, 3))).all()
    assert "readout='sum'" in repr(model)
