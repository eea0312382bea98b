"""Three replicas of 40 graphs, and whether one learns the same whoever trains beside it."""

import numpy as np
import torch

from softmask.fleet import Replica


def replicas():
    parts = [np.random.default_rng(s).permutation(40) for s in range(3)]
    # Of different sizes: the replicas take different numbers of steps, and have slots without a graph.
    return [Replica(s, p[: 18 + 5 * s], {"test": p[32:]}, lr=1e-2 / (1 + s)) for s, p in enumerate(parts)]


def assert_each_learns_as_alone(fleet):
    """Of fleets that ``fleet(replicas)`` builds in float64; gives what they learned together."""
    together = fleet(replicas()).train(3)
    assert not together.troubles
    for r, replica in enumerate(replicas()):
        alone = fleet([replica]).train(3)
        for name, t in alone.weights[0].items():
            torch.testing.assert_close(t, together.weights[r][name], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(alone.loss["test"][0], together.loss["test"][r], atol=1e-9)
    return together


def assert_all_of_it_learns(fleet, together):
    """Every tensor of every replica is another than at first."""
    fresh = fleet(replicas()).stack
    for r, weights in enumerate(together.weights):
        before = fresh.state(fresh.flat, r)
        assert all((t - before[name]).abs().max() > 0 for name, t in weights.items())
