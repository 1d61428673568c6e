"""Every query about rows, and an independent implementation of what one row contributes to its answer."""

import numpy as np

from dpspca.common.linalg import thin_qr
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.groups import GroupedScores
from dpspca.common.queries.ranges import LARGEST_RANGE, LARGEST_SIZE, RANGES, SIZES, ColumnSizes, NormRange
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Count,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
)
from dpspca.common.queries.views import (
    BINS,
    SIDE,
    NormHistogram,
    ScoreHistogram,
    View,
    ViewCovariance,
    ViewProduct,
    ViewSquares,
)

BOUND = 3.0

KINDS = ["product", "product-1", "compressed", "covariance", "triangle", "sums", "count"]
KINDS += ["view", "view-axes", "view-product", "view-product-1", "view-squares", "norms", "norms-of-squares"]
KINDS += ["norms-in-ranges", "scores", "column-sizes", "view-scaled", "view-squares-scaled", "norms-scaled"]
KINDS += ["scores-scaled", "sums-scaled", "sums-around"]


def make_query(kind: str, rng: np.random.Generator, dimension: int) -> RowQuery:
    columns = 1 if kind.endswith("product-1") else min(3, dimension)
    basis, _ = thin_qr(rng.standard_normal((dimension, columns)))
    wide = View(dimension, np.arange(dimension), 3.0, basis, 0.25)
    plane = View(dimension, np.arange(dimension), 1.5, basis[:, [0, -1]] if dimension > 1 else [[1.0, 0.5]], 2.5)
    lifted = View(dimension, np.arange(dimension), 0.25, basis, 3.0)
    narrow = View(dimension, np.flatnonzero(np.arange(dimension) % 2 == 0), 2.0)
    scales = 4.0 ** rng.uniform(-3, 3, dimension)
    scales[0] = 0.5
    return {
        "column-sizes": lambda: ColumnSizes(dimension),
        "view-scaled": lambda: ViewCovariance(narrow, None, scales),
        "view-squares-scaled": lambda: ViewSquares(narrow, None, scales),
        "norms-scaled": lambda: NormHistogram(wide, None, scales),
        "scores-scaled": lambda: ScoreHistogram(plane, None, scales),
        "sums-scaled": lambda: ColumnSums(dimension, scales),
        "sums-around": lambda: ColumnSums(dimension, scales, np.linspace(-0.5, 0.5, dimension)),
        "view": lambda: ViewCovariance(narrow),
        "view-axes": lambda: ViewCovariance(wide),
        "view-product": lambda: ViewProduct(lifted),
        "view-product-1": lambda: ViewProduct(lifted),
        "view-squares": lambda: ViewSquares(narrow),
        "norms": lambda: NormHistogram(wide),
        "norms-of-squares": lambda: NormHistogram(narrow, power=2),
        "scores": lambda: ScoreHistogram(plane),
        "norms-in-ranges": lambda: NormRange(dimension),
        "product": lambda: CovarianceProduct(basis),
        "product-1": lambda: CovarianceProduct(basis),
        "compressed": lambda: CompressedCovariance(basis),
        "covariance": lambda: Covariance(dimension),
        "triangle": lambda: CovarianceTriangle(dimension),
        "sums": lambda: ColumnSums(dimension),
        "count": Count,
        "scores-in-groups": lambda: GroupedScores(_two_groups(dimension, basis)),
    }[kind]()


def _two_groups(dimension: int, basis: np.ndarray) -> View:
    """Return a view of scores along two axes, in the groups that the last two columns name."""
    axes = np.zeros((dimension, 4))
    axes[:-2, :2], axes[-2:, 2:] = thin_qr(basis[:-2, :2])[0], np.eye(2)
    return View(dimension, np.arange(dimension), 1.5, axes, 2.5)


def viewed(view: View, row: np.ndarray) -> np.ndarray:
    """Return the view of a row before it is clipped, in real arithmetic."""
    seen = row[view.columns]
    part = view.axes @ (view.axes.T @ seen)
    return view.factors[0] * (seen - part) + view.factors[1] * part


def contribution(query: RowQuery, row: np.ndarray) -> np.ndarray:
    """Return the exact answer for one row of norm at most one, in real arithmetic: an independent implementation."""
    scales = getattr(query, "scales", None)
    scaled = row if scales is None else row / scales
    return _contribution(query, scaled / max(1.0, float(np.linalg.norm(scaled))))


def _contribution(query: RowQuery, row: np.ndarray) -> np.ndarray:  # noqa: C901, PLR0912  # a case for each query
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
        case ColumnSums():
            return row
        case ViewCovariance(view=view):
            seen = viewed(view, row)
            return np.outer(seen, seen) / max(1.0, seen @ seen)
        case ViewProduct(view=view):
            seen = viewed(view, row)
            return np.outer(seen, seen @ view.axes) / max(1.0, seen @ seen)
        case ViewSquares(view=view):
            squares = viewed(view, row) ** 2
            return squares / max(1.0, float(np.linalg.norm(squares)))
        case NormHistogram(view=view, power=power):
            norm = float(np.linalg.norm(viewed(view, row) ** power))
            halvings = -2 * np.log2(max(norm, 1e-30) / (1 - 2.0**-10))
            return np.eye(BINS)[int(np.clip(np.ceil(halvings - 1e-9), 0, BINS - 1))]
        case ScoreHistogram(view=view):
            shortened = row / max(1.0, query.lift * float(np.linalg.norm(row)))
            places = np.clip(
                np.floor((view.factors[1] * shortened[view.columns] @ view.axes + 1) * SIDE / 2), 0, SIDE - 1
            )
            cells = np.zeros((SIDE, SIDE))
            cells[tuple(places.astype(int))] = 1
            return cells
        case ColumnSizes():
            edges = LARGEST_SIZE * 4.0 ** -np.arange(SIZES - 1)
            return np.eye(SIZES)[np.count_nonzero(BOUND * np.abs(row)[:, None] < edges, axis=1)]
        case NormRange():
            edges = LARGEST_RANGE * 16.0 ** -np.arange(RANGES - 1)
            norm = BOUND * float(np.linalg.norm(row))
            return np.eye(RANGES)[int(np.count_nonzero(norm < edges))]
        case _:
            return np.ones(1)
