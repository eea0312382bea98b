"""One way in to the three ways in which baselines train."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from softmask.baselines.entry import IN_SPACE, Inputs
from softmask.baselines.registry import find_model
from softmask.data.edge_features import EdgeFeatures
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.fleet import History, Replica, train_in_waves
from softmask.fleet.pairs import StorePairs
from softmask.fleet.precision import Precision

if TYPE_CHECKING:
    from softmask.study.settings import Settings


def train_baseline(
    settings: "Settings",
    store: GraphStore,
    replicas: Sequence[Replica],
    epochs: int,
    patience: tuple[str, int] | None = None,
    on_epoch: Callable[[int], bool | None] | None = None,
    device: str = "cpu",
    precision: Precision = "auto",
    snapshots: Path | None = None,
    force: bool = False,
) -> History:
    """Trains the models of a baseline in its way: as a fleet, one by one, or once.

    Args:
        settings: of the baseline; replicas may have rates of their own.
        store: the graphs, with targets.
        replicas: the models to train.
        epochs: how often every training graph is seen.
        patience: a part and a number of epochs without improvement that end a training.
        on_epoch: called after every epoch, or a few times a second by what trains once; True ends the training, of what
            trains once with :class:`~softmask.errors.StudyInterrupted`.
        device: where to train; what trains once does so on the CPU.
        precision: of a fleet; other models compute in float32.
        snapshots: folder from which an interrupted training goes on.
        force: fit kernels that are estimated to take beyond reason.
    """
    assert store.y is not None
    baseline = find_model(settings.model)
    baseline.check(store)
    if baseline.way == "once":
        from softmask.baselines.once import fit_once

        return fit_once(baseline.name, store, replicas, force, None if on_epoch is None else lambda: on_epoch(0))
    features, edges = Features.of(store, attributes=settings.attributes), settings.edge_features(store)
    inputs = inputs_of(store, features, edges)

    def make() -> torch.nn.Module:
        return baseline.build(inputs, settings)

    loss = "cross_entropy" if inputs.task == "classification" else "mse"
    edge_x = None if edges is None else edges(store)
    if baseline.way == "one by one":
        from softmask.baselines.one_by_one import train_one_by_one

        return train_one_by_one(
            *(make, store, features(store), inputs.channels, replicas, epochs, settings.batch_size),
            loss=loss,
            on_epoch=on_epoch,
            device=device,
            snapshots=snapshots,
            patience=patience,
            edge_x=edge_x,
        )
    pairs = StorePairs.of_atoms(store) if IN_SPACE in baseline.needs else None
    history, _, _ = train_in_waves(
        *(make, store, features(store), replicas, epochs, settings.batch_size),
        on_epoch=None if on_epoch is None else lambda epoch, _: on_epoch(epoch),
        device=device,
        precision=precision,
        snapshots=snapshots,
        patience=patience,
        loss=loss,
        edge_x=edge_x,
        pairs=pairs,
    )
    return history


def inputs_of(store: GraphStore, features: Features, edges: EdgeFeatures | None = None) -> Inputs:
    """What the networks of baselines are made for: the graphs of a set, their features and their targets."""
    assert store.y is not None
    regression = store.y.is_floating_point()
    return Inputs(
        channels=features.channels,
        outputs=store.y.size(1) if regression else len(store.info["classes"]),
        task="regression" if regression else "classification",
        sizes=store.sizes.cpu().numpy(),
        edge_channels=None if edges is None else edges.channels,
        features=features,
        degree=int(store.degree().max()) if store.num_nodes else 0,
    )
