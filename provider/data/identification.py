"""Identifiers of the rows of a data set: the digest of their form, and the fingerprints of their content.

Most of the time goes into fingerprints that do not depend on the order of columns: two passes over all rows. They are
skipped if the ledger has all of them already, as after a restart. One more name in the ledger shows this:
``whole_name``, which is recorded only together with all other fingerprints of the same rows. It is computed from the
digest, which is SHA-256 over every bit. So no fingerprint is skipped for rows that differ from the recorded ones in
even one bit, even if an attacker chose them. This holds for dense rows that jobs use as they were read. Where settings
change rows, the digest says nothing about the rows before the change, and every fingerprint is computed again.

Rows of zeros have no fingerprint. They get a name made from their data set instead, so that a restart over them takes
as long as over other rows.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from .arrivals import DataSet
from .checked import CheckedRows
from .memory import StoredRows

_WHOLE: Final = b"dpspca rows, all fingerprints of canonical form 1\0"
"""A ledger with this name has all fingerprints of these rows. Other fingerprints need another text here."""
_PERSONS: Final = b"dpspca persons 1\0"
_ZEROS: Final = b"dpspca rows, nothing but zeros 1\0"


def _nothing(_: str) -> bool:
    """Know no rows."""
    return False


def identify(
    rows: DataSet, is_known: Callable[[str], bool] = _nothing, data_set: str = ""
) -> tuple[str, frozenset[str]]:
    """Return the digest and the fingerprints of rows. They are computed beside one another.

    ``is_known`` says whether the ledger has a fingerprint. If it has all of these rows, as those of ``data_set``, only
    some are returned.
    """
    with ThreadPoolExecutor(1) as beside:
        digest = beside.submit(rows.digest)
        first = _found_first(rows, data_set)
        if any(map(is_known, first)) and is_known(whole_name(digest.result(), data_set)):
            return digest.result(), first | {whole_name(digest.result(), data_set)}
        names = rows.fingerprints()
        return digest.result(), names | first | ({whole_name(digest.result(), data_set)} if first else set())


def whole_name(digest: str, data_set: str = "") -> str:
    """Return the name that says of rows with this digest that all their fingerprints are recorded.

    It has the name of their data set in it, because tables of zeros may be offered under several names.
    """
    return sha256(_WHOLE + digest.encode() + data_set.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PersonNames:
    """Names that a ledger keeps of which rows belong to one person, so that a change after answers shows."""

    recorded: str
    """The ledger has this if it keeps such names of the data set."""
    groups: str
    """Which rows belong together, whatever the persons are called."""

    @classmethod
    def of(cls, persons: NDArray[np.intp], data_set: str) -> Self:
        """Name the groups of rows. The rows have to be in the same order for the same name."""
        _, first, person = np.unique(persons, return_index=True, return_inverse=True)
        place = np.argsort(np.argsort(first))[person]
        content = sha256(_PERSONS + data_set.encode() + b"\0")
        recorded = content.hexdigest()
        content.update(place.astype("<i8").tobytes())
        return cls(recorded, content.hexdigest())


def _found_first(rows: DataSet, data_set: str) -> frozenset[str]:
    """Return the fingerprints that were found while rows were stored, if these are all that was read.

    They are about rows as they are used. For nothing but zeros, return a name of their data set.
    """
    if not isinstance(rows, CheckedRows) or rows.uncut is not None or rows.before:
        return frozenset()
    if not isinstance(rows.matrix, StoredRows) or rows.matrix.first is None:
        return frozenset()
    zeros = sha256(_ZEROS + data_set.encode()).hexdigest()
    return rows.fingerprints_in_order()[0].names or frozenset({zeros})
