"""Settings of the programs, in TOML. A key that is not known is refused, and paths are taken from the file's folder."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import check_name
from dpspca.common.spans import Span

from .addresses import Address, DatabaseUrl
from .approval_settings import ApprovalSettings
from .dictionary_settings import doubly_declared, read_preparation
from .reading import Reading
from .toml_file import read_toml

_MOST_MEBIBYTES: Final = 2**30
MAX_DATA_SETS: Final = 256
"""Of one provider: a coordinator takes no greeting with more."""
_SAMPLES: Final = "`dpspca config sample` shows what belongs there."
_TABLES: Final = ("data_sets", "arriving", "persons", "spans", "row_entries", "reading", "dictionaries")
_OF_ROWS_READ_ONCE: Final = {
    "persons": "There a row is protected, and no person with several: if nobody has two, leave persons out; "
    "else name the folder under data_sets, where it is read once.",
    "spans": "A matrix does not arrive row by row: name its file under data_sets.",
}


Place: TypeAlias = Path | DatabaseUrl | None
Mebibytes: TypeAlias = int | None
OptionalPath: TypeAlias = Path | None
OptionalAddress: TypeAlias = Address | None
OptionalPaths: TypeAlias = dict[str, Path] | None
Spans: TypeAlias = dict[str, Span] | None
Counts: TypeAlias = dict[str, int] | None
Readings: TypeAlias = dict[str, Reading] | None
Preparations: TypeAlias = dict[str, Preparation] | None
Approval: TypeAlias = ApprovalSettings | None
_Tables: TypeAlias = Mapping[str, dict[str, Any] | None]
"""What a provider's settings say of data sets, as it stands there; None for what is no table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoordinatorConfig:
    """What a coordinator is told; left out, its journal is a file beside the settings, and its results take a GiB."""

    listen: Address
    identity: Path
    revocations: Path
    journal: Place = None
    result_mebibytes: Mebibytes = None
    metrics: OptionalAddress = None
    mailbox: OptionalAddress = None
    """Where it listens for the mailbox of certificates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderConfig:
    """What a provider is told; ``data_sets`` maps the names that jobs use to files, ``persons`` to whose rows they are.

    ``arriving`` maps other names to folders to which files are added while the daemon runs. One of the two has a name.

    ``spans`` says of shares of a divided table which of its rows are this provider's own. ``row_entries`` says how many
    entries of a row count, at most. ``reading`` says how files are read, and ``dictionaries`` which shared dictionary
    describes their columns.

    Left out, the ledger is in a folder beside the settings, and its head file is in the folder of the identity.
    ``approval`` says how long jobs wait for a person's approval, and who is notified.
    """

    coordinator: Address
    identity: Path
    revocations: Path
    policy: Path
    data_sets: dict[str, Path] = field(default_factory=dict)
    persons: OptionalPaths = None
    spans: Spans = None
    row_entries: Counts = None
    reading: Readings = None
    dictionaries: Preparations = None
    arriving: OptionalPaths = None
    ledger: OptionalPath = None
    ledger_head: OptionalPath = None
    approval: Approval = None
    metrics: OptionalAddress = None
    mailbox: OptionalAddress = None

    @property
    def names(self) -> set[str]:
        """Name all data sets."""
        return {*self.data_sets, *(self.arriving or {})}

    def require_name(self, name: str) -> None:
        """Refuse a name that no data set has."""
        if name not in self.names:
            raise InvalidParameterError(
                f"Unknown data set {name!r:.80}.", f"Available: {', '.join(sorted(self.names))}."
            )

    def reading_of(self, name: str) -> Reading:
        """Return how the files of a data set are read."""
        reading, own = (self.reading or {}).get(name, Reading()), (self.dictionaries or {}).get(name)
        return reading if own is None else reading.prepared(own)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnalystConfig:
    """What an analyst's commands are told."""

    coordinator: Address
    identity: Path
    mailbox: OptionalAddress = None


Config = TypeVar("Config", CoordinatorConfig, ProviderConfig, AnalystConfig)
Parsed = TypeVar("Parsed")
AnyConfig: TypeAlias = CoordinatorConfig | ProviderConfig | AnalystConfig


def read_config(kind: type[Config], path: Path) -> Config:
    """Read a program's settings, or say what is wrong with which key."""
    raw = read_toml(path)
    for fault in faults(kind, path, raw):
        raise fault
    return kind(**{each.name: _value(path, each, raw[each.name]) for each in fields(kind) if each.name in raw})


def read_any_config(path: Path) -> AnyConfig:
    """Read the settings of whichever program they are for."""
    read: AnyConfig = read_config(kind_of(read_toml(path)), path)
    return read


def kind_of(raw: dict[str, Any]) -> type[Any]:
    """Tell by its keys which program a file of settings is for."""
    if "listen" in raw:
        return CoordinatorConfig
    return ProviderConfig if raw.keys() & {"data_sets", "arriving", "revocations"} else AnalystConfig


def faults(kind: type[AnyConfig], path: Path, raw: dict[str, Any]) -> Iterator[InvalidParameterError]:
    """Give everything that is wrong with a program's settings."""
    known = {each.name: each for each in fields(kind)}
    unknown = sorted(set(raw) - set(known))
    missing = sorted(name for name, each in known.items() if name not in raw and _is_needed(each))
    for keys, what, remedy in ((unknown, "does not know", "Remove or correct"), (missing, "lacks", "Add")):
        if keys:
            yield InvalidParameterError(f"{path} {what} {', '.join(keys)}.", f"{remedy} it: {_SAMPLES}")
    for each in (each for name, each in known.items() if name in raw):
        try:
            _value(path, each, raw[each.name])
        except InvalidParameterError as problem:
            yield problem
    if kind is ProviderConfig:
        tables = {key: told if isinstance(told := raw.get(key, {}), dict) else None for key in _TABLES}
        for what, remedy in (*_strays(tables), *_twice(path.parent, tables)):
            yield InvalidParameterError(f"{path}{what}", remedy)


def _is_needed(key: "Field[Any]") -> bool:
    return key.default is MISSING and key.default_factory is MISSING


def _strays(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find what is said about data sets of which it cannot be said, or that are not there, or none that is."""
    read, arriving = tables["data_sets"], tables["arriving"]
    if read is None or arriving is None:  # no tables, which has been told
        return
    if not read and not arriving:
        yield " offers no data set.", f"Name one under data_sets, or under arriving: {_SAMPLES}"
    if len(read) + len(arriving) > MAX_DATA_SETS:
        yield (
            f" offers {len(read) + len(arriving)} data sets; a coordinator takes at most {MAX_DATA_SETS}.",
            "Offer fewer, or divide them among several providers.",
        )
    for key, remedy in _OF_ROWS_READ_ONCE.items():
        for name in sorted(set(tables[key] or ()) - read.keys()):
            if name in arriving:
                yield f": {key} names {name!r:.80}, whose rows arrive.", remedy
            else:
                yield f": {key} names {name!r:.80}, which is no data set.", "Name it as data_sets does."
    for key in ("row_entries", "reading", "dictionaries"):
        for name in sorted(set(tables[key] or ()) - read.keys() - arriving.keys()):
            yield f": {key} names {name!r:.80}, which is no data set.", "Name it as data_sets or arriving does."
    yield from _unfit_for_dictionaries(tables)
    yield from _unfit_for_spans(tables)


def _unfit_for_dictionaries(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find what is said about the reading of a data set, and follows from its dictionary."""
    readings = tables["reading"] or {}
    for name in sorted((tables["dictionaries"] or {}).keys() & readings.keys()):
        if doubled := doubly_declared(readings[name]):
            yield f": reading.{name:.80} has {', '.join(doubled)}, and a dictionary.", "Remove this from reading."


def _unfit_for_spans(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find what is said about shares of a matrix and can be said of rows alone."""
    replaced = {name for name, told in (tables["reading"] or {}).items() if _replaces(told)}
    reasons = (
        (
            tables["row_entries"] or {},
            "row_entries and a span",
            "Entries of a symmetric matrix cannot be left out row by row: take row_entries away.",
        ),
        (
            replaced,
            "a span, and missing or missing_codes under reading",
            "A matrix must stay symmetric: take one of the two away.",
        ),
        (
            tables["dictionaries"] or {},
            "a span and a dictionary",
            "A dictionary is for rows, and a matrix has none: take one of the two away.",
        ),
        (
            tables["persons"] or {},
            "persons and a span",
            "Rows of a matrix are nobody's, and none of them may be left out: take one of the two away.",
        ),
    )
    for names, both, remedy in reasons:
        for name in sorted((tables["spans"] or {}).keys() & set(names)):
            yield f": {name!r:.80} has {both}.", remedy


def _replaces(told: object) -> bool:
    return isinstance(told, dict) and bool({"missing", "missing_codes"} & told.keys())


def _twice(folder: Path, tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find data sets under two names: each has a budget of its own, and both would be spent on the same rows.

    Paths are compared, through links, and not what files hold: of a copy nobody can tell here. Of one database, two
    tables or queries are two data sets. If they hold the same rows, their fingerprints show it.
    """
    parts = {name: _part(told) for name, told in (tables["reading"] or {}).items()}
    offered = [
        (key, name, *_places(_path(folder, place)))
        for key in ("data_sets", "arriving")
        for name, place in (tables[key] or {}).items()
        if isinstance(place, str)
    ]
    for (key, name, held, around), (other_key, other, other_held, other_around) in combinations(offered, 2):
        if name == other:
            yield f": {name!r:.80} is under {other_key} and under {key}.", "Give two data sets two names."
        are_parts = parts.get(name) and parts.get(other) and parts[name] != parts[other]
        if (held & other_around or other_held & around) and not are_parts:
            yield (
                f": {name!r:.80} under {key} and {other!r:.80} under {other_key} hold the same rows.",
                "Rows have one budget, and so one name: take one of the two away, or give it another file or folder.",
            )


def _part(told: object) -> object:
    """Return which part of a database is declared, if any is."""
    return (told.get("table") or told.get("query")) if isinstance(told, dict) else None


def _places(path: Path) -> tuple[set[Path], set[Path]]:
    """Say where a file or folder is, through links, and that with the folders of which it may be a part.

    A pattern is where its files are now.
    """
    try:
        files = [path] if not is_pattern(path) else [path, *path.parent.glob(path.name)]
        held = {file.resolve() for file in files}
        return held, {*held, *(file.parent for file in held), path.parent.resolve()}
    except (OSError, RuntimeError, ValueError, NotImplementedError):  # no path at all, which is told when it is opened
        return {path}, {path}


def is_pattern(path: Path) -> bool:
    """Tell whether a path stands for all files whose names match it. A file with such a name stands for itself."""
    return any(mark in path.name for mark in "*?[") and not path.exists()


def _path(folder: Path, text: str) -> Path:
    """Take a path from the folder of the settings. A tilde stands for a home folder."""
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:  # a user whose home is not known
        return folder / text


def _value(path: Path, each: "Field[Any]", value: object) -> Any:  # noqa: ANN401  # an address, a path, or paths
    if parse := _PARSED.get(each.type):
        return _parsed(path, each.name, parse, value)
    _require_filled(path, each.name, value)
    if each.type in {Path, OptionalPath} and isinstance(value, str):
        return _path(path.parent, value)
    if each.type == Place and isinstance(value, str):
        return _place(path, each.name, value)
    are_counts = isinstance(value, dict) and all(type(count) is int and count > 0 for count in value.values())
    is_room = type(value) is int and 0 < value <= _MOST_MEBIBYTES
    if (each.type == Mebibytes and is_room) or (each.type == Counts and are_counts):
        return value
    are_texts = isinstance(value, dict) and all(isinstance(place, str) for place in value.values())
    if each.type in {dict[str, Path], OptionalPaths} and isinstance(value, dict) and are_texts:
        return {name: _path(path.parent, place) for name, place in value.items()}
    if each.type in _TOLD and isinstance(value, dict):
        read = _TOLD[each.type]
        return {name: read(path, name, told) for name, told in value.items()}
    raise InvalidParameterError(f"{path}: {each.name} is {value!r}.", _SAMPLES)


def _require_filled(path: Path, key: str, value: object) -> None:
    """Refuse empty text, which as a path would be the folder of the file, and names that no data set can have."""
    for name, told in value.items() if isinstance(value, dict) else [("", value)]:
        where = f"{path}: {key}.{name}" if isinstance(value, dict) else f"{path}: {key}"
        if isinstance(told, str) and not told.strip():
            raise InvalidParameterError(f"{where} is {told!r}, which is empty.", f"Fill it in: {_SAMPLES}")
        if isinstance(value, dict):
            try:
                check_name("the data set's name", name)
            except InvalidParameterError as problem:
                raise InvalidParameterError(f"{path}: {key}: {problem.what}", problem.remedy) from None


def _span(path: Path, name: str, told: object) -> Span:
    if not isinstance(told, dict) or told.keys() != {each.name for each in fields(Span)}:
        raise InvalidParameterError(f"{path}: the span of {name!r:.80} is {told!r}.", _SAMPLES)
    try:
        return Span(**told)
    except DpspcaError as problem:
        raise InvalidParameterError(f"{path}: the span of {name!r:.80}: {problem.what}", problem.remedy) from None


def _reading(path: Path, name: str, told: object) -> Reading:
    return _parsed(path, f"reading.{name:.80}", lambda given: Reading.parse(given, partial(_path, path.parent)), told)


def _parsed(path: Path, where: str, parse: Callable[[object], Parsed], told: object) -> Parsed:
    """Parse a value, and say of every error where it is."""
    try:
        return parse(told)
    except InvalidParameterError as problem:
        raise InvalidParameterError(f"{path}: {where}: {problem.what}", problem.remedy) from None


def _preparation(path: Path, name: str, told: object) -> Preparation:
    return read_preparation(path, name, told, partial(_path, path.parent))


_TOLD: Final[Mapping[Any, Callable[[Path, str, object], Any]]] = {
    Spans: _span,
    Readings: _reading,
    Preparations: _preparation,
}
"""What reads a table about one data set, by the type of the key that holds such tables."""


def _place(path: Path, key: str, text: str) -> Place:
    if text.startswith("postgresql://"):
        return DatabaseUrl(text)
    if "://" in text:
        scheme = text.partition("://")[0]  # and no more of it: there may be a password in the rest
        raise InvalidParameterError(f"{path}: {key} is a place of the kind {scheme!r:.40}.", _SAMPLES)
    return _path(path.parent, text)


_PARSED: Final[Mapping[Any, Callable[[Any], object]]] = {
    Address: Address.parse,
    OptionalAddress: Address.parse,
    Approval: ApprovalSettings.parse,
}
"""What reads values that are read whole."""


def require_own(kind: type[AnyConfig], path: Path) -> None:
    """Refuse settings that are, to the last key, another program's."""
    raw = read_toml(path)
    other = kind_of(raw)
    if other is not kind and not any(faults(other, path, raw)):
        raise InvalidParameterError(
            f"{path} holds the settings of {program_of(other)}, not of {program_of(kind)}.",
            "Name the right file with --config.",
        )


def program_of(kind: type[AnyConfig]) -> str:
    """Name the program that a kind of settings is for."""
    return {CoordinatorConfig: "the coordinator", ProviderConfig: "a provider", AnalystConfig: "an analyst"}[kind]
