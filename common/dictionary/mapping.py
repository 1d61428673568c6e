"""How one provider's columns become the features of a dictionary. Pure.

What is declared follows from no row: for each feature the column or an SQL expression, a factor and an offset that
convert its unit, and the codes of its levels. Each row is converted and prepared by itself.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Final, Self

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.choices import choices
from dpspca.common.decoding import By, Filled, Rule, Source, decode
from dpspca.common.errors import DpspcaError, InvalidInputError, InvalidParameterError
from dpspca.common.names import shortened
from dpspca.common.text import composed

from . import values
from .codes import LevelCodes, without_codes
from .dictionary import Dictionary
from .expressions import fault_of_expression
from .features import Category, Feature, Genotype

_ONE_EACH: Final = "Give a category a column of its own. A query under [reading] can give a column twice."


_NOT_FOR: Final = {True: {"factor", "offset"}, False: {"levels"}}
"""Keys that a feature cannot have, by whether it is a category."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Declared:
    """The table about one feature."""

    column: Filled | None = None
    expression: Filled | None = None
    factor: Annotated[
        values.Amount,
        Rule("Give the factor that converts the unit, as 2.54 for inches to cm.", lambda factor: factor != 0),
    ] = 1.0
    offset: values.Amount = 0.0
    levels: Annotated[
        dict[str, str],
        By(lambda codes, _: {code.strip(): values.level_text(level) for code, level in codes.items()}, dict[str, Any]),
        Rule('Give a level for each code, as in { 1 = "female", 2 = "male" }.'),
    ] = field(default_factory=dict)
    missing_codes: values.Codes = ()


@dataclass(frozen=True, slots=True)
class MappedFeature:
    """Where a provider has a feature, and how its values become those of the dictionary."""

    feature: Feature
    column: str
    expression: str | None = None
    """SQL that a database computes the column with. Then ``column`` is a name for it."""
    factor: float = 1.0
    offset: float = 0.0
    """A value is multiplied by the factor, and then the offset is added."""
    codes: LevelCodes | None = None
    """Of a category: which codes stand for which levels."""
    missing_codes: values.Codes = ()
    """Codes for missing values in this column, in addition to those of the dictionary."""
    is_located: bool = False
    """Whether the settings name the column. Otherwise the dictionary does."""

    @classmethod
    def parse(cls, feature: Feature, raw: object, where: str) -> Self:
        """Check what a provider's settings say about a feature. Left out: the column has the feature's name."""
        read = decode(_Declared, {"column": raw} if isinstance(raw, str) else raw, Source(where))
        stray = raw.keys() & _NOT_FOR[isinstance(feature, Category)] if isinstance(raw, dict) else ()
        check(
            not stray,
            f"{where} has {', '.join(sorted(stray))}, and the feature is of kind {feature.kind}.",
            "Remove it: factor and offset are for numbers, and levels are for categories.",
        )
        check(
            read.column is None or read.expression is None,
            f"{where} has both column and expression.",
            "Keep one of the two: an expression can name any column of the table.",
        )
        fault = None if read.expression is None else fault_of_expression(read.expression)
        check(
            fault is None,
            f"{where}: the expression {fault}. It must look at its own row alone.",
            "Use columns, numbers, text in single quotes, CASE, CAST, comparisons and usual functions, as in "
            "weight / (height * height). Or compute the value in a query under [reading].",
        )
        codes = LevelCodes.of(feature, read.levels) if isinstance(feature, Category) else None
        column, is_located = composed(read.column or feature.name), (read.column or read.expression) is not None
        column = column if read.expression is None else f"SQL expression of {column}"
        return cls(feature, column, read.expression, read.factor, read.offset, codes, read.missing_codes, is_located)

    def written(self) -> dict[str, Any]:
        """Return the feature's part of the settings, in the form that ``parse`` reads."""
        where = {"column": self.column} if self.expression is None else {"expression": self.expression}
        written: dict[str, Any] = dict(where) if self.is_located else {}
        if self.is_converted:
            written |= {"factor": self.factor, "offset": self.offset}
        if self.missing_codes:
            written["missing_codes"] = list(self.missing_codes)
        if isinstance(self.feature, Category) and self.codes is not None:
            names = [self.feature.levels[place] for place in self.codes.levels]
            own = {code: name for code, name in zip(self.codes.texts, names, strict=True) if code != name}
            written |= {"levels": own} if own else {}
        return written

    @property
    def all_codes(self) -> values.Codes:
        """All codes that stand for a missing value."""
        return (*self.missing_codes, *self.feature.missing_codes)

    @property
    def is_converted(self) -> bool:
        """Tell whether values are converted from another unit."""
        return (self.factor, self.offset) != (1.0, 0.0)

    def raw(self, cells: FloatArray) -> FloatArray:
        """Turn a column of the file into raw values of the feature, in the dictionary's unit."""
        known = without_codes(cells, self.all_codes)
        if self.codes is not None:
            return self.codes.places(known)
        with np.errstate(over="ignore"):  # becomes infinite, which makes the row unusable
            return known * self.factor + self.offset if self.is_converted else known


@dataclass(frozen=True, slots=True)
class _Columns:
    """The part of the settings about features."""

    columns: dict[str, Any]
    absent: tuple[values.Level, ...]


@dataclass(frozen=True, slots=True)
class Preparation:
    """A provider's rows in the terms of a dictionary."""

    dictionary: Dictionary
    """The whole dictionary on which the parties agreed."""
    mapped: tuple[MappedFeature, ...]
    absent: tuple[str, ...] = ()
    """Features that this provider does not have."""

    @classmethod
    def parse(cls, dictionary: Dictionary, columns: object, absent: object) -> Self:
        """Check what a provider's settings say about its columns."""
        declared = decode(_Columns, {"columns": columns or {}, "absent": absent or []})
        left_out, located = declared.absent, declared.columns
        if left_out:
            dictionary.subset(left_out)  # refuses a name that it does not have
        both = sorted(set(left_out) & located.keys())
        check(not both, f"{shortened(both[:1])} is under columns and absent.", "Remove one of them.")
        held = [each for each in dictionary.features if each.name not in left_out]
        check(bool(held), "Every feature is absent.", "Map at least one.")
        wrong: list[DpspcaError] = [
            InvalidParameterError(f"columns has an unknown key {shortened(name)}.", choices(name, dictionary.names))
            for name in sorted(located.keys() - set(dictionary.names))
        ]
        mapped = list[MappedFeature]()
        for each in held:
            try:
                mapped.append(MappedFeature.parse(each, located.get(each.name, {}), f"columns: {each.name!r}"))
            except DpspcaError as problem:
                wrong.append(problem)
        if wrong:
            raise InvalidInputError(wrong)
        _require_own_columns(mapped)
        return cls(dictionary, tuple(mapped), left_out)

    def written(self) -> dict[str, Any]:
        """Return the settings about the dictionary and its whole content, as plain values."""
        columns = {each.feature.name: each.written() for each in self.mapped}
        return {"dictionary": self.dictionary.to_dict(), "columns": columns, "absent": list(self.absent)}

    @classmethod
    def from_written(cls, written: Mapping[str, Any]) -> Self:
        """Read what ``written`` returned."""
        return cls.parse(Dictionary.parse(written["dictionary"]), written["columns"], written["absent"])

    @property
    def of_triplets(self) -> Self:
        """The same for triplets: a feature is in the column of its concept, unless the settings name another."""
        check(
            not self.expressions,
            f"{shortened(list(self.expressions)[:1])} is given, and triplets have no columns to compute with.",
            "Compute it in a query under [reading] that returns triplets.",
        )
        mapped = tuple(
            each
            if each.is_located or isinstance(each.feature, Genotype) or each.feature.concept is None
            else replace(each, column=each.feature.concept)
            for each in self.mapped
        )
        _require_own_columns(mapped)
        return replace(self, mapped=mapped)

    @property
    def held(self) -> Dictionary:
        """The features that this provider has."""
        return Dictionary(tuple(each.feature for each in self.mapped), self.dictionary.title)

    @property
    def columns_prepared(self) -> tuple[str, ...]:
        """The names of the columns of prepared rows."""
        return tuple(column for each in self.mapped for column in each.feature.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file that are used, each once."""
        return tuple(dict.fromkeys(each.column for each in self.mapped))

    @property
    def expressions(self) -> Mapping[str, str]:
        """For each column that a database computes, its SQL."""
        return {each.column: each.expression for each in self.mapped if each.expression is not None}

    @property
    def texts(self) -> Mapping[str, tuple[str, ...]]:
        """For each column of a category, the texts that stand for levels."""
        return {each.column: each.codes.texts for each in self.mapped if each.codes is not None}

    @property
    def codes(self) -> Mapping[str, values.Codes]:
        """For each column, the texts that stand for a missing value. Numbers are looked at after reading."""
        found: dict[str, values.Codes] = {}
        for each in self.mapped:
            texts = tuple(code for code in each.all_codes if isinstance(code, str))
            found[each.column] = (*found.get(each.column, ()), *texts)
        return {column: texts for column, texts in found.items() if texts}

    def raw(self, matrix: FloatArray, names: Sequence[str]) -> dict[str, FloatArray]:
        """Return the raw values of each feature. ``names`` are those of the matrix's columns."""
        places = {name: place for place, name in enumerate(names)}
        return {each.feature.name: each.raw(matrix[:, places[each.column]]) for each in self.mapped}

    def prepare(self, matrix: FloatArray, names: Sequence[str]) -> FloatArray:
        """Prepare rows that were read from a file, each by itself."""
        return self.held.encode(self.raw(matrix, names))


def _require_own_columns(mapped: Sequence[MappedFeature]) -> None:
    used = Counter(each.column for each in mapped)
    shared = [each.column for each in mapped if each.codes is not None and used[each.column] > 1]
    check(not shared, f"Several features use the column {shortened(shared[:1])}, and one is a category.", _ONE_EACH)
