"""Adds scores to a table of phenotypes, as SAIGE takes covariates. Scores are not private and stay on this machine."""

import csv
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.errors import InvalidDataError, InvalidParameterError
from dpspca.common.names import shortened
from dpspca.common.storage import SAMPLE_LISTS

FORMS: Final = {".txt": "\t", ".tsv": "\t", ".csv": ","}
"""The endings of files that are written, and what divides their cells."""
_NONE: Final = "NA"
_BY_SPACES: Final = re.compile(r'"([^"]*)"|(\S+)')
"""A cell in quotes, or without."""


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
            path.suffix.lower() not in SAMPLE_LISTS,
            f"{path} lists samples.",
            "Give the table of phenotypes, and the list of samples as --ids if it is not beside the genotypes.",
        )
        try:
            text = path.read_text(encoding="utf-8-sig")  # CR LF and CR become LF
        except (OSError, UnicodeDecodeError):
            raise InvalidParameterError(
                f"{path} cannot be read.", "Give a table of text in UTF-8, with a line of names."
            ) from None
        lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        check(bool(lines), f"{path} is empty.", "Give a table with a line of names.")
        mark = next((mark for mark in ("\t", ",") if mark in lines[0][1]), None)
        read = [(number, _cells(path, number, line, mark)) for number, line in lines]
        (_, heads), *rest = read
        for number, row in rest:
            check(
                len(row) == len(heads),
                f"{path}, line {number} has {len(row)} cells under {len(heads)} names.",
                "Correct it.",
            )
        rows = [row for _, row in rest]
        named = [head.strip().removeprefix("#") for head in heads]
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
        both = sorted(set(added) & {head.strip() for head in self.heads})
        check(not both, f"{self.path} has columns {', '.join(both)} already.", "Remove them first.")
        none = (_NONE,) * len(added)
        text = io.StringIO()
        table = csv.writer(text, delimiter=FORMS[ending], lineterminator="\n")
        table.writerow([*self.heads, *added])
        table.writerows([*row, *known.get(row[self.place].strip(), none)] for row in self.rows)
        return text.getvalue().encode(), sum(row[self.place].strip() not in known for row in self.rows)

    def _by_name(self, names: Sequence[str], scores: FloatArray) -> Mapping[str, tuple[str, ...]]:
        """Return the scores of each sample that the table names. Refuse a name that several samples have."""
        wanted, counts = {row[self.place].strip() for row in self.rows}, Counter(names)
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


def _cells(path: Path, number: int, line: str, mark: str | None) -> tuple[str, ...]:
    """Divide a line by itself. In quotes, a cell may hold what divides cells; a quote ends on its own line."""
    if mark is None:
        return tuple(quoted or plain for quoted, plain in _BY_SPACES.findall(line))
    try:
        return tuple(next(csv.reader([line], delimiter=mark, strict=True)))
    except csv.Error:
        raise InvalidDataError(
            f"{path}, line {number} has a quote that does not end, or that ends within a cell.",
            "Remove the quote, or write it twice within quotes.",
        ) from None
