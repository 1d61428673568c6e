"""How the files of a data set are read: what its steward declares under ``[reading.NAME]`` in a provider's settings.

Everything here is declared once and in advance. Nothing is guessed from rows, because what a provider does must not
depend on one of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self, TypeAlias

from dpspca.common.checks import is_real
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidParameterError

from .triplets import Triplets

ENCODINGS: Final = ("utf-8", "utf-16", "latin-1", "iso-8859-15", "cp1250", "cp1251", "cp1252")
"""Encodings in which no character changes the meaning of what follows it, so that each line is read by itself."""
DELIMITERS: Final = (",", ";", "\t", "|")
DECIMALS: Final = (".", ",")

Codes: TypeAlias = tuple[str | float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What is declared about the files of one data set."""

    columns: tuple[str, ...] | None = None
    """The columns to use, by name and in this order. By default all."""
    leave_out: tuple[str, ...] = ()
    """Columns that are not used, for example an index. An empty name stands for columns without a name."""
    delimiter: str | None = None
    """What divides the cells of a text file. By default it follows from the line of names."""
    decimal: str = "."
    """The decimal mark in a text file."""
    encoding: str | None = None
    """The encoding of a text file. By default UTF-8, or UTF-16 if the file begins with its mark."""
    missing_codes: Codes | Mapping[str, Codes] = ()
    """Values that stand for a missing value: in all columns, or by column."""
    missing: float | Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """A public number that is used in place of a missing value: in all columns, or by column."""
    array: str | None = None
    """Which array or layer of the file holds the rows."""
    table: str | None = None
    """Which table of a database holds the rows."""
    query: str | None = None
    """The SQL query that gives the rows."""
    order_by: tuple[str, ...] | None = None
    """The columns that order the rows of a database."""
    triplets: Triplets | None = None
    """For a long table, which of its columns name the row and the column of each number."""
    alleles: Path | None = None
    """A public list of variants (.bim, .pvar, .afreq) that says which allele of each is counted."""
    person: str = "IID"
    """Which column of a .fam or .psam file says whose a row is."""
    preparation: Preparation | None = None
    """How rows become those of a shared dictionary: what [dictionaries.NAME] says. Then ``columns`` follow from it."""

    texts: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """For each column of a category, the places of the texts that stand for levels. They follow from the dictionary."""

    @classmethod
    def parse(cls, told: object, locate: Callable[[str], Path] = Path) -> Self:
        """Check a table of the settings. An error does not say which data set it is about.

        ``locate`` says where a path of the settings leads. A list of columns in a file is read at once.
        """
        if not isinstance(told, dict):
            raise InvalidParameterError(f"It is {told!r:.80}, not a table.", "Write key = value under [reading.NAME].")
        unknown = sorted(set(told) - KEYS)
        if unknown:
            raise InvalidParameterError(f"Unknown key {unknown[0]!r:.80}.", _known(unknown[0]))
        if isinstance(told.get("columns"), str):
            told = {**told, "columns": _listed(locate(told["columns"]))}
        read = cls(**{key: _CHECKS[key](key, value) for key, value in told.items()}).located(locate)
        _require_one_of(told, "columns", "leave_out")
        _require_one_of(told, "table", "query")
        return read

    def prepared(self, preparation: Preparation) -> Self:
        """Return how files are read for a dictionary, which says which columns are used and what is filled in."""
        both = sorted(self.declared & {"columns", "leave_out", "missing"})
        if both:
            raise InvalidParameterError(
                f"There are {', '.join(both)}, and a dictionary.",
                "Remove them under [reading]: they follow from the dictionary.",
            )
        columns, own = preparation.columns, preparation.codes
        stray = () if isinstance(self.missing_codes, tuple) else sorted(set(self.missing_codes) - set(columns))
        if stray:
            raise InvalidParameterError(
                f"missing_codes names {stray[0]!r:.80}, which no feature uses.", "Name columns that are used."
            )
        codes = {column: (*self.codes_of(column), *own.get(column, ())) for column in columns}
        texts = {column: {text: place for place, text in enumerate(own)} for column, own in preparation.texts.items()}
        return replace(self, columns=columns, missing_codes=codes, preparation=preparation, texts=texts)

    def codes_of(self, column: str) -> Codes:
        """Return the values that stand for a missing value in a column."""
        return self.missing_codes if isinstance(self.missing_codes, tuple) else self.missing_codes.get(column, ())

    def fill_of(self, column: str) -> float | None:
        """Return the number that is used in place of a missing value in a column, if there is one."""
        return self.missing.get(column) if isinstance(self.missing, Mapping) else self.missing

    @property
    def columns_with_fill(self) -> frozenset[str]:
        """Name the columns for which ``missing`` gives a number of their own."""
        return frozenset(self.missing) if isinstance(self.missing, Mapping) else frozenset()

    def located(self, locate: Callable[[str], Path]) -> Self:
        """Take paths from where ``locate`` finds them."""
        return replace(
            self,
            alleles=None if self.alleles is None else locate(str(self.alleles)),
            triplets=None if self.triplets is None else self.triplets.located(locate),
        )

    @property
    def declared(self) -> frozenset[str]:
        """Name the keys that differ from their defaults."""
        plain = type(self)()
        return frozenset(key for key in KEYS if getattr(self, key) != getattr(plain, key))


KEYS: Final = frozenset(each.name for each in fields(Reading)) - {"preparation", "texts"}


def _known(key: str) -> str:
    near = get_close_matches(key, sorted(KEYS), n=1)
    return f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(sorted(KEYS))}."


def _require_one_of(told: dict[str, Any], first: str, second: str) -> None:
    if first in told and second in told:
        raise InvalidParameterError(f"There are both {first} and {second}.", "Keep one of the two.")


def _wrong(key: str, value: object, remedy: str) -> InvalidParameterError:
    return InvalidParameterError(f"{key} is {value!r:.80}.", remedy)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _wrong(key, value, "Give text that is not empty.")
    return value


def _listed(path: Path) -> list[str]:
    """Read names from a file, one a line. Blank lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InvalidParameterError(
            f"columns names {path}, which cannot be read.", "Give a list, or a file with one name a line."
        ) from None
    return [line.strip() for line in lines if line.strip()]


def _file(key: str, value: object) -> Path:
    return Path(_text(key, value))


def _columns(key: str, value: object) -> tuple[str, ...]:
    names = _names(key, value)
    if not all(map(str.strip, names)):
        raise _wrong(key, value, "Give every column its name.")
    return names


def _names(key: str, value: Any) -> tuple[str, ...]:  # noqa: ANN401  # whatever was written
    is_list = isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)
    if not is_list or len(set(value)) < len(value):
        raise _wrong(key, value, 'Give a list of different names, as in ["age", "bmi"].')
    return tuple(value)


def _one_of(*choices: str) -> Any:  # noqa: ANN401  # a check, as below
    def check(key: str, value: object) -> str:
        if value not in choices:
            raise _wrong(key, value, f"Use one of: {', '.join(map(repr, choices))}.")
        return str(value)

    return check


def _codes(key: str, value: object) -> Codes | Mapping[str, Codes]:
    if isinstance(value, dict):
        return MappingProxyType({name: _list_of_codes(f"{key}.{name}", each) for name, each in value.items()})
    return _list_of_codes(key, value)


def _list_of_codes(key: str, value: object) -> Codes:
    if not isinstance(value, list) or not all(isinstance(each, str) or is_real(each) for each in value):
        raise _wrong(key, value, 'Give a list of numbers and texts, as in [-9, "NA"].')
    return tuple(value)


def _numbers(key: str, value: object) -> float | Mapping[str, float]:
    if is_real(value):
        return float(value)  # type: ignore[arg-type]  # is_real says so
    if not isinstance(value, dict) or not all(map(is_real, value.values())):
        raise _wrong(key, value, "Give a number for each column, as in { age = 50.0 }, or one number for all.")
    return MappingProxyType({name: float(number) for name, number in value.items()})


_CHECKS: Final[Mapping[str, Any]] = MappingProxyType({
    "columns": _columns,
    "leave_out": _names,
    "delimiter": _one_of(*DELIMITERS),
    "decimal": _one_of(*DECIMALS),
    "encoding": _one_of(*ENCODINGS),
    "missing_codes": _codes,
    "missing": _numbers,
    "array": _text,
    "table": _text,
    "query": _text,
    "order_by": _columns,
    "triplets": lambda _key, value: Triplets.parse(value),
    "alleles": _file,
    "person": _one_of("IID", "FID"),
})  # fmt: skip
