"""Which group each row is in, by the columns of the groups (``dpspca.common.queries.groups``). Pure."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.queries import MOST_GROUPS

Groups = NDArray[np.int8]
_SOME_ROWS: Final = 2**16


def groups_of(blocks: Iterable[Any], columns: NDArray[np.intp]) -> Groups:
    """Return the place of each row's group: of its largest entry in these columns, or their number if none is positive.

    It follows from the row alone, and every row takes the same steps.
    """
    assert len(columns) <= MOST_GROUPS
    found = [_places(rows, columns) for rows in blocks]
    return np.concatenate([np.empty(0, dtype=np.int8), *found])


def _places(rows: Any, columns: NDArray[np.intp]) -> Groups:  # noqa: ANN401  # dense or sparse
    places = np.empty(rows.shape[0], dtype=np.int8)
    for start in range(0, rows.shape[0], _SOME_ROWS):
        some = rows[start : start + _SOME_ROWS][:, columns]
        entries: Any = some if isinstance(some, np.ndarray) else some.toarray()
        places[start : start + _SOME_ROWS] = np.where(entries.max(axis=1) > 0, np.argmax(entries, axis=1), len(columns))
    return places
