"""Suspects that a column is in another unit than the dictionary says, or holds codes for missing values. Pure.

A provider compares its own column with the public range, and with nothing of others. What is found is for its steward.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import MOST_ODD

_NINES: Final = (9.0, 99.0, 999.0, 9999.0, 99999.0)
SENTINELS: Final = (-1.0, *_NINES, *(-code for code in _NINES), 777.0, 888.0)
"""Numbers that often stand for a missing value."""

_FITS: Final = 0.9
"""A conversion is suggested if it puts such a share of values into the range."""
_NARROW: Final = 0.03
"""Values whose middle nine tenths take a smaller part of the range may be in another unit."""
_WIDE: Final = 0.2
"""A conversion explains narrow values if they then take such a part of the range."""
_MIDDLE: Final = (0.05, 0.95)
_FEWEST: Final = 10
"""Of fewer values, nothing is said about how wide they lie."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """A usual conversion between units: multiply, then add."""

    name: str
    factor: float
    offset: float = 0.0

    def __call__(self, values: FloatArray) -> FloatArray:
        """Convert values."""
        return values * self.factor + self.offset


_TENS: Final = tuple(
    Conversion(f"a factor of {power}", factor) for power in (10, 100, 1000) for factor in (power, 1 / power)
)
_TO_UNIT: Final = (
    ({"cm"}, Conversion("inches", 2.54)),
    ({"cm"}, Conversion("feet", 30.48)),
    ({"m"}, Conversion("inches", 0.0254)),
    ({"m"}, Conversion("feet", 0.3048)),
    ({"in", "inch", "inches"}, Conversion("centimetres", 1 / 2.54)),
    ({"kg"}, Conversion("pounds", 0.45359237)),
    ({"lb", "lbs", "pounds"}, Conversion("kilograms", 1 / 0.45359237)),
    ({"years", "year", "y", "a"}, Conversion("months", 1 / 12)),
    ({"years", "year", "y", "a"}, Conversion("days", 1 / 365.25)),
    ({"months", "month"}, Conversion("years", 12.0)),
    ({"days", "day", "d"}, Conversion("years", 365.25)),
    ({"mmol/l"}, Conversion("mg/dL of glucose", 1 / 18.016)),
    ({"mmol/l"}, Conversion("mg/dL of cholesterol", 1 / 38.67)),
    ({"mg/dl"}, Conversion("mmol/L of glucose", 18.016)),
    ({"mg/dl"}, Conversion("mmol/L of cholesterol", 38.67)),
    ({"mg/dl"}, Conversion("µmol/L of creatinine", 1 / 88.42)),
    ({"µmol/l", "umol/l", "μmol/l"}, Conversion("mg/dL of creatinine", 88.42)),
    ({"c", "celsius"}, Conversion("Fahrenheit", 5 / 9, -160 / 9)),
    ({"c", "celsius"}, Conversion("kelvin", 1.0, -273.15)),
    ({"f", "fahrenheit"}, Conversion("Celsius", 9 / 5, 32.0)),
    ({"k", "kelvin"}, Conversion("Celsius", 1.0, 273.15)),
)
"""Conversions by the unit that they lead to, as a dictionary may write it."""


def conversions_to(unit: str) -> tuple[Conversion, ...]:
    """Return the usual conversions that lead to a unit, and powers of ten, which slip in anywhere."""
    plain = unit.lower().removeprefix("°").removeprefix("degrees ").strip()
    return (*_TENS, *(each for units, each in _TO_UNIT if plain in units))


def suspected_unit(values: FloatArray, ends: tuple[float, float], unit: str) -> Conversion | None:
    """Return the conversion that would explain these values best, or None if they fit the range as they are.

    ``values`` are numbers without missing ones. A conversion is suspected if most values are outside the range and it
    puts them inside, or if they take next to nothing of the range and it spreads them over it.
    """
    if not len(values):
        return None
    if share_outside(values, ends) > MOST_ODD:
        return _best(values, ends, unit, lambda found: share_outside(found, ends) <= 1 - _FITS)
    if len(values) < _FEWEST or not 0 < _part(values, ends) < _NARROW:
        return None
    return _best(values, ends, unit, lambda found: not share_outside(found, ends) and _part(found, ends) >= _WIDE)


def share_outside(values: FloatArray, ends: tuple[float, float]) -> float:
    """Return the share of values that are outside a range."""
    return float(np.mean((values < ends[0]) | (values > ends[1]))) if len(values) else 0.0


def suspected_codes(values: FloatArray, outside: NDArray[np.bool_]) -> tuple[float, ...]:
    """Return usual codes for missing values that occur where values are outside the range.

    ``values`` are as they stand in the file. ``outside`` marks those that are outside the range.
    """
    there = np.unique(values[outside]).tolist()
    return tuple(code for code in SENTINELS if code in there)


def _best(
    values: FloatArray, ends: tuple[float, float], unit: str, explains: Callable[[FloatArray], bool]
) -> Conversion | None:
    """Return the conversion that explains the values and puts their median closest to the middle of the range."""
    middle = (ends[0] + ends[1]) / 2
    able = [each for each in conversions_to(unit) if explains(each(values))]
    return min(able, key=lambda each: abs(float(np.median(each(values))) - middle), default=None)


def _part(values: FloatArray, ends: tuple[float, float]) -> float:
    """Return the part of the range that the middle nine tenths of the values take."""
    low, high = np.quantile(values, _MIDDLE)
    return float(high - low) / (ends[1] - ends[0])
