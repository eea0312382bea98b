"""Models of one's own as baselines: classes that were registered, or that stand in a file or a module."""

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softmask.errors import SettingError

if TYPE_CHECKING:
    from torch.nn import Module

OWN: "dict[str, Callable[[int, int], Module]]" = {}
"""The models that :func:`register_model` named, by name: known in this process only."""


def is_reference(model: str) -> bool:
    """Whether a name says where to find a model: ``nets.py:MyNet`` or ``package.module:MyNet``."""
    where, _, name = model.rpartition(":")
    return bool(where) and name.isidentifier()


def own_model(model: str) -> "Callable[[int, int], Module]":
    """The class or function behind the name of a model of one's own."""
    where, _, name = model.rpartition(":")
    found = OWN[model] if model in OWN else getattr(_module(where, model), name, None)
    if not callable(found):
        raise SettingError(f"{model}: there is no class or function {name} in {where}")
    try:
        inspect.signature(found).bind(1, 1)
    except TypeError as error:
        raise SettingError(f"{model} must take (in_channels, out_channels) alone: {error}") from None
    except ValueError:
        pass  # written in C: it has no signature to look at
    return found


def own_code(model: str) -> str:
    """A hash of the model's source, as far as Python can find it."""
    if model not in OWN and model.rpartition(":")[0].endswith(".py"):
        try:
            return hashlib.sha256(Path(model.rpartition(":")[0]).read_bytes()).hexdigest()[:16]
        except OSError as error:
            raise SettingError(f"{model}: the file cannot be read: {error.strerror}") from None
    return hashlib.sha256(_source(own_model(model)).encode()).hexdigest()[:16]


def _source(made: Any) -> str:
    """The source of the module that a class or function stands in: layers that it is made of stand there too."""
    if isinstance(made, functools.partial):
        return f"{_source(made.func)} {made.args} {made.keywords}"
    for part in (inspect.getmodule(made), made):
        try:
            return inspect.getsource(part)  # type: ignore[arg-type]
        except (OSError, TypeError):
            continue
    # Typed into a prompt, perhaps: the name is all that is known.
    return f"{getattr(made, '__module__', '')}.{getattr(made, '__qualname__', repr(type(made)))}"


def check_elsewhere(model: str, machines: bool) -> None:
    """Refuses a model that other processes, or the same on other `machines`, cannot find."""
    if model in OWN:
        raise SettingError(
            f"the model {model!r} was registered in this process, and jobs in other processes do not know it: write it "
            "into a module that they can import and name it as package.module:Class, or run on one device"
        )
    if machines and model.rpartition(":")[0].endswith(".py"):
        raise SettingError(
            f"the model {model!r} stands in a file of this machine, which the machines of a Ray cluster do not have: "
            "install it on all of them and name it as package.module:Class"
        )


def _module(where: str, model: str) -> Any:
    if not where.endswith(".py"):
        try:
            return importlib.import_module(where)
        except ImportError as error:
            raise SettingError(
                f"{model}: the module {where} cannot be imported ({error}); a file is named as path/to/nets.py:Class"
            ) from None
    path = Path(where)
    if not path.is_file():
        raise SettingError(f"{model}: there is no file {path}")
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SettingError(f"{model}: {path} cannot be run: {type(error).__name__}: {error}") from error
    return module
