"""The checks behind `dpspca data check`: what a steward's files hold, and what to declare about them.

Everything is computed on this machine from this machine's files. Nothing is sent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dpspca.common.checks import check
from dpspca.common.dictionary import Preparation
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import ProviderConfig, Reading, read_dictionary
from dpspca.provider.data import ColumnFacts, DataSetFacts, examine_rows, outline_of

from .feature_remarks import feature_remarks
from .job_seconds import JobSeconds, job_seconds

_MOST_NAMED: Final = 8
"""Largest number of columns that a remark names."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The facts about one data set."""

    name: str | None
    """Its name in the settings, or None for a file that is not in the settings."""
    place: Path
    facts: DataSetFacts | None
    problem: str | None
    """Why the provider would refuse it."""

    seconds: "JobSeconds | None" = None
    """How long work on these rows takes, if they are dense."""

    @property
    def passed(self) -> bool:
        """Whether the provider accepts it, some rows are usable, and no feature is mostly out of its range."""
        return (
            self.facts is not None
            and not any(_makes_all_unusable(each, self.facts) for each in self.facts.columns)
            and not any(each.is_wrong for each in self.facts.features)
        )

    @property
    def remarks(self) -> list[str]:
        """Return what the steward should know or do, as sentences."""
        return [] if self.facts is None else [*_remarks(self.facts), *feature_remarks(self.facts)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        facts = None if self.facts is None else asdict(self.facts)
        for told, each in zip(
            (facts or {}).get("features", ()), self.facts.features if self.facts else (), strict=True
        ):
            told["is_wrong"] = each.is_wrong
        seconds = None if self.seconds is None else asdict(self.seconds)
        found = {
            "seconds": seconds,
            "name": self.name,
            "place": str(self.place),
            "passed": self.passed,
            "problem": self.problem,
        }
        return {**found, "remarks": self.remarks, "facts": facts}


def examine_file(place: Path, dictionary: Path | None = None) -> Examined:
    """Examine a file, folder or pattern about which nothing is declared, but perhaps a dictionary describes it."""
    return _examined(None, place, reading_of_file(place, dictionary), None)


def reading_of_file(place: Path, dictionary: Path | None) -> Reading:
    """Return how to read a file. With a dictionary, columns are features by their names; others are absent."""
    if dictionary is None:
        return Reading()
    known, there = read_dictionary(dictionary), {name for name, _ in outline_of(place)}
    absent = [name for name in known.names if name not in there]
    check(
        len(absent) < len(known.names),
        f"No column of {place} has the name of a feature.",
        "Map columns to features under [dictionaries] in a provider's settings, and use --config.",
    )
    return Reading().prepared(Preparation.parse(known, None, absent))


def examine_settings(settings: ProviderConfig, only: str | None = None) -> Iterator[Examined]:
    """Examine the data sets of a provider's settings, or one of them."""
    places = settings.places
    if only is not None:
        settings.require_name(only)
    for name, place in places.items():
        if only in {None, name}:
            yield _examined(name, place, settings.reading_of(name), settings.persons.get(name))


def _examined(name: str | None, place: Path, reading: Reading, persons: Path | None) -> Examined:
    try:
        facts = examine_rows(place, reading, persons)
        return Examined(name, place, facts, None, None if facts.is_sparse else job_seconds(facts))
    except DpspcaError as problem:
        return Examined(name, place, None, str(problem))


def _makes_all_unusable(column: ColumnFacts, facts: DataSetFacts) -> bool:
    return facts.rows > 0 and column.spoils == facts.rows


def _remarks(facts: DataSetFacts) -> Iterator[str]:
    if facts.triplets is not None:
        told = facts.triplets
        yield (
            f"{told.triplets} triplets. {told.unknown_columns} have a column that is not declared, and "
            f"{told.unknown_rows} more a row that is not declared: they are not used."
        )
    columns = list(enumerate(facts.columns, start=1))
    spoilers = [each for each in columns if _makes_all_unusable(each[1], facts)]
    if spoilers:
        remedy = f"If that is not meant to be numbers, {_leave_out(spoilers)}; a dictionary can map it to a category."
        yield f"No row can be used because of {_named(spoilers)}. {remedy}"
    if facts.first_fault is not None:
        yield f"The first row that counts as zeros: {facts.first_fault}"
    others = [each for each in columns if 0 < each[1].spoils < facts.rows]
    if others:
        yield (
            f"{facts.rows_as_zeros} rows count as zeros. Values are missing or unusable in {_named(others)}. A public "
            "number per column in missing, under [reading], keeps rows with missing values. Codes for missing values "
            "belong in missing_codes."
        )
    numbered = [each for each in columns if each[1].is_index]
    if numbered:
        yield f"The rows are numbered by {_named(numbered)}: {_leave_out(numbered)}, unless that is a measurement."
    names = [each for each in columns if each[1].is_identifier and not each[1].is_index]
    if names:
        yield (
            f"Every row has another whole number in {_named(names)}, as identifiers have: {_leave_out(names)}, unless "
            "that is a measurement."
        )
    constant = [each for each in columns if each[1].is_constant]
    if constant:
        yield f"All usable values are equal in {_named(constant)}."


def _named(columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    """List columns by name, or by position if they have no names."""
    shown = [f"{column.name!r:.60}" if column.name is not None else f"column {place}" for place, column in columns]
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return ", ".join(shown[:_MOST_NAMED]) + more


def _leave_out(columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    if any(column.name is None for _, column in columns):
        return "save the file without it"
    return "list it in leave_out, under [reading]" if len(columns) == 1 else "list them in leave_out, under [reading]"
