"""Packages that only some kinds of files need."""

import sys
from importlib import import_module
from typing import Any, Final

from dpspca.common.errors import MissingExtraError

_EXTRAS: Final = {
    "pgenlib": "genetics",
    "psycopg": "postgres",
    "adbc_driver_postgresql": "triplets",
    "duckdb": "duckdb",
    "sqlalchemy": "sqlalchemy",
    "zarr": "zarr",
    "distributed": "dask",
    "pyspark": "spark",
}
_NEEDS: Final = {"distributed": "The engine dask", "pyspark": "The engine spark"}
"""The part that needs a package, if it is not a kind of file."""


def loaded(module: str) -> Any:  # noqa: ANN401  # an optional module
    """Return a module of an extra that must have been imported: it made the values at hand. It takes no time."""
    return sys.modules[module]


def import_extra(module: str) -> Any:  # noqa: ANN401  # an optional module
    """Import a module of an extra: ``formats``, if no other has it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        extra = _EXTRAS.get(package, "formats")
        raise MissingExtraError(
            f"{_NEEDS.get(package, 'Reading this kind of file')} needs {package}, which is not installed.",
            f"Install it with: pip install {package}. Or in a clone of dpspca: pip install '.[{extra}]'",
        ) from None
