"""Two linear maps of one input as one product."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn.dense.linear import Linear


def joint_linear(x: Tensor, a: Linear, b: Linear) -> tuple[Tensor, Tensor]:
    """``a(x)`` and ``b(x)``, two maps with as many outputs, from one matrix product: `x` is read once."""
    if a.in_channels < 0:  # not yet known: the maps' own first call finds it out
        return a(x), b(x)
    bias = None if a.bias is None else torch.cat([a.bias, b.bias])
    first, second = F.linear(x, torch.cat([a.weight, b.weight]), bias).chunk(2, dim=-1)
    return first, second
