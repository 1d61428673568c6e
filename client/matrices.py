"""Rectangular tables as symmetric matrices: a provider's rows of M become its share of [[0, M], [M^T, 0]].

The eigenvalues of that matrix are the singular values of M, their negatives, and zeros. The eigenvectors of a pair
(s, -s) are (u, v) / sqrt(2) and (u, -v) / sqrt(2). With the unit ``entry``, a job over such shares protects one entry
of the table. That entry stands in two mirrored places of the matrix, as an entry of any symmetric matrix does, so the
protection is the same. To get k singular values ask for 2k components, because they come in pairs.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check, check_whole
from dpspca.common.errors import InvalidDataError
from dpspca.common.job import MAX_DIMENSION, Span
from dpspca.common.results import Model, fix_signs
from dpspca.provider.data import check_rows


def dilation(rows: Any, start: int, total: int) -> scipy.sparse.csr_array:  # noqa: ANN401  # dense or sparse
    """Return a provider's share of [[0, M], [M^T, 0]] for its rows of M, which has ``total`` rows in all.

    ``start`` is the position of the provider's first row, counted from 0 over all providers. Rows of different
    providers must not overlap, because shares add up. Time and memory grow with the number of nonzero entries. Declare
    ``Span(start, rows, total)`` with the share, so that the provider adds no noise to the rows of others.
    """
    numbers: Any = check_rows(rows, least=1).matrix
    table = scipy.sparse.coo_array(numbers)
    count, columns = table.shape
    total = check_whole("total (rows of the whole table)", total, least=count, most=MAX_DIMENSION - columns)
    start = Span(start, count, total).start
    left, right = table.row.astype(np.int64) + start, table.col.astype(np.int64) + total
    places = np.concatenate([left, right]), np.concatenate([right, left])
    share = scipy.sparse.coo_array((np.tile(table.data, 2), places), shape=(total + columns, total + columns))
    rows_of_share = scipy.sparse.csr_array(share)
    rows_of_share.eliminate_zeros()
    return rows_of_share


@dataclass(frozen=True, eq=False, slots=True)
class Singular:
    """Singular vectors as rows, over the table's rows (``left``) and columns (``right``), and estimated values.

    They are as noisy as the model. In particular their lengths are only close to one, and they are not normalised.
    """

    left: FloatArray
    right: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, model: Model, total: int) -> Self:
        """Extract them from the model of a dilation. Of each pair of eigenvalues the positive one is used."""
        values, dimension = model.explained_variance, model.components.shape[1]
        if model.statement.unit.is_row or values is None:
            raise InvalidDataError(
                "This model has no eigenvalues of a symmetric matrix.",
                "Use the model of a job over a dilation, with explained_variance=True.",
            )
        total = check_whole("total (rows of the whole table)", total, least=1, most=dimension - 1)
        kept = np.flatnonzero(values > 0)
        kept = kept[np.argsort(-values[kept], kind="stable")]
        check(
            kept.size > 0,
            f"None of the {values.size} eigenvalues of the model is above 0.",
            "Ask for more components, or use a larger epsilon.",
        )
        vectors = np.sqrt(2) * fix_signs(model.components[kept])
        return cls(vectors[:, :total], vectors[:, total:], values[kept])
