"""Reading of files that a user gives to a command. Every failure becomes an error that names the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError, InvalidDataError

_CONTENT: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""Exceptions that malformed content can cause before any check has refused it."""


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Raise every failure inside the block as an ``InvalidDataError`` about the file. Print nothing inside it.

    ``kind`` says what the file should be, as in "a model". Errors of this package pass unchanged.
    """
    try:
        yield
    except DpspcaError:
        raise
    except OSError as problem:
        raise InvalidDataError(
            f"{path} cannot be read: {problem.strerror or problem}.", f"Give the path of {kind}."
        ) from None
    except _CONTENT:
        raise InvalidDataError(f"{path} is not {kind}.", f"Give {kind}, complete and unchanged.") from None
