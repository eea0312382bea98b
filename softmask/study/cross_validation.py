"""Cross validation: every fold of every run trains in one fleet."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from softmask.data.features import Features
from softmask.data.splits import stratified_folds
from softmask.data.store import GraphStore
from softmask.errors import SettingError
from softmask.fleet import Replica, Trouble, train_in_waves
from softmask.fleet.committee import members_of
from softmask.fleet.replica import check_seed
from softmask.nn.committee import joint_state
from softmask.study.settings import Settings


@dataclass(frozen=True)
class CrossValidation:
    """The outcome of a cross validation.

    Args:
        metric: ``[runs, folds]``, accuracy or mean absolute error on the held-out fold after the last epoch. No
            epoch was chosen, so nothing was fitted to the held-out folds.
        curve: ``[runs, folds, epochs]``, the same after every epoch.
        folds: the held-out graphs of each fold, by run.
        weights: the trained weights of each fold of each run, run by run.
        features: what the models saw of a node.
        troubles: models that diverged.
        interrupted: whether it was ended before its last epoch.
    """

    metric: np.ndarray
    curve: np.ndarray
    folds: list[list[np.ndarray]]
    weights: list[dict[str, torch.Tensor]]
    features: Features
    troubles: list[Trouble]
    interrupted: bool


def cross_validate(
    store: GraphStore,
    settings: Settings,
    folds: int = 10,
    runs: int = 1,
    seed: int = 0,
    device: str = "cpu",
    on_epoch: Callable[[int, torch.Tensor], bool | None] | None = None,
) -> CrossValidation:
    """Trains on all folds but one and tests on that one, for every fold and run; run r splits with seed + r.

    Args:
        store: the graphs, with classes or targets.
        settings: the model and its training.
        folds: into how many parts the graphs are split (stratified for classes).
        runs: how many times, each with new folds and new weights.
        seed: of the first run.
        device: where to train.
        on_epoch: called after every epoch with the epoch and the metric of all models, on the device; True ends it.

    The input features are those of all graphs of the set, as in the paper; no class or target is looked at for them.
    """
    if store.y is None:
        raise SettingError("the graphs have no classes or targets to learn")
    if runs < 1:
        raise SettingError(f"runs must be at least 1, got {runs}")
    classes = not store.y.is_floating_point()
    y = store.y.cpu().numpy()
    if classes:
        y = np.asarray(store.info["classes"])[y]
    features, edges = Features.of(store, attributes=settings.attributes), settings.edge_features(store)
    replicas, tests = [], []
    check_seed(seed)
    for run in ((seed + r) % 2**32 for r in range(runs)):
        split = stratified_folds(y, folds, run)
        tests.append([test for _, test in split])
        for fold, (train, test) in enumerate(split):
            replica = Replica(
                seed=(run * 1000 + fold) % 2**32,
                train=train,
                evaluate={"test": test},
                lr=settings.lr,
                decay=settings.decay,
                decay_every=settings.decay_every,
                average=settings.average,
            )
            replicas += members_of(replica, settings.committee)
    task = "classification" if classes else "regression"
    outputs = len(store.info["classes"]) if classes else store.y.size(1)

    def report(epoch: int, metrics: dict[str, torch.Tensor]) -> bool | None:
        return on_epoch(epoch, metrics["test"][:: settings.committee]) if on_epoch is not None else None

    history, _, _ = train_in_waves(
        lambda: settings.build(features, outputs, task, edges),
        store,
        features(store),
        replicas,
        settings.epochs,
        batch_size=settings.batch_size,
        on_epoch=report,
        device=device,
        loss="cross_entropy" if classes else "mse",
        committee=settings.committee,
        edge_x=None if edges is None else edges(store),
    )
    curve = history.metric["test"][:: settings.committee].reshape(runs, folds, -1)
    ends = range(0, len(replicas), settings.committee)
    weights = [joint_state(history.weights[i : i + settings.committee]) for i in ends]
    return CrossValidation(curve[..., -1], curve, tests, weights, features, history.troubles, history.interrupted)
