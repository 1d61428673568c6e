"""Rectangular tables as symmetric matrices: a provider's rows of M become its share of [[0, M], [M^T, 0]].

The eigenvalues of that matrix are the singular values of M and their negatives, and zeros; the eigenvectors of a pair
(s, -s) are (u, v) / sqrt(2) and (u, -v) / sqrt(2). With the unit ``entry`` a job over shares made so protects one entry
of the table, which stands in two places that mirror each other: no more and no less than an entry of any symmetric
matrix. For k singular values ask for 2k components, since they come in pairs.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError
from dpspca.common.model import Model, fix_signs
from dpspca.common.spans import Span
from dpspca.common.spec import MAX_DIMENSION, check, check_whole
from dpspca.provider.preparation import check_rows


def dilation(rows: Any, start: int, total: int) -> scipy.sparse.csr_array:  # noqa: ANN401  # dense or sparse
    """Make a provider's share of [[0, M], [M^T, 0]] from its rows of M, which has ``total`` rows in all.

    ``start`` is the place of the provider's first row, counted from 0 over all providers: rows must not overlap, for
    shares add up. Work and memory go with the entries that are not zero. ``Span(start, rows, total)``, declared beside
    the share, keeps its noise from the rows of others.
    """
    table = scipy.sparse.coo_array(check_rows(rows, least=1).matrix)
    count, columns = table.shape
    total = check_whole("total, the rows of the whole table,", total, least=count, most=MAX_DIMENSION - columns)
    start = Span(start, count, total).start
    left, right = table.row.astype(np.int64) + start, table.col.astype(np.int64) + total
    places = np.concatenate([left, right]), np.concatenate([right, left])
    share = scipy.sparse.coo_array((np.tile(table.data, 2), places), shape=(total + columns, total + columns))
    made = scipy.sparse.csr_array(share)
    made.eliminate_zeros()
    return made


@dataclass(frozen=True, eq=False, slots=True)
class Singular:
    """Singular vectors as rows, of the table's rows (left) and columns (right), with values as far as they are known.

    They are as noisy as the model; in particular their lengths are one only nearly, and none is put right.
    """

    left: FloatArray
    right: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, model: Model, total: int) -> Self:
        """Take them from a model of a dilation: of every pair of eigenvalues the one above zero counts."""
        values, dimension = model.explained_variance, model.components.shape[1]
        if model.statement.unit.is_row or values is None:
            raise InvalidDataError(
                "This model holds no eigenvalues of a symmetric matrix.",
                "Take one of a job over a dilation that asks for the explained variance.",
            )
        total = check_whole("total, the rows of the whole table,", total, least=1, most=dimension - 1)
        kept = np.flatnonzero(values > 0)
        kept = kept[np.argsort(-values[kept], kind="stable")]
        check(kept.size > 0, "None of the eigenvalues is above zero.", "Ask for more components, or a larger epsilon.")
        vectors = np.sqrt(2) * fix_signs(model.components[kept])
        return cls(vectors[:, :total], vectors[:, total:], values[kept])
