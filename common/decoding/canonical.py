"""Records that have one canonical form in bytes: a JSON object with sorted keys and without spaces. Pure.

A field that a later version added has the default ``None``, and is left out if it is ``None``. So a record of an
earlier version has the same bytes as before.
"""

import json
from dataclasses import asdict, fields
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
    whole = {"format": form, **given_fields(record)}
    return json.dumps(whole, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def given_fields(record: Any) -> dict[str, Any]:  # noqa: ANN401  # a dataclass
    """Return the fields of a record as plain values, without absent ones that a later version added."""
    added = {each.name for each in fields(record) if each.default is None}
    return {name: value for name, value in asdict(record).items() if value is not None or name not in added}


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
