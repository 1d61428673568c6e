"""How the files of a data set are read: what its steward declares under ``[reading.NAME]`` in a provider's settings.

Everything here is declared once and in advance. Nothing is guessed from rows, because what a provider does must not
depend on one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Final, Self, TypeAlias

from dpspca.common.checks import check, is_real
from dpspca.common.decoding import DERIVED, By, Filled, Rule, Source, distinct, keys_of, one_of, read_part
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidParameterError
from dpspca.common.text import composed

from .paths import FilePath
from .triplets import Triplets

ENCODINGS: Final = ("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-15", "cp1250", "cp1251", "cp1252")
"""Encodings in which no character changes the meaning of what follows it, so that each line is read by itself.

"utf-16" is in the order of bytes that the file begins with, or little-endian if ``names`` are declared: then the first
bytes are those of a row, and may decide nothing.
"""
SAMPLE_LISTS: Final = (".fam", ".psam")
"""Lists of samples that PLINK writes beside genotypes."""
DELIMITERS: Final = (",", ";", "\t", "|", " ")
"""A space stands for one or several."""
DECIMALS: Final = (".", ",")
_NAMES: Final = distinct('Give a list of different names, as in ["age", "bmi"].')


def _columns(value: Any, source: Source) -> tuple[str, ...]:  # noqa: ANN401  # whatever was written
    """Read names of columns: a list, or the path of a file with one name a line. Blank lines are skipped."""
    if isinstance(value, str):
        path = source.locate(value)
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, ValueError):
            raise InvalidParameterError(
                f"It names {path}, which cannot be read.", "Give a list, or a file with one name a line."
            ) from None
        value = [line.strip() for line in lines if line.strip()]
    names: tuple[str, ...] = read_part(ColumnNames, value, source)
    return names


ColumnNames: TypeAlias = Annotated[tuple[Filled, ...], _NAMES]
Code: TypeAlias = Annotated[
    str | int | float, Rule("Give a finite number, or text.", lambda code: isinstance(code, str) or is_real(code))
]
Codes: TypeAlias = Annotated[tuple[Code, ...], Rule('Give a list of numbers and texts, as in [-9, "NA"].')]
_FILL: Final = Rule("Give a number for each column, as in { age = 50.0 }, or one number for all.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Declarations about the files of one data set."""

    columns: Annotated[tuple[str, ...], By(_columns)] | None = None
    """The columns to use, by name and in this order. By default all."""
    leave_out: Annotated[tuple[str, ...], _NAMES] = ()
    """Columns that are not used, for example an index. An empty name stands for columns without a name."""
    names: Annotated[tuple[str, ...], By(_columns)] | None = None
    """The names of all columns, in a file that does not have them: text without a line of names, or an array."""
    delimiter: Annotated[str, one_of(*DELIMITERS)] | None = None
    """The text that divides the cells of a text file. By default it follows from the line of names."""
    decimal: Annotated[str, one_of(*DECIMALS)] = "."
    """The decimal mark in a text file."""
    encoding: Annotated[str, one_of(*ENCODINGS)] | None = None
    """The encoding of a text file. By default UTF-8, or UTF-16 if the file begins with its mark."""
    missing_codes: Codes | Mapping[str, Codes] = ()
    """Values that stand for a missing value: in all columns, or by column."""
    missing: Annotated[float | Mapping[str, float], _FILL] = field(default_factory=lambda: MappingProxyType({}))
    """A public number that is used in place of a missing value: in all columns, or by column."""
    array: Filled | None = None
    """Which array or layer of the file holds the rows."""
    table: Filled | None = None
    """Which table of a database holds the rows."""
    query: Filled | None = None
    """The SQL query that gives the rows."""
    order_by: ColumnNames | None = None
    """The columns that order the rows of a database."""
    triplets: Triplets | None = None
    """For a long table, which of its columns name the row and the column of each number."""
    alleles: FilePath | None = None
    """A public list of variants (.bim, .pvar, .afreq) that says which allele of each is counted."""
    person: Filled | None = None
    """The column that says whose a row is. Of the samples that PLINK lists: IID, the default, or FID."""
    preparation: Annotated[Preparation | None, DERIVED] = None
    """How rows become those of a shared dictionary: what [dictionaries.NAME] says. Then ``columns`` follow from it."""

    texts: Annotated[Mapping[str, Mapping[str, int]], DERIVED] = field(default_factory=lambda: MappingProxyType({}))
    """For each column of a category, the places of the texts that stand for levels. They follow from the dictionary."""

    def __post_init__(self) -> None:
        for first, second in (("columns", "leave_out"), ("table", "query")):
            both = bool(getattr(self, first)) and bool(getattr(self, second))
            check(not both, f"Both {first} and {second} are given.", "Keep one of the two.")
        if self.person is not None:
            object.__setattr__(self, "person", composed(self.person))
            used = self.columns is not None and self.person in map(composed, self.columns)
            check(
                not used or self.person in self.texts,
                f"The column {self.person!r:.60} says whose each row is, and is also used as a feature.",
                "Remove it from columns under [reading], or from columns under [dictionaries].",
            )
            check(self.triplets is None, "Both person and triplets are given.", "Name the column as triplets' row.")
        for key in ("columns", "leave_out", "names"):
            if (listed := getattr(self, key)) is not None:
                object.__setattr__(self, key, tuple(map(composed, listed)))
        for key in ("missing_codes", "missing"):
            if isinstance(by_column := getattr(self, key), Mapping):
                named = {composed(name): value for name, value in by_column.items()}
                object.__setattr__(self, key, MappingProxyType(named))

    def prepared(self, preparation: Preparation) -> Self:
        """Return how files are read for a dictionary, which says which columns are used and what is filled in."""
        both = sorted(self.declared & {"columns", "leave_out", "missing"})
        if both:
            raise InvalidParameterError(
                f"Both {', '.join(both)} and a dictionary are given.",
                f"Remove {', '.join(both)} under [reading]: the dictionary says the same.",
            )
        if preparation.expressions and self.query is not None:
            raise InvalidParameterError(
                f"Both a query and an {next(iter(preparation.expressions))!r:.80} are given.",
                "Compute it in the query, as a column with a name, and name that column under [dictionaries].",
            )
        preparation = preparation if self.triplets is None else preparation.of_triplets
        columns, own = preparation.columns, preparation.codes
        stray = (
            () if isinstance(self.missing_codes, tuple) else sorted(set(self.missing_codes) - {*columns, self.person})
        )
        if stray:
            raise InvalidParameterError(
                f"missing_codes names {stray[0]!r:.80}, which no feature uses.", "Name columns that are used."
            )
        coded = columns if self.person is None else (*columns, self.person)
        by_column = ((column, (*self.codes_of(column), *own.get(column, ()))) for column in coded)
        codes = {column: codes for column, codes in by_column if codes}
        texts = {column: {text: place for place, text in enumerate(own)} for column, own in preparation.texts.items()}
        return replace(self, columns=columns, missing_codes=codes, preparation=preparation, texts=texts)

    @property
    def expressions(self) -> Mapping[str, str]:
        """For each column that a database computes for a feature, its SQL."""
        return {} if self.preparation is None else self.preparation.expressions

    @property
    def way_to_leave_out(self) -> str:
        """Say in words how a steward leaves columns out: by the settings, or with a dictionary by its features."""
        if self.preparation is None:
            return "list them in leave_out under [reading]"
        return "list their features in absent under [dictionaries], or remove them from the dictionary"

    def codes_of(self, column: str) -> Codes:
        """Return the values that stand for a missing value in a column."""
        return self.missing_codes if isinstance(self.missing_codes, tuple) else self.missing_codes.get(column, ())

    def fill_of(self, column: str) -> float | None:
        """Return the number that is used in place of a missing value in a column, if there is one."""
        return self.fills_of([column])[0]

    def fills_of(self, columns: Sequence[str]) -> list[float | None]:
        """Return the number that is used in place of a missing value in each column, where there is one."""
        missing = self.missing
        return [*map(missing.get, columns)] if isinstance(missing, Mapping) else [missing] * len(columns)

    @property
    def columns_with_fill(self) -> frozenset[str]:
        """Name the columns for which ``missing`` gives a number of their own."""
        return frozenset(self.missing) if isinstance(self.missing, Mapping) else frozenset()

    def written(self) -> dict[str, Any]:
        """Return the keys that a cluster's workers need, as a file of settings would hold them."""
        plain = type(self)()
        declared = {key: getattr(self, key) for key in sorted(OF_CLUSTERS) if getattr(self, key) != getattr(plain, key)}
        return {key: dict(value) if isinstance(value, Mapping) else value for key, value in declared.items()}

    @property
    def declared(self) -> frozenset[str]:
        """Name the keys that differ from their defaults."""
        plain = type(self)()
        return frozenset(key for key in KEYS if getattr(self, key) != getattr(plain, key))


KEYS: Final = keys_of(Reading)
OF_CLUSTERS: Final = frozenset(
    {"columns", "leave_out", "names", "delimiter", "decimal", "encoding", "missing_codes", "missing"}
)
"""The keys that may be declared for rows that the workers of a cluster read: of files with dense rows."""
