"""MPNN against PyG's NNConv, GRU and Set2Set on complete graphs, and as a fleet on molecules."""

from functools import partial

import numpy as np
import pytest
import torch
from baselines import in_space
from baselines.company import assert_all_of_it_learns, assert_each_learns_as_alone
from baselines.in_space import FEATURES, of_molecules
from baselines.test_pooling import numbers_kept
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs
from torch_geometric.nn import NNConv
from torch_geometric.nn.aggr import Set2Set

from softmask.baselines.mpnn import MPNN


def small(numbers):
    return numbers.fill(MPNN(4, 3, 2, 2, edge_channels=5))


def make():
    return MPNN(FEATURES.channels, 6, 2, 1, edge_channels=7)


fleet = partial(in_space.fleet, make)


class Usual(torch.nn.Module):
    """The same of PyG's and torch's layers, with the weights of a model of ours."""

    def __init__(self, ours):
        super().__init__()
        d, self.ours = ours.hidden_channels, ours
        weights = {name: p.clone() for name, p in ours.state_dict().items()}
        edge = torch.nn.Sequential(ours.messages.lin_edge, torch.nn.ReLU(), ours.messages.lin_matrix)
        self.conv = NNConv(d, d, edge, aggr="mean").double()
        ours.load_state_dict(weights)  # PyG's layer draws new ones for what it is given
        self.conv.lin, self.conv.bias = ours.messages.lin_root, None
        self.gru = torch.nn.GRU(d, d).double()
        self.set2set = Set2Set(d, processing_steps=ours.readout.steps).double()
        for theirs, cell in ((self.gru, ours.update), (self.set2set.lstm, ours.readout.lstm)):
            theirs.load_state_dict({f"{name}_l0": p for name, p in cell.named_parameters()})

    def forward(self, x, edge_index, batch, batch_size, pos, edge_kind):
        bond = torch.zeros(len(x), len(x), 4, dtype=x.dtype)
        for (s, t), kind in zip(edge_index.T.tolist(), edge_kind.tolist()):
            if s != t:
                bond[t, s] = torch.nn.functional.one_hot(torch.tensor(kind - 1), 4)
        pairs = [(u, v) for v in range(len(x)) for u in range(len(x)) if u != v and batch[u] == batch[v]]
        source, target = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
        far = (pos[source] - pos[target]).norm(dim=1, keepdim=True)
        edge_attr = torch.cat([bond[target, source], far], dim=1)
        out = self.ours.lin_in(x).relu()
        h = out.unsqueeze(0)
        for _ in range(self.ours.num_layers):
            m = self.conv(out, torch.stack([source, target]), edge_attr).relu()
            out, h = self.gru(m.unsqueeze(0), h)
            out = out.squeeze(0)
        return self.ours.head(self.set2set(out, batch, dim_size=batch_size))


@examples(30)
@given(graph=graphs(directed=False, min_nodes=1), same_place=st.booleans())
def test_the_model_is_that_of_pygs_layers(graph, same_place):
    numbers = graph.numbers()
    model = small(numbers)
    x, pos, kind = of_molecules(graph, numbers)
    if same_place:
        pos[-1] = pos[0]  # two atoms in one place are two atoms
    out = model(x, graph.edge_index, graph.batch_vector, graph.num_graphs, pos=pos, edge_kind=kind)
    usual = Usual(model)(x, graph.edge_index, graph.batch_vector, graph.num_graphs, pos, kind)
    torch.testing.assert_close(out, usual, rtol=1e-8, atol=1e-8)


def test_gradients_are_those_of_pygs_layers():
    """Of every weight: of the cells' by name, since PyG's layers have copies of them."""
    numbers = Numbers(2)
    model = small(numbers)
    usual = Usual(model)
    x, pos = numbers.normal(5, 4), numbers.normal(5, 3)
    edges, kind = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]]), torch.tensor([1, 1, 2, 2, 4, 4])
    batch = torch.tensor([0, 0, 0, 1, 1])
    model(x, edges, batch, 2, pos=pos, edge_kind=kind).square().sum().backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    usual(x, edges, batch, 2, pos, kind).square().sum().backward()
    copies = {"update": usual.gru, "readout.lstm": usual.set2set.lstm}
    for name, p in model.named_parameters():
        cell, _, own = name.rpartition(".")
        grad = getattr(copies[cell], f"{own}_l0").grad if cell in copies else p.grad
        assert grad.abs().max() > 0
        torch.testing.assert_close(found[name], grad, rtol=1e-8, atol=1e-8)


@examples(20)
@given(graphs(directed=False, messy=False))
def test_how_a_molecule_lies_and_in_which_order_its_atoms_come_does_not_matter(graph):
    in_space.assert_pose_and_order_do_not_matter(graph, small(graph.numbers()))


def test_padding_has_no_say():
    model = small(Numbers(0))

    def alone(x, pos, kind):
        edges = torch.from_numpy(np.stack(kind.T.nonzero()))
        own, where = (torch.from_numpy(t) for t in (x, pos))
        kinds = torch.from_numpy(kind.T[kind.T.nonzero()])
        return Usual(model)(own, edges, torch.zeros(len(x), dtype=torch.long), 1, where, kinds)[0].detach().numpy()

    in_space.assert_padding_has_no_say(model, alone)


def test_a_molecule_without_atoms_has_an_output():
    """And gradients that are numbers; it changes nothing for others."""
    model, none = small(Numbers(3)), torch.zeros(2, 0, dtype=torch.long)
    x, pos = Numbers(4).normal(2, 4), Numbers(5).normal(2, 3)
    out = model(x, none, torch.tensor([0, 2]), 3, pos=pos)
    for g, own in ((0, 0), (2, 1)):
        alone = model(x[own : own + 1], none, torch.zeros(1, dtype=torch.long), 1, pos=pos[own : own + 1])
        torch.testing.assert_close(out[g : g + 1], alone, **EXACT)
    for grad in torch.autograd.grad(out.sum(), list(model.parameters()), allow_unused=True):
        assert grad is None or torch.isfinite(grad).all()


def test_each_of_a_fleet_learns_as_alone_and_all_of_it():
    assert_all_of_it_learns(fleet, assert_each_learns_as_alone(fleet))


def test_so_it_is_at_full_size():
    """Where messages were sums over all atoms, rounding grew from step to step, and who trained beside it mattered."""
    large = partial(in_space.fleet, lambda: MPNN(FEATURES.channels, 64, 3, 1))
    assert_each_learns_as_alone(large)


def test_a_fleet_is_the_plain_loop():
    in_space.assert_a_fleet_is_the_plain_loop(make)


def test_half_precision_follows_float32():
    in_space.assert_half_precision_follows_float32(make)


def test_pairs_of_places_are_counted():
    in_space.assert_pairs_of_places_are_counted(make)


@pytest.mark.parametrize("passes", [1, 3])
def test_the_estimate_is_what_autograd_keeps(passes):
    """About every tensor that a forward pass keeps for its gradient, but for the weights."""
    nodes, graphs_ = 20, 3
    model = MPNN(3, 64, passes, 1)
    kept = numbers_kept(model, nodes, graphs_, torch.randn(nodes * graphs_, 3))
    assert 1 < model.numbers_held(graphs_ * nodes**2, graphs_) / kept < 1.6


@pytest.mark.slow
def test_it_compiles_whole():
    in_space.assert_it_compiles_whole(make)


def test_positions_are_asked_for():
    in_space.assert_positions_are_asked_for(make)
