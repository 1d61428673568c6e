"""Rows that were checked once: bounded, with persons, and with fingerprints of their content."""

from . import fingerprints
from .chosen_columns import columns_of
from .fingerprints import Fingerprint, Table, duplicates
from .largest_entries import largest_entries_of, with_largest_entries
from .later_rows import LaterRows, copied_columns, forget_kept, paired_later, used_later
from .odd_rows import (
    UsableEntries,
    make_unusable,
    require_genotypes,
    rows_or_zeros,
    unusable_rows,
    usable_entries,
    zero_row,
)
from .pairs import differences
from .partial_fingerprints import first_sums, names_of, ordered_totals, second_keys
from .persons import require_unit, with_persons
from .preparation import (
    CheckedRows,
    Unusable,
    UsableRows,
    check_names,
    check_rows,
    check_size,
    numbers_of,
    require_rows,
    stray_column,
)

__all__ = [
    "CheckedRows",
    "Fingerprint",
    "LaterRows",
    "Table",
    "Unusable",
    "UsableEntries",
    "UsableRows",
    "check_names",
    "check_rows",
    "check_size",
    "columns_of",
    "copied_columns",
    "differences",
    "duplicates",
    "fingerprints",
    "first_sums",
    "forget_kept",
    "largest_entries_of",
    "make_unusable",
    "names_of",
    "numbers_of",
    "ordered_totals",
    "paired_later",
    "require_genotypes",
    "require_rows",
    "require_unit",
    "rows_or_zeros",
    "second_keys",
    "stray_column",
    "unusable_rows",
    "usable_entries",
    "used_later",
    "with_largest_entries",
    "with_persons",
    "zero_row",
]
