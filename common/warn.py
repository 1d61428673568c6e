"""Issues warnings to Python code that calls this package."""

import inspect
import warnings
from typing import Final

from .errors import DpspcaWarning

_PACKAGES: Final = ("dpspca.", "sklearn.")


def warn(sentence: str, kind: type[DpspcaWarning] = DpspcaWarning) -> None:
    """Issue a warning that points to the line that called this package, if need be through scikit-learn."""
    warnings.warn(sentence, kind, stacklevel=_outside())


def _outside() -> int:
    """Return the stack level of the caller of this package, counted from ``warn``."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith(_PACKAGES):
        frame, level = frame.f_back, level + 1
    return max(1, level)
