"""Which node belongs to which graph: the one form in which the operators take a batch."""

from typing import NamedTuple

from torch import Tensor


class Segments(NamedTuple):
    """The graph of each node, and, where the nodes of each graph lie side by side, where they begin and end.

    Args:
        graph: ``[nodes]``, the graph of each node; a negative entry marks padding, which belongs to no graph.
        first, last: ``[graphs]``, the first node of each graph and the one behind its last; ``None`` if not known.
        weight: ``[nodes]``, how often each node counts, where it stands for several; ``None``: once.
    """

    graph: Tensor
    first: Tensor | None = None
    last: Tensor | None = None
    weight: Tensor | None = None


def as_segments(batch: "Tensor | Segments") -> Segments:
    """Brings PyG's ``batch`` vector to :class:`Segments`."""
    return batch if isinstance(batch, Segments) else Segments(batch)


def side_by_side(t: Tensor | None, dim: int | None, replicas: int) -> Tensor | None:
    """An argument of an operator under vmap with the replicas first, whether it is of one replica each or of all."""
    if t is None:
        return None
    return t.expand(replicas, *t.shape) if dim is None else t.movedim(dim, 0)
