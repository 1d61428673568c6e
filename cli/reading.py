"""Files that a command is given: whatever is wrong with one is told in words, as a fault of the file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dpspca.common.errors import DpspcaError, InvalidDataError

_CONTENT: Final = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""What content of the wrong form can lead to before anything has refused it."""


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Work on what a file says, and print nothing yet: a failure in here is taken for the file's."""
    try:
        yield
    except DpspcaError:
        raise
    except OSError as problem:
        raise InvalidDataError(
            f"{path} cannot be read: {problem.strerror or problem}.", f"Give the path of {kind}."
        ) from None
    except _CONTENT:
        raise InvalidDataError(f"{path} is not {kind}.", f"Give {kind}, whole and unchanged.") from None
