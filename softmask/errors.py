"""Errors whose message is meant for the person who gave the input. The command prints them and exits with 2."""

from collections.abc import Sequence
from difflib import get_close_matches


def nearest(name: str, known: Sequence[str], otherwise: str = "it has") -> str:
    """What to say to somebody who gave a name that is not known: the nearest, or all of them."""
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"{otherwise} {', '.join(known)}"


class SoftmaskError(ValueError):
    """Base of all errors about what the user gave: a file, a graph, a setting."""


class DataError(SoftmaskError):
    """A data set that cannot be read. Says which file, line or graph, and what to do."""


class FeatureError(SoftmaskError):
    """Graphs whose node features do not fit what the model was trained on."""


class ModelFileError(SoftmaskError):
    """A model file that cannot be used: truncated, of a newer format, or with tensors that do not fit."""


class SettingError(SoftmaskError):
    """A setting that makes no sense, alone or with the data at hand."""


class CannotRun(SettingError):
    """A model that the data at hand is too large for, or that needs what the data have not."""


class StudyInterrupted(Exception):
    """A study was asked to stop. What it has so far is saved, and the same command goes on from there."""
