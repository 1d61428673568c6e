"""Every query about rows, and an independent implementation of what one row contributes to its answer."""

import numpy as np

from dpspca.common.linalg import thin_qr
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Count,
    CountAbove,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
    SquaredColumns,
)

BOUND = 3.0

KINDS = ["product", "product-1", "compressed", "covariance", "triangle", "squares", "sums", "count", "above"]


def make_query(kind: str, rng: np.random.Generator, dimension: int) -> RowQuery:
    columns = 1 if kind == "product-1" else min(3, dimension)
    basis, _ = thin_qr(rng.standard_normal((dimension, columns)))
    return {
        "product": lambda: CovarianceProduct(basis),
        "product-1": lambda: CovarianceProduct(basis),
        "compressed": lambda: CompressedCovariance(basis),
        "covariance": lambda: Covariance(dimension),
        "triangle": lambda: CovarianceTriangle(dimension),
        "squares": lambda: SquaredColumns(dimension),
        "sums": lambda: ColumnSums(dimension),
        "count": Count,
        "above": lambda: CountAbove(0.8, power=2),
    }[kind]()


def contribution(query: RowQuery, row: np.ndarray) -> np.ndarray:
    """Return the exact answer for one row of norm at most one, in real arithmetic: an independent implementation."""
    match query:
        case CovarianceProduct(basis=basis):
            return np.outer(row, row @ basis)
        case CompressedCovariance(basis=basis):
            image = row @ basis
            return np.append(np.outer(image, image).ravel(), row @ row - image @ image)
        case Covariance():
            return np.outer(row, row)
        case CovarianceTriangle():
            return np.outer(row, row)[np.triu_indices(len(row))]
        case SquaredColumns():
            return row**2
        case ColumnSums():
            return row
        case CountAbove(threshold=threshold):
            return np.array([float(np.linalg.norm(row**2) > threshold)])
        case _:
            return np.ones(1)
