"""How long a provider's work on dense rows takes on this machine: measured on made-up rows of the same width.

The figures follow from how many rows and columns there are, and from no value.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpspca.common.linalg import thin_qr
from dpspca.common.queries import Covariance, CovarianceProduct
from dpspca.provider.data import DataSetFacts, check_rows, identify
from dpspca.provider.evaluate import Shard

_SAMPLE: Final = 2**18
"""Numbers of the rows that are made up."""
_WIDEST_MATRIX: Final = 4096
_COLUMNS: Final = 5
_LEAST_ROWS: Final = 2


@dataclass(frozen=True, slots=True)
class JobSeconds:
    """Seconds, about."""

    check: float
    """To recognise the rows when the provider starts, beside reading them."""
    product: float
    """For one product with 5 columns, the first one with a centre."""
    matrix: float | None
    """For the square matrix of all columns, or None if there are too many."""


def job_seconds(facts: DataSetFacts) -> JobSeconds:
    """Time each kind of work on a few made-up rows, and multiply."""
    columns = facts.dimension
    count = max(_LEAST_ROWS, _SAMPLE // columns)
    rng, times = np.random.default_rng(0), facts.rows / count
    rows = check_rows(rng.standard_normal((count, columns)))
    basis = thin_qr(rng.standard_normal((columns, min(_COLUMNS, columns))))[0]

    def shard() -> Shard:
        return Shard(rows, float(np.sqrt(columns)))

    matrix = None
    if columns <= _WIDEST_MATRIX:
        matrix = times * _seconds(lambda: shard().evaluate(Covariance(columns)))
    product = times * _seconds(lambda: shard().evaluate(CovarianceProduct(basis)))
    return JobSeconds(times * _seconds(lambda: identify(rows)), product, matrix)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
