"""Model files: one .safetensors with all that prediction needs, in JSON. Loading one runs no code."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from softmask import __version__
from softmask.atomic import atomic_path
from softmask.data.atoms import Atoms
from softmask.data.edge_features import EdgeFeatures
from softmask.data.features import Features
from softmask.data.store import GraphStore
from softmask.errors import FeatureError, ModelFileError, SettingError
from softmask.fleet.replica import check_seed
from softmask.nn import Committee, GeometricSoftMaskGNN, SoftMaskGNN
from softmask.study.geometric import Geometric
from softmask.study.settings import Settings

FORMAT = 1
TASKS = ("classification", "regression")


@dataclass(frozen=True)
class TrainedModel:
    """A trained model with all that prediction needs.

    Args:
        task: ``"classification"`` or ``"regression"``.
        settings: the model and its training.
        features: what it sees of a node.
        outputs: number of classes or targets.
        model: the network.
        classes: for classification, the labels as given (plain JSON), and their numpy dtype.
        mean, std: for regression, of each target in training.
        summary: how the training went.
        one_target: for regression, whether targets were given as ``[graphs]`` and so come back.
        edge_features: what it sees of an edge, if it looks at them.
        targets: the names of what it predicts, if they are known: of each target, or of the classes' column.
        geometric: for a model of molecules in space, what it has beside its settings.
    """

    task: str
    settings: Settings
    features: Features
    outputs: int
    model: SoftMaskGNN | Committee | GeometricSoftMaskGNN
    classes: tuple[list[Any], str] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    summary: dict[str, Any]
    one_target: bool = True
    edge_features: EdgeFeatures | None = None
    targets: Sequence[str] | None = None
    geometric: Geometric | None = None

    def inputs(self, store: GraphStore) -> tuple[torch.Tensor, torch.Tensor | None, Atoms | None]:
        """What the network takes of the nodes, the edges and, if it is geometric, the places of a store's graphs."""
        in_space = self.geometric is not None or (self.edge_features is not None and self.edge_features.relative)
        if in_space and store.pos is None:
            raise FeatureError(
                "this model was trained on molecules in space, with positions, bond lengths and hydrogens as atoms "
                f"(qm9 and qm9-sample have them); {_they_have(store)} no positions. For "
                "molecules given by SMILES train a model on such: softmask fit molecules.csv --smiles smiles ..."
            )
        edge_x = None if self.edge_features is None else self.edge_features(store)
        return self.features(store), edge_x, None if self.geometric is None else Atoms.of(store)


def _they_have(store: GraphStore) -> str:
    name = store.info.get("name")
    return f"{name} has" if name else "these graphs have"


def save_model(trained: TrainedModel, path: str | Path) -> None:
    """Writes a model file; on failure nothing is left behind."""
    head = {
        "format": FORMAT,
        "softmask": __version__,
        "torch": str(torch.__version__),
        "task": trained.task,
        "settings": trained.settings.to_json(),
        "features": trained.features.to_json(),
        "outputs": trained.outputs,
        "classes": trained.classes,
        "mean": trained.mean,
        "std": trained.std,
        "summary": trained.summary,
        "one_target": trained.one_target,
    }
    # What most models do not have stands in the files of those that do.
    if trained.edge_features is not None:
        head["edge_features"] = trained.edge_features.to_json()
    if trained.targets is not None:
        head["targets"] = list(trained.targets)
    if trained.geometric is not None:
        head["geometric"] = trained.geometric.to_json()
    try:
        text = json.dumps(head)
    except TypeError as error:
        raise ModelFileError(f"class labels must be numbers or strings to be written to a file: {error}") from None
    tensors = {name: _smallest(p.detach().cpu().contiguous()) for name, p in trained.model.state_dict().items()}
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={"softmask_model": text})
        except SafetensorError as error:  # a full disk, for one
            raise SettingError(f"cannot write {path}: {error}") from None


def _smallest(tensor: torch.Tensor) -> torch.Tensor:
    """As bfloat16, in half the bytes, where no number loses anything by it."""
    half = tensor.to(torch.bfloat16)
    return half if torch.equal(half.to(tensor.dtype), tensor) else tensor


def load_trained(path: str | Path) -> TrainedModel:
    """Reads a model file, checking everything before anything is used."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("softmask_model")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            tensors = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in tensors.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is truncated or not a .safetensors file ({error})") from None
    if text is None:
        raise ModelFileError(f"{path} is a .safetensors file, but not a softmask model")
    try:
        head = json.loads(text)
        version = head["format"]
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise TypeError(f"format {version!r}")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ModelFileError(f"{path}: the description of the model cannot be read ({error!r:.200})") from None
    if version > FORMAT:
        raise ModelFileError(
            f"{path} has format {version}, written by softmask {head.get('softmask')}; this version reads up to "
            f"{FORMAT}: update softmask"
        )
    try:
        return _build(head, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise ModelFileError(f"{path}: the description of the model is damaged ({error!r:.200})") from None


def _build(head: dict[str, Any], tensors: dict[str, torch.Tensor]) -> TrainedModel:
    settings, features = Settings(**head["settings"]), Features.from_json(head["features"])
    task, outputs = head["task"], int(head["outputs"])
    edges = None if head.get("edge_features") is None else EdgeFeatures.from_json(head["edge_features"])
    geometric = None if head.get("geometric") is None else Geometric.from_json(head["geometric"])
    if task not in TASKS:
        raise ValueError(f"unknown task {task!r}")
    if geometric is not None and (task, outputs) != ("regression", 1):
        raise ValueError(f"a geometric model predicts one number, not {outputs} of {task}")
    if geometric is not None and settings.committee > 1:
        raise ValueError(f"a geometric model is no committee of {settings.committee}")
    classes = _classes(head["classes"], outputs) if task == "classification" else None
    mean, std = (tuple(float(v) for v in head[key]) for key in ("mean", "std"))
    if task == "regression" and not len(mean) == len(std) == outputs:
        raise ValueError(f"{outputs} targets, but {len(mean)} means and {len(std)} deviations")
    if not all(map(math.isfinite, (*mean, *std))):
        raise ValueError("a mean or deviation is not a finite number")
    check_seed(head["summary"]["seed"])
    # Only sizes that the tensors bear out are built; the claims alone could ask for any amount of memory.
    if settings.layers * settings.committee > len(tensors) or settings.hidden * outputs > 2 * sum(
        t.numel() for t in tensors.values()
    ):
        raise ModelFileError(
            f"{settings.committee} networks of {settings.layers} layers of {settings.hidden} channels: the tensors are "
            "too few or small"
        )

    def build() -> SoftMaskGNN | Committee | GeometricSoftMaskGNN:
        if geometric is not None:
            return geometric.build(settings, features)
        return settings.build_whole(features, outputs, task, edges)

    with torch.device("meta"):
        _compare(build(), tensors)
    with torch.random.fork_rng(devices=[]):
        model = build()
    model.load_state_dict(tensors)
    return TrainedModel(
        task=task,
        settings=settings,
        features=features,
        outputs=outputs,
        model=model.eval(),
        classes=classes,
        mean=mean,
        std=std,
        summary=dict(head["summary"]),
        one_target=bool(head["one_target"]),
        edge_features=edges,
        targets=_targets(head.get("targets"), outputs if task == "regression" else 1),
        geometric=geometric,
    )


def _targets(names: Any, count: int) -> list[str] | None:
    if names is None:
        return None
    if not isinstance(names, list) or len(names) != count or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{count} targets, but their names are {names!r:.100}")
    return names


def _classes(given: Any, outputs: int) -> tuple[list[Any], str]:
    values, dtype = list(given[0]), str(given[1])
    if np.dtype(dtype).kind not in "biufU":
        raise ValueError(f"class labels of type {dtype!r}")
    array = np.array(values, dtype=dtype)
    if len(values) != outputs or array.tolist() != values or array.tolist() != np.unique(array).tolist():
        raise ValueError(f"{outputs} outputs, but the classes are {values!r:.100}")
    return values, dtype


def _compare(model: torch.nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    expected = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelFileError(f"the tensor {name} is missing")
        if tuple(tensors[name].shape) != shape:
            raise ModelFileError(f"the tensor {name} has shape {list(tensors[name].shape)}, expected {list(shape)}")
        if tensors[name].dtype != torch.float32 or not bool(torch.isfinite(tensors[name]).all()):
            raise ModelFileError(f"the tensor {name} must hold finite float32 numbers")
    if unknown := sorted(set(tensors) - set(expected)):
        raise ModelFileError(f"unknown tensor {unknown[0]}")
