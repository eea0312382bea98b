"""What a model for molecules in space has beside its settings: how it sees atoms, and what it need not learn."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from softmask.data.atom_references import COLUMNS
from softmask.data.bonds import BOND_KINDS
from softmask.data.features import Features
from softmask.data.molecules import ELEMENTS
from softmask.data.store import GraphStore
from softmask.nn import VARIANTS, GeometricSoftMaskGNN
from softmask.nn.geometric_readout import READOUTS
from softmask.study.settings import Settings


@dataclass(frozen=True)
class Geometric:
    """What a :class:`~softmask.nn.GeometricSoftMaskGNN` for one target has beside its settings.

    Args:
        readout: of :data:`~softmask.nn.geometric_readout.READOUTS`.
        num_radial, cutoff: of the model.
        references: what the target is linear in, of :data:`~softmask.data.atom_references.COLUMNS`; that part was not
            learned, and is added to what the model says.
        coefficients: of these columns, fitted on the training molecules.
    """

    readout: str
    num_radial: int
    cutoff: float
    references: tuple[str, ...] = ()
    coefficients: tuple[float, ...] = ()

    def build(self, settings: Settings, features: Features) -> GeometricSoftMaskGNN:
        """A model with fresh weights."""
        return GeometricSoftMaskGNN(
            *(features.channels, settings.hidden, settings.layers, len(BOND_KINDS)),
            multi_channel=VARIANTS[settings.variant]["multi_channel"],
            readout=self.readout,  # type: ignore[arg-type]
            num_radial=self.num_radial,
            cutoff=self.cutoff,
        )

    def reference(self, store: GraphStore, shown: Tensor | None = None) -> Tensor:
        """What follows from the atoms alone, ``[molecules]`` float64, in the target's unit.

        Args:
            store: the molecules.
            shown: ``[atoms]``, 1 for those that count and 0 for those that are shut out; by default all count.
        """
        if not self.references:
            return torch.zeros(store.num_graphs, dtype=torch.float64)
        table = torch.cat([COLUMNS[name](store, shown) for name in self.references], dim=1)
        return table @ torch.tensor(self.coefficients, dtype=torch.float64)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for a model file."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Geometric":
        """From what :meth:`to_json` gave; refuses anything else with a ``ValueError``."""
        made = cls(
            readout=str(fields["readout"]),
            num_radial=int(fields["num_radial"]),
            cutoff=float(fields["cutoff"]),
            references=tuple(str(name) for name in fields["references"]),
            coefficients=tuple(float(c) for c in fields["coefficients"]),
        )
        if made.readout not in READOUTS or not set(made.references) <= set(COLUMNS):
            raise ValueError(f"unknown readout {made.readout!r:.50} or references {made.references!r:.100}")
        if not 2 <= made.num_radial <= 10_000 or not 0 < made.cutoff < math.inf:
            raise ValueError(f"num_radial is {made.num_radial} and cutoff {made.cutoff}")
        if len(made.coefficients) != len(ELEMENTS) * len(made.references):
            raise ValueError(f"{len(made.coefficients)} coefficients of {len(made.references)} references")
        if not all(map(math.isfinite, made.coefficients)):
            raise ValueError("a coefficient is not a finite number")
        return made
