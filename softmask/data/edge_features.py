"""What the network sees of an edge: its labels and attributes. Learned from the training graphs."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from softmask.data.features import UnseenFeatureWarning, first_graph
from softmask.data.store import GraphStore
from softmask.errors import FeatureError


@dataclass(frozen=True)
class EdgeFeatures:
    """How edges become input vectors, fixed on the training graphs and kept with the model.

    Labels are one-hot, column by column, followed by the attributes, each scaled to mean 0 and deviation 1, as
    :class:`~softmask.data.features.Features` has it for nodes.

    Args:
        values: the known labels of each column.
        mean, std: for each attribute.
        relative: whether an attribute is divided by the largest of its graph first: a bond's length by that of the
            longest bond of the molecule, as the paper has it.
    """

    values: tuple[tuple[int, ...], ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    relative: bool = False

    @classmethod
    def of(cls, store: GraphStore) -> "EdgeFeatures":
        """Features for the given training graphs: all that their edges carry."""
        if store.edge_label is None and store.edge_attr is None:
            raise FeatureError("the edges of these graphs have no labels or attributes; leave edges off")
        if store.num_edges == 0:
            raise FeatureError("these graphs have no edges; leave edges off")
        if store.directed:
            raise FeatureError("edge features need undirected graphs: some edge has no counterpart; leave edges off")
        values: tuple[tuple[int, ...], ...] = ()
        if store.edge_label is not None:
            values = tuple(tuple(torch.unique(column).tolist()) for column in store.edge_label.t())
        mean = std = torch.zeros(0, dtype=torch.float64)
        if store.edge_attr is not None:
            table = store.edge_attr.double()
            mean = table.mean(dim=0)
            std = (table - mean).square().mean(dim=0).sqrt()
            # As for nodes: a constant column carries nothing, and dividing by 1 keeps it near zero.
            std = torch.where((table == table[:1]).all(dim=0) | (std == 0), 1.0, std)
        return cls(values, tuple(mean.tolist()), tuple(std.tolist()))

    @property
    def channels(self) -> int:
        """Size of the vectors: the model's ``edge_channels``."""
        return sum(map(len, self.values)) + len(self.mean)

    def __call__(self, store: GraphStore) -> Tensor:
        """The model's input for all edges of a store, ``[edges, channels]`` float32 in the order of ``col``.

        An unknown label becomes the zero vector, with an :class:`~softmask.data.features.UnseenFeatureWarning`.
        """
        for what, array, columns in (
            ("labels", store.edge_label, len(self.values)),
            ("attributes", store.edge_attr, len(self.mean)),
        ):
            have = 0 if array is None else array.size(1)
            if have < columns or (columns and have > columns):
                raise FeatureError(f"the model was trained on {columns} {what} an edge; these graphs have {have}")
        parts: list[Tensor] = []
        if self.values:
            assert store.edge_label is not None
            parts += [self._hot(store, known, label) for known, label in zip(self.values, store.edge_label.t())]
        if self.mean:
            assert store.edge_attr is not None
            mean, std = (torch.tensor(v, dtype=torch.float64, device=store.device) for v in (self.mean, self.std))
            table = _by_largest(store) if self.relative else store.edge_attr.double()
            parts.append(((table - mean) / std).float())
        return torch.cat(parts, dim=1)

    def _hot(self, store: GraphStore, known: tuple[int, ...], label: Tensor) -> Tensor:
        hot = label.unsqueeze(-1) == torch.tensor(known, dtype=label.dtype, device=label.device)
        unseen = ~hot.any(dim=1)
        if bool(unseen.any()):
            strange = torch.unique(label[unseen]).tolist()
            where = first_graph(store, store.edges()[1][unseen][:1])
            warnings.warn(
                f"{int(unseen.sum())} edges have a label that no training graph had "
                f"({', '.join(map(str, strange[:5]))}{', ...' if len(strange) > 5 else ''}; first in {where}); "
                "they enter as zero vectors",
                UnseenFeatureWarning,
                stacklevel=3,
            )
        return hot.float()

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for a model file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "EdgeFeatures":
        """From what :meth:`to_json` gave; refuses anything else."""
        try:
            made = cls(
                values=tuple(tuple(int(v) for v in column) for column in fields["values"]),
                mean=tuple(float(v) for v in fields["mean"]),
                std=tuple(float(v) for v in fields["std"]),
                relative=bool(fields.get("relative", False)),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FeatureError(f"not a description of edge features: {error!r}") from None
        if any(list(column) != sorted(set(column)) for column in made.values) or len(made.mean) != len(made.std):
            raise FeatureError("labels of edges must ascend, and every mean have its deviation")
        limit = 2**31
        if any(not -limit <= v < limit for column in made.values for v in column):
            raise FeatureError("a label of an edge does not fit 32 bits")
        if made.channels < 1 or not all(0 < s < float("inf") for s in made.std):
            raise FeatureError("edges must have at least one feature, and deviations be positive")
        return made


def _by_largest(store: GraphStore) -> Tensor:
    """The attributes of all edges, each divided by the largest of its graph if that is above 0."""
    assert store.edge_attr is not None
    table, graph = store.edge_attr.double(), store.batch[store.edges()[1]]
    largest = table.new_zeros(store.num_graphs, table.size(1))
    largest.scatter_reduce_(0, graph.unsqueeze(1).expand_as(table), table, "amax")
    return table / torch.where(largest > 0, largest, 1)[graph]
