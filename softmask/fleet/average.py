"""Means of the weights of the last epochs, for every replica."""

import torch
from torch import Tensor


class Average:
    """Exponential means over rows: row ``r`` of every array belongs to replica ``r``.

    A step moves a replica's mean towards its weights by the share 1 / window; while it has taken few steps, by
    10 / (9 + steps), so that the first weights, which mean nothing, are soon forgotten.

    Args:
        flat: the parameters, ``[replicas, entries]``, as they are before the first step.
        windows: over about how many steps each replica's mean goes, ``[replicas]``; 0 for its last weights.
    """

    def __init__(self, flat: Tensor, windows: Tensor):
        self.flat = flat.clone()
        self.least = 1 / windows.to(flat).clamp(min=1).unsqueeze(1)

    def step(self, flat: Tensor, steps: Tensor, active: Tensor) -> None:
        """Takes in the weights after a step of the active replicas, each one's ``[replicas, 1]``-th."""
        share = torch.maximum(self.least, 10 / (9 + steps.clamp(min=1)))
        self.flat.lerp_(flat, share * active.unsqueeze(1))
