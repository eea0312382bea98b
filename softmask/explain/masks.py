"""Masks of all layers as one table."""

from collections.abc import Sequence

import torch
from torch import Tensor


def node_masks(masks: Sequence[Tensor]) -> Tensor:
    """One number for each node and layer: multi-channel masks (equation (6)) are averaged.

    Args:
        masks: one mask per layer, ``[nodes]``, ``[nodes, 1]`` or ``[nodes, channels]``, as the model
            returns them.

    Returns:
        ``[nodes, layers]``, detached from the graph of derivatives.
    """
    if len(masks) == 0:
        raise ValueError("no masks were given: expected one for each layer")
    return torch.stack([m.detach().reshape(m.size(0), -1).mean(dim=1) for m in masks], dim=1)
