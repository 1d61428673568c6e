"""Records that have one canonical form in bytes: a JSON object with sorted keys and without spaces. Pure."""

import json
from dataclasses import asdict
from typing import Any, Protocol, TypeVar

from dpspca.common.errors import DpspcaError, InvalidDataError

from .decoder import decode
from .documents import parse_form
from .faults import STORED


class Canonical(Protocol):
    """A record that checks its own values."""

    def check(self) -> None:
        """Refuse values that no such record has."""
        ...


_Record = TypeVar("_Record", bound=Canonical)


def written(record: Any, form: str) -> bytes:  # noqa: ANN401  # a dataclass
    """Return the canonical form of a record."""
    return json.dumps({"format": form, **asdict(record)}, sort_keys=True, separators=(",", ":")).encode()


def read_canonical(kind: type[_Record], content: bytes, form: str, what: str) -> _Record:
    """Read a record from its canonical form, and refuse any other bytes."""
    remedy = "Use the version of dpspca that wrote it."
    try:
        read: _Record = decode(kind, parse_form(content, form), STORED)
        read.check()
    except DpspcaError:
        raise InvalidDataError(f"{what} cannot be read.", remedy) from None
    if written(read, form) != content:
        raise InvalidDataError(f"{what} is not in its canonical form.", remedy)
    return read
