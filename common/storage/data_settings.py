"""A provider's settings of its data sets: where rows are, which persons they belong to, and how they are read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from dpspca.common.checks import check, check_known
from dpspca.common.choices import choices
from dpspca.common.decoding import By, between
from dpspca.common.dictionary import Preparation
from dpspca.common.job import MAX_DIMENSION, Span
from dpspca.common.names import check_name

from .dictionary_settings import doubly_declared, read_preparation
from .engine_settings import EngineSettings
from .paths import FilePath, is_pattern
from .reading import OF_CLUSTERS, SAMPLE_LISTS, Reading

SAMPLES: Final = "`dpspca config sample` shows what belongs there."
MAX_DATA_SETS: Final = 256
"""Of one provider: a coordinator takes no greeting with more."""
_OF_ROWS_READ_ONCE: Final = {
    "persons": "In such data a row is protected, but not a person with several rows. If nobody has two rows, leave "
    "it out. Otherwise name the folder under data_sets, where it is read once.",
    "spans": "A matrix does not arrive row by row: name its file under data_sets.",
    "engines": "A cluster reads files that do not change: name the folder under data_sets.",
}
Name: TypeAlias = Annotated[str, By(lambda name, _: check_name("the data set's name", name))]
Paths: TypeAlias = dict[Name, FilePath]
Readings: TypeAlias = dict[Name, Reading]
Preparations: TypeAlias = dict[Name, Annotated[Preparation, By(read_preparation)]]
Counts: TypeAlias = dict[Name, Annotated[int, between(1, MAX_DIMENSION)]]
_Tables: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The tables about data sets in a provider's settings, by key and name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """The data sets of a provider, and the memory for them.

    ``data_sets`` maps the names that jobs use to files, and ``persons`` to persons files. ``arriving`` maps other names
    to folders to which files are added while the daemon runs. At least one of the two has an entry.

    ``spans`` says which rows of a divided table are this provider's own. ``row_entries`` says how many entries of a row
    count, at most. ``reading`` says how files are read, and ``dictionaries`` which shared dictionary describes their
    columns. ``engines`` says which cluster computes sums over rows that this provider does not read itself.
    ``memory_mebibytes`` says how much memory rows and jobs may take.
    """

    data_sets: Paths = field(default_factory=dict)
    persons: Paths = field(default_factory=dict)
    spans: dict[Name, Span] = field(default_factory=dict)
    row_entries: Counts = field(default_factory=dict)
    reading: Readings = field(default_factory=dict)
    dictionaries: Preparations = field(default_factory=dict)
    engines: dict[Name, EngineSettings] = field(default_factory=dict)
    arriving: Paths = field(default_factory=dict)
    memory_mebibytes: Annotated[int, between(64, 2**30)] | None = None

    @classmethod
    def cross_checks(cls, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Find tables that contradict each other. Those that are wrong by themselves are not among the values."""
        if values.keys() >= {"data_sets", "arriving"}:
            tables = {key: value for key, value in values.items() if isinstance(value, dict)}
            yield from _strays(tables)
            yield from _unfit_for_persons(tables)
            yield from _unfit_for_dictionaries(tables)
            yield from _unfit_for_spans(tables)
            yield from _unfit_for_engines(tables)
            yield from _twice(tables)

    @property
    def places(self) -> dict[str, Path]:
        """Where the rows of each data set are."""
        return self.data_sets | self.arriving

    @property
    def names(self) -> set[str]:
        """Name all data sets."""
        return set(self.places)

    def require_name(self, name: str) -> None:
        """Refuse a name that no data set has."""
        check_known("data set", name, sorted(self.places))

    def chosen(self, name: str | None) -> str:
        """Return the name that was given. If none was, return that of the only data set."""
        names = sorted(self.places)
        check(name is not None or len(names) == 1, "No data set is named.", f"Give --data-set: {', '.join(names)}.")
        found = names[0] if name is None else name
        self.require_name(found)
        return found

    def reading_of(self, name: str) -> Reading:
        """Return how the files of a data set are read."""
        reading, own = self.reading.get(name, Reading()), self.dictionaries.get(name)
        return reading if own is None else reading.prepared(own)


def _strays(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find keys about data sets that do not exist, or to which a key does not apply. Find if there is no data set."""
    read, arriving = tables["data_sets"], tables["arriving"]
    if not read and not arriving:
        yield "It offers no data set.", f"Name one under data_sets, or under arriving: {SAMPLES}"
    if len(read) + len(arriving) > MAX_DATA_SETS:
        yield (
            f"It offers {len(read) + len(arriving)} data sets; a coordinator takes at most {MAX_DATA_SETS}.",
            "Offer fewer, or divide them among several providers.",
        )
    for key, remedy in _OF_ROWS_READ_ONCE.items():
        for name in sorted(tables.get(key, {}).keys() - read.keys()):
            if name in arriving:
                yield f"{key} names {name!r:.80}, whose rows arrive.", remedy
            else:
                yield f"{key} names {name!r:.80}, which is no data set.", choices(name, read)
    for key in ("row_entries", "reading", "dictionaries"):
        for name in sorted(tables.get(key, {}).keys() - read.keys() - arriving.keys()):
            yield f"{key} names {name!r:.80}, which is no data set.", choices(name, {*read, *arriving})


def _unfit_for_persons(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find columns of persons where rows arrive, or where a persons file says whose the rows are."""
    files = tables.get("persons", {})
    for name in sorted(_with_persons(tables)):
        if name in tables["arriving"]:
            yield f"reading.{name:.80} has person, and its rows arrive.", _OF_ROWS_READ_ONCE["persons"]
        if name in files and files[name].suffix.lower() not in SAMPLE_LISTS:
            yield (
                f"reading.{name:.80} has person, and {name!r:.80} has a persons file.",
                "Keep one: person names a column of the rows, and a persons file has a line for each row.",
            )


def _unfit_for_dictionaries(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find what is said about the reading of a data set, and follows from its dictionary."""
    readings = tables.get("reading", {})
    for name in sorted(tables.get("dictionaries", {}).keys() & readings.keys()):
        if doubled := doubly_declared(readings[name]):
            yield f"reading.{name:.80} has {', '.join(doubled)}, and a dictionary.", "Remove this from reading."


def _unfit_for_spans(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find keys about shares of a matrix that apply only to rows."""
    replaced = {
        name for name, read in tables.get("reading", {}).items() if read.declared & {"missing", "missing_codes"}
    }
    reasons = (
        (
            tables.get("row_entries", {}),
            "row_entries and a span",
            "Entries of a symmetric matrix cannot be left out row by row: take row_entries away.",
        ),
        (
            replaced,
            "a span, and missing or missing_codes under reading",
            "A matrix must stay symmetric: take one of the two away.",
        ),
        (
            tables.get("dictionaries", {}),
            "a span and a dictionary",
            "A dictionary is for rows, and a matrix has none: take one of the two away.",
        ),
        (
            {*tables.get("persons", {}), *_with_persons(tables)},
            "persons and a span",
            "Rows of a matrix are nobody's, and none of them may be left out: take one of the two away.",
        ),
    )
    for names, both, remedy in reasons:
        for name in sorted(tables.get("spans", {}).keys() & set(names)):
            yield f"{name!r:.80} has {both}.", remedy


def _with_persons(tables: _Tables) -> set[str]:
    """Name the data sets whose reading says which column names persons."""
    return {name for name, read in tables.get("reading", {}).items() if read.person is not None}


def _unfit_for_engines(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find what is said about data sets that a cluster reads, and that it cannot do."""
    unfit = {
        "persons": "Only a provider that reads the rows itself bounds the rows of persons",
        "spans": "Only a provider that reads a matrix itself answers about it",
    }
    for name in sorted(tables.get("engines", {})):
        for key, reason in unfit.items():
            if name in tables.get(key, {}):
                yield f"{name!r:.80} has {key} and an engine.", f"{reason}: take one of the two away."
        reading = tables.get("reading", {}).get(name)
        stray = sorted(reading.declared - OF_CLUSTERS) if reading else []
        if stray:
            yield (
                f"reading.{name:.80} has {', '.join(stray)}, and the data set has an engine.",
                "Workers read text, Parquet, Feather, Arrow and .npy files alone: export one, or take the engine away.",
            )


def _twice(tables: _Tables) -> Iterator[tuple[str, str]]:
    """Find data sets under two names: each has a budget of its own, and both would be spent on the same rows.

    Paths are compared, through links, but not the content of files: copies are not found here. Of one database, two
    tables or queries are two data sets. If they hold the same rows, their fingerprints show it.
    """
    parts = {name: read.table or read.query for name, read in tables.get("reading", {}).items()}
    offered = [(key, name, *_places(place)) for key in ("data_sets", "arriving") for name, place in tables[key].items()]
    for (key, name, held, around), (other_key, other, other_held, other_around) in combinations(offered, 2):
        if name == other:
            yield f"{name!r:.80} is under {other_key} and under {key}.", "Give two data sets two names."
        are_parts = parts.get(name) and parts.get(other) and parts[name] != parts[other]
        if (held & other_around or other_held & around) and not are_parts:
            yield (
                f"{name!r:.80} under {key} and {other!r:.80} under {other_key} hold the same rows.",
                "Rows have one budget, and so one name: take one of the two away, or give it another file or folder.",
            )


def _places(path: Path) -> tuple[set[Path], set[Path]]:
    """Return where a file or folder is, through links, and the folders that it may be in.

    A pattern is where its files are now.
    """
    try:
        files = [path] if not is_pattern(path) else [path, *path.parent.glob(path.name)]
        held = {file.resolve() for file in files}
        return held, {*held, *(file.parent for file in held), path.parent.resolve()}
    except (
        OSError,
        RuntimeError,
        ValueError,
        NotImplementedError,
    ):  # not a path at all: an error says so when it is opened
        return {path}, {path}
