"""Rows on their way in: read, checked, bounded and named."""

from .arrivals import Arrivals, DataSet, WaitingRoom
from .fingerprints import duplicates
from .odd_rows import zero_row
from .preparation import CheckedRows, UsableRows, check_names, check_rows, numeric, require_unit, with_persons
from .sources import names_in, read_arriving, read_protected, read_rows
from .threads import in_a_thread_for_rows

__all__ = [
    "Arrivals",
    "CheckedRows",
    "DataSet",
    "UsableRows",
    "WaitingRoom",
    "check_names",
    "check_rows",
    "duplicates",
    "in_a_thread_for_rows",
    "names_in",
    "numeric",
    "read_arriving",
    "read_protected",
    "read_rows",
    "require_unit",
    "with_persons",
    "zero_row",
]
