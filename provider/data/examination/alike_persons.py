"""Describes whose the rows are, and counts labels that may be the same person's, for the steward."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dpspca.common.storage import DELIMITERS

_DIVIDING: Final = DELIMITERS[:-1]
"""A space may be part of a name."""
_WHOLE_AS_DECIMAL: Final = re.compile(r"([+-]?\d+)[.,]0+")


@dataclass(frozen=True, slots=True)
class PersonFacts:
    """Which persons the rows belong to."""

    persons: int
    most_rows: int
    """The most rows that one person has."""
    rows_of_nobody: int
    alike: int = 0
    """Number of labels that differ from another one only in how programs write the same name or number."""
    divided: int = 0
    """Number of labels that hold a mark that divides cells."""
    unnamed: int = 0
    """Number of labels that often stand for a missing value."""
    lacks_last_line: bool = False
    """Whether a persons file has one line fewer than there are rows, or its last label is empty."""
    differing: int = 0
    """Number of names in a list of samples that differ from those in the list beside the genotypes."""
    of_column: bool = False
    """Whether a column that is read together with the rows names the persons."""


_UNNAMED: Final = frozenset(
    {"na", "n/a", "nan", "null", "none", "nil", "unknown", "missing", "-9", "-99", "-999", "?", "-", "."}
)


def facts_of_persons(whose: Sequence[bytes]) -> PersonFacts:
    """Describe the labels of all rows."""
    counts = Counter(filter(None, whose))
    texts = [label.decode("utf-8", "surrogateescape") for label in counts]
    return PersonFacts(
        persons=len(counts),
        most_rows=max(counts.values(), default=0),
        rows_of_nobody=whose.count(b""),
        alike=len(texts) - len(set(map(_plain, texts))),
        divided=sum(any(mark in text for mark in _DIVIDING) for text in texts),
        unnamed=sum(_plain(text) in _UNNAMED for text in texts),
    )


def _plain(label: str) -> str:
    """Return a label without what programs add or change: quotes, spaces, case, and zeros before and after a number."""
    plain = "".join(label.split()).strip("\"'").casefold()
    number = _WHOLE_AS_DECIMAL.fullmatch(plain)
    plain = plain if number is None else number[1]
    return plain.lstrip("0") or "0" if plain.isascii() and plain.isdigit() else plain
