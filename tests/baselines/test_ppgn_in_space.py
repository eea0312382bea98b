"""PPGN in space against its equations, for the whole tensor of one molecule at a time, and as a fleet on molecules."""

from functools import partial

import numpy as np
import pytest
import torch
from baselines import in_space
from baselines.company import assert_all_of_it_learns, assert_each_learns_as_alone
from baselines.in_space import FEATURES, of_molecules, one_by_one
from baselines.test_pooling import CLOSE, numbers_kept, relu, weights
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import Numbers, examples, graphs

from softmask.baselines import Inputs, baseline_settings
from softmask.baselines.ppgn_in_space import PPGNInSpace, build_ppgn_in_space


def small(numbers):
    return numbers.fill(PPGNInSpace(4, 3, 2, 2, head_channels=(6, 5)))


def make():
    return PPGNInSpace(FEATURES.channels, 6, 2, 1, head_channels=(8, 7))


fleet = partial(in_space.fleet, make)


def by_hand(model, x, pos, kind):
    """The outputs for one molecule."""
    w, n = weights(model), len(x)

    def affine(name, h):
        return h @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def mlp(name, h):
        return relu(affine(f"{name}.2", relu(affine(f"{name}.0", h))))

    h = np.zeros((n, n, 6 + x.shape[1]))
    for v in range(n):
        h[v, v, 6:] = x[v]
        for u in range(n):
            h[v, u, 0] = np.sqrt(((pos[v] - pos[u]) ** 2).sum())
            if kind[v, u]:
                h[v, u, 1] = h[v, u, 1 + kind[v, u]] = 1
    for k in range(len(model.blocks)):
        product = np.einsum("uwc,wvc->uvc", mlp(f"blocks.{k}.m1", h), mlp(f"blocks.{k}.m2", h))
        h = affine(f"blocks.{k}.m4", np.concatenate([h, product], axis=2))
    loops, rest = ([h[u, v] for u in range(n) for v in range(n) if (u == v) == on] for on in (True, False))
    read = np.concatenate([np.max(part, axis=0) if part else np.zeros(h.shape[2]) for part in (loops, rest)])
    return affine("head.4", relu(affine("head.2", relu(affine("head.0", read)))))


@examples(40)
@given(graph=graphs(directed=False), same_place=st.booleans())
def test_the_model_by_hand(graph, same_place):
    """Molecules of no, one and more atoms, and bonds of all kinds."""
    numbers = graph.numbers()
    model = small(numbers)
    x, pos, kind = of_molecules(graph, numbers)
    if same_place:
        pos[1:2] = pos[:1]  # two atoms in one place are two atoms
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, pos=pos, edge_kind=kind)
    np.testing.assert_allclose(out.detach(), one_by_one(graph, x, pos, kind, partial(by_hand, model)), **CLOSE)
    for g in torch.autograd.grad(out.sum(), list(model.parameters())):
        assert torch.isfinite(g).all()


def test_every_kind_of_bond_is_seen():
    """Each as another, and as something else than none; bonds without a kind are of the first."""
    numbers = Numbers(1)
    model, x, pos = small(numbers), numbers.normal(2, 4), numbers.normal(2, 3)
    bond, none = torch.tensor([[0, 1], [1, 0]]), torch.zeros(2, 0, dtype=torch.long)
    outs = [model(x, bond, pos=pos, edge_kind=torch.full((2,), kind)) for kind in (1, 2, 3, 4)]
    torch.testing.assert_close(model(x, bond, pos=pos), outs[0], rtol=0, atol=0)
    outs.append(model(x, none, pos=pos))
    assert all((a - b).abs().max() > 1e-4 for i, a in enumerate(outs) for b in outs[:i])


@examples(20)
@given(graph=graphs(directed=False, messy=False))
def test_how_a_molecule_lies_and_in_which_order_its_atoms_come_does_not_matter(graph):
    in_space.assert_pose_and_order_do_not_matter(graph, small(graph.numbers()))


def test_padding_has_no_say():
    model = small(Numbers(0))
    in_space.assert_padding_has_no_say(model, partial(by_hand, model))


def test_each_of_a_fleet_learns_as_alone_and_all_of_it():
    assert_all_of_it_learns(fleet, assert_each_learns_as_alone(fleet))


def test_a_fleet_is_the_plain_loop():
    in_space.assert_a_fleet_is_the_plain_loop(make, loss="mae")


def test_half_precision_follows_float32():
    in_space.assert_half_precision_follows_float32(make)


def test_pairs_of_places_are_counted():
    in_space.assert_pairs_of_places_are_counted(make)


def test_the_estimate_is_what_autograd_keeps():
    """Every tensor that a forward pass keeps for its gradient, but for the weights."""
    nodes, graphs_ = 20, 3
    models = [PPGNInSpace(3, 30, layers, 1) for layers in (1, 3)]
    kept = [numbers_kept(model, nodes, graphs_, torch.randn(nodes * graphs_, 3)) for model in models]
    held = [model.numbers_held(graphs_ * nodes**2, graphs_) for model in models]
    # What comes and goes beside is the same whatever the number of layers.
    assert held[1] - held[0] == pytest.approx(kept[1] - kept[0], rel=0.02)
    assert 1 < held[1] / kept[1] < 1.5


@pytest.mark.slow
def test_it_compiles_whole():
    in_space.assert_it_compiles_whole(make)


def test_positions_are_asked_for():
    in_space.assert_positions_are_asked_for(make)


def test_its_sizes_are_those_of_its_authors():
    """Three blocks of 400 channels, and a perceptron of 512 and 256."""
    model = build_ppgn_in_space(Inputs(13, 12, "regression", np.ones(1)), baseline_settings("ppgn-in-space"))
    conv = [19 * 400 + 400, 400 * 400 + 400]
    blocks = [2 * sum(conv) + (19 + 400) * 400 + 400, *[4 * conv[1] + 800 * 400 + 400] * 2]
    head = 800 * 512 + 512 + 512 * 256 + 256 + 256 * 12 + 12
    assert sum(p.numel() for p in model.parameters()) == sum(blocks) + head
