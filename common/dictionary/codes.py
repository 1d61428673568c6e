"""From cells to raw values: numbers, missing values, and the levels of a category. Pure.

Readers of files give numbers alone. So a text that stands for a level is read as a number that no measurement has
(``text_code``), and ``LevelCodes`` turns both, such texts and codes that are numbers, into places of levels.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, isnan, nan
from typing import Any, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.frames import number_in, number_of
from dpspca.common.text import composed

from .features import NO_CELL, UNKNOWN, Category, Feature

_TEXT_STEP: Final = -(2.0**40)
"""Texts are read as multiples of this, which differ from each other in single precision too."""
MAX_TEXTS: Final = 2**20
OTHER_TEXT: Final = _TEXT_STEP * 2**24
"""The number for any other text in a column of a category. It is finite, so the row stays usable."""


_TRUTH: Final = {"true": 1.0, "false": 0.0}
"""Texts for what files with types store as 1 and 0."""


def text_code(place: int) -> float:
    """Return the number that stands for a column's declared text."""
    return _TEXT_STEP * (place + 1)


def category_text(
    cell: str, texts: Mapping[str, int], missing: Collection[str] = (), parse: Callable[[str], float] = number_in
) -> float:
    """Read a cell of a category: a declared text, a number, a missing value, or something else.

    The text NaN is a missing value, as in columns of numbers. Programs write true and false in different letters, and
    files with types store them as 1 and 0. So any of these finds the declared text that means the same.

    Declared texts and codes are in Unicode's composed form. ``parse`` reads a number with the file's decimal mark.
    """
    plain = composed(cell.strip())
    if not plain or plain in missing:
        return nan
    if plain in texts:
        return text_code(texts[plain])
    if (truth := _TRUTH.get(plain.lower())) is not None:
        alike = [place for text, place in texts.items() if text.lower() == plain.lower()]
        return text_code(alike[0]) if alike else truth
    try:
        number = parse(plain)
    except ValueError:
        return OTHER_TEXT
    return OTHER_TEXT if number == NO_CELL else number


@dataclass(frozen=True, slots=True)
class LevelCodes:
    """Which texts and numbers stand for which level of a category, in one provider's column."""

    texts: tuple[str, ...]
    levels: tuple[int, ...]
    """For each text, the place of its level."""

    @classmethod
    def of(cls, feature: Category, given: Mapping[str, str] | None = None) -> Self:
        """Combine the codes of a provider with the names of the levels themselves."""
        own_codes = {composed(code): composed(level) for code, level in (given or {}).items()}
        codes, places = {level: level for level in feature.levels} | own_codes, feature.places
        for code, level in codes.items():
            check(
                level in places,
                f"The code {code!r:.60} of {feature.name!r:.60} stands for {level!r:.60}, which is not a level of it.",
                f"Use one of: {', '.join(feature.levels)}.",
            )
        made = cls(tuple(codes), tuple(places[level] for level in codes.values()))
        first = dict[float, str]()
        for code in given or feature.levels:
            if (number := _number_of_code(code)) is not None:
                same = first.setdefault(number, code)
                check(
                    same == code,
                    f"{same!r:.60} and {code!r:.60} of {feature.name!r:.60} are the same number.",
                    "Files may store either as the other. Give levels that are words or different numbers.",
                )
        return made

    def places(self, raw: FloatArray) -> FloatArray:
        """Turn raw numbers into places of levels, each by itself. What no code has is ``UNKNOWN``.

        NaN and ``NO_CELL`` stay.
        """
        found = np.where(np.isnan(raw) | (raw == NO_CELL), raw, UNKNOWN)
        for number, level in self._numbers().items():
            found[raw == number] = level
        for place, level in enumerate(self.levels):
            found[raw == text_code(place)] = level
        return found

    def _numbers(self) -> dict[float, int]:
        """Return the codes that are numbers. Files with types store true and false as 1 and 0."""
        known = dict(zip(self.texts, self.levels, strict=True))
        alike = {text.lower(): known[text] for text in reversed(self.texts)}
        numbers = {number: alike[text] for text, number in _TRUTH.items() if text in alike}
        numbers |= {number: known[text] for text in self.texts if (number := _number_of_code(text)) is not None}
        return {stored: level for number, level in numbers.items() for stored in _as_stored(number)} | numbers


def _number_of_code(code: str) -> float | None:
    """Return the number that a code of a level is, or None. A code such as 1E5 is a word: it is not 100000."""
    return None if set(code) & {"e", "E"} else _parsed(code)


def without_codes(raw: FloatArray, codes: Iterable[str | float]) -> FloatArray:
    """Put NaN in place of numbers that stand for a missing value."""
    numbers = numbers_of_codes(codes)
    return np.where(np.isin(raw, numbers), np.nan, raw) if numbers else raw


def numbers_of_codes(codes: Iterable[str | float]) -> list[float]:
    """Return the numbers that stand for a missing value, whether codes are numbers or texts."""
    numbers = [number for code in codes if (number := _parsed(str(code))) is not None and isfinite(number)]
    return [each for number in numbers for each in _as_stored(number)]


def _as_stored(number: float) -> tuple[float, ...]:
    """Return a number, and what 4 bytes store in place of a fraction: -99.9 becomes -99.90000152587890625.

    Which of the two is in a column may depend on its type, on the program that wrote it, or on how it was converted
    since. So both are looked for everywhere. Whole numbers are looked for as they are, because a whole number that 4
    bytes store in place of another may be a measurement.
    """
    with np.errstate(over="ignore"):
        single = np.float32(number)
    is_fraction = np.isfinite(single) and abs(single) >= np.finfo(np.float32).tiny and not single.is_integer()
    return (number, float(single)) if is_fraction else (number,)


def raw_values(cells: Any, feature: Feature) -> FloatArray:  # noqa: ANN401  # an array of anything
    """Read a column of Python objects, texts or numbers, that is in the dictionary's own terms."""
    codes = {composed(code) for code in feature.missing_codes if isinstance(code, str)}
    array = np.asarray(cells)
    if array.dtype.kind in "fiu":
        numbers = without_codes(array.astype(np.float64), feature.missing_codes)
    elif isinstance(feature, Category):
        texts = {text: place for place, text in enumerate(LevelCodes.of(feature).texts)}
        read = (_category_cell(cell, texts, codes) for cell in array.tolist())
        numbers = np.fromiter(read, dtype=np.float64, count=len(array))
    else:
        read = (_number_cell(cell, codes) for cell in array.tolist())
        numbers = np.fromiter(read, dtype=np.float64, count=len(array))
    numbers = without_codes(numbers, feature.missing_codes)
    return LevelCodes.of(feature).places(numbers) if isinstance(feature, Category) else numbers


def _category_cell(cell: object, texts: Mapping[str, int], missing: Collection[str]) -> float:
    if isinstance(cell, bytes):  # as HDF5 and Arrow hold text
        cell = cell.decode("utf-8", "replace")
    if isinstance(cell, str | bool):
        return category_text(str(cell), texts, missing)
    return _number_cell(cell, missing)


def _number_cell(cell: Any, missing: Collection[str]) -> float:  # noqa: ANN401  # any object
    if isinstance(cell, str):
        plain = composed(cell.strip())
        if not plain or plain in missing:
            return nan
        number = _parsed(plain)
    else:
        number = number_of(cell)
    return inf if number is None else number


def _parsed(text: str) -> float | None:
    """Read a text as a number. NaN is none, because two of them are never equal."""
    try:
        number = number_in(text)
    except ValueError:
        return None
    return None if isnan(number) else number
