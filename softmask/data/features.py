"""What the network sees of a node: its label, its degree, its attributes. Learned from the training graphs."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from softmask.data.store import GraphStore
from softmask.errors import FeatureError

Kind = Literal["labels", "degree", "scaled-degree", "attributes"]
ONE_HOT_DEGREE_BELOW = 1000


class UnseenFeatureWarning(UserWarning):
    """A graph to predict has a label or a degree that no training graph had."""


@dataclass(frozen=True)
class Features:
    """How nodes become input vectors, fixed on the training graphs and kept with the model.

    Args:
        kind: ``labels`` (one-hot node labels), ``degree`` (one-hot degree), ``scaled-degree`` (one number,
            (degree - mean) / std) or ``attributes`` (nothing but the attributes).
        attributes: whether the continuous attributes are appended, each scaled to mean 0 and deviation 1.
        values: for labels, the known labels of each column.
        max_degree: for one-hot degree, the largest known degree.
        mean, std: for the scaled degree, and then for each attribute.
    """

    kind: Kind
    attributes: bool = False
    values: tuple[tuple[int, ...], ...] = ()
    max_degree: int = 0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @classmethod
    def of(cls, store: GraphStore, kind: Kind | Literal["auto"] = "auto", attributes: bool = False) -> "Features":
        """Features for the given training graphs.

        ``auto`` takes the labels if the set has them, else the attributes if it has them, else the degree: one-hot
        while the largest is below 1000, scaled from there on.
        """
        degree = store.degree()
        largest = int(degree.max()) if degree.numel() else 0
        if kind == "auto":
            if store.node_label is not None:
                kind = "labels"
            elif store.node_attr is not None:
                kind = "attributes"
            else:
                kind = "degree" if largest < ONE_HOT_DEGREE_BELOW else "scaled-degree"
        attributes = attributes or kind == "attributes"
        if kind == "labels" and store.node_label is None:
            raise FeatureError("these graphs have no node labels; use the degree or attributes instead")
        if attributes and store.node_attr is None:
            raise FeatureError("these graphs have no node attributes; leave attributes off")
        scaled: list[Tensor] = []
        values: tuple[tuple[int, ...], ...] = ()
        if kind == "labels":
            assert store.node_label is not None
            values = tuple(tuple(torch.unique(column).tolist()) for column in store.node_label.t())
        elif kind == "scaled-degree":
            scaled.append(degree.double().unsqueeze(-1))
        if attributes:
            assert store.node_attr is not None
            scaled.append(store.node_attr.double())
        table = torch.cat(scaled, dim=1) if scaled else torch.zeros(store.num_nodes, 0, dtype=torch.float64)
        mean = table.mean(dim=0)
        std = (table - mean).square().mean(dim=0).sqrt()
        # Said exactly: the mean of a constant is often not quite that constant.
        std[(table == table[:1]).all(dim=0)] = 0
        return cls(
            kind=kind,
            attributes=attributes,
            values=values,
            max_degree=largest if kind == "degree" else 0,
            mean=tuple(mean.tolist()),
            # A constant column carries nothing; dividing by 1 keeps it at zero.
            std=tuple(torch.where(std > 0, std, torch.ones_like(std)).tolist()),
        )

    @property
    def num_tokens(self) -> int:
        """How many one-hot places there are."""
        return self.max_degree + 1 if self.kind == "degree" else sum(map(len, self.values))

    @property
    def channels(self) -> int:
        """Size of the input vectors: the model's ``in_channels``."""
        return self.num_tokens + len(self.mean)

    def __call__(self, store: GraphStore) -> Tensor:
        """The model's input for all nodes of a store.

        Integer tokens, ``[nodes]`` or ``[nodes, columns]``, where the features are one-hot alone (the model looks them
        up, no one-hot vector is made); otherwise ``[nodes, channels]`` in float32.

        An unknown label becomes the zero vector, a degree above the largest known one counts as the largest; both
        give an :class:`UnseenFeatureWarning`.
        """
        if self.kind == "labels" and store.node_label is None:
            raise FeatureError("the model was trained on node labels; these graphs have none")
        if self.kind == "labels" and store.node_label is not None and store.node_label.size(1) != len(self.values):
            raise FeatureError(
                f"the model was trained on {len(self.values)} node labels a node; these graphs have "
                f"{store.node_label.size(1)}"
            )
        columns = len(self.mean) - (self.kind == "scaled-degree")
        if self.attributes and (store.node_attr is None or store.node_attr.size(1) != columns):
            have = "none" if store.node_attr is None else str(store.node_attr.size(1))
            raise FeatureError(f"the model was trained on {columns} node attributes; these graphs have {have}")
        tokens = self._tokens(store)
        if tokens is not None and not self.mean:
            return tokens.squeeze(-1) if tokens.size(1) == 1 else tokens
        parts = [store.degree().double().unsqueeze(-1)] if self.kind == "scaled-degree" else []
        if self.attributes:
            assert store.node_attr is not None
            parts.append(store.node_attr.double())
        mean, std = (torch.tensor(v, dtype=torch.float64, device=store.device) for v in (self.mean, self.std))
        table = ((torch.cat(parts, dim=1) - mean) / std).float()
        if tokens is None:
            return table
        hot = F.one_hot(tokens + 1, self.num_tokens + 1)[..., 1:].sum(dim=1)
        return torch.cat([hot.float(), table], dim=1)

    def _tokens(self, store: GraphStore) -> Tensor | None:
        if self.kind == "degree":
            degree = store.degree()
            unseen = degree > self.max_degree
            if bool(unseen.any()):
                _warn(
                    f"{int(unseen.sum())} nodes have more than {self.max_degree} neighbours, the most in training "
                    f"(first in {first_graph(store, unseen)}); they count as having {self.max_degree}"
                )
            return degree.clamp(max=self.max_degree).unsqueeze(-1)
        if self.kind != "labels":
            return None
        assert store.node_label is not None
        columns, first = [], 0
        for known, label in zip(self.values, store.node_label.t()):
            table = torch.tensor(known, dtype=label.dtype, device=label.device)
            place = torch.searchsorted(table, label.contiguous()).clamp(max=len(known) - 1)
            unseen = table[place] != label
            if bool(unseen.any()):
                strange = torch.unique(label[unseen]).tolist()
                _warn(
                    f"{int(unseen.sum())} nodes have a label that no training graph had "
                    f"({', '.join(map(str, strange[:5]))}{', ...' if len(strange) > 5 else ''}; first in "
                    f"{first_graph(store, unseen)}); they enter as zero vectors"
                )
            columns.append(torch.where(unseen, -1, place + first))
            first += len(known)
        return torch.stack(columns, dim=1)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for a model file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Features":
        """From what :meth:`to_json` gave; refuses anything else."""
        try:
            made = cls(
                kind=fields["kind"],
                attributes=bool(fields["attributes"]),
                values=tuple(tuple(int(v) for v in column) for column in fields["values"]),
                max_degree=int(fields["max_degree"]),
                mean=tuple(float(v) for v in fields["mean"]),
                std=tuple(float(v) for v in fields["std"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise FeatureError(f"not a description of features: {error!r}") from None
        if any(list(column) != sorted(set(column)) for column in made.values) or len(made.mean) != len(made.std):
            raise FeatureError("labels must ascend, and every mean have its deviation")
        if made.max_degree < 0 or made.channels < 1:
            raise FeatureError("there must be at least one input channel")
        if made.kind not in ("labels", "degree", "scaled-degree", "attributes"):
            raise FeatureError(f"unknown kind of features {made.kind!r}")
        return made


def first_graph(store: GraphStore, nodes: Tensor) -> str:
    """The graph of the first of some nodes, given by a mask or by their numbers, as a message should say it."""
    graph = int(store.batch[nodes][0])
    names = store.info.get("names")
    return f"graph {graph}" if names is None else f"graph {graph}, {str(names[graph])[:60]}"


def _warn(message: str) -> None:
    warnings.warn(message, UnseenFeatureWarning, stacklevel=4)
