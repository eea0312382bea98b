"""Grids of settings to search, and the settings a search chose, as TOML files."""

import difflib
import itertools
import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from softmask.atomic import atomic_path
from softmask.baselines.own import is_reference
from softmask.baselines.registry import baseline_settings, check_model
from softmask.errors import DataError, SettingError
from softmask.fleet.replica import check_seed
from softmask.study.settings import Settings

FAMILIES = {
    "bio": ("MUTAG", "PROTEINS", "NCI1", "ENZYMES"),
    "social": ("IMDB-BINARY", "IMDB-MULTI", "COLLAB", "REDDIT-BINARY", "REDDIT-MULTI-5K", "REDDIT-MULTI-12K"),
}
"""The paper's sets by family; each family has its own sizes of hidden vectors to search."""

SHIPPED = ("bio", "social", "quick")
"""The grids that come with the package; ``paper`` is the one of the set's family."""

# What a fleet has per replica. Settings that differ in nothing else train in one.
PER_REPLICA = ("lr", "decay", "decay_every", "dropout", "average")

_KEYS = tuple(field.name for field in fields(Settings))
_MOST = 100_000


@dataclass(frozen=True)
class Grid:
    """Settings to search: every combination of the values listed.

    Args:
        name: of the grid, or the path of its file.
        values: the values to try, by setting.
    """

    name: str
    values: dict[str, tuple[Any, ...]]

    def settings(self, base: Settings | None = None) -> list[Settings]:
        """All valid points, each once, in the order of the file (the last setting of it changes fastest).

        Points that train alike, as with no decay every 50 or every 100 epochs, count once.

        Args:
            base: where settings that the grid does not name come from; by default those of ``Settings()``. Where the
                grid names models, each has settings of its own, and of `base` only what it changed.
        """
        return self._points(base)[0]

    def skipped(self, base: Settings | None = None) -> int:
        """How many combinations are no valid settings; :meth:`settings` leaves them out."""
        return self._points(base)[1]

    def sample(self, n: int, seed: int = 0, base: Settings | None = None) -> list[Settings]:
        """`n` distinct valid points, drawn at random, in the order of :meth:`settings`; the same for the same seed.

        Args:
            n: how many.
            seed: any integer from 0 to 2**32 - 1.
            base: as for :meth:`settings`.
        """
        points = self.settings(base)
        if not 1 <= n <= len(points):
            raise SettingError(f"a sample of {n} settings: the grid {self.name} has {len(points)}")
        # As in the splits, only Generator.random is drawn from: its stream is the same in every version of numpy.
        draw = np.random.Generator(np.random.PCG64(check_seed(seed))).random(len(points))
        return [points[i] for i in np.sort(np.argsort(draw, kind="stable")[:n])]

    def _points(self, base: Settings | None) -> tuple[list[Settings], int]:
        base = base or Settings()
        found: dict[Settings, Settings] = {}
        skipped, reason = 0, ""
        for point in itertools.product(*self.values.values()):
            chosen = dict(zip(self.values, point, strict=True))
            try:
                settings = Settings(**_default(base, chosen.get("model", base.model)) | chosen)
            except SettingError as error:
                skipped, reason = skipped + 1, reason or str(error)
                continue
            found.setdefault(_trained(settings), settings)
        if not found:
            raise SettingError(f"the grid {self.name} has no valid point among {skipped}; of the first: {reason}")
        return list(found.values()), skipped


def by_shape(settings: Sequence[Settings]) -> list[list[int]]:
    """Groups settings that can train in one fleet: equal in all but rate, decay, dropout and average.

    Returns:
        For each group, in the order of their first, the places of its settings in the list.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, one in enumerate(settings):
        shape = tuple(value for name, value in one.to_json().items() if name not in PER_REPLICA)
        groups.setdefault(shape, []).append(place)
    return list(groups.values())


def read_grid(path_or_name: str | Path, data: str | None = None) -> Grid:
    """Reads a grid: a TOML file in which every setting is a value or a list of values.

    Args:
        path_or_name: a file, or ``bio``, ``social``, ``quick``, or ``paper`` for the one of the set's family. A file
            of such a name is given as ``./quick``.
        data: the set's name, for ``paper``.
    """
    name = str(path_or_name) if isinstance(path_or_name, str) else ""
    if name == "paper":
        family = [family for family, sets in FAMILIES.items() if data in sets]
        if not family:
            known = ", ".join(name for sets in FAMILIES.values() for name in sets)
            raise SettingError(
                f"the paper has no grid for {data!r}, only for {known}; use one of {', '.join(SHIPPED)}, or a TOML "
                "file of your own"
            )
        name = family[0]
    if name in SHIPPED:
        source = files("softmask.paper").joinpath("grids", f"{name}.toml")
        return Grid(name, _choices(_parse(source.read_bytes(), name), name))
    path = Path(path_or_name)
    if not path.exists():
        close = difflib.get_close_matches(name, (*SHIPPED, "paper"), n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(SHIPPED)} and paper"
        raise SettingError(f"{path}: there is no such file, nor a grid of that name; {hint}")
    return Grid(str(path), _choices(_parse(_bytes(path), str(path)), str(path)))


def read_settings_toml(path: str | Path) -> Settings:
    """Reads one model's settings; what the file does not name is as the model has it by default."""
    table = _parse(_bytes(Path(path)), str(path))
    for key, value in table.items():
        if isinstance(value, list):
            raise SettingError(f"{path}: {key} is a list; one value was expected (a file of lists is a grid, to tune)")
        _check_kind(path, key, value)
        try:
            Settings(**{key: value})
        except SettingError as error:
            raise SettingError(f"{path}, {key}: {error}") from None
    return Settings(**_default(Settings(), table.get("model", Settings.model)) | table)


def write_settings_toml(path: str | Path, settings: Settings, comment: str = "") -> None:
    """Writes one model's settings, for :func:`read_settings_toml`.

    Args:
        path: the file.
        settings: what to write.
        comment: what a reader should know of them, at the top of the file.
    """
    lines = ["# " + "".join(c for c in line if c.isprintable()) for line in comment.splitlines()]
    for name, value in settings.to_json().items():
        # JSON's strings and truth values are TOML's too; of floats, repr keeps every digit.
        lines.append(f"{name} = {value!r}" if isinstance(value, float) else f"{name} = {json.dumps(value)}")
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _default(base: Settings, model: str) -> dict[str, Any]:
    """What a point with that model has for settings it does not name: those of `base`; of another model than that of
    `base`, its own settings, with what `base` has changed.
    """
    if check_model(model) == base.model:
        return base.to_json()
    usual = baseline_settings(base.model).to_json()
    changed = {name: value for name, value in base.to_json().items() if name != "model" and value != usual[name]}
    return baseline_settings(model).to_json() | changed


def _trained(settings: Settings) -> Settings:
    """The settings without what has no effect: how often a rate is multiplied by 1."""
    if settings.decay != 1:
        return settings
    return Settings(**settings.to_json() | {"decay_every": Settings.decay_every})


def _choices(table: dict[str, Any], name: str) -> dict[str, tuple[Any, ...]]:
    values = {key: tuple(value) if isinstance(value, list) else (value,) for key, value in table.items()}
    for key, choices in values.items():
        if not choices:
            raise SettingError(
                f"{name}: {key} is an empty list, so the grid has no point; give it a value or remove it"
            )
        for choice in choices:
            _check_kind(name, key, choice)
    points = math.prod(len(choices) for choices in values.values())
    if points > _MOST:
        raise SettingError(f"{name}: {points} combinations are more than {_MOST} and no search ends; list fewer values")
    return values


def _check_kind(path: str | Path, key: str, value: Any) -> None:
    """Refuses values that are no setting at all, before `Settings` looks at what they are."""
    if key == "model" and isinstance(value, str) and is_reference(value):
        raise SettingError(f"{path}: model {value!r}: no code is run because a file names it; give it with --model")
    switch = isinstance(getattr(Settings, key), bool)
    if not isinstance(value, str | int | float) or isinstance(value, bool) != switch:
        kind = "true or false" if switch else "a number or a word"
        raise SettingError(f"{path}: {key} must be {kind}, got {value!r}")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _parse(content: bytes, name: str) -> dict[str, Any]:
    """The keys of a TOML file, all of them settings."""
    try:
        text = content.decode("utf-8")
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DataError(f"{name}, line {line}: not TOML, which is UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        # tomllib names the line, but for a file that ends too early.
        told = str(error).replace("at end of document", f"at end of document, line {len(text.splitlines())}")
        raise DataError(f"{name}: not TOML: {told}") from None
    except RecursionError:
        raise DataError(f"{name}: not a file of settings, nested too deeply") from None
    if not table:
        raise SettingError(f"{name} names no setting; known are {', '.join(_KEYS)}")
    for key in table:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(_KEYS)}"
            raise SettingError(f"{name}: unknown setting {key!r}; {hint}")
    return table
