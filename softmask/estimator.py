"""Soft-mask GNNs as scikit-learn estimators."""

from pathlib import Path
from typing import Any, NamedTuple, Self

import networkx as nx
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch_geometric.data import Data

from softmask.baselines.registry import SOFT_MASK
from softmask.data.convert import as_store, with_targets
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.device import pick_device
from softmask.errors import DataError, SettingError
from softmask.fleet import OnEpoch, Replica, train_in_waves
from softmask.fleet.committee import members_of
from softmask.fleet.predict import predict
from softmask.fleet.replica import check_seed
from softmask.model_file import TrainedModel, load_trained, save_model
from softmask.nn.committee import joint_state
from softmask.study.settings import Settings


class Prediction(NamedTuple):
    """What a model says of some graphs.

    Args:
        values: classes ``[graphs]``, or targets ``[graphs]`` or ``[graphs, targets]``.
        probabilities: ``[graphs, classes]``; ``None`` for regression.
        masks: for each graph a list with one array a layer, ``[nodes, 1 or hidden]``; of a committee those of all
            members side by side.
    """

    values: np.ndarray
    probabilities: np.ndarray | None
    masks: list[list[np.ndarray]]


class _SoftMaskEstimator(BaseEstimator):
    """What classifier and regressor share: the parameters of :class:`softmask.study.settings.Settings`."""

    task: str

    def __init__(
        self,
        variant: str = "smg-jk",
        hidden: int = 64,
        layers: int = 3,
        epochs: int = 200,
        lr: float = 1e-3,
        decay: float = 1.0,
        decay_every: int = 50,
        batch_size: int = 128,
        dropout: float = 0.5,
        readout: str = "sum",
        attributes: bool = False,
        norm: bool = False,
        edges: bool = False,
        average: float = 0.0,
        committee: int = 1,
        seed: int = 0,
        device: str = "auto",
    ):
        self.variant = variant
        self.hidden = hidden
        self.layers = layers
        self.epochs = epochs
        self.lr = lr
        self.decay = decay
        self.decay_every = decay_every
        self.batch_size = batch_size
        self.dropout = dropout
        self.readout = readout
        self.attributes = attributes
        self.norm = norm
        self.edges = edges
        self.average = average
        self.committee = committee
        self.seed = seed
        self.device = device

    @classmethod
    def of(cls, settings: Settings, seed: int = 0, device: str = "auto") -> Self:
        """An estimator with given settings."""
        if settings.model != SOFT_MASK:
            raise SettingError(f"model is {settings.model!r}: these estimators are soft-mask models")
        known = {name: value for name, value in settings.to_json().items() if name != "model"}
        return cls(**known, seed=seed, device=device)

    def _settings(self) -> Settings:
        params = self.get_params()
        return Settings(**{k: v for k, v in params.items() if k not in ("seed", "device")})

    def _fit(
        self,
        store: GraphStore,
        outputs: int,
        classes: tuple[list[Any], str] | None,
        on_epoch: OnEpoch | None,
        one_target: bool = True,
        targets: list[str] | None = None,
    ) -> None:
        settings, device, seed = self._settings(), pick_device(self.device), check_seed(self.seed)
        features, edges = Features.of(store, attributes=settings.attributes), settings.edge_features(store)
        replica = Replica(
            seed=seed,
            train=np.arange(store.num_graphs),
            lr=settings.lr,
            decay=settings.decay,
            decay_every=settings.decay_every,
            average=settings.average,
        )
        history, mean, std = train_in_waves(
            lambda: settings.build(features, outputs, self.task, edges),
            store,
            features(store),
            members_of(replica, settings.committee),
            settings.epochs,
            batch_size=settings.batch_size,
            on_epoch=on_epoch,
            device=device,
            loss="cross_entropy" if self.task == "classification" else "mse",
            committee=settings.committee,
            edge_x=None if edges is None else edges(store),
        )
        with torch.random.fork_rng(devices=[]):
            model = settings.build_whole(features, outputs, self.task, edges)
        model.load_state_dict(joint_state(history.weights))
        self.loss_curve_ = history.train_loss.mean(axis=0)
        self.troubles_ = [str(t) for t in history.troubles]
        self._set_trained(
            TrainedModel(
                task=self.task,
                settings=settings,
                features=features,
                outputs=outputs,
                model=model.eval(),
                classes=classes,
                mean=tuple(mean[0].tolist()),
                std=tuple(std[0].tolist()),
                summary={
                    "data": store.info.get("name"),
                    "graphs": store.num_graphs,
                    "epochs": history.epochs,
                    "interrupted": history.interrupted,
                    "train_loss": float(self.loss_curve_[-1]),
                    "seed": seed,
                    "device": str(device),
                },
                one_target=one_target,
                edge_features=edges,
                targets=targets,
            )
        )

    def _set_trained(self, trained: TrainedModel) -> None:
        self.trained_ = trained

    def run(self, graphs: Any) -> "Prediction":
        """Predictions, probabilities and masks of all graphs in one pass."""
        store = as_store(graphs)
        said, masks = self._run(store)
        cuts = store.node_ptr[1:-1].cpu().numpy()
        by_layer = (np.split(m.cpu().numpy(), cuts) for m in masks)
        return Prediction(*said, [list(layers) for layers in zip(*by_layer)])

    def _run(self, store: GraphStore) -> tuple[tuple[np.ndarray, np.ndarray | None], list[torch.Tensor]]:
        """Predictions and probabilities; and the masks of each layer, still on the device."""
        check_is_fitted(self, "trained_")
        trained = self.trained_
        model = trained.model.to(pick_device(self.device))
        out, masks = predict(model, store, *trained.inputs(store))
        base = None if trained.geometric is None else trained.geometric.reference(store.to("cpu"))
        return self._read(out.double().cpu(), base), masks

    def _read(self, out: torch.Tensor, base: torch.Tensor | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """Predictions and probabilities from the network's output, and from what it need not learn, ``[graphs]``."""
        raise NotImplementedError

    def predict(self, graphs: Any) -> np.ndarray:
        """The most probable class of every graph, or its predicted targets."""
        return self._run(as_store(graphs))[0][0]

    def masks(self, graphs: Any) -> list[list[np.ndarray]]:
        """The masks of every graph: for each graph a list with one array a layer, ``[nodes, 1 or hidden]``; of a
        committee those of all members side by side.
        """
        return self.run(graphs).masks

    def explain(self, graphs: Any) -> Any:
        """Explanations: prediction, masks and the importance of every node (see :mod:`softmask.explain`).

        One :class:`~softmask.explain.Explanation` for a single PyG ``Data``, networkx graph or SMILES string; a list
        of them for anything else that :meth:`predict` takes.
        """
        from softmask.explain import explain

        check_is_fitted(self, "trained_")
        single = isinstance(graphs, Data | nx.Graph | str)
        found = explain(self, [graphs] if single else graphs)
        return found[0] if single else found

    def save(self, path: str | Path) -> None:
        """Writes the trained model to one .safetensors file."""
        check_is_fitted(self, "trained_")
        save_model(self.trained_, path)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


class SoftMaskClassifier(ClassifierMixin, _SoftMaskEstimator):
    """Classifies whole graphs with a soft-mask GNN.

    ``graphs`` is a list of PyG ``Data``, of networkx graphs or of SMILES strings, or a
    :class:`~softmask.data.GraphStore`. Class labels of any type come back as they were given.

    Args:
        variant, hidden, layers, epochs, lr, decay, decay_every, batch_size, dropout, readout, attributes, norm, edges,
            average, committee: see :class:`softmask.study.settings.Settings`.
        seed: for the initial weights, the shuffles and the dropout.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.

    Example:
        >>> clf = SoftMaskClassifier(hidden=32, epochs=50).fit(graphs, y)  # doctest: +SKIP
        >>> clf.predict(new_graphs), clf.masks(new_graphs)  # doctest: +SKIP
    """

    task = "classification"

    def fit(self, graphs: Any, y: Any = None, on_epoch: OnEpoch | None = None) -> Self:
        """Trains on graphs and their classes; a GraphStore may carry the classes itself."""
        store = as_store(graphs)
        targets = None if y is not None else store.info.get("targets")
        if y is None:
            if store.y is None or store.y.is_floating_point():
                raise DataError("fit needs y: the class of every graph")
            y = np.asarray(store.info["classes"])[store.y.cpu().numpy()]
        labels = _labels(y)
        if len(labels) != store.num_graphs:
            raise DataError(f"{store.num_graphs} graphs but {len(labels)} classes were given")
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise SettingError(f"all graphs have the class {labels[0]}; a classifier needs at least two classes")
        store = with_targets(store, index)
        classes = (self.classes_.tolist(), self.classes_.dtype.str)
        self._fit(store, len(self.classes_), classes, on_epoch, targets=targets)
        return self

    def predict_proba(self, graphs: Any) -> np.ndarray:
        """The probability of every class, ``[graphs, classes]``, in the order of ``classes_``."""
        probabilities = self.run(graphs).probabilities
        assert probabilities is not None
        return probabilities

    def _read(self, out: torch.Tensor, base: torch.Tensor | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        return self.classes_[out.argmax(dim=1).numpy()], torch.softmax(out, dim=1).numpy()

    def _set_trained(self, trained: TrainedModel) -> None:
        super()._set_trained(trained)
        assert trained.classes is not None
        values, dtype = trained.classes
        self.classes_ = np.array(values, dtype=np.dtype(dtype))


def _labels(y: Any) -> np.ndarray:
    """Class labels as an array of one type; refuses what could not come back as it was given."""
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise DataError(f"y must be one class a graph, got shape {labels.shape}")
    if labels.dtype.kind == "O":  # a column of pandas, say: what type are the values themselves?
        labels = np.asarray(list(y))
    mixed = len({isinstance(v, str) for v in y}) > 1
    if mixed or labels.dtype.kind not in "biufU":
        raise DataError("class labels must be all numbers or all strings, with none missing")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"graph {np.flatnonzero(~np.isfinite(labels))[0]}: its class is not a finite number")
    if len(labels) > 2 and len(np.unique(labels)) == len(labels):
        raise DataError(
            f"each of the {len(labels)} graphs has a class of its own; to predict numbers use SoftMaskRegressor"
        )
    return labels


class SoftMaskRegressor(RegressorMixin, _SoftMaskEstimator):
    """Predicts one or more numbers for whole graphs with a soft-mask GNN.

    Targets are scaled to mean 0 and deviation 1 in training, and predictions come back in the given unit. Arguments
    as for :class:`SoftMaskClassifier`.
    """

    task = "regression"

    def fit(self, graphs: Any, y: Any = None, on_epoch: OnEpoch | None = None) -> Self:
        """Trains on graphs and their targets, ``[graphs]`` or ``[graphs, targets]``."""
        store = as_store(graphs)
        if y is not None:
            values = np.asarray(y, dtype=np.float64)
            store = with_targets(store, values)
            one_target = values.ndim == 1
        elif store.y is None or not store.y.is_floating_point():
            raise DataError("fit needs y: a number for every graph")
        else:
            one_target = store.y.size(1) == 1
        assert store.y is not None
        self._fit(store, store.y.size(1), None, on_epoch, one_target, store.info.get("targets"))
        return self

    def _read(self, out: torch.Tensor, base: torch.Tensor | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        values = out.numpy() * np.array(self.trained_.std) + np.array(self.trained_.mean)
        if base is not None:
            values = values + base.numpy().reshape(-1, 1)
        return (values[:, 0] if self.trained_.one_target else values), None


def load_model(path: str | Path, device: str = "auto") -> SoftMaskClassifier | SoftMaskRegressor:
    """Reads a model file written by ``save`` or ``softmask fit``. Runs no code from the file."""
    trained = load_trained(path)
    kind = SoftMaskClassifier if trained.task == "classification" else SoftMaskRegressor
    model = kind.of(trained.settings, trained.summary["seed"], device)
    model._set_trained(trained)
    return model
