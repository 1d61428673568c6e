"""Facts for a steward about the features of a data set: values outside the public range, codes, units, levels.

These are facts about rows, for the person who may see the rows. None of them may leave.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray
from dpspca.common.dictionary import (
    MOST_ODD,
    OTHER_TEXT,
    UNKNOWN,
    Category,
    Feature,
    FeatureKind,
    Genotype,
    MappedFeature,
    Number,
    category_text,
)
from dpspca.common.storage import Reading
from dpspca.provider.data.files import number_parser
from dpspca.provider.data.memory import Genotypes

from .unit_errors import SENTINELS, Conversion, suspected_codes, suspected_unit

_MOST_SAMPLED: Final = 2**16
_FEWEST_SAMPLED: Final = 64
_MOST_UNKNOWN: Final = 8
_LONGEST: Final = 60
"""Letters of a text that are shown."""
_FEWEST_COUNTED: Final = 50
_ALLELES: Final = 2
_CLEARLY: Final = 0.2
"""How much nearer a frequency must be to that of the other allele."""
_SPREAD: Final = np.uint64(0x9E3779B97F4A7C15)
_MIXED_BITS: Final = np.uint64(32)


@dataclass(frozen=True, slots=True)
class FeatureFacts:
    """One feature, and the provider's column of it."""

    name: str
    column: str
    kind: str
    unit: str
    type: str | None
    """The type that the file states."""
    range: tuple[float, float] | None
    values: int
    """Number of values that are there and usable."""
    missing: int
    unusable: int
    """Number of values that are not a number. Each makes its row a row of zeros."""
    unknown: int
    """Number of values of a category that are not a level."""
    below: int
    above: int
    """Number of values outside the public range, which are clipped to it, or of genotypes count as missing."""
    least: float | None
    most: float | None
    """The smallest and the largest value, in the dictionary's unit."""
    is_constant: bool
    codes: tuple[float, ...]
    """Values outside the range that often stand for missing values, as in the file."""
    suspicion: Conversion | None
    """A conversion that would explain the values."""
    unknown_numbers: tuple[float, ...] = ()
    """The smallest numbers, as in the file, that are not a level of a category."""
    looks_swapped: bool = False
    """Whether a genotype is about as frequent as the dictionary's other allele, and not as the one that is counted."""
    unknown_texts: tuple[str, ...] = ()
    """The first texts that are not a level of a category."""
    has_thousands: bool = False
    """Whether the decimal mark of its numbers may divide thousands."""
    without_triplet: int = 0
    """Number of rows without a triplet of it. They are missing values, too."""

    @property
    def is_wrong(self) -> bool:
        """Tell whether most values are outside the range or of no level, or none can be used."""
        odd = self.below + self.above + self.unknown
        return odd > MOST_ODD * self.values if self.values else self.missing + self.unusable > 0


class NotedTexts(dict[str, int]):
    """The texts of a category's levels, which notes the first other texts that are looked for among them."""

    def __init__(self, levels: Mapping[str, int], parse: Callable[[str], float]) -> None:
        """``parse`` reads a number as the file writes it. Numbers are not noted."""
        super().__init__(levels)
        self._levels, self._parse = dict(levels), parse
        self._noted: dict[str, None] = {}

    def __contains__(self, text: object) -> bool:
        is_level = super().__contains__(text)
        has_room = len(self._noted) < _MOST_UNKNOWN and not is_level and isinstance(text, str)
        if has_room and category_text(str(text), self._levels, (), self._parse) == OTHER_TEXT:
            self._noted[str(text)[:_LONGEST]] = None
        return is_level

    def unknown(self) -> tuple[str, ...]:
        """Return the noted texts, in the order in which they were found."""
        return tuple(self._noted)


def noting_texts(reading: Reading) -> Reading:
    """Return how to read a data set so that ``with_unknown_texts`` knows texts that are not a level."""
    parse = number_parser(reading)
    return replace(reading, texts={column: NotedTexts(levels, parse) for column, levels in reading.texts.items()})


def with_unknown_texts(facts: FeatureFacts, reading: Reading) -> FeatureFacts:
    """Add the texts that are not a level, once all rows were read as ``noting_texts`` says."""
    noted = reading.texts.get(facts.column)
    return replace(facts, unknown_texts=noted.unknown()) if facts.unknown and isinstance(noted, NotedTexts) else facts


def with_thousands(facts: FeatureFacts) -> FeatureFacts:
    """Note that a number's decimal mark may divide thousands. Another unit would not explain numbers without a mark."""
    return replace(facts, has_thousands=True, suspicion=None) if facts.kind == FeatureKind.NUMBER else facts


class FeatureScan:
    """Gathers facts about one feature from cells that come some at a time."""

    def __init__(self, mapped: MappedFeature) -> None:
        self.column: Final = mapped.column
        self._mapped = mapped
        self._is_category = isinstance(mapped.feature, Category)
        self._range = (-np.inf, np.inf) if isinstance(mapped.feature, Category) else mapped.feature.range
        self._cells = self._values = self._missing = self._unusable = self._unknown = self._below = self._above = 0
        self._least, self._most = np.inf, -np.inf
        self._total, self._counted = 0.0, 0  # of genotypes that do not count as missing
        self._codes: frozenset[float] = frozenset()
        self._unknown_numbers: tuple[float, ...] = ()

    def add(self, cells: FloatArray) -> None:
        """Take some cells of the feature's column, with NaN for missing values."""
        raw = self._mapped.raw(cells)
        good, below, above = _divided(raw, self._range)
        values = raw[good]
        self._cells += len(cells)
        self._values += len(values)
        self._missing += int(np.isnan(raw).sum())
        self._unusable += int(np.isinf(raw).sum())
        if self._is_category:
            self._add_unknown(cells[raw == UNKNOWN])
        self._below += int(below.sum())
        self._above += int(above.sum())
        self._least, self._most = values.min(initial=self._least), values.max(initial=self._most)
        if isinstance(self._mapped.feature, Genotype):
            copies = self._mapped.feature.copies(values)
            self._counted += int(np.count_nonzero(~np.isnan(copies)))
            self._total += float(np.nansum(copies))
        self._codes |= frozenset(suspected_codes(cells, below | above))

    def _add_unknown(self, cells: FloatArray) -> None:
        """Count values that are not a level, and keep the smallest numbers among them. Infinity may be any value."""
        self._unknown += len(cells)
        numbers = {*self._unknown_numbers, *np.unique(cells[np.isfinite(cells) & (cells != OTHER_TEXT)]).tolist()}
        self._unknown_numbers = tuple(sorted(numbers)[:_MOST_UNKNOWN])

    def facts(self, stated: str | None, rows: int, sample: FloatArray) -> FeatureFacts:
        """Return the gathered facts. ``sample`` are cells, of many rows or of all, by which units are suspected."""
        feature, has_range = self._mapped.feature, bool(self._values) and not self._is_category
        return FeatureFacts(
            name=feature.name,
            column=self._mapped.column,
            kind=str(feature.kind),
            unit=feature.unit,
            type=stated,
            range=None if self._is_category else self._range,
            values=self._values,
            missing=self._missing,
            unusable=self._unusable,
            unknown=self._unknown,
            below=self._below,
            above=self._above,
            least=float(self._least) if has_range else None,
            most=float(self._most) if has_range else None,
            is_constant=rows > 1 and self._cells == rows and self._values > 1 and bool(self._least == self._most),
            codes=tuple(code for code in SENTINELS if code in self._codes),
            suspicion=self._suspicion(sample) if isinstance(feature, Number) else None,
            unknown_numbers=self._unknown_numbers,
            looks_swapped=self._looks_swapped(feature),
        )

    def _looks_swapped(self, feature: Feature) -> bool:
        """Tell whether the other allele may be counted. Chance alone does this to fewer than one of 10^4 variants."""
        if not isinstance(feature, Genotype) or feature.frequency is None or self._counted < _FEWEST_COUNTED:
            return False
        own, public = self._total / self._counted / _ALLELES, feature.frequency
        return abs(own - public) > abs(own - (1 - public)) + _CLEARLY

    def _suspicion(self, cells: FloatArray) -> Conversion | None:
        raw = self._mapped.raw(cells)
        good, below, above = _divided(raw, self._range)
        is_code = np.isin(cells, SENTINELS) & (below | above)
        return suspected_unit(raw[good & ~is_code], self._range, self._mapped.feature.unit)


def _divided(raw: FloatArray, ends: tuple[float, float]) -> tuple[NDArray[np.bool_], ...]:
    """Tell which values are usable, and which of them are below and above a range."""
    good = np.isfinite(raw)
    return good, good & (raw < ends[0]), good & (raw > ends[1])


class RowSample:
    """Some rows of a table that come some at a time: all, if they are few. Which ones follows from their places."""

    def __init__(self, columns: int, cells: int) -> None:
        """Keep about ``cells`` numbers at most."""
        self._most = max(_FEWEST_SAMPLED, min(_MOST_SAMPLED, cells // max(1, columns)))
        self._rows, self._keys = np.empty((0, columns)), np.empty(0, dtype=np.uint64)
        self._count = 0

    def add(self, rows: FloatArray) -> None:
        """Take some rows. If there are too many, keep those whose places have the smallest hashes."""
        places = np.arange(self._count + 1, self._count + 1 + len(rows), dtype=np.uint64)
        keys = places * _SPREAD
        keys = (keys ^ (keys >> _MIXED_BITS)) * _SPREAD
        self._count += len(rows)
        if self._count > self._most and len(self._keys) == self._most:
            is_small = keys < self._keys.max()
            rows, keys = rows[is_small], keys[is_small]
        self._rows, self._keys = np.concatenate([self._rows, rows]), np.concatenate([self._keys, keys])
        if len(self._keys) > self._most:
            kept = np.sort(np.argpartition(self._keys, self._most)[: self._most])
            self._rows, self._keys = self._rows[kept], self._keys[kept]

    def column(self, place: int) -> FloatArray:
        """Return the cells of one column."""
        return self._rows[:, place]


def facts_of_features(
    matrix: Any,  # noqa: ANN401  # sparse rows or genotypes
    names: Sequence[str],
    types: Sequence[str] | None,
    reading: Reading,
) -> tuple[FeatureFacts, ...]:
    """Describe each feature of a table that is in memory. It has the columns of the file, with NaN for missing values.

    Of triplets, only values that are there are described: most persons lack most of them.
    """
    preparation = reading.preparation
    assert preparation is not None
    places, cells_of = {name: place for place, name in enumerate(names)}, _cells_of(matrix, reading)
    found = []
    for each in preparation.mapped:
        scan, cells = FeatureScan(each), cells_of(places[each.column])
        scan.add(cells)
        facts = scan.facts(None if types is None else types[places[each.column]], matrix.shape[0], cells)
        lacking = 0 if reading.triplets is None else matrix.shape[0] - len(cells)
        found.append(replace(facts, without_triplet=lacking))
    return tuple(found)


def _cells_of(matrix: Any, reading: Reading) -> Callable[[int], FloatArray]:  # noqa: ANN401  # sparse or genotypes
    """Return a function that gives the cells of a column."""
    if isinstance(matrix, Genotypes):
        return matrix.column
    by_column = scipy.sparse.csc_array(matrix)

    def stored(place: int) -> FloatArray:
        cells: FloatArray = by_column.data[by_column.indptr[place] : by_column.indptr[place + 1]]
        return cells if reading.triplets is not None else np.append(cells, np.zeros(matrix.shape[0] - len(cells)))

    return stored
