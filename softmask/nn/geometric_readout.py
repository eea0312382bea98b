"""From a few numbers of every atom to one of the molecule: readouts by the kind of property."""

import torch
from torch import Tensor

from softmask.ops import Segments, as_segments, graph_sum

READOUTS = ("sum", "mean", "dipole", "extent")
"""The readouts, in the order of :func:`readouts`."""

_TINY = 1e-12


def readouts(
    y: Tensor, arrow: Tensor, weight: Tensor, mass: Tensor, pos: Tensor, batch: Tensor | Segments, graphs: int
) -> Tensor:
    r"""Every readout of each graph, ``[graphs, 4]``.

    With :math:`y_v` a number of each node, :math:`\mathbf{a}_v` a vector in space that it has, and :math:`\mathbf{c}`
    the centre, the mean of the positions weighted by `mass`:

    - ``sum``, for what grows with the molecule: :math:`\sum_v y_v`
    - ``mean``, for what does not: :math:`\sum_v w_v y_v / \sum_v w_v`
    - ``dipole``, the length of the vector that charges and the dipoles of the atoms make: :math:`\big| \sum_v y_v
      (\mathbf{r}_v - \mathbf{c}) + \mathbf{a}_v \big|`
    - ``extent``: :math:`\sum_v y_v |\mathbf{r}_v - \mathbf{c}|^2`

    A node whose numbers, weight and mass are zero is as good as none. All of them stay the same when the molecule is
    moved, turned or mirrored.

    Args:
        y: ``[nodes]``.
        arrow: ``[nodes, 3]``.
        weight: ``[nodes]``, not negative.
        mass: ``[nodes]``, not negative.
        pos: ``[nodes, 3]``.
        batch: ``[nodes]``, the graph of each node, -1 for padding.
        graphs: how many there are.
    """
    # In exact numbers the origin does not matter; in floating point it had better be near.
    graph = as_segments(batch).graph.clamp(min=0)
    ones = torch.ones_like(pos[:, :1])
    place = graph_sum(torch.cat([ones, pos], dim=-1), batch, graphs).to(pos.dtype)
    pos = pos - (place[:, 1:] / place[:, :1].clamp(min=1))[graph]
    # Sums over graphs alone: the centre is never handed back to the nodes, so no gradient is scattered.
    scalars = torch.stack([y, weight * y, weight, mass, y * pos.square().sum(dim=-1)], dim=-1)
    vectors = torch.cat([y.unsqueeze(-1) * pos, mass.unsqueeze(-1) * pos, arrow], dim=-1)
    sums = graph_sum(torch.cat([scalars, vectors], dim=-1), batch, graphs)
    plain, weighted, weights, masses, second = sums[:, :5].unbind(-1)
    first, centre, arrows = sums[:, 5:8], sums[:, 8:11] / masses.clamp(min=_TINY).unsqueeze(-1), sums[:, 11:]
    moment = first - centre * plain.unsqueeze(-1)
    extent = second - ((first + moment) * centre).sum(dim=-1)
    square = (moment + arrows).square().sum(dim=-1)
    # The root has no gradient at zero: it is left out there, where the dipole of a symmetric molecule stays.
    dipole = torch.where(square > 0, square, 1).sqrt() * (square > 0)
    return torch.stack([plain, weighted / weights.clamp(min=_TINY), dipole, extent], dim=-1)
