"""A measurement that may fail without taking the others with it."""

import sys
import traceback
from collections.abc import Callable
from typing import Any

from softmask.errors import SoftmaskError


def attempt(measure: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What `measure` gives; or ``{"failed": message}``, with the traceback on the standard error."""
    try:
        return measure(*arguments)
    except Exception as error:
        if not isinstance(error, SoftmaskError):
            traceback.print_exc(file=sys.stderr)
        return {"failed": f"{type(error).__name__}: {error}"[:2000]}
