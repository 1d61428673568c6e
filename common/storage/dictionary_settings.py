"""What a provider's settings say about a shared dictionary: [dictionaries.NAME], for a data set NAME."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from dpspca.common.checks import check
from dpspca.common.dictionary import Preparation, check_keys
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened

from .dictionaries import read_dictionary

_KEYS: Final = frozenset({"file", "columns", "absent"})
_OF_THE_DICTIONARY: Final = ("columns", "leave_out", "missing")
"""Keys under [reading.NAME] that a dictionary takes the place of."""


def read_preparation(path: Path, name: str, told: object, locate: Callable[[str], Path]) -> Preparation:
    """Read the dictionary of a data set, and how columns become features. ``locate`` finds the dictionary's file."""
    where = f"{path}: dictionaries.{name:.80}"
    try:
        table = check_keys("It", told, _KEYS, {"file"})
        file = table["file"]
        named = isinstance(file, str) and bool(file.strip())
        check(named, f"file is {shortened(file)}.", 'Name a dictionary, as in file = "study.toml".')
        return Preparation.parse(read_dictionary(locate(file)), table.get("columns"), table.get("absent"))
    except InvalidParameterError as problem:
        raise InvalidParameterError(f"{where}: {problem.what}", problem.remedy) from None


def doubly_declared(reading: object) -> list[str]:
    """Name the keys of a data set's [reading] that say again what its dictionary says."""
    return [key for key in _OF_THE_DICTIONARY if isinstance(reading, dict) and key in reading]
