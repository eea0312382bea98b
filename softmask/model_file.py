"""Model files: one .safetensors with all that prediction needs, in JSON. Loading one runs no code."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from softmask import __version__
from softmask.atomic import atomic_path
from softmask.data.features import Features
from softmask.errors import ModelFileError
from softmask.nn import SoftMaskGNN
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
    """

    task: str
    settings: Settings
    features: Features
    outputs: int
    model: SoftMaskGNN
    classes: tuple[list[Any], str] | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    summary: dict[str, Any]


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
    }
    try:
        text = json.dumps(head)
    except TypeError as error:
        raise ModelFileError(f"the class labels cannot be written to a file as JSON: {error}") from None
    tensors = {name: p.detach().cpu().contiguous() for name, p in trained.model.state_dict().items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"softmask_model": text})


def load_trained(path: str | Path) -> TrainedModel:
    """Reads a model file, checking everything before anything is used."""
    path = Path(path)
    if not path.is_file():
        raise ModelFileError(f"there is no model file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get("softmask_model")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path} is truncated or not a .safetensors file ({error})") from None
    if text is None:
        raise ModelFileError(f"{path} is a .safetensors file, but not a softmask model")
    try:
        head = json.loads(text)
        version = head["format"]
        if not isinstance(version, int):
            raise TypeError(f"format {version!r}")
    except (ValueError, TypeError, KeyError) as error:
        raise ModelFileError(f"{path}: the description of the model cannot be read ({error})") from None
    if version > FORMAT:
        raise ModelFileError(
            f"{path} has format {version}, written by softmask {head.get('softmask')}; this version reads up to "
            f"{FORMAT}: update softmask"
        )
    try:
        return _build(head, tensors)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelFileError(f"{path}: the description of the model is damaged ({error!r})") from None


def _build(head: dict[str, Any], tensors: dict[str, torch.Tensor]) -> TrainedModel:
    settings, features = Settings(**head["settings"]), Features.from_json(head["features"])
    if head["task"] not in TASKS:
        raise ValueError(f"unknown task {head['task']!r}")
    outputs = int(head["outputs"])
    classes = head["classes"]
    if head["task"] == "classification":
        classes = (list(classes[0]), str(classes[1]))
        if len(classes[0]) != outputs:
            raise ValueError(f"{outputs} outputs but {len(classes[0])} classes")
    # On the meta device a model of any claimed size costs no memory; only sizes that the tensors bear out are built.
    with torch.device("meta"):
        _compare(settings.build(features, outputs, head["task"]), tensors)
    with torch.random.fork_rng(devices=[]):
        model = settings.build(features, outputs, head["task"])
    model.load_state_dict(tensors)
    return TrainedModel(
        task=head["task"],
        settings=settings,
        features=features,
        outputs=outputs,
        model=model.eval(),
        classes=classes,
        mean=tuple(float(v) for v in head["mean"]),
        std=tuple(float(v) for v in head["std"]),
        summary=dict(head["summary"]),
    )


def _compare(model: SoftMaskGNN, tensors: dict[str, torch.Tensor]) -> None:
    expected = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    for name, shape in expected.items():
        if name not in tensors:
            raise ModelFileError(f"the tensor {name} is missing")
        if tuple(tensors[name].shape) != shape:
            raise ModelFileError(f"the tensor {name} has shape {list(tensors[name].shape)}, expected {list(shape)}")
    if unknown := sorted(set(tensors) - set(expected)):
        raise ModelFileError(f"unknown tensor {unknown[0]}")
