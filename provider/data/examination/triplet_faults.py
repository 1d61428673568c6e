"""Says which triplet makes its row count as zeros, for the steward, who may see the rows."""

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from dpspca.common.storage import UNUSABLE, Reading
from dpspca.provider.data.checked import CheckedRows, usable_entries
from dpspca.provider.data.tables import row_names
from dpspca.provider.data.triplet_rows import places_of_cell

from .column_facts import fault_in, first_bad


def fault_in_triplets(path: Path, reading: Reading, coded: CheckedRows, used: Any) -> str | None:  # noqa: ANN401
    """Name the file, the row and the column of the first triplet that makes a row unusable, and say why.

    ``coded`` are the rows as they were read, with NaN for missing values, and ``used`` the same rows, prepared.
    """
    row = _first_unusable(used)
    if row is None or reading.triplets is None:
        return None
    assert isinstance(coded.matrix, scipy.sparse.csr_array)
    cells = coded.matrix[[row]].toarray()[0]
    names = coded.names or ()
    column = first_bad(cells, names, reading)
    where = places_of_cell(path, reading, row, column)
    whose = f"{where[0]}: Row {row_names(reading.triplets.rows)[row]!r:.60}"
    if len(where) > 1 and reading.triplets.duplicates == UNUSABLE:
        return (
            f"{whose}, column {names[column]!r:.60} has several numbers, the next in {where[1]}. Keep one of them, or "
            'declare duplicates = "sum" in triplets.'
        )
    return f"{whose}, {fault_in(cells, names, reading)}"


def _first_unusable(used: Any) -> int | None:  # noqa: ANN401  # dense or sparse
    """Return the first row that counts as zeros."""
    if isinstance(used, np.ndarray):
        blank = usable_entries(used)[1]
        return int(np.argmax(blank)) if blank.any() else None
    bad = np.flatnonzero(usable_entries(used.data[:, None])[1])
    return int(np.searchsorted(used.indptr, bad[0], side="right")) - 1 if bad.size else None
