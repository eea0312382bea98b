"""One model fitted to one large set by all processes that torchrun started; the work of ``softmask fit`` there."""

from typing import Any, NamedTuple

import numpy as np
import torch

from softmask.data.splits import holdout as split
from softmask.data.store import GraphStore
from softmask.data.targets import with_targets
from softmask.errors import DataError, SettingError
from softmask.fleet import History, OnEpoch, Replica
from softmask.fleet.data_parallel import train_data_parallel
from softmask.fleet.precision import Precision
from softmask.fleet.ranks import Ranks
from softmask.fleet.replica import check_seed
from softmask.fleet.shared_features import shared_features
from softmask.model_file import TrainedModel
from softmask.study.settings import Settings


class Fitted(NamedTuple):
    """A trained model and how its training went."""

    trained: TrainedModel
    history: History


def fit_large(
    store: GraphStore,
    settings: Settings,
    ranks: Ranks,
    seed: int = 0,
    holdout: float = 0.0,
    precision: Precision = "auto",
    on_epoch: OnEpoch | None = None,
) -> Fitted:
    """Fits what a :class:`~softmask.SoftMaskClassifier` or Regressor fits, on any number of ranks.

    Args:
        store: the graphs with classes or targets, mapped into memory.
        settings: the model and its training.
        ranks: the processes; all of them call this with the same arguments and get the same model.
        seed: for the initial weights, the shuffles, the dropout and the held-out part.
        holdout: share of the graphs that are not trained on, but scored after every epoch, as the part ``"test"``.
        precision: see :func:`~softmask.fleet.data_parallel.train_data_parallel`.
        on_epoch: called on every rank after every epoch; the training ends if it returns True on any.
    """
    check_seed(seed)
    if settings.edges:
        raise SettingError(
            "edge features are not for data parallel training or --holdout; leave edges off, or train in one process "
            "without --holdout (softmask evaluate --protocol holdout says how good such a model is)"
        )
    if settings.average:
        raise SettingError("averaged weights are not for data parallel training or --holdout; leave average at 0")
    if settings.committee > 1:
        raise SettingError("a committee is not for data parallel training or --holdout; leave committee at 1")
    if not 0 <= holdout < 1:
        raise SettingError(f"holdout must be at least 0 and below 1, got {holdout}")
    targets = store.info.get("targets")
    store, outputs, classes = _with_classes(store)
    assert store.y is not None
    train, evaluate = np.arange(store.num_graphs), {}
    if holdout:
        train, evaluate["test"] = split(store.y, (1 - holdout, holdout), seed)
    task = "regression" if classes is None else "classification"
    features = shared_features(store, train, ranks, settings.attributes)
    history, mean, std = train_data_parallel(
        lambda: settings.build(features, outputs, task),
        store,
        features,
        Replica(seed, train, evaluate, settings.lr, settings.decay, settings.decay_every),
        settings.epochs,
        ranks,
        batch_size=settings.batch_size,
        loss="mse" if classes is None else "cross_entropy",
        precision=precision,
        on_epoch=on_epoch,
    )
    with torch.random.fork_rng(devices=[]):
        model = settings.build(features, outputs, task)
    model.load_state_dict(history.weights[0])
    summary: dict[str, Any] = {
        "data": store.info.get("name"),
        "graphs": len(train),
        "epochs": history.epochs,
        "interrupted": history.interrupted,
        "train_loss": float(history.train_loss[0, -1]),
        "seed": seed,
        "device": ranks.device.type,
        "processes": ranks.world,
    }
    if holdout:
        score = "accuracy" if classes is not None else "mean_absolute_error"
        summary |= {"test_graphs": len(evaluate["test"]), f"test_{score}": float(history.metric["test"][0, -1])}
    trained = TrainedModel(
        task=task,
        settings=settings,
        features=features,
        outputs=outputs,
        model=model.eval(),
        classes=classes,
        mean=tuple(mean[0].tolist()),
        std=tuple(std[0].tolist()),
        summary=summary,
        one_target=outputs == 1,
        targets=targets,
    )
    return Fitted(trained, history)


def _with_classes(store: GraphStore) -> tuple[GraphStore, int, tuple[list[Any], str] | None]:
    """The store with its classes numbered as the model will, the number of outputs, and the classes themselves."""
    if store.y is None:
        raise DataError(f"{store.info.get('name', 'the set')}: its graphs have no classes or targets to learn")
    if store.y.is_floating_point():
        return store, store.y.size(1), None
    labels = np.asarray(store.info["classes"])
    # Sorted, and none that no graph has: what a model file holds.
    present = np.unique(labels[np.unique(store.y.numpy())])
    if len(present) < 2:
        raise SettingError("all graphs have the same class; a classifier needs at least two classes")
    place = np.searchsorted(present, labels).clip(max=len(present) - 1)
    return with_targets(store, place[store.y.numpy()]), len(present), (present.tolist(), present.dtype.str)
