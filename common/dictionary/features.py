"""What all parties agree on about one feature, and how a value of it is prepared. Pure.

A value is prepared by itself: nothing here depends on another row. Raw values are floating-point numbers. NaN is a
missing value, and infinity stands for something that is no number, which makes its row unusable. Of a category, a raw
value is the place of a level, or ``UNKNOWN``.

Every prepared entry is finite, or the raw value was infinite. ``largest`` bounds the Euclidean length of what one value
becomes, whatever the value is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened

from . import values

UNKNOWN: Final = -1.0
"""The raw value of a category's cell that holds no declared level."""
ZERO: Final = "zero"
"""In place of a missing or unknown level: zeros in all columns of the category."""
ALLELES: Final = 2.0
MOST_SQUARE: Final = 2.0
"""What a genotype adds to the square of the norm bound, at most. Scaled by its frequency, its expected square is 1."""


class Kind(StrEnum):
    """What kind of values a feature has."""

    NUMBER = "number"
    CATEGORY = "category"
    GENOTYPE = "genotype"


class Scale(StrEnum):
    """How a feature is scaled, unless by a number."""

    RANGE = "range"
    """An end of the range becomes 1 or -1, and the public centre 0."""
    FREQUENCY = "frequency"
    """Divided by the standard deviation that follows from the allele frequency: sqrt(2p(1-p))."""
    NONE = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number with a public range."""

    name: str
    unit: str
    range: tuple[float, float]
    centre: float
    """The public value that becomes zero. By default the middle of the range."""
    scale: str | float
    missing: float
    """What is used in place of a missing value. By default the centre."""
    missing_codes: values.Codes = ()
    description: str = ""
    concept: str | None = None
    """What names it in triplets, if that is not its name: a concept of a vocabulary that all providers use."""

    kind: ClassVar[Kind] = Kind.NUMBER

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any], where: str) -> Self:
        """Check a feature's table."""
        ends = values.number_range(f"{where}: range", table["range"])
        centre = values.within(f"{where}: centre", table.get("centre", (ends[0] + ends[1]) / 2), ends)
        return cls(
            name=name,
            unit=values.text(f"{where}: unit", table["unit"]).strip(),
            range=ends,
            centre=centre,
            scale=_scale(f"{where}: scale", table.get("scale", Scale.RANGE), (Scale.RANGE, Scale.NONE)),
            missing=values.within(f"{where}: missing", table.get("missing", centre), ends),
            missing_codes=values.codes(f"{where}: missing_codes", table.get("missing_codes", ())),
            description=values.text(f"{where}: description", table.get("description", "")),
            concept=_concept(f"{where}: concept", table.get("concept")),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return (self.name,)

    @property
    def divisor(self) -> float:
        """What a value is divided by, after the centre was subtracted."""
        reach = _reach(self.range, self.centre)
        return {Scale.RANGE: reach, Scale.NONE: 1.0}.get(self.scale, self.scale)  # type: ignore[call-overload, no-any-return]

    @property
    def largest(self) -> float:
        """The most that a prepared value can be, in size."""
        return _reach(self.range, self.centre) / self.divisor

    @property
    def bound(self) -> float:
        """What it adds to the norm bound, in squares: ``bound`` squared."""
        return self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself."""
        return _numbers(raw, self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Genotype:
    """How many copies of an allele a person has: 0, 1 or 2, or an expected number between."""

    name: str
    allele: str
    """The allele that is counted. Empty if that is not stated."""
    frequency: float | None
    """The public frequency of that allele."""
    centre: float
    """By default twice the frequency, or 1 if no frequency is known."""
    scale: str | float
    missing: float
    missing_codes: values.Codes = ()
    description: str = ""

    kind: ClassVar[Kind] = Kind.GENOTYPE
    unit: ClassVar[str] = "alleles"
    range: ClassVar[tuple[float, float]] = (0.0, ALLELES)

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any], where: str) -> Self:
        """Check a feature's table."""
        given = table.get("frequency")
        frequency = None if given is None else values.within(f"{where}: frequency", given, (0.0, 1.0))
        usual = Scale.RANGE if frequency is None else Scale.FREQUENCY
        scale = _scale(f"{where}: scale", table.get("scale", usual), tuple(Scale))
        check(
            scale != Scale.FREQUENCY or (frequency is not None and 0 < frequency < 1),
            f"{where} is scaled by its frequency, which is {'missing' if frequency is None else f'{frequency:g}'}.",
            "Give a frequency between 0 and 1. Leave out a variant that nobody, or everybody, has.",
        )
        middle = 1.0 if frequency is None else ALLELES * frequency
        centre = values.within(f"{where}: centre", table.get("centre", middle), cls.range)
        return cls(
            name=name,
            allele=values.text(f"{where}: allele", table.get("allele", "")).strip(),
            frequency=frequency,
            centre=centre,
            scale=scale,
            missing=values.within(f"{where}: missing", table.get("missing", centre), cls.range),
            missing_codes=values.codes(f"{where}: missing_codes", table.get("missing_codes", ())),
            description=values.text(f"{where}: description", table.get("description", "")),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return (self.name,)

    @property
    def divisor(self) -> float:
        """What a value is divided by, after the centre was subtracted."""
        if self.scale == Scale.FREQUENCY:
            p = self.frequency or 0.0
            return math.sqrt(ALLELES * p * (1 - p))
        reach = _reach(self.range, self.centre)
        return {Scale.RANGE: reach, Scale.NONE: 1.0}.get(self.scale, self.scale)  # type: ignore[call-overload, no-any-return]

    @property
    def largest(self) -> float:
        """The most that a prepared value can be, in size."""
        return _reach(self.range, self.centre) / self.divisor

    @property
    def bound(self) -> float:
        """What it adds to the norm bound: no more than twice its expected square, if that is known.

        No row has rare alleles everywhere. A bound that allowed for it would be many times as long as any row, and
        noise grows with the bound.
        """
        return min(self.largest, math.sqrt(MOST_SQUARE)) if self.scale == Scale.FREQUENCY else self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself."""
        return _numbers(raw, self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Category:
    """One of several levels. It becomes a column for each level: 1 for its own, 0 for others, less a public share."""

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]
    """The public share of each level, which is subtracted. By default all are equal."""
    missing: str
    """The level that stands for a missing value, or ``ZERO``."""
    unknown: str
    """The level that stands for any other value, or ``ZERO``."""
    missing_codes: values.Codes = ()
    description: str = ""
    concept: str | None = None
    """What names it in triplets, if that is not its name."""

    kind: ClassVar[Kind] = Kind.CATEGORY
    unit: ClassVar[str] = ""

    @classmethod
    def parse(cls, name: str, table: Mapping[str, Any], where: str) -> Self:
        """Check a feature's table."""
        levels = values.text_list(f"{where}: levels", table["levels"])
        check(
            len(levels) > 1,
            f"{where} has one level.",
            "List all levels that a value may have. A feature with one level says nothing: leave it out.",
        )
        return cls(
            name=name,
            levels=levels,
            shares=_shares(f"{where}: shares", table.get("shares"), levels),
            missing=_level(f"{where}: missing", table.get("missing", ZERO), levels),
            unknown=_level(f"{where}: unknown", table.get("unknown", ZERO), levels),
            missing_codes=values.codes(f"{where}: missing_codes", table.get("missing_codes", ())),
            description=values.text(f"{where}: description", table.get("description", "")),
            concept=_concept(f"{where}: concept", table.get("concept")),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return tuple(f"{self.name}{values.LEVEL_MARK}{level}" for level in self.levels)

    @property
    def places(self) -> dict[str, int]:
        """The place of each level."""
        return {level: place for place, level in enumerate(self.levels)}

    @property
    def largest(self) -> float:
        """The longest that a prepared value can be."""
        others = [Fraction(share * share) for share in self.shares]
        every = sum(others)
        squares = (
            every - other + Fraction((1 - share) * (1 - share))
            for other, share in zip(others, self.shares, strict=True)
        )
        return math.sqrt(float(max(squares)))

    @property
    def bound(self) -> float:
        """What it adds to the norm bound."""
        return self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself. A place that is no level's is an unknown one."""
        count = len(self.levels)
        known = (raw >= 0) & (raw < count) & (raw == np.floor(raw))
        by_level = self.places | {ZERO: count}
        stand_ins = by_level[self.missing], by_level[self.unknown]
        places = np.where(np.isnan(raw), stand_ins[0], np.where(known, raw, stand_ins[1])).astype(np.intp)
        own = np.zeros((len(raw), count + 1))
        own[np.arange(len(raw)), places] = 1.0
        # All zeros for a value without a level, whose own column is the last one.
        return own[:, :count] * (1 - own[:, count:]) - np.array(self.shares) * (1 - own[:, count:])


Feature: TypeAlias = Number | Category | Genotype

_COMMON: Final = frozenset({"kind", "missing", "missing_codes", "description"})
_KEYS: Final[Mapping[Kind, tuple[type[Feature], frozenset[str], set[str]]]] = {
    Kind.NUMBER: (Number, _COMMON | {"unit", "range", "centre", "scale", "concept"}, {"unit", "range"}),
    Kind.CATEGORY: (Category, _COMMON | {"levels", "shares", "unknown", "concept"}, {"levels"}),
    Kind.GENOTYPE: (Genotype, _COMMON | {"allele", "frequency", "centre", "scale"}, set[str]()),
}
_ADVICE: Final = {
    "date": "A date is no measurement. Have each provider compute a number from it, such as the age on a public day.",
    "datetime": "A time is no measurement. Have each provider compute a number, such as the hours since arrival.",
    "boolean": 'Use kind = "category" with levels = ["no", "yes"], or kind = "number" with range = [0, 1].',
    "text": 'Text is used by its levels only: kind = "category". Free text cannot be used.',
}


def parse_feature(name: str, table: object) -> Feature:
    """Check the table of one feature."""
    where = f"The feature {name!r}"
    values.check_keys(where, table, frozenset().union(*(keys for _, keys, _ in _KEYS.values())), {"kind"})
    assert isinstance(table, Mapping)
    for key, value in table.items():
        values.require_filled(f"{where}: {key}", value)
    try:
        kind = Kind(table["kind"])
    except ValueError:
        advice = _ADVICE.get(shortened(table["kind"]).strip("'").lower(), f"Choose one of: {', '.join(Kind)}.")
        raise InvalidParameterError(f"{where}: kind is {shortened(table['kind'])}.", advice) from None
    of_kind, known, needed = _KEYS[kind]
    values.check_keys(f"{where}, of kind {kind},", table, known, needed)
    return of_kind.parse(name, table, where)


def _scale(where: str, value: object, known: tuple[Scale, ...]) -> str | float:
    if isinstance(value, str):
        check(value in known, f"{where} is {shortened(value)}.", f"Use {', '.join(known)}, or a public number.")
        return str(Scale(value))
    return values.positive(where, value)


def _level(where: str, value: object, levels: tuple[str, ...]) -> str:
    level = values.level_text(value)
    check(
        level in {ZERO, *levels},
        f"{where} is {shortened(value)}, which is no level.",
        f"Use one of: {', '.join(levels)}. Or use {ZERO}, which puts zeros in all columns of the feature.",
    )
    return level


def _concept(where: str, value: object) -> str | None:
    """Return what names a feature in triplets, as text: of a whole number its digits."""
    if value is None:
        return None
    name = values.level_text(value)
    check(
        bool(name) and name.strip() == name and name.isprintable(),
        f"{where} is {shortened(value)}.",
        "Give the id of the concept, as in concept = 201826.",
    )
    return name


def _shares(where: str, value: object, levels: tuple[str, ...]) -> tuple[float, ...]:
    if value is None:
        return (1 / len(levels),) * len(levels)
    if not isinstance(value, list | tuple) or len(value) != len(levels):
        raise InvalidParameterError(
            f"{where} is {shortened(value)}.", "Give one number for each level, in their order."
        )
    return tuple(values.within(where, each, (0.0, 1.0)) for each in value)


def _reach(ends: tuple[float, float], centre: float) -> float:
    return max(ends[1] - centre, centre - ends[0])


def _numbers(raw: FloatArray, feature: Number | Genotype) -> FloatArray:
    """Fill in, clip, centre and scale numbers. Infinity stays, because it stands for a cell that is no number."""
    filled = np.where(np.isnan(raw), feature.missing, raw)
    clipped = np.where(np.isinf(raw), np.inf, np.clip(filled, *feature.range))
    return ((clipped - feature.centre) / feature.divisor)[:, None]
