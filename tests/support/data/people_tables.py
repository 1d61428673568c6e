"""A table of people with texts that are levels of categories, and how a dictionary prepares it."""

from typing import Any

from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.storage.reading import Reading

STUDY: dict[str, Any] = {
    "age": {"kind": "number", "unit": "years", "range": [0, 100], "centre": 0, "scale": "none"},
    "sex": {"kind": "category", "levels": ["female", "male"], "shares": [0, 0], "missing_codes": ["NA"]},
    "smoker": {"kind": "category", "levels": ["no", "yes"], "shares": [0, 0]},
    "grade": {"kind": "category", "levels": ["low", "high"], "shares": [0, 0], "unknown": "high"},
}
COLUMNS = {
    "sex": {"column": "Sex", "levels": {"w": "female", "2": "male"}},
    "smoker": {"levels": {"false": "no", "true": "yes"}},
    "grade": {"levels": {"1": "low", "2": "high"}},
}
PEOPLE = [
    (1, 50, "w", True, 1), (2, 60.5, " male ", False, 2), (3, 70, "NA", None, 3), (4, None, None, True, None),
    (5, 40, "2.0", False, 1), (6, 30, "Frau \u00fc", True, 2), (7, 20, "", False, 1),
]  # fmt: skip
LEVELS = [
    [50, 1, 0, 0, 1, 1, 0], [60.5, 0, 1, 1, 0, 0, 1], [70, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0, 0],
    [40, 0, 1, 1, 0, 1, 0], [30, 0, 0, 0, 1, 0, 1], [20, 0, 0, 1, 0, 1, 0],
]  # fmt: skip


def people(kind: str, grade: str = "integer") -> list[str]:
    def cell(value: Any) -> str:
        return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)

    lines = ", ".join(f"({', '.join(map(cell, line))})" for line in PEOPLE)
    made = (
        f'CREATE TABLE people (id integer PRIMARY KEY, age numeric(5, 1), "Sex" {kind}, smoker boolean, grade {grade})'
    )
    return [made, f"INSERT INTO people VALUES {lines}"]  # noqa: S608


def studied(absent: tuple[str, ...] = (), **columns: Any) -> Reading:
    known = Dictionary.parse({"format": "dpspca-dictionary-1", "features": STUDY})
    told = {name: each for name, each in (COLUMNS | columns).items() if name not in absent}
    return Reading().prepared(Preparation.parse(known, told, list(absent)))
