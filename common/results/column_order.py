"""The order of a model's features among the columns of other rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidDataError
from dpspca.common.text import composed

MOST_NAMED: Final = 5
"""Largest number of columns that an error names."""


def order_of(columns: Sequence[str], features: Sequence[str]) -> NDArray[np.intp] | None:
    """Return the position of each feature among the columns, or None if they are in the same order."""
    columns, features = [*map(composed, columns)], [*map(composed, features)]
    places = {name: place for place, name in enumerate(columns)}
    times = Counter(columns)
    wrong = {
        "missing": [name for name in features if name not in places],
        "unknown": sorted(set(columns) - set(features)),
        "repeated": [name for name in places if times[name] > 1],
    }
    listed = "; ".join(f"{what}: {few(names)}" for what, names in wrong.items() if names)
    if listed:
        raise InvalidDataError(
            f"The rows' columns are not the model's features. {listed}.",
            "Give each feature's column once, in any order, and no other columns.",
        )
    order = np.array([places[name] for name in features], dtype=np.intp)
    return None if np.array_equal(order, np.arange(len(order))) else order


def few(names: Sequence[str]) -> str:
    """List the first few names."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(f"{name!r:.60}" for name in names[:MOST_NAMED]) + more
