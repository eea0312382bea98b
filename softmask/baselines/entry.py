"""What is known of a baseline before any of it is built. Nothing here imports torch."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from softmask.errors import CannotRun

if TYPE_CHECKING:
    import numpy as np
    from torch.nn import Module

    from softmask.data.features import Features
    from softmask.data.store import GraphStore
    from softmask.study.settings import Settings

Way = Literal["fleet", "one by one", "once"]

TRAINING = ("epochs", "lr", "decay", "decay_every", "batch_size")
"""The settings of every training with epochs."""
NETWORK = ("hidden", "layers", "dropout", "readout", "attributes", *TRAINING)
"""Those of most networks."""
IN_SPACE = "positions of atoms, with elements and kinds of bonds"
"""What a network of molecules in space needs."""


class Inputs(NamedTuple):
    """What a model must know of the data.

    Args:
        channels: size of the nodes' input vectors.
        outputs: number of classes or targets.
        task: ``classification`` or ``regression``.
        sizes: ``[graphs]``, the number of nodes of every graph of the set.
        edge_channels: size of the edges' input vectors; ``None`` if they carry nothing.
        features: how nodes become input vectors; ``None`` if that does not matter.
        degree: the largest degree of a node of the set.
    """

    channels: int
    outputs: int
    task: str
    sizes: "np.ndarray"
    edge_channels: int | None = None
    features: "Features | None" = None
    degree: int = 0


@dataclass(frozen=True)
class Baseline:
    """A system to compare with.

    Args:
        name: as ``--model`` has it.
        title: as a sentence has it.
        about: what it is, in one line.
        reference: the paper that it is from.
        origin: where its settings come from, and in what they are others than those.
        way: how it trains: in a ``fleet``, ``one by one`` with PyG's batches, or ``once``, without epochs.
        row: the row of the paper's Table 1 that it stands for, if there is one.
        defaults: its own settings, where they are not those of :class:`~softmask.study.settings.Settings`.
        uses: the settings that it heeds; others have no effect.
        needs: what the graphs must have: ``node labels``, ``edge labels or attributes``, or :data:`IN_SPACE`.
        tasks: what it can learn.
        source: what builds it, ``(inputs, settings) -> Module``, or ``module:name`` of that; ``None`` if it trains
            once.
    """

    name: str
    title: str
    about: str
    reference: str
    way: Way
    origin: str = ""
    row: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)
    uses: tuple[str, ...] = NETWORK
    needs: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ("classification", "regression")
    source: "str | Callable[[Inputs, Settings], Module] | None" = None

    def build(self, inputs: Inputs, settings: "Settings") -> "Module":
        """A model with fresh weights."""
        if not isinstance(self.source, str):
            assert self.source is not None
            return self.source(inputs, settings)
        module, _, name = self.source.partition(":")
        return getattr(importlib.import_module(module), name)(inputs, settings)

    def check(self, store: "GraphStore") -> None:
        """Refuses graphs that lack what the baseline needs."""
        assert store.y is not None
        has = {
            "node labels": store.node_label is not None,
            "edge labels or attributes": store.edge_label is not None or store.edge_attr is not None,
            IN_SPACE: store.pos is not None,
        }
        name = store.info.get("name", "this set")
        for need in self.needs:
            if not has[need]:
                raise CannotRun(f"{self.title} needs {need}, and {name} has none; see `softmask models`")
        if IN_SPACE in self.needs:
            from softmask.data.atoms import Atoms

            Atoms.of(store)  # refuses bonds that it does not know
        task = "regression" if store.y.is_floating_point() else "classification"
        if task not in self.tasks:
            raise CannotRun(f"{self.title} is for {' and '.join(self.tasks)}, and {name} asks for {task}")
