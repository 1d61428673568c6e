"""Packages that only some kinds of files need."""

from importlib import import_module
from typing import Any

from dpspca.common.errors import MissingExtraError


def import_extra(module: str) -> Any:  # noqa: ANN401  # an optional module
    """Import a module of the extra ``formats``."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise MissingExtraError(
            f"Reading this kind of file needs {package}, which is not installed.",
            f"Install it with: pip install 'dpspca[formats]', or pip install {package}",
        ) from None
