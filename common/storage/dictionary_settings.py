"""A provider's settings for a shared dictionary: [dictionaries.NAME], for a data set NAME."""

from dataclasses import dataclass
from typing import Any, Final

from dpspca.common.decoding import Source, read_part
from dpspca.common.dictionary import Preparation

from .dictionaries import read_dictionary
from .paths import FilePath
from .reading import Reading

_OF_THE_DICTIONARY: Final = ("columns", "leave_out", "missing")
"""Keys under [reading.NAME] that a dictionary takes the place of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Declared:
    """The table."""

    file: FilePath
    columns: Any = None
    absent: Any = None


def read_preparation(raw: object, source: Source) -> Preparation:
    """Read the dictionary of a data set, and how columns become features."""
    declared: _Declared = read_part(_Declared, raw, source)
    return Preparation.parse(read_dictionary(declared.file), declared.columns, declared.absent)


def doubly_declared(reading: Reading) -> list[str]:
    """Name the keys of a data set's [reading] that say again what its dictionary says."""
    return [key for key in _OF_THE_DICTIONARY if key in reading.declared]
