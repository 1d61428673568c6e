"""The public description of one feature, the same for all parties, and how its values are prepared. Pure.

A value is prepared by itself: nothing here depends on another row. Raw values are floating-point numbers. NaN is a
missing value, and infinity stands for a cell that is not a number, which makes its row unusable. Of a category, a raw
value is the place of a level, or ``UNKNOWN``, and only ``NO_CELL`` makes its row unusable.

Every prepared entry is finite, or the raw value was infinite. ``largest`` bounds the Euclidean length of what one value
becomes, whatever the value is.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_all
from dpspca.common.choices import choices
from dpspca.common.decoding import DERIVED, By, Rule, Source, between, decode, distinct
from dpspca.common.errors import InvalidInputError
from dpspca.common.names import shortened

from . import values
from .places import MAX_POSITION, SEVERAL_ALLELES, chromosome, known_allele
from .values import Amount, Level, level_name, level_text

UNKNOWN: Final = -1.0
NO_CELL: Final = -math.inf
"""In place of all cells of a line that has too few or too many, and of a cell that has several values."""
"""The raw value of a category's cell that holds no declared level."""
ZERO: Final = "zero"
"""In place of a missing or unknown level: zeros in all columns of the category."""
ALLELES: Final = 2.0
MOST_SQUARE: Final = 2.0
"""The most that a genotype adds to the square of the norm bound. Scaled by its frequency, its expected square is 1."""


class FeatureKind(StrEnum):
    """Kinds of values of features."""

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


def _scales(*known: Scale) -> Rule:
    """Return the rule for a scale: one of the known names, or a public number."""
    expected = f"Use {', '.join(known)}, or a public number of at least 2^-64."
    return Rule(expected, lambda scale: scale in known if isinstance(scale, str) else scale >= 2.0**-64)


Stripped: TypeAlias = Annotated[str, By(lambda text, _: text.strip(), str)]
Share: TypeAlias = Annotated[Amount, between(0, 1, "a number")]
LevelText: TypeAlias = Annotated[str, By(lambda level, _: level_text(level))]
Levels: TypeAlias = Annotated[
    tuple[Level, ...], distinct('List each level once, none of them twice, as in ["never", "former", "current"].')
]
Concept: TypeAlias = Annotated[str, By(level_name)] | None
Allele: TypeAlias = Annotated[str, By(lambda text, _: known_allele(text), str)]
OtherAllele: TypeAlias = Annotated[str | None, By(lambda text, _: known_allele(text) or None, str)]
Chromosome: TypeAlias = Annotated[str | None, By(lambda written, _: chromosome(str(written)) or None, str | int)]
Position: TypeAlias = Annotated[int, between(1, MAX_POSITION)] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number with a public range."""

    name: Annotated[str, DERIVED]
    unit: Stripped
    range: tuple[Amount, Amount]
    centre: Amount = math.nan
    """The public value that becomes zero. By default the middle of the range."""
    scale: Annotated[str | Amount, _scales(Scale.RANGE, Scale.NONE)] = "range"
    missing: Amount = math.nan
    """The number used in place of a missing value. By default the centre."""
    missing_codes: values.Codes = ()
    description: str = ""
    concept: Concept = None
    """Its name in triplets, if that is another: a concept of a vocabulary that all providers use."""

    kind: ClassVar[FeatureKind] = FeatureKind.NUMBER

    def __post_init__(self) -> None:
        low, high = self.range
        check(
            low < high,
            f"range is [{low:g}, {high:g}]; its first end must be below the second.",
            "Write the lower end first. Leave out a feature that can have only one value.",
        )
        _fill_in(self, (low + high) / 2)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return (self.name,)

    @property
    def divisor(self) -> float:
        """The number by which a value is divided, after the centre was subtracted."""
        reach = _reach(self.range, self.centre)
        return {Scale.RANGE: reach, Scale.NONE: 1.0}.get(self.scale, self.scale)  # type: ignore[call-overload, no-any-return]

    @property
    def largest(self) -> float:
        """The most that a prepared value can be, in size."""
        return _reach(self.range, self.centre) / self.divisor

    @property
    def bound(self) -> float:
        """Its part of the norm bound. The feature adds the square of this to the square of the norm bound."""
        return self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself."""
        return _numbers(raw, self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Genotype:
    """How many copies of an allele a person has: 0, 1 or 2, or an expected number between."""

    name: Annotated[str, DERIVED]
    allele: Allele = ""
    """The allele that is counted. Empty if that is not stated."""
    other_allele: OtherAllele = None
    """The allele that is not counted. Together, the two show on which strand a file counts them."""
    chromosome: Chromosome = None
    position: Position = None
    """The place on the chromosome. In another build of the genome it is another one."""
    frequency: Share | None = None
    """The public frequency of that allele."""
    centre: Amount = math.nan
    """By default twice the frequency, or 1 if no frequency is known."""
    scale: Annotated[str | Amount, _scales(*Scale)] = ""
    """By default the frequency, or the range if no frequency is known."""
    missing: Amount = math.nan
    missing_codes: values.Codes = ()
    description: str = ""

    kind: ClassVar[FeatureKind] = FeatureKind.GENOTYPE
    unit: ClassVar[str] = "alleles"
    range: ClassVar[tuple[float, float]] = (0.0, ALLELES)

    def __post_init__(self) -> None:
        given = self.frequency
        _require_a_variant(self)
        if self.scale == "":
            object.__setattr__(self, "scale", str(Scale.RANGE if given is None else Scale.FREQUENCY))
        check(
            self.scale != Scale.FREQUENCY or (given is not None and 0 < given < 1),
            f"It is scaled by its frequency, which is {'missing' if given is None else f'{given:g}'}.",
            "Give a frequency between 0 and 1. Leave out a variant that nobody, or everybody, has.",
        )
        _fill_in(self, 1.0 if given is None else ALLELES * given)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns that it becomes."""
        return (self.name,)

    @property
    def divisor(self) -> float:
        """The number by which a value is divided, after the centre was subtracted."""
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
        """Its part of the norm bound: squared, no more than twice its expected square, if that is known.

        No row has rare alleles everywhere. A bound that allowed for it would be many times as long as any row, and
        noise grows with the bound.
        """
        return min(self.largest, math.sqrt(MOST_SQUARE)) if self.scale == Scale.FREQUENCY else self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself."""
        return _numbers(self.copies(raw), self)

    def copies(self, raw: FloatArray) -> FloatArray:
        """Return values, with NaN for those that do not round to 0, 1 or 2: PLINK writes -9 for a missing one."""
        whole = np.rint(raw)
        is_count = ((whole >= 0) & (whole <= ALLELES)) | np.isinf(raw)
        return np.where(is_count, raw, np.nan)


@dataclass(frozen=True, kw_only=True, slots=True)
class Category:
    """One of several levels. It becomes a column for each level: 1 for its own, 0 for others, less a public share."""

    name: Annotated[str, DERIVED]
    levels: Levels
    shares: tuple[Share, ...] = ()
    """The public share of each level, which is subtracted. By default all are equal."""
    missing: LevelText = ZERO
    """The level that stands for a missing value, or ``ZERO``."""
    unknown: LevelText = ZERO
    """The level that stands for any other value, or ``ZERO``."""
    missing_codes: values.Codes = ()
    description: str = ""
    concept: Concept = None
    """Its name in triplets, if that is another."""

    kind: ClassVar[FeatureKind] = FeatureKind.CATEGORY
    unit: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if not self.shares:
            object.__setattr__(self, "shares", (1 / len(self.levels),) * len(self.levels))
        known = f"Use one of: {', '.join(self.levels)}. Or use {ZERO}, which puts zeros in all columns of the feature."
        check_all(
            (
                len(self.levels) > 1,
                "It has one level.",
                "List all levels that a value may have. A feature with one level says nothing: leave it out.",
            ),
            (
                len(self.shares) == len(self.levels),
                f"shares has {len(self.shares)} numbers for {len(self.levels)} levels.",
                "Give one number for each level, in their order.",
            ),
            *(
                (level in {ZERO, *self.levels}, f"{key} is {shortened(level)}, which is no level.", known)
                for key, level in (("missing", self.missing), ("unknown", self.unknown))
            ),
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
        """Its part of the norm bound."""
        return self.largest

    def encode(self, raw: FloatArray) -> FloatArray:
        """Prepare values, each by itself. A place without a level is unknown. ``NO_CELL`` makes its row unusable."""
        count = len(self.levels)
        known = (raw >= 0) & (raw < count) & (raw == np.floor(raw))
        by_level = self.places | {ZERO: count}
        stand_ins = by_level[self.missing], by_level[self.unknown]
        places = np.where(np.isnan(raw), stand_ins[0], np.where(known, raw, stand_ins[1])).astype(np.intp)
        own = np.zeros((len(raw), count + 1))
        own[np.arange(len(raw)), places] = 1.0
        # All zeros for a value without a level, whose own column is the last one.
        made = own[:, :count] * (1 - own[:, count:]) - np.array(self.shares) * (1 - own[:, count:])
        return np.where((raw == NO_CELL)[:, None], np.inf, made)  # in a time that does not tell how many there are


Feature: TypeAlias = Number | Category | Genotype

_KINDS: Final[Mapping[str, type[Feature]]] = {str(each.kind): each for each in (Number, Category, Genotype)}
_ADVICE: Final = {
    "date": "A date is no measurement. Have each provider compute a number from it, such as the age on a public day.",
    "datetime": "A time is no measurement. Have each provider compute a number, such as the hours since arrival.",
    "boolean": 'Use kind = "category" with levels = ["false", "true"], or kind = "number" with range = [0, 1].',
    "text": 'Text is used by its levels only: kind = "category". Free text cannot be used.',
}


def _advice(kind: object) -> str:
    return _ADVICE.get(str(kind).lower()[:20], choices(kind, _KINDS))


@dataclass(frozen=True, slots=True)
class _Unread:
    """A feature's table before its kind is known."""

    kind: Annotated[str, Rule(_advice, lambda kind: kind in _KINDS)]


def parse_feature(name: str, table: object) -> Feature:
    """Read the table of one feature, or raise an error that lists everything that is wrong with it."""
    where = f"The feature {name!r}"
    rest = dict(table) if isinstance(table, dict) else {}
    unread = {"kind": rest.pop("kind")} if "kind" in rest else {}
    kind = decode(_Unread, unread if isinstance(table, dict) else table, Source(where)).kind
    unfilled = [fault for key, value in rest.items() for fault in values.unfilled(f"{where}: {key}", value)]
    if unfilled:
        raise unfilled[0] if len(unfilled) == 1 else InvalidInputError(unfilled)
    of_kind: Any = _KINDS[kind]
    made: Feature = decode(of_kind, rest, Source(f"{where}, of kind {kind}"), name=name)
    return made


def _require_a_variant(feature: Genotype) -> None:
    """Refuse alleles and a place that no variant has."""
    check_all(
        (
            feature.other_allele is None or feature.other_allele != feature.allele,
            f"allele and other_allele are both {shortened(feature.allele)}.",
            "Give the two alleles of the variant.",
        ),
        (
            SEVERAL_ALLELES not in feature.allele and SEVERAL_ALLELES not in (feature.other_allele or ""),
            "allele or other_allele has a comma, as if it were several alleles.",
            "Leave the variant out: one with more than two alleles is not read.",
        ),
        (
            feature.other_allele is None or bool(feature.allele),
            "other_allele is there, and allele is not.",
            "Give allele, too: the one that is counted.",
        ),
        (
            feature.position is None or feature.chromosome is not None,
            "position is there, and chromosome is not.",
            "Give chromosome, too.",
        ),
    )


def _fill_in(feature: Number | Genotype, middle: float) -> None:
    """Set the centre and the value for a missing one, where they are not given. Refuse them outside of the range."""
    low, high = feature.range
    check_all(
        *(
            (
                math.isnan(number) or low <= number <= high,
                f"{key} is {number:g}, which is outside the range [{low:g}, {high:g}].",
                "Correct it, or the range.",
            )
            for key, number in (("centre", feature.centre), ("missing", feature.missing))
        )
    )
    centre = middle if math.isnan(feature.centre) else feature.centre
    object.__setattr__(feature, "centre", centre)
    object.__setattr__(feature, "missing", centre if math.isnan(feature.missing) else feature.missing)


def _reach(ends: tuple[float, float], centre: float) -> float:
    return max(ends[1] - centre, centre - ends[0])


def _numbers(raw: FloatArray, feature: Number | Genotype) -> FloatArray:
    """Fill in, clip, centre and scale numbers. Infinity stays, because it stands for a cell that is not a number."""
    filled = np.where(np.isnan(raw), feature.missing, raw)
    clipped = np.where(np.isinf(raw), np.inf, np.clip(filled, *feature.range))
    return ((clipped - feature.centre) / feature.divisor)[:, None]
