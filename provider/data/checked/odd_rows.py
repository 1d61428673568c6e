"""Rows that cannot be used count as rows of zeros. This depends on each row alone. Pure."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from dpspca.common.arrays import LARGEST_ENTRY, FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.memory import BLOCK_CELLS, Genotypes, ReusedMemory, StoredRows, on_all_processors
from dpspca.provider.kernels import kernels

from .preparation import CheckedRows, Table, Unusable, check_size, with_entries

_LARGEST_BITS: Final = int(np.float64(LARGEST_ENTRY).view(np.int64))


def rows_or_zeros(matrix: Table) -> CheckedRows:
    """Accept the table that ``numbers_of`` returned, with any numbers, even one without rows.

    A row with a number that is not finite, too large, or in no column counts as a row of zeros. This depends on that
    row alone, so no row decides whether its provider starts, whether others are answered, or what a refusal says. A
    table is refused for its form alone: its type, its columns, or more rows than sums can hold.
    """
    check_size(*matrix.shape, least=0)
    assert not isinstance(matrix, StoredRows)  # which hold what ``usable_entries`` returned
    if isinstance(matrix, Genotypes):
        return _genotypes_or_zeros(matrix)
    stored: FloatArray = matrix.reshape(-1) if isinstance(matrix, np.ndarray) else matrix.data
    if (compiled := kernels("entries")) and scipy.sparse.issparse(matrix):
        return _sparse_or_zeros(matrix, compiled)
    good = np.abs(stored) <= LARGEST_ENTRY  # False for NaN
    lengths = matrix.shape[1] if isinstance(matrix, np.ndarray) else np.diff(matrix.indptr)
    whose = np.repeat(np.arange(matrix.shape[0]), lengths)
    bad = np.bincount(whose, weights=~good, minlength=matrix.shape[0]) > 0
    spoilt = bad[whose]
    places = np.flatnonzero(spoilt)
    mended = np.where(spoilt, 0.0, stored)  # the same for all rows, so that the time does not reveal an odd one
    whole = mended.reshape(matrix.shape) if isinstance(matrix, np.ndarray) else with_entries(matrix, mended)
    if not places.size:
        return CheckedRows(whole)
    return CheckedRows(whole, unusable=Unusable(int(bad.sum()), places, np.where(good, stored, 0.0)[places]))


def _sparse_or_zeros(matrix: scipy.sparse.csr_array, compiled: ModuleType) -> CheckedRows:
    """Do the same for sparse rows with a kernel."""
    numbers = np.require(matrix.data, np.float64, ("C", "W"))
    usable, spoilt = np.empty_like(numbers), np.empty(len(numbers), dtype=np.bool_)
    starts = np.require(matrix.indptr, requirements=("C", "W"))

    def put(start: int, stop: int) -> None:
        own = starts[start : stop + 1]
        compiled.put_usable_rows(numbers.view(np.int64), own, _LARGEST_BITS, usable.view(np.int64), spoilt)

    on_all_processors(put, matrix.shape[0])
    places = np.flatnonzero(spoilt)
    whole = with_entries(matrix, usable)
    if not places.size:
        return CheckedRows(whole)
    entries = numbers[places]
    good = np.abs(entries) <= LARGEST_ENTRY
    rows = np.unique(np.searchsorted(matrix.indptr, places, side="right"))
    return CheckedRows(whole, unusable=Unusable(len(rows), places, np.where(good, entries, 0.0)))


class UsableEntries:
    """Puts zeros in place of numbers that are not finite or too large, and marks their rows, which count as zeros.

    It works in memory of its own, which the next rows overwrite.
    """

    def __init__(self) -> None:
        self._usable, self._blank, self._sizes, self._good = (ReusedMemory() for _ in range(4))

    def __call__(self, matrix: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the usable numbers, and which rows are marked."""
        usable = self._usable.array(matrix.shape, np.float64)
        blank = self._blank.array((len(matrix),), np.bool_)
        if compiled := kernels("entries"):
            numbers = np.require(matrix, np.float64, ("C", "W")).view(np.int64)
            compiled.put_usable(numbers, _LARGEST_BITS, usable.view(np.int64), blank)
            return usable, blank
        step = max(1, BLOCK_CELLS // matrix.shape[1])
        for start in range(0, len(matrix), step):
            part = slice(start, start + step)
            self._put(np.ascontiguousarray(matrix[part]), usable[part], blank[part])
        return usable, blank

    def _put(self, numbers: FloatArray, usable: FloatArray, blank: NDArray[np.bool_]) -> None:
        """Process some rows. All numbers take the same steps: a mask removes bits."""
        sizes = np.abs(numbers, out=self._sizes.array(numbers.shape, np.float64))
        good = np.less_equal(sizes, LARGEST_ENTRY, out=self._good.array(numbers.shape, np.bool_))  # False for NaN
        np.logical_not(good.all(axis=1), out=blank)
        mask = np.negative(good.view(np.int8), out=sizes.view(np.int64))
        np.bitwise_and(numbers.view(np.int64), mask, out=usable.view(np.int64))


def usable_entries(matrix: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Put zeros in place of unusable numbers and mark their rows, as ``UsableEntries`` does, but in new memory."""
    return UsableEntries()(matrix)


def unusable_rows(count: int) -> Unusable | None:
    """State how many rows count as zeros, of a table that marks them itself."""
    return Unusable(count, np.empty(0, dtype=np.intp), np.empty(0)) if count else None


def _genotypes_or_zeros(matrix: Genotypes) -> CheckedRows:
    """Put zeros in place of unusable rows: those that lack a genotype for which no number is declared."""
    bad = matrix.blank | matrix.has(_unusable_values)
    return CheckedRows(matrix.blanked(bad), unusable=unusable_rows(int(np.count_nonzero(bad))))


def require_genotypes(matrix: Genotypes, names: Sequence[str] | None) -> None:
    """Refuse genotypes with an unusable row, and say which sample lacks which variant, for people who may see them."""
    bad = np.flatnonzero(matrix.has(_unusable_values))
    if not bad.size:
        return
    place = int(bad[0])
    column = int(np.argmax(~np.isfinite(matrix[place : place + 1].toarray()[0])))
    name = f"column {column + 1}" if names is None else f"variant {names[column]!r:.60}"
    raise InvalidDataError(
        f"Sample {place + 1} has no genotype of {name}, and {bad.size - 1} more samples lack one.",
        "Declare a number in place of missing genotypes as missing under [reading], or a reference with frequencies "
        "(.afreq) as alleles.",
    )


def _unusable_values(values: FloatArray) -> NDArray[np.bool_]:
    return ~(np.abs(values) <= LARGEST_ENTRY)


def make_unusable(matrix: Table, which: NDArray[np.bool_]) -> Any:  # noqa: ANN401  # as it came
    """Fill the marked rows with NaN, which makes them unusable. Of genotypes, let them count as zeros at once."""
    if isinstance(matrix, Genotypes):
        return matrix.blanked(which)
    if isinstance(matrix, np.ndarray):
        return np.where(which[:, None], np.nan, matrix)
    assert not isinstance(matrix, StoredRows)
    whose = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return with_entries(matrix, np.where(which[whose], np.nan, matrix.data))


def zero_row(like: Table) -> FloatArray | scipy.sparse.csr_array:
    """Return one row of zeros in the form and width of these rows."""
    shape = (1, like.shape[1])
    return scipy.sparse.csr_array(shape) if scipy.sparse.issparse(like) else np.zeros(shape)
