"""The memory that the answer to a planned query takes. It follows from the plan alone. Pure."""

import math
from typing import Final

from dpspca.common.plan import Step
from dpspca.common.queries import (
    CompressedCovariance,
    CovarianceProduct,
    CovarianceTriangle,
    SignPairs,
    SubspaceQuery,
    TiedColumns,
)

from .memory import Need
from .moments import rows_per_block
from .views import dense_step

_MOST_AXES: Final = 64
"""Directions with which columns are compared. Plans ask about fewer."""


def need_of(step: Step) -> tuple[int, Need]:
    """Return how many numbers the sum for an answer has, and what the answer takes in memory."""
    dimension = step.extent.dimension
    if issubclass(step.query, SignPairs | TiedColumns):
        scores = SignPairs.columns_of(step.extent) ** 2 if issubclass(step.query, SignPairs) else dimension * _MOST_AXES
        return 1, Need.of_signs(dimension, dense_step(dimension), scores)
    if issubclass(step.query, SubspaceQuery):
        return dimension**2, Need.of_subspace(dimension)
    if issubclass(step.query, CovarianceTriangle):
        return dimension**2, Need.of_sum(dimension**2)
    entries = math.prod(step.shape)
    if issubclass(step.query, CovarianceProduct):
        return entries, Need.of_product(dimension, entries // dimension)
    if issubclass(step.query, CompressedCovariance):
        columns = math.isqrt(entries)
        return dimension * columns, Need.of_compressed(dimension, columns, rows_per_block(dimension))
    return entries, Need.of_sum(entries)
