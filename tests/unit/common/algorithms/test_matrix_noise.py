"""The noise of a square that is released and made symmetric is that of the Gaussian orthogonal ensemble."""

import numpy as np
import pytest

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import analyze_gauss
from dpspca.common.algorithms.steps.released_matrix import matrix_of
from dpspca.common.job import Accounting, Budget, JobSpec, Schema
from dpspca.common.privacy.units import PrivacyUnit

SIZE, RUNS, DIRECTIONS = 30, 200, 40


def noises(monkeypatch: pytest.MonkeyPatch, accounting: Accounting) -> np.ndarray:
    """Return the noise of a matrix of zeros, in many jobs."""
    found, original = [], analyze_gauss.components_of

    def components_of(*arguments: object) -> np.ndarray:
        found.append(matrix_of(arguments[2], SIZE) / arguments[2].noise_std)  # type: ignore[attr-defined, arg-type]
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(analyze_gauss, "components_of", components_of)
    spec = JobSpec(
        schema=Schema(SIZE),
        unit=PrivacyUnit.ROW_REPLACE_ONE,
        budget=Budget(1.0, 1e-6),
        norm_bound=1.0,
        components=2,
        method="analyze-gauss",
        accounting=accounting,
    )
    for seed in range(RUNS):
        simulate([np.zeros((10, SIZE))], spec, noise_seed=seed)
    return np.array(found)


def test_noise_is_equal_in_all_directions_of_the_frobenius_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds are fixed. Over others, each sum of squares leaves its five standard deviations once in 10^6."""
    found = noises(monkeypatch, Accounting.EXACT)
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((DIRECTIONS, SIZE, SIZE))
    sparse = np.zeros_like(mixed)
    sparse[np.arange(DIRECTIONS), np.arange(DIRECTIONS) % SIZE, np.arange(DIRECTIONS) % 7] = 1.0
    diagonal = np.eye(SIZE)[:, :, None] * np.eye(SIZE)[:, None]
    for directions in (mixed, sparse, diagonal):
        symmetric = directions + directions.transpose(0, 2, 1)
        symmetric /= np.linalg.norm(symmetric, axis=(1, 2))[:, None, None]
        parts = np.einsum("rij,bij->rb", found, symmetric)
        assert abs(np.square(parts).mean() - 1) < 5 * np.sqrt(2 / RUNS / min(DIRECTIONS, SIZE))


def test_published_noise_is_equal_on_the_upper_triangle(monkeypatch: pytest.MonkeyPatch) -> None:
    """So off the diagonal it is sqrt(2) larger than the other, and not equal in all directions."""
    found = noises(monkeypatch, Accounting.PUBLISHED)
    rows, columns = np.triu_indices(SIZE)
    for chosen in (rows == columns, rows != columns):
        numbers = found[:, rows[chosen], columns[chosen]]
        assert abs(np.square(numbers).mean() - 1) < 5 * np.sqrt(2 / numbers.size)
