"""The checks behind `dpspca data check`: what a steward's files hold, and what to declare about them.

Everything is computed on this machine from this machine's files. Nothing is sent.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any, Final, TypeAlias

from dpspca.common.checks import check
from dpspca.common.dictionary import Preparation, may_be_value, toml_key
from dpspca.common.errors import DpspcaError
from dpspca.common.storage import DataSettings, Reading, read_dictionary
from dpspca.provider.data import ColumnFacts, DataSetFacts, examine_rows, features_in, memory_cap
from dpspca.provider.evaluate import square_memory

from .feature_remarks import THOUSANDS, feature_remarks
from .job_seconds import JobSeconds, job_seconds
from .person_remarks import person_remarks
from .triplet_remarks import triplet_remarks

Progress: TypeAlias = Callable[[int], None]
_MOST_GROUPS: Final = 5
_MOST_NAMED: Final = 8
"""Largest number of columns that a remark names."""
_NO_NUMBERS: Final = frozenset({"text", "a date", "a word for yes or no"})
"""What a column holds that may not be meant to be numbers."""
_BLANK: Final = "counts as a row"
"""The fault of a line without cells says so."""


_SUSPICIONS: Final = {
    "thousands": THOUSANDS,
    "rounded": "In {0}, some whole numbers are too large to be exact. If they are identifiers, {1}.",
    "dates": "In {0}, numbers look like dates (year, month, day), whose differences mean nothing: {1}, or compute a "
    "number such as the age on a public day.",
    "identifiers": "In {0}, numbers rise with every row, as identifiers do. Unless they are measurements, {1}.",
}


def _silent(_rows: int) -> None:
    """Show no progress."""


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
    reading_seconds: float = 0.0
    """How long this check took to read the rows and to describe them."""

    @property
    def passed(self) -> bool:
        """Whether the provider accepts it, some rows are usable, and no feature is mostly out of its range.

        Of triplets, some must be used.
        """
        return (
            self.facts is not None
            and not (self.facts.triplets is not None and self.facts.rows and not self.facts.triplets.used)
            and not (self.facts.rows and self.facts.rows_as_zeros == self.facts.rows)
            and not any(_makes_all_unusable(each, self.facts) for each in self.facts.columns)
            and not any(each.is_wrong for each in self.facts.features)
        )

    @property
    def remarks(self) -> list[str]:
        """Return remarks and advice for the steward, as sentences."""
        return [] if self.facts is None else [*_remarks(self.facts), *feature_remarks(self.facts)]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        facts = None if self.facts is None else asdict(self.facts)
        for feature, each in zip(
            (facts or {}).get("features", ()), self.facts.features if self.facts else (), strict=True
        ):
            feature["is_wrong"] = each.is_wrong
        seconds = None if self.seconds is None else asdict(self.seconds)
        found = {
            "seconds": seconds,
            "reading_seconds": self.reading_seconds,
            "name": self.name,
            "place": str(self.place),
            "passed": self.passed,
            "problem": self.problem,
        }
        return {**found, "remarks": self.remarks, "facts": facts}


def examine_file(place: Path, dictionary: Path | None = None, progress: Progress = _silent) -> Examined:
    """Examine a file, folder or pattern that no settings describe. A dictionary may describe its columns.

    ``progress`` is called with the number of rows that were read.
    """
    return _examined(None, place, reading_of_file(place, dictionary), None, memory_cap(None), progress)


def reading_of_file(place: Path, dictionary: Path | None) -> Reading:
    """Return how to read a file. With a dictionary, columns are features by their names; others are absent."""
    if dictionary is None:
        return Reading()
    known = read_dictionary(dictionary)
    there = features_in(place, known)
    check(there is not None, f"The columns of {place} have no names.", "Save it in a form with names.")
    absent = [*filterfalse(frozenset(there or ()).__contains__, known.names)]
    check(
        len(absent) < len(known.names),
        f"No column of {place} has the name of a feature.",
        "Map columns to features under [dictionaries] in a provider's settings, and use --config.",
    )
    return Reading().prepared(Preparation.parse(known, None, absent))


def examine_settings(
    settings: DataSettings, only: str | None = None, progress: Progress = _silent
) -> Iterator[Examined]:
    """Examine the data sets of a provider's settings, or one of them, in the memory that the settings allow."""
    places, memory = settings.places, memory_cap(settings.memory_mebibytes)
    if only is not None:
        settings.require_name(only)
    for name, place in places.items():
        if only in {None, name}:
            yield _examined(name, place, settings.reading_of(name), settings.persons.get(name), memory, progress)


def _examined(  # noqa: PLR0913, PLR0917  # all that is declared
    name: str | None, place: Path, reading: Reading, persons: Path | None, memory: int, progress: Progress
) -> Examined:
    began = time.perf_counter()
    try:
        square = partial(square_memory, memory=memory)
        facts = examine_rows(place, reading, persons, memory=memory, square=square, progress=progress)
        took = time.perf_counter() - began
        return Examined(name, place, facts, None, None if facts.is_sparse else job_seconds(facts), took)
    except DpspcaError as problem:
        return Examined(name, place, None, str(problem))


def _makes_all_unusable(column: ColumnFacts, facts: DataSetFacts) -> bool:
    return facts.rows > 0 and column.spoils == facts.rows


def _remarks(facts: DataSetFacts) -> Iterator[str]:
    yield from _about_rows(facts)
    columns = list(enumerate(facts.columns, start=1))
    spoilers = [each for each in columns if _makes_all_unusable(each[1], facts)]
    if spoilers and len(spoilers) == len(columns):
        yield "No row can be used: none has a number in any column."
    elif spoilers:
        yield f"No row can be used because of {_named(spoilers)}.{_if_no_numbers(spoilers)}"
    if facts.first_fault is not None:
        yield f"The first row that counts as zeros: {facts.first_fault}"
    yield from _about_cells(columns, facts)
    values = [each for each in columns if each[1].name is not None and may_be_value(each[1].name)]
    if values and facts.triplets is None:  # names of triplets' columns are declared
        listed = ", ".join(str(place) for place, _ in values[:_MOST_NAMED])
        yield (
            f"These columns have numbers, dates, other values or a comment as names: {listed}. If the first line is a "
            "row and not a line of names, all parties would see that row: list names under [reading]."
        )
    others = [each for each in columns if 0 < each[1].spoils < facts.rows]
    if others:
        yield _about_zeros(facts, others)
    yield from _about_index(columns, facts)
    yield from _suspicions(columns)
    for group in facts.equal[:_MOST_GROUPS]:
        yield (
            f"In all rows, {_listed(group)} hold the same numbers. If that is one measurement, use one of them: "
            "otherwise it counts several times."
        )
    if len(facts.equal) > _MOST_GROUPS:
        yield f"{len(facts.equal) - _MOST_GROUPS} more groups of columns hold the same numbers. --json lists all."
    constant = [each for each in columns if each[1].is_constant]
    if constant:
        yield f"In {_named(constant)}, all usable values are equal."


def _if_no_numbers(spoilers: Sequence[tuple[int, ColumnFacts]]) -> str:
    """Say what to do about those columns that may not be meant to be numbers."""
    found = [each for each in spoilers if each[1].holds is None or each[1].holds[0] in _NO_NUMBERS]
    if not found:
        return ""
    what = "that is" if found == spoilers else f"{_named(found)} {'is' if len(found) == 1 else 'are'}"
    return f" If {what} not meant to be numbers, {_leave_out(found)}; a dictionary can map text to categories."


def _about_cells(columns: Sequence[tuple[int, ColumnFacts]], facts: DataSetFacts) -> Iterator[str]:
    """Say what columns hold in place of numbers, kind by kind. What the first unusable row shows is not repeated."""
    kinds: dict[tuple[str, str], list[tuple[int, ColumnFacts]]] = {}
    for each in columns:
        if each[1].holds is not None:
            kinds.setdefault(each[1].holds, []).append(each)
    for (kind, remedy), found in kinds.items():
        is_known = len(found) == 1 and f"({found[0][1].name!r:.60}) holds {kind}," in (facts.first_fault or "")
        if not is_known:
            yield f"In {_named(found)}, there is {kind}. {remedy}"


def _about_zeros(facts: DataSetFacts, columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    count = facts.rows_as_zeros
    share = ": all of them" if count == facts.rows else ", more than half of them" if 2 * count > facts.rows else ""
    fill = " A public number per column in missing, under [reading], keeps rows with missing values."
    is_blank = bool(share) and _BLANK in (facts.first_fault or "")
    return (
        f"{count} {'row counts' if count == 1 else 'rows count'} as zeros{share}. Values are missing or unusable in "
        f"{_named(columns)}.{fill if any(each.missing for _, each in columns) else ''} Codes for missing values belong "
        "in missing_codes."
        + (" If there are lines without cells between the rows, its line ends are damaged." if is_blank else "")
    )


def _about_rows(facts: DataSetFacts) -> Iterator[str]:
    """Say which rows or numbers are not there, and whose rows may be mistaken."""
    if facts.triplets is not None:
        yield from triplet_remarks(facts, facts.triplets)
    if not facts.rows:
        yield "There are no rows: this is an empty shard, and its answers are noise alone."
    if facts.persons is not None:
        yield from person_remarks(facts.persons)
    if facts.samples_without:
        yield (
            f"{_samples(facts.samples_without)} no genotype of any variant that is used. To remove samples that lack "
            "more than nine of ten genotypes: plink2 --bfile PREFIX --mind 0.9 --make-bed --out OTHER"
        )
    for twin in facts.twins:
        yield f"{twin} is there packed and unpacked, or packed in two ways. If the rows are the same, remove one file."
    yield from facts.notes
    for unstored in facts.unstored:
        yield f"{unstored} If they were lost, copy or write it again."


def _samples(count: int) -> str:
    return f"{count} sample has" if count == 1 else f"{count} samples have"


def _about_index(columns: Sequence[tuple[int, ColumnFacts]], facts: DataSetFacts) -> Iterator[str]:
    """Say which columns number or name rows."""
    numbered = [each for each in columns if each[1].is_index]
    if numbered:
        yield f"The rows are numbered by {_named(numbered)}: {_leave_out(numbered)}, unless that is a measurement."
    index = [each for each in columns if each[1].name in facts.index and each not in numbered]
    if index:
        yield f"The file calls {_named(index)} its index: {_leave_out(index)}, unless that is a measurement."


def _suspicions(columns: Sequence[tuple[int, ColumnFacts]]) -> Iterator[str]:
    """Say which numbers may be something else."""
    for kind, sentence in _SUSPICIONS.items():
        found = [each for each in columns if each[1].suspicion == kind]
        if found:
            yield sentence.format(_named(found), _leave_out(found))
    coded = [each for each in columns if each[1].codes]
    if coded:
        yield _about_codes(coded)


def _about_codes(columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    """Propose a declaration column by column: in another one, the same number may be a value like any other."""
    found = ", ".join(
        f"{_named([each])}: {' and '.join(f'{code:g}' for code in each[1].codes)}" for each in columns[:_MOST_NAMED]
    )
    more = f", and in {len(columns) - _MOST_NAMED} more columns" if len(columns) > _MOST_NAMED else ""
    apart = f"Values apart from all others often stand for missing values. {found}{more}."
    if any(each.name is None for _, each in columns):
        return f"{apart} If they do, declare them in missing_codes, under [reading]."
    codes = ", ".join(
        f"{toml_key(each.name or '')} = [{', '.join(f'{code:g}' for code in each.codes)}]"
        for _, each in columns[:_MOST_NAMED]
    )
    return f"{apart} If they do, declare them for these columns alone, under [reading]: missing_codes = {{ {codes} }}"


def _named(columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    """List columns by name, or by position if they have no names."""
    shown = [f"{column.name!r:.60}" if column.name is not None else f"column {place}" for place, column in columns]
    more = f" and {len(shown) - _MOST_NAMED} more" if len(shown) > _MOST_NAMED else ""
    return ", ".join(shown[:_MOST_NAMED]) + more


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(f"{name!r:.60}" for name in names[:_MOST_NAMED]) + more


def _leave_out(columns: Sequence[tuple[int, ColumnFacts]]) -> str:
    if any(column.name is None for _, column in columns):
        return "save the file without it"
    return "list it in leave_out, under [reading]" if len(columns) == 1 else "list them in leave_out, under [reading]"
