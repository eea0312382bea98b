"""Which baselines there are, and models of one's own beside them."""

import difflib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from softmask.baselines.entry import TRAINING, Baseline, Inputs, Way
from softmask.baselines.listed import MOLECULAR, NETWORKS, SHALLOW
from softmask.baselines.own import OWN, is_reference, own_model
from softmask.errors import SettingError

if TYPE_CHECKING:
    from torch.nn import Module

    from softmask.study.settings import Settings

__all__ = [
    "BASELINES",
    "SOFT_MASK",
    "Baseline",
    "Inputs",
    "baseline_settings",
    "check_model",
    "check_options",
    "find_model",
    "register_model",
    "title_of",
    "uses_of",
    "way_of",
]

SOFT_MASK = "soft-mask"
"""The models of this package, which are no baseline; :attr:`Settings.variant` says which of them."""

_OWN_USES = ("attributes", "edges", *TRAINING)

BASELINES = {baseline.name: baseline for baseline in (*NETWORKS, *MOLECULAR, *SHALLOW)}
"""The baselines that come along, by name."""


def check_model(model: object) -> str:
    """A model's name as it is listed, `GIN` as ``gin``; refuses what is none, and suggests the nearest."""
    if not isinstance(model, str):
        raise SettingError(f"a model is given by its name, got {model!r}")
    if model in OWN or is_reference(model):
        return model
    if model.lower() == SOFT_MASK or model.lower() in BASELINES:
        return model.lower()
    if model.endswith(".py"):
        raise SettingError(f"{model} is a file; name the class in it too, as {model}:MyNet")
    known = (SOFT_MASK, *BASELINES, *OWN)
    close = difflib.get_close_matches(model.lower(), known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
    raise SettingError(f"unknown model {model!r}; {hint} (`softmask models` lists them)")


def find_model(model: str) -> Baseline:
    """The baseline of a name: one that comes along, or a model of one's own, which trains one by one."""
    model = check_model(model)
    if model in BASELINES:
        return BASELINES[model]
    if model == SOFT_MASK:
        raise SettingError("soft-mask is no baseline")
    made = own_model(model)
    return Baseline(
        name=model,
        title=model.rpartition(":")[2],
        about="a model of one's own",
        reference="",
        way="one by one",
        uses=_OWN_USES,
        source=lambda inputs, settings: made(inputs.channels, inputs.outputs),
    )


def way_of(model: str) -> Way:
    """How the models of a name train."""
    if model == SOFT_MASK:
        return "fleet"
    return BASELINES[model].way if model in BASELINES else "one by one"


def uses_of(model: str) -> tuple[str, ...] | None:
    """The settings that the models of a name heed, ``model`` among them; ``None`` for all."""
    if model == SOFT_MASK:
        return None
    return ("model", *(BASELINES[model].uses if model in BASELINES else _OWN_USES))


_NO_KERNEL = "it is no kernel"
_IDLE: dict[Way, dict[str, str]] = {
    "once": {
        "patience": "it has no epochs to stop after",
        "precision": "it computes in float64",
        "repeats": "a fit has no weights to draw anew",
        "validation": "it has no epoch to choose and learns from the whole training part",
        "weights": "it has none",
        "device": "it computes on the CPU",
    },
    "one by one": {"precision": "it computes in float32", "force": _NO_KERNEL},
    "fleet": {"force": _NO_KERNEL},
}
# What these ways do anyway may be asked for.
_ANYWAY = {("once", "precision"): "float64", ("once", "device"): "cpu", ("one by one", "precision"): "float32"}


def check_options(models: Iterable[str], **given: Any) -> None:
    """Refuses options of a study that have no effect on any of its models.

    Args:
        models: their names.
        given: options by name; ``None``, False and ``auto`` are not given.
    """
    models = list(dict.fromkeys(models))
    ways = {model: way_of(model) for model in models}
    for name, value in given.items():
        if value is None or value is False or value == "auto":
            continue
        why = {model: _IDLE[way].get(name) for model, way in ways.items() if _ANYWAY.get((way, name)) != value}
        if models and len(why) == len(models) and all(why.values()):
            raise SettingError(f"{name} has no effect on {', '.join(models)}: {why[models[0]]}; leave it out")


def register_model(name: str, model: "Callable[[int, int], Module]") -> None:
    """Names a model of one's own, for ``Settings(model=name)``.

    Args:
        name: a name that no other model has; to give it again replaces the model.
        model: a class or function ``(in_channels, out_channels) -> Module``, whose modules take ``(x, edge_index,
            batch)``, as PyG's do, and give ``[graphs, out_channels]``: logits of classes, or targets scaled to mean 0
            and deviation 1.
    """
    if not name or ":" in name or name.lower() == SOFT_MASK or name.lower() in BASELINES:
        raise SettingError(f"a model of one's own cannot be called {name!r}: the name is taken, empty, or has a colon")
    if not callable(model):
        raise SettingError(f"the model {name!r} must be a class or a function, got {model!r}")
    OWN[name] = model


def baseline_settings(model: str, **changes: Any) -> "Settings":
    """The settings of a baseline: its own paper's, as far as there are any, with some changed."""
    from softmask.study.settings import Settings

    defaults = {} if check_model(model) == SOFT_MASK else find_model(model).defaults
    return Settings(**{"model": model, **defaults, **changes})


def title_of(settings: dict[str, Any]) -> str:
    """What the model of some settings, as a record has them, is called in a sentence."""
    model = str(settings.get("model", SOFT_MASK))
    if model == SOFT_MASK:
        variant, committee = str(settings.get("variant", "?")).upper(), settings.get("committee", 1)
        return variant if committee == 1 else f"{variant}, a committee of {committee}"
    return BASELINES[model].title if model in BASELINES else model.rpartition(":")[2]
