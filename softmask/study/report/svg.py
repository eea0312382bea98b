"""Elements of HTML and SVG as text, with everything that was given escaped."""

from html import escape
from typing import Any


def text(value: Any) -> str:
    """A value as text that is safe inside an element."""
    return escape(str(value), quote=True)


def element(name: str, *inside: str, **attributes: Any) -> str:
    """An element. What is inside must be safe already: other elements, or ``text(...)``.

    Attributes are escaped; ``class_`` is ``class``, other underscores are hyphens; those that are None are left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def label(x: float, y: float, words: Any, **attributes: Any) -> str:
    """A line of text in a chart."""
    return element("text", text(words), x=x, y=y, **attributes)


def _number(value: Any) -> Any:
    """Tenths of a unit are finer than any screen shows, and keep the page small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value
