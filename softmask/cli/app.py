"""Typer whose help flows to the width of the terminal."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import typer

_Command = TypeVar("_Command", bound=Callable[..., Any])


class App(typer.Typer):
    """A Typer that joins the lines of each paragraph of a command's docstring, but for those that begin in bold.

    Typer itself breaks help where the docstring breaks, and again where the terminal ends.
    """

    def command(self, *args: Any, **options: Any) -> Callable[[_Command], _Command]:
        """As Typer's."""

        def register(function: _Command) -> _Command:
            return typer.Typer.command(self, *args, help=flowing(inspect.getdoc(function) or ""), **options)(function)

        return register


def flowing(text: str) -> str:
    """The text with a line for each paragraph, and for each line that begins in bold."""
    paragraphs = []
    for paragraph in text.split("\n\n"):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if lines and not line.startswith("[b]"):
                lines[-1] += f" {line.strip()}"
            else:
                lines.append(line.strip())
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)
