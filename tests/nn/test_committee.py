"""A committee against its members one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from theory.graphs import EXACT, Numbers, examples, graphs

from softmask.nn import VARIANTS, Committee, SoftMaskGNN
from softmask.nn.committee import joint_answer, joint_state

CHANNELS = 3


def _committee(size, variant="smg-jk", classes=True, seed=0):
    numbers = Numbers(seed)
    members = [numbers.fill(SoftMaskGNN(CHANNELS, 4, 2, 3, **VARIANTS[variant])) for _ in range(size)]
    return Committee(members, classes)


@examples(30)
@given(graphs(), st.integers(1, 4), st.sampled_from(list(VARIANTS)), st.booleans())
def test_the_mean_of_what_the_members_say(graph, size, variant, classes):
    committee = _committee(size, variant, classes, graph.seed)
    x = graph.numbers().normal(graph.num_nodes, CHANNELS)
    asked = (x, graph.edge_index, graph.batch_vector, graph.num_graphs)
    said = [member(*asked).detach().numpy() for member in committee.members]
    out, masks = committee(*asked, return_masks=True)
    if classes:
        raised = [np.exp(o - o.max(axis=1, keepdims=True)) for o in said]
        said = [e / e.sum(axis=1, keepdims=True) for e in raised]
        np.testing.assert_allclose(out.exp().sum(dim=1).detach(), np.ones(graph.num_graphs), rtol=1e-10)
    found = torch.softmax(out, dim=1) if classes else out
    np.testing.assert_allclose(found.detach(), np.mean(said, axis=0), rtol=1e-9, atol=1e-12)
    for layer, side_by_side in enumerate(masks):
        each = [member(*asked, return_masks=True)[1][layer] for member in committee.members]
        torch.testing.assert_close(side_by_side, torch.cat(each, dim=1), **EXACT)
    # The masks that it has are the masks it would be given.
    torch.testing.assert_close(committee(*asked, masks=masks), out, **EXACT)


@examples(30)
@given(graphs(), st.sampled_from(list(VARIANTS)), st.data())
def test_shut_nodes_are_as_if_they_were_not_there(graph, variant, data):
    """Theorem 1 holds for every member, and so for what they say together."""
    committee = _committee(3, variant, seed=graph.seed)
    inside = data.draw(st.lists(st.booleans(), min_size=graph.num_nodes, max_size=graph.num_nodes))
    nodes = [v for v in range(graph.num_nodes) if inside[v]]
    x = graph.numbers().normal(graph.num_nodes, CHANNELS)
    batch = graph.batch_vector
    masks = committee(x, graph.edge_index, batch, graph.num_graphs, return_masks=True)[1]
    stays = torch.tensor(inside, dtype=torch.float64).reshape(-1, 1)
    shut = committee(x, graph.edge_index, batch, graph.num_graphs, masks=[m * stays for m in masks])
    rest = torch.tensor(graph.induced(nodes), dtype=torch.long).reshape(-1, 2).t()
    alone = committee(x[nodes], rest, batch[nodes], graph.num_graphs, masks=[m[nodes] for m in masks])
    torch.testing.assert_close(shut, alone, **EXACT)


def test_certain_members_and_hopeless_ones():
    """Probabilities of 0 and 1 are no trouble; an answer that is no number spoils the committee's."""
    out = joint_answer(torch.tensor([[[800.0, 0.0]], [[0.0, 800.0]]]), True)
    torch.testing.assert_close(out.exp(), torch.tensor([[0.5, 0.5]]))
    assert joint_answer(torch.tensor([[[torch.nan, 0.0]], [[0.0, 1.0]]]), True).isnan().all()


def test_states():
    committee = _committee(2)
    states = [member.state_dict() for member in committee.members]
    other = _committee(2, seed=1)
    other.load_state_dict(joint_state(states))
    assert all(torch.equal(t, other.state_dict()[name]) for name, t in committee.state_dict().items())
    assert joint_state(states[:1]).keys() == states[0].keys()


def test_repr_and_an_empty_committee():
    assert repr(_committee(2)).startswith("Committee(2 x SoftMaskGNN(3, 4, num_layers=2")
    assert _committee(2).jk
    with pytest.raises(ValueError, match="at least one member"):
        Committee([], True)
