"""Loads compiled kernels, once in a process."""

import logging
import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

SWITCH: Final = "DPSPCA_COMPILED"
"""The environment variable that switches compiled kernels off."""
_ALL: Final = ("entries", "genotypes", "integers", "passes", "wide", "words")

_log = logging.getLogger(__name__)


def kernels(name: str) -> ModuleType | None:
    """Return the module of this name in this package, if kernels are to be used, or None."""
    return _loaded().get(name)


def load() -> bool:
    """Load all kernels, so that no job waits for that. Tell whether they are used."""
    return bool(_loaded())


def forget() -> None:
    """Decide again whether kernels are used, as a new process does."""
    _loaded.cache_clear()


@cache
def _loaded() -> dict[str, ModuleType]:
    """Load all kernels or none. The first process on a machine compiles them, which takes seconds."""
    if os.environ.get(SWITCH, "").strip().lower() == "off":
        return {}
    try:
        import_module("numba")
        return {name: import_module(f"{__package__}.{name}") for name in _ALL}
    except ModuleNotFoundError:
        return {}
    except Exception:  # noqa: BLE001  # a library that cannot be loaded, or does not fit the others
        _log.warning("The compiled kernels cannot be loaded, so numpy does their work.", exc_info=True)
        return {}
