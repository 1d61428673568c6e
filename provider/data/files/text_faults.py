"""Says what is wrong with a line of text, and what to do about it. Pure.

An error names the line, the column and the kind of a cell, and never its content, because others read the logs.
"""

import re
from collections.abc import Sequence
from typing import Final

from dpspca.common.arrays import LARGEST_ENTRY
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import DELIMITERS, Reading
from dpspca.provider.data.tables import is_number

from .text_cells import Cells

_LONGEST_NAME: Final = 60
FORM: Final = "Write one line of column names, and under it a line of numbers for each row."
_IN_SETTINGS: Final = "under [reading] in the provider's settings"
_QUOTES: Final = (
    "If a cell holds a line break: each line counts as a row, so write the file again without line breaks in cells, or "
    "without that column. Write quotes within a cell twice."
)
_COMMENTS: Final = "If the file begins with comments, remove those lines."
_FILL_IN: Final = "Fill in what is missing, or drop the row or the column."
_INSTEAD: Final = (
    f"Declare a public number in place of missing values, as missing {_IN_SETTINGS}, or fill it in, or drop the row or "
    "the column."
)
_CODE: Final = "Code it as numbers, or drop the column."
_DECIMAL: Final = (
    f"Write numbers with a point, and without marks between thousands. Or declare the decimal mark {_IN_SETTINGS}, as "
    'in decimal = ",".'
)
_POINT: Final = (
    "The decimal mark is a comma. If the point divides thousands, remove it; otherwise write a comma in its place."
)
_BETWEEN_THOUSANDS: Final = "a number with marks between thousands"
_WITHOUT: Final = "Write numbers without marks between thousands."
_THOUSANDS_AND_COMMA: Final = (
    f'Write it without marks between thousands, as 1234,56, and declare decimal = "," {_IN_SETTINGS}. Or write 1234.56.'
)
_NO_VALUE: Final = frozenset({
    "na", "n/a", "#n/a", "<na>", "nil", "null", "none", "nd", "n.d.", "k.a.", "unknown", "missing", ".", "-", "--", "?",
})  # fmt: skip
_YES_OR_NO: Final = frozenset({"true", "false", "yes", "no", "ja", "nein", "wahr", "falsch"})
"""Single letters are not among them: F and M are no answers to a question."""
_DATE: Final = re.compile(r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}([ T]\d.*)?|\d{1,2}[-. ]?[A-Za-z]{3,9}[-. ]?\d{2,4}")
_GROUPED: Final = re.compile(r"[+-]?\d{1,3}([ '’\u00a0\u2009\u202f]\d{3})+([.,]\d*)?")
_DASHES: Final = "\u2212\u2013\u2014"
"""A minus sign and dashes, which are not hyphens."""


def line_fault(line: int, of: Cells, cells: Sequence[str], text: str | None = None) -> InvalidDataError:
    """Describe the fault of a line of cells. ``text`` is the line as in the file, if it was read alone."""
    if text is not None and text.count('"') and not cells:
        return InvalidDataError(f"Line {line} has a quote that does not end, or that ends within a cell.", _QUOTES)
    if not cells or (len(cells) == 1 and not cells[0].strip() and len(of.names) > 1):
        return InvalidDataError(f"Line {line} is blank, and counts as a row.", "Remove it, or fill it in.")
    if not any(map(str.strip, cells)):
        return InvalidDataError(f"Line {line} has no value, and counts as a row.", "Remove it, or fill it in.")
    is_whole = len(cells) == len(of.names)
    bad = of.first_bad(cells) if is_whole else None
    if bad is None and is_whole and (huge := of.first_above(cells, LARGEST_ENTRY)) is not None:
        where = f"Line {line}, {_column(of.names, cells, huge)}"
        return InvalidDataError(f"{where} holds a number above {LARGEST_ENTRY:.0e}.", "Rescale the column.")
    if bad is None:
        found = f"Line {line} has {counted(len(cells), 'cell')} under {counted(len(of.names), 'name')}."
        return InvalidDataError(found, _about_count(of, cells, text))
    kind, remedy = cell_kind(of, cells, bad)
    if of.names[0].startswith("#"):
        remedy += f" {_COMMENTS}"
    elif _is_of_words(of, cells):
        remedy += " If the line holds no row but units or a second line of names, remove it."
    return InvalidDataError(f"Line {line}, {_column(of.names, cells, bad)} holds {kind}, not a number.", remedy)


def _about_count(of: Cells, cells: Sequence[str], text: str | None) -> str:
    """Say what to do about a line with too few or too many cells."""
    usual = "Give every row as many cells as the first line has names."
    if text is not None and text.count('"') % 2:
        return _QUOTES
    if of.names[0].startswith("#"):
        return f"{usual} {_COMMENTS}"
    if len(cells) == len(of.names) + 1:
        if not cells[-1].strip():
            return f"{usual} If each row ends with a mark that divides cells, end the first line with it too, or none."
        return (
            f"{usual} If the rows have names that the first line does not mention, as write.table of R does it, write "
            "them with row.names = FALSE."
        )
    if len(cells) == 1 and of.by_spaces and of.reading.delimiter is None:
        return f'{usual} If the first line is one name with spaces in it, declare delimiter = "," {_IN_SETTINGS}.'
    other = _other_mark(of, text)
    return usual if other is None else f"{usual} Or declare what divides cells {_IN_SETTINGS}: delimiter = {other!r}."


def _other_mark(of: Cells, text: str | None) -> str | None:
    """Return a mark that is not declared and would divide a line and the names into equally many cells."""
    if text is None or of.reading.delimiter is not None:
        return None
    names = " ".join(of.names)
    counts = {mark: text.count(mark) for mark in DELIMITERS[:-1]}
    able = [mark for mark, count in counts.items() if count and (mark in names or count + 1 == len(of.names))]
    return max(able, key=counts.__getitem__, default=None)


def _is_of_words(of: Cells, cells: Sequence[str]) -> bool:
    """Tell whether a line of several cells has no number in it."""
    return len(cells) > 1 and not any(map(of.is_number, filter(str.strip, cells)))


def cell_kind(of: Cells, cells: Sequence[str], place: int) -> tuple[str, str]:
    """Return the kind of a cell that is not a finite number, without its content, and what to do about it."""
    cell = cells[place]
    plain = cell.strip()
    if not plain:
        return "an empty cell", _INSTEAD
    if of.is_code(place, cell):
        return "a declared code for a missing value", _INSTEAD
    if of.is_number(cell):
        return "NaN or infinity", _FILL_IN
    if not is_decoded(cell):
        return f"text that is not in {encoding_of(of.reading)}", f"{_CODE} {declare_encoding()}"
    if plain.lower() in _NO_VALUE:
        codes = f'list it as missing_codes {_IN_SETTINGS}, as in missing_codes = ["NA"]'
        return (
            "a word or sign that often stands for a missing value",
            f"If it does, {codes}. Otherwise, {_CODE.lower()}",
        )
    return _odd_number(plain, of) or ("text", f"{_CODE} If it stands for a missing value, list it in missing_codes.")


def _odd_number(plain: str, of: Cells) -> tuple[str, str] | None:
    """Recognise what people write for a number, and is none."""
    is_point = of.reading.decimal == "."
    thousands = _THOUSANDS_AND_COMMA if is_point else _WITHOUT
    other, remedy = ("comma", _DECIMAL) if is_point else ("point", _POINT)
    kinds = (
        (_DATE.fullmatch(plain), "a date", "Compute a number, such as the age on a public day, or drop the column."),
        (is_number(plain.replace(",", ".")), f"a number with a {other} in it", remedy),
        (is_number(plain.replace(".", "").replace(",", ".")), _BETWEEN_THOUSANDS, thousands),
        (is_number(plain.replace(",", "")), _BETWEEN_THOUSANDS, _WITHOUT),
        (_GROUPED.fullmatch(plain), _BETWEEN_THOUSANDS, _WITHOUT),
        (plain.lower() in _YES_OR_NO, "a word for yes or no", "Code it as 1 and 0, or drop the column."),
        (plain[0] in "<>≤≥", "a comparison", "Write the number that a value beyond the limit counts as."),
        (plain[-1] == "%" and of.is_number(plain[:-1]), "a number with a percent sign", "Write the number without it."),
        (plain[0] in _DASHES and of.is_number(plain[1:]), "a number with a dash for a minus sign", "Write it as -1."),
    )
    return next(((kind, advice) for holds, kind, advice in kinds if holds), None)


def _column(names: Sequence[str], cells: Sequence[str], index: int) -> str:
    """Describe a column. Leave out its name if the first line may be a private row: it has numbers, or this not."""
    if any(map(is_number, names)) or not any(map(is_number, cells)):
        return f"column {index + 1}"
    return f"column {index + 1} ({names[index]!r:.{_LONGEST_NAME}})"


def encoding_of(reading: Reading) -> str:
    """Return the encoding in which a file is read, as people write it."""
    return (reading.encoding or "utf-8").upper()


def declare_encoding() -> str:
    """Say what to do about another encoding."""
    return f'Save it as UTF-8, or declare its encoding {_IN_SETTINGS}, as in "cp1252".'


def counted(count: int, noun: str) -> str:
    """Write a number and what it counts."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def is_decoded(text: str) -> bool:
    """Tell whether all bytes of a cell were valid in the file's encoding."""
    return not any("\udc80" <= letter <= "\udcff" or letter == "\ufffd" for letter in text)
