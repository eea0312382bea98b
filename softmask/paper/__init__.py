"""What the paper's authors chose for each set."""

import tomllib
from importlib.resources import files

from softmask.errors import SettingError
from softmask.study.settings import Settings

__all__ = ["paper_settings"]


def paper_settings(name: str) -> Settings:
    """The authors' settings for one of the paper's ten sets of the TU collection."""
    table = tomllib.loads(files("softmask.paper").joinpath("settings.toml").read_text(encoding="utf-8"))
    if name not in table:
        raise SettingError(f"the paper has no settings for {name!r}; it has them for {', '.join(table)}")
    return Settings(**table[name])
