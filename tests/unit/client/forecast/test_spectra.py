"""Angles by perturbation theory agree with what eigenvectors of drawn matrices do, whose seeds are fixed."""

import numpy as np
import pytest

from dpspca.client.forecast.spectra import joined, neighbours, part_missed, sines_of


def turned(leading: list[float], others: np.ndarray, noise: float, seed: int) -> float:
    """Return the squared sine sum of the leading eigenvectors of a diagonal matrix with symmetric noise."""
    values = np.r_[leading, others]
    drawn = np.random.default_rng(seed).standard_normal((len(values),) * 2) * noise
    matrix = np.diag(values) + (drawn + drawn.T) / np.sqrt(2)
    vectors = np.linalg.eigh(matrix)[1][:, -len(leading) :]
    return float(len(leading) - np.square(vectors[: len(leading)]).sum())


@pytest.mark.parametrize(("noise", "seed"), [(0.005, 1), (0.01, 2), (0.02, 3)])
def test_noise_turns_eigenvectors_as_far_as_expected(noise: float, seed: int) -> None:
    others = np.linspace(0, 0.3, 297)
    found = turned([1.0, 0.9, 0.8], others, noise, seed)
    sines = sines_of(np.array([1.0, 0.9, 0.8]), others, np.ones(297), 1e9, noise * 1e9)
    assert found == pytest.approx(sines.sum(), rel=0.2)


def test_beyond_the_edge_of_noise_nothing_is_left() -> None:
    others, noise = np.zeros(400), 0.06
    assert 1 / noise < np.sqrt(400)  # the eigenvalue is inside the noise
    assert sines_of(np.array([1.0]), others, np.ones(400), 1e9, noise * 1e9) == 1
    assert turned([1.0], others, noise, 4) > 0.9


def test_sampling_turns_eigenvectors_as_far_as_expected() -> None:
    rows, beside = 2000, 199
    drawn = np.random.default_rng(5).standard_normal((rows, beside + 1))
    drawn[:, 0] *= 3
    vector = np.linalg.eigh(drawn.T @ drawn)[1][:, -1]
    (sine,) = sines_of(np.array([9.0]), np.ones(1), np.array([float(beside)]), rows, 0.0)
    assert 1 - vector[0] ** 2 == pytest.approx(sine, rel=0.25)


def test_without_other_directions_nothing_turns() -> None:
    assert sines_of(np.ones(3), np.zeros(0), np.zeros(0), 10, 5.0).sum() == 0


def test_rows_far_above_the_noise_are_not_missed_and_rows_within_it_are() -> None:
    assert part_missed(np.full(2, 1e4), 500, 20) == 0
    assert part_missed(np.full(2, 0.01), 500, 20) > 0.9
    few, many = (part_missed(np.full(2, 100.0), 500, support) for support in (3, 300))
    assert few == 0 < many < 0.3


def test_two_releases_of_equal_noise_halve_its_variance() -> None:
    assert joined(2.0, 2.0) == pytest.approx(2**0.5)
    assert joined(2.0, 0.0) == 0


def test_small_errors_mix_neighbouring_components_and_large_ones_all() -> None:
    leading, others, counts = np.array([0.3, 0.3]), np.array([0.2, 0.01]), np.array([1.0, 50.0])
    near, far = neighbours(leading, others, counts, np.array([0.0, 1.0]))
    assert far == pytest.approx((0.2 + 0.5) / 51)
    assert far < near < 0.2
