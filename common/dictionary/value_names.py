"""Names of columns that look like values: then the first line of a file may be a row, and not a line of names. Pure.

A dictionary is public, and so are the names of columns in jobs. A row must not get there as names.
"""

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = r"[-+]?\d+"
_WHOLE: Final = re.compile(_NUMBER)
_DATE: Final = re.compile(r"\d{4}([-/.])\d{1,2}(\1\d{1,2})?([ T]\d{1,2}:\d\d.*)?|\d{1,2}([-/.])\d{1,2}\4\d{2,4}")
_VALUE: Final = re.compile(
    rf"[<>≤≥]=?\s*\d.*|(?:{_NUMBER})?[.,]\d+(?:[eE]{_NUMBER})?|{_NUMBER}[.,]|{_NUMBER}[eE]{_NUMBER}"
    rf"|{_NUMBER}(?:[.,]\d+)?\s*%|{_NUMBER}(?:[.,]\d{{3}})+(?:[.,]\d+)?|-\d+"
)
"""Numbers with a fraction or marks between thousands, bounds and shares: nobody names a column so."""
_MAY_BE: Final = re.compile(
    rf"{_NUMBER}(?:[.,]\d+)?\s?[^\W\d_]{{1,5}}|\d+\s?/\s?\d+|\d{{1,3}}(?: \d{{3}})+|\+\d[\d ()/-]{{5,}}"
    r"|\d{1,2}[-. /]*[^\W\d_]{3,9}[-. /]*\d{2,4}|\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?|\S+@\S+\.\w+|TRUE|FALSE|#(?:\s.*)?"
    r"|[ACGTN]{8,}(?:-\d+)?"
)
"""Numbers with a unit, blood pressures, groups of digits, telephone numbers, days with the name of a month, times, mail
addresses, words for yes and no, comments, and the barcodes of single cells."""


def has_values_as_names(names: Sequence[str]) -> bool:
    """Tell whether some name is surely a value, such as 23.5 or <5."""
    return any(_VALUE.fullmatch(name.strip()) and not _DATE.fullmatch(name.strip()) for name in names)


def may_be_value(name: str) -> bool:
    """Tell whether a name looks like a value. It may still be a name, such as that of a year or a day."""
    return any(form.fullmatch(name.strip()) for form in (_WHOLE, _DATE, _VALUE, _MAY_BE))
