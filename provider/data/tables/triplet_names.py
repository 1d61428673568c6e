"""Finds the places of declared names in columns of triplets.

In a column of Arrow, names are found without making a Python object for each cell.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.errors import InvalidDataError
from dpspca.common.text import composed

from .extras import import_extra

Places = NDArray[Any]
UNKNOWN: Final = -1
_WHOLE: Final = "^(0|-?[1-9][0-9]{0,17})$"
"""Whole numbers as databases write them, except those of 19 digits."""
_LARGE: Final = "^-?[1-9][0-9]{18}$"
"""Whole numbers of 19 digits: some do not fit into 64 bits."""
_LARGEST: Final = 2**63
_DENSE: Final = 8
"""Up to so many numbers for each name, a table of all numbers finds names faster than a hash does."""


class KnownNames:
    """The names of rows, or of columns, in their order. A blank name is never found."""

    def __init__(self, names: Sequence[str]) -> None:
        """Take names that all differ, but for blank ones."""
        self._places: dict[str | None, int] = {name: place for place, name in enumerate(names) if name}
        self.count = len(names)
        if len(self._places) < len(names) - list(names).count(""):
            raise InvalidDataError(f"A row is named twice in the list of {self.count} rows.", "Name each row once.")

    def find(self, cells: Any) -> Places:  # noqa: ANN401  # a list of texts or numbers, or a column of Arrow
        """Return the place of each cell's name, or ``UNKNOWN``."""
        if hasattr(cells, "type"):
            return self._in_arrow(cells)
        return np.fromiter(map(self._place, map(_text, cells)), dtype=np.int64, count=len(cells))

    def _place(self, name: str | None) -> int:
        """Find a name as it stands, or else in Unicode's composed form, in which declared columns are."""
        if name is None or name in self._places:
            return self._places.get(name, UNKNOWN)
        return self._places.get(composed(name), UNKNOWN)

    def _in_arrow(self, cells: Any) -> Places:  # noqa: ANN401  # of pyarrow
        arrow, types = import_extra("pyarrow"), import_extra("pyarrow.types")
        if types.is_dictionary(cells.type):
            return _looked_up(cells.indices, self._in_arrow(cells.dictionary))
        if types.is_integer(cells.type) and not types.is_uint64(cells.type):
            return self._of_numbers(cells.cast(arrow.int64()))
        if types.is_string(cells.type) or types.is_large_string(cells.type):
            return self._of_texts(cells)
        return self.find(cells.to_pylist())

    def _of_numbers(self, cells: Any) -> Places:  # noqa: ANN401  # of pyarrow
        """Find whole numbers: in a table if they are dense, otherwise by a hash."""
        if self._dense is None or cells.null_count:
            return _found(cells, *self._numbers)
        lowest, table = self._dense
        at = cells.to_numpy() - lowest  # where that overflows, it is outside of the table, too
        return np.take(table, np.where((at >= 0) & (at < len(table)), at, len(table) - 1))

    @cached_property
    def _dense(self) -> tuple[int, Places] | None:
        """The lowest number and the place of each from it on, with an unknown one at the end, if few are unknown."""
        names, places = self._numbers
        numbers = names.to_numpy()
        if not len(numbers) or int(numbers.max()) - int(numbers.min()) >= _DENSE * len(numbers):
            return None
        table = np.full(int(numbers.max()) - int(numbers.min()) + 2, UNKNOWN)
        table[numbers - numbers.min()] = places
        return int(numbers.min()), table

    def _of_texts(self, cells: Any) -> Places:  # noqa: ANN401  # of pyarrow
        """Find texts as they stand, and those that differ by spaces, or are not in UTF-8, one by one."""
        arrow = import_extra("pyarrow")
        whole = cells.cast(arrow.large_binary())
        found = _found(whole, self._texts, self._text_places)
        others = np.flatnonzero((found == UNKNOWN) & np.asarray(cells.is_valid()))
        if len(others):
            coded = whole.take(arrow.array(others)).dictionary_encode()
            known = self.find([each.decode("utf-8", "replace") for each in coded.dictionary.to_pylist()])
            found[others] = _looked_up(coded.indices, known)
        return found

    @cached_property
    def _numbers(self) -> tuple[Any, Places]:
        """The names that are whole numbers as databases write them, and their places."""
        arrow, compute = import_extra("pyarrow"), import_extra("pyarrow.compute")
        names = arrow.array(self._places, type=arrow.string())
        usual, large = (compute.match_substring_regex(names, pattern) for pattern in (_WHOLE, _LARGE))
        fitting = [number for number in map(int, names.filter(large).to_pylist()) if abs(number) < _LARGEST]
        numbers = [names.filter(usual).cast(arrow.int64()), arrow.array(fitting, type=arrow.int64())]
        places = self._text_places[usual.to_numpy(zero_copy_only=False)]
        return arrow.concat_arrays(numbers), np.append(places, [self._places[str(each)] for each in fitting]).astype(
            np.int64
        )

    @cached_property
    def _texts(self) -> Any:  # noqa: ANN401  # of pyarrow
        arrow = import_extra("pyarrow")
        return arrow.array([name.encode() for name in self._places if name], type=arrow.large_binary())

    @cached_property
    def _text_places(self) -> Places:
        return np.array(list(self._places.values()), dtype=np.int64)


def _found(cells: Any, names: Any, places: Places) -> Places:  # noqa: ANN401  # of pyarrow
    """Find cells among names, and return the places of these."""
    at = import_extra("pyarrow.compute").index_in(cells, value_set=names, skip_nulls=True)
    which: Places = at.fill_null(len(places)).to_numpy(zero_copy_only=False)
    return np.append(places, UNKNOWN)[which]


def _looked_up(places: Any, known: Places) -> Places:  # noqa: ANN401  # of pyarrow
    """Look up places among known ones. One that is missing, or that a broken file made up, is unknown."""
    arrow = import_extra("pyarrow")
    whole = places.cast(arrow.int64(), safe=False).fill_null(UNKNOWN).to_numpy(zero_copy_only=False)
    is_there = (whole >= 0) & (whole < len(known))
    return np.append(known, UNKNOWN)[np.where(is_there, whole, len(known))]


def _text(name: object) -> str | None:
    return name.strip() if isinstance(name, str) else None if name is None else str(name)
