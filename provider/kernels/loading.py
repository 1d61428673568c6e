"""Loads compiled kernels, once in a process."""

import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

SWITCH: Final = "DPSPCA_COMPILED"
"""The environment variable that switches compiled kernels off."""
_ALL: Final = ("entries", "passes", "wide", "words")


@cache
def kernels(name: str) -> ModuleType | None:
    """Return the module of this name in this package, if its kernels are to be used, or None.

    The first time on a machine they are compiled, which takes seconds.
    """
    if os.environ.get(SWITCH) == "off":
        return None
    try:
        import_module("numba")
    except ImportError:  # not installed, or too old for this numpy
        return None
    return import_module(f"{__package__}.{name}")


def load() -> bool:
    """Load all kernels, so that no job waits for that. Tell whether they are used."""
    return None not in {kernels(name) for name in _ALL}
