"""Made-up data for audits: for each privacy unit a pair of neighbours whose answers differ nearly as much as possible.

They depend only on the parameters of a job, not on anybody's rows.
"""

from typing import Final

import numpy as np

from dpspca.client.matrices import dilation
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.checks import check
from dpspca.common.job import JobSpec, Span
from dpspca.common.privacy import PrivacyUnit

SYNTHETIC_ROWS: Final = 301
MOST_ENTRIES: Final = 2**25


def neighbours(spec: JobSpec, span: Span | None = None) -> tuple[FloatArray, FloatArray]:
    """Make a data set and a neighbour of it, for the privacy unit of the job."""
    if span:
        return _neighbouring_tables(spec, span)
    return _neighbouring_rows(spec) if spec.unit.is_row else _neighbouring_matrices(spec)


def row_owners(spec: JobSpec, data: FloatArray) -> list[int] | None:
    """Return the person of each made-up row, if the unit protects persons: the last rows belong to one person."""
    return [min(place, SYNTHETIC_ROWS) for place in range(len(data))] if spec.unit.is_person else None


def _neighbouring_matrices(spec: JobSpec) -> tuple[FloatArray, FloatArray]:
    """Make a symmetric matrix with an eigenvector along as many axes as there are components, and a neighbour.

    So the method soon queries these axes. Then an entry between two of them moves most answers as far as any entry can.
    For the spectral unit, a change of all eigenvalues moves them as far as any change can.
    """
    dimension = spec.schema.dimension
    along = np.where(np.arange(dimension) < spec.components, SYNTHETIC_ROWS * spec.norm_bound, 0.0)
    matrix, change = np.diag(along), np.eye(dimension)
    if spec.unit is PrivacyUnit.ENTRY:
        change = np.zeros((dimension, dimension))
        change[0, -1 if spec.components == 1 else 1] = change[-1 if spec.components == 1 else 1, 0] = 1.0
    return matrix, matrix + spec.norm_bound * change


def _neighbouring_tables(spec: JobSpec, span: Span) -> tuple[FloatArray, FloatArray]:
    """Make shares of a table with a pair of singular vectors along axes for every two components, and a neighbour.

    An entry at the intersection of such a pair moves an answer by the two longest possible rows of the basis.
    """
    shape = span.rows, spec.schema.dimension - span.of
    pairs = np.arange(shape[0])[:, None] < max(1, spec.components // 2)
    table, change = SYNTHETIC_ROWS * spec.norm_bound * np.eye(*shape) * pairs, np.eye(*shape)
    if spec.unit is PrivacyUnit.ENTRY:
        change[1:] = 0.0
    first, second = (
        dilation(rows, span.start, span.of).toarray() for rows in (table, table + spec.norm_bound * change)
    )
    return first, second


def _neighbouring_rows(spec: JobSpec) -> tuple[FloatArray, FloatArray]:
    """Make rows along as many axes as there are components, and a neighbour that differs as much as possible.

    So the method soon queries these axes. Replacing a row along one axis by a row along another moves most answers as
    far as any replacement can. It is the last row; if the job says how many rows it is about, there are that many. If
    the job protects several rows of a person, that many equal rows are replaced.
    """
    dimension = spec.schema.dimension
    axes = min(spec.components, dimension)
    own = spec.rows_per_person
    rows = catalogue.rows_of(spec) or SYNTHETIC_ROWS + own
    check(
        rows * dimension <= MOST_ENTRIES,
        f"This job would be audited over {rows} rows of {dimension} columns.",
        "Audit one with fewer columns, or a smaller block_rows.",
    )
    common = np.zeros((rows - own, dimension))
    places = np.arange(rows - own)
    common[places, places % axes] = np.where(places // axes % 2, -spec.norm_bound, spec.norm_bound)
    common[0] /= 2  # otherwise neighbours could be the same rows with columns in another order, and share one budget
    canary, other = np.zeros((2, own, dimension))
    canary[:, 0] = spec.norm_bound
    other[:, min(1, dimension - 1)] = spec.norm_bound if axes > 1 else 0.0
    center = 0.0 if spec.public_mean is None else np.array(spec.public_mean)
    beside = [canary] if spec.unit.is_add_remove else [canary, other]
    first, *second = (np.vstack([common, row]) + center for row in beside)
    return first, second[0] if second else common + center
