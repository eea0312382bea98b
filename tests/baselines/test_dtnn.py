"""DTNN against its equations, atom by atom, and as a fleet on molecules."""

from functools import partial

import numpy as np
import pytest
import torch
from baselines import in_space
from baselines.company import assert_all_of_it_learns, assert_each_learns_as_alone
from baselines.in_space import FEATURES, of_molecules, one_by_one
from baselines.test_pooling import CLOSE, numbers_kept, weights
from hypothesis import given
from theory.graphs import Numbers, examples, graphs

from softmask.baselines.dtnn import DTNN
from softmask.baselines.in_space import distances
from softmask.ops.pair_blocks import PairBlocks


def small(numbers):
    return numbers.fill(DTNN(4, 3, 2, 2, factors=4, num_radial=7, farthest=6.0, out_hidden=5))


def make():
    return DTNN(FEATURES.channels, 6, 2, 1, factors=9, num_radial=20, farthest=9.0, out_hidden=5)


fleet = partial(in_space.fleet, make)


def by_hand(model, x, pos, kind):
    """The outputs for one molecule, by loops; the kinds of bonds have no say."""
    w = weights(model)

    def lin(name, v):
        return w[f"{name}.weight"] @ v + w.get(f"{name}.bias", 0)

    c = [lin("lin_in", v) for v in x]
    for k in range(len(model.passes)):
        new = []
        for v in range(len(x)):
            total = c[v]
            for u in range(len(x)):
                if u != v:
                    d = np.sqrt(((pos[v] - pos[u]) ** 2).sum())
                    centres = model.nearest + model.step * np.arange(model.num_radial)
                    gauss = np.exp(-((d - centres) ** 2) / (2 * model.step**2))
                    mixed = lin(f"passes.{k}.lin_atom", c[u]) * lin(f"passes.{k}.lin_distance", gauss)
                    total = total + np.tanh(lin(f"passes.{k}.lin_out", mixed))
            new.append(total)
        c = new
    each = [np.tanh(lin("head.2", np.tanh(lin("head.0", v)))) for v in c]
    return lin("lin_out", sum(each, np.zeros(len(w["head.2.bias"]))))


@examples(25)
@given(graphs(directed=False))
def test_the_model_by_hand(graph):
    numbers = graph.numbers()
    model = small(numbers)
    x, pos, kind = of_molecules(graph, numbers)
    pos[1:2] = pos[:1]  # two atoms in one place are two atoms
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, pos=pos, edge_kind=kind)
    np.testing.assert_allclose(out.detach(), one_by_one(graph, x, pos, kind, partial(by_hand, model)), **CLOSE)


@examples(20)
@given(graphs(directed=False, messy=False))
def test_how_a_molecule_lies_and_in_which_order_its_atoms_come_does_not_matter(graph):
    in_space.assert_pose_and_order_do_not_matter(graph, small(graph.numbers()))


def test_padding_has_no_say():
    model = small(Numbers(0))
    in_space.assert_padding_has_no_say(model, partial(by_hand, model))


def test_distances_are_of_two_atoms_of_a_molecule():
    blocks, numbers = ((1, 4), (1, 2), (1, 3)), Numbers(0)
    pairs = PairBlocks(numbers.normal(9, 3), torch.ones(9), torch.zeros(29, dtype=torch.long), blocks)
    for distance, there in distances(pairs, torch.arange(9) != 3):
        assert (distance[~there] == 0).all()
        assert not there.diagonal(dim1=1, dim2=2).any()


def test_each_of_a_fleet_learns_as_alone_and_all_of_it():
    assert_all_of_it_learns(fleet, assert_each_learns_as_alone(fleet))


def test_a_fleet_is_the_plain_loop():
    in_space.assert_a_fleet_is_the_plain_loop(make)


def test_half_precision_follows_float32():
    in_space.assert_half_precision_follows_float32(make, within=0.2)


def test_pairs_of_places_are_counted():
    in_space.assert_pairs_of_places_are_counted(make)


def test_the_estimate_is_what_autograd_keeps():
    """About every tensor that a forward pass keeps for its gradient, but for the weights."""
    nodes, graphs_ = 20, 3
    model = DTNN(3, 30, 2, 1, num_radial=20)
    kept = numbers_kept(model, nodes, graphs_, torch.randn(nodes * graphs_, 3))
    assert 1 < model.numbers_held(graphs_ * nodes**2, graphs_) / kept < 1.5


@pytest.mark.slow
def test_it_compiles_whole():
    in_space.assert_it_compiles_whole(make)


def test_positions_are_asked_for():
    in_space.assert_positions_are_asked_for(make)
