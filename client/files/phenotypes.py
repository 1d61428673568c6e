"""Adds scores to a table of phenotypes, as SAIGE takes covariates. Scores are not private and stay on this machine."""

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.errors import InvalidDataError, InvalidParameterError
from dpspca.common.names import shortened

FORMS: Final = {".txt": "\t", ".tsv": "\t", ".csv": ","}
"""The endings of files that are written, and what divides their cells."""
_NONE: Final = "NA"
_SAMPLE_LISTS: Final = (".fam", ".psam")


@dataclass(frozen=True, slots=True)
class Phenotypes:
    """A table of phenotypes, and the column that names samples."""

    path: Path
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    place: int
    """Where the column that names samples is."""

    @classmethod
    def read(cls, path: Path, column: str) -> "Phenotypes":
        """Read a table with a line of names. Tabs, commas or spaces divide its cells."""
        check(
            path.suffix.lower() not in _SAMPLE_LISTS,
            f"{path} lists samples.",
            "Give the table of phenotypes, and the list of samples as --ids if it is not beside the genotypes.",
        )
        try:
            lines = [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError):
            raise InvalidParameterError(
                f"{path} cannot be read.", "Give a table of text in UTF-8, with a line of names."
            ) from None
        check(bool(lines), f"{path} is empty.", "Give a table with a line of names.")
        heads, *rows = map(tuple, _cells(lines))
        for number, row in enumerate(rows, start=2):
            check(
                len(row) == len(heads),
                f"{path}, line {number} of those that are not blank has {len(row)} cells under {len(heads)} names.",
                "Correct it.",
            )
        named = [head.removeprefix("#") for head in heads]
        check(
            named.count(column) == 1,
            f"{path} has {named.count(column)} columns {shortened(column)}.",
            f"Give --id-column: the one that names samples. There are {', '.join(map(shortened, named[:8]))}.",
        )
        return cls(path, heads, tuple(rows), named.index(column))

    def with_scores(self, names: Sequence[str], scores: FloatArray, ending: str) -> tuple[bytes, int]:
        """Write the table with a column for each component. Also return how many of its rows have no scores."""
        known = self._by_name(names, scores)
        added = [f"PC{number}" for number in range(1, scores.shape[1] + 1)]
        both = sorted(set(added) & set(self.heads))
        check(not both, f"{self.path} has columns {', '.join(both)} already.", "Remove them first.")
        none = (_NONE,) * len(added)
        text = io.StringIO()
        table = csv.writer(text, delimiter=FORMS[ending], lineterminator="\n")
        table.writerow([*self.heads, *added])
        table.writerows([*row, *known.get(row[self.place], none)] for row in self.rows)
        return text.getvalue().encode(), sum(row[self.place] not in known for row in self.rows)

    def _by_name(self, names: Sequence[str], scores: FloatArray) -> Mapping[str, tuple[str, ...]]:
        """Return the scores of each sample that the table names. Refuse a name that several samples have."""
        wanted, counts = {row[self.place] for row in self.rows}, Counter(names)
        several = [name for name in wanted if counts[name] > 1]
        if several:
            raise InvalidDataError(
                f"{len(several)} names in {self.path} are those of several samples, such as {shortened(several[0])}.",
                "Give samples names of their own.",
            )
        known = {
            name: tuple(map(repr, numbers))
            for name, numbers in zip(names, scores.tolist(), strict=True)
            if name in wanted
        }
        check(
            bool(known),
            f"No sample has a name that is in column {shortened(self.heads[self.place])} of {self.path}.",
            "Give --id-column, or other names of rows as --ids.",
        )
        return known


def _cells(lines: Sequence[str]) -> list[list[str]]:
    """Divide lines by what divides their names."""
    mark = next((mark for mark in ("\t", ",") if mark in lines[0]), None)
    return [line.split() for line in lines] if mark is None else list(csv.reader(lines, delimiter=mark))
