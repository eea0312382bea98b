"""Masks of all layers as one table."""

from collections.abc import Sequence

import torch
from torch import Tensor

from softmask.errors import SettingError


def node_masks(masks: Sequence[Tensor], reduction: str = "mean") -> Tensor:
    r"""One number for each node and layer: the channels of multi-channel masks (equation (6)) are reduced.

    ``mean``, the default, is the share of a node's vector that the mask lets through if all channels are alike, and
    with one channel it is the mask. ``max`` says whether any channel sees the node: near 1 for most nodes once there
    are many channels. ``norm`` lies between, the root of the mean square. All three stay in [0, 1], are 0 only where
    every channel is 0, and are the mask itself where there is one channel.

    Args:
        masks: one mask per layer, ``[nodes]``, ``[nodes, 1]`` or ``[nodes, channels]``, as the model
            returns them.
        reduction: ``mean``, ``max`` or ``norm``.

    Returns:
        ``[nodes, layers]``, detached from the graph of derivatives.
    """
    if len(masks) == 0:
        raise ValueError("no masks were given: expected one for each layer")
    reduce = {"mean": _mean, "max": _max, "norm": _norm}.get(reduction)
    if reduce is None:
        raise SettingError(f"unknown reduction {reduction!r}; known are mean, max and norm")
    return torch.stack([reduce(m.detach().reshape(m.size(0), -1)) for m in masks], dim=1)


def _mean(mask: Tensor) -> Tensor:
    return mask.mean(dim=1)


def _max(mask: Tensor) -> Tensor:
    return mask.amax(dim=1)


def _norm(mask: Tensor) -> Tensor:
    return mask.square().mean(dim=1).sqrt()
