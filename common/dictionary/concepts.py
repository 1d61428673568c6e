"""Reads a list of concepts, as OMOP and FeatureExtraction write it, as features. Pure: text in, features out.

A line without a range says that a person has the concept or has it not. Then having it is 1, and not having it is 0.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from dpspca.common.checks import check
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened

from .values import plain_name

_ID: Final = ("concept_id", "covariate_id")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Where R writes two words as one: covariateId."""
_WITH_ZERO: Final = re.compile(r"^([0-9]{4,})\.0$")
"""An id that a program stored as a floating-point number. Shorter ones may be codes, such as 250.0 of ICD-9."""
_ROUNDED: Final = re.compile(r"[0-9](\.[0-9]+)?[eE]\+[0-9]+")
_NAME: Final = ("concept_name", "covariate_name")
_NUMBERS: Final = ("low", "high", "centre", "missing")
_OF_VOCABULARIES: Final = frozenset({
    "domain_id", "vocabulary_id", "concept_class_id", "standard_concept", "concept_code", "valid_start_date",
    "valid_end_date", "invalid_reason", "analysis_id", "value_as_concept_id", "collisions",
})  # fmt: skip
"""Columns of OMOP's tables that say nothing here."""
_FORM: Final = (
    "Write a line of column names, concept_id,concept_name,unit,low,high,centre,missing (the first two are required), "
    "then a line for each concept. Separate cells by commas, semicolons or tabs."
)
_PRESENCE: Final = (0.0, 1.0)


def parse_concepts(text: str) -> dict[str, dict[str, Any]]:
    """Return a feature for each concept, by its name."""
    features: dict[str, dict[str, Any]] = {}
    known: dict[str, int] = {}
    for number, row in _rows(text):
        name, feature = plain_name(f"Line {number}: the name", " ".join(row["name"].split())), _feature(number, row)
        concept = feature["concept"]
        check(
            name not in features,
            f"Line {number}: the name {shortened(name)} occurs twice.",
            "Write names that differ, for example with the id or the vocabulary at the end.",
        )
        check(
            concept not in known,
            f"Line {number}: the concept {shortened(concept)} occurs twice; first in line {known.get(concept)}.",
            "Remove one of the two lines.",
        )
        features[name], known[concept] = feature, number
    check(bool(features), "The file has no concepts.", _FORM)
    return features


def _feature(number: int, row: Mapping[str, str]) -> dict[str, Any]:
    check(bool(row["id"]), f"Line {number} has no concept.", "Give its id.")
    check(
        _ROUNDED.fullmatch(row["id"]) is None,
        f"Line {number}: the concept is {shortened(row['id'])}, which may be rounded.",
        "Write all its digits. Some programs store ids as floating-point numbers, and write large ones so.",
    )
    numbers = {key: _number(number, key, row[key]) for key in _NUMBERS if row.get(key)}
    ends = [numbers.pop(key) for key in ("low", "high") if key in numbers]
    check(len(ends) in {0, 2}, f"Line {number} has one end of a range.", "Give both low and high, or neither.")
    usual = {"range": list(_PRESENCE), "centre": 0.0}
    return {
        "kind": "number",
        "unit": row.get("unit", ""),
        "concept": _WITH_ZERO.sub(r"\1", row["id"]),
        **({"range": ends} if ends else usual),
        **numbers,
    }


def _rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the numbered lines under the line of names, by the names of columns."""
    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise InvalidParameterError("The file is empty.", _FORM)
    delimiter = next((mark for mark in "\t;" if mark in lines[first]), ",")
    names = _headings(next(csv.reader([lines[first]], delimiter=delimiter)))
    check(
        {"id", "name"} <= set(names) and len(set(names)) == len(names),
        f"The first line names the columns {', '.join(map(shortened, names))}.",
        _FORM,
    )
    for number, line in enumerate(lines[first + 1 :], start=first + 2):
        if not line.strip():
            continue
        cells = next(csv.reader([line], delimiter=delimiter))
        check(len(cells) == len(names), f"Line {number} has {len(cells)} cells under {len(names)} names.", _FORM)
        yield number, dict(zip(names, map(str.strip, cells), strict=True))


def _headings(cells: list[str]) -> list[str]:
    """Return the meaning of each column's heading.

    A list of covariates says of which concept each is. Several may be of one, so their own number and name count.
    """
    written = [_CAMEL.sub("_", cell.strip().removeprefix("\ufeff")).lower() for cell in cells]
    about_concepts = {concept for concept, covariate in (_ID, _NAME) if covariate in written}
    return [name if name in about_concepts else _heading(name, cell) for name, cell in zip(written, cells, strict=True)]


def _heading(name: str, cell: str) -> str:
    """Return the meaning of a heading. Refuse an unknown one, because it may be misspelled."""
    if name in _ID:
        return "id"
    if name in _NAME:
        return "name"
    if name in {"unit", *_NUMBERS} or name in _OF_VOCABULARIES:
        return name
    near = get_close_matches(name, (*_ID, *_NAME, "unit", *_NUMBERS), n=1)
    hint = f"Did you mean {near[0]!r}?" if near else _FORM
    raise InvalidParameterError(f"Unknown column {shortened(cell)}.", hint)


def _number(number: int, key: str, written: str) -> float:
    try:
        return float(written)
    except ValueError:
        raise InvalidParameterError(
            f"Line {number}: {key} is {shortened(written)}.", "Give a number, or nothing."
        ) from None
