"""The input map, which takes features or tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear


def embed(x: Tensor, lin: Linear) -> Tensor:
    """An affine map of the nodes' input; a linear one, if `lin` has no bias.

    Args:
        x: ``[nodes, in_channels]`` floating point; or integer tokens, ``[nodes]`` or ``[nodes, columns]``, each
            standing for the one-hot vector with a 1 in that place (-1: the zero vector).
        lin: the map.
    """
    if x.is_floating_point() and lin.in_channels != 1:
        return lin(x)
    if lin.in_channels == -1:
        raise ValueError("in_channels=-1 needs floating-point features; give the number of tokens instead")
    return mapped(x, lin.weight, lin.bias)


def mapped(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The same by a matrix ``[out_channels, in_channels]``, say a part of another."""
    channels = weight.size(1)
    if x.is_floating_point():
        if channels == 1:  # an outer product, which a compiler fuses with what follows
            h = x * weight.t()
            return h if bias is None else h + bias
        return F.linear(x, weight, bias)
    if x.is_cuda:
        # The gradient of a look-up adds many rows into few, in any order; that of a product is fixed and faster.
        # Its matrix is padded to rows of whole 16 bytes, which the tensor cores want.
        padding = -channels % 8
        kinds = torch.arange(channels + padding, device=x.device)
        hot = (x.reshape(x.size(0), -1, 1) == kinds).sum(dim=1).to(weight.dtype)
        return F.linear(hot, F.pad(weight, (0, padding)), bias)
    # A one-hot vector times a matrix is a look-up; the row before the first is the zero vector (token -1).
    table = F.pad(weight.t(), (0, 0, 1, 0))
    h = F.embedding(x.long() + 1, table)
    h = h.sum(dim=1) if x.dim() == 2 else h
    return h if bias is None else h + bias
