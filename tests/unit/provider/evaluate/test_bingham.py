"""Bingham draws against quadrature. False alarm: 1e-6 for each test of a law; the words are fixed."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from dpspca.common.errors import AskAgainError
from dpspca.common.privacy.keystream import KeyStream
from dpspca.provider.evaluate import bingham
from dpspca.provider.evaluate.bingham import draw_axis, draw_in_axes, envelope_of, log_acceptance

ALARM = 1e-6


def draws(falls: list[float], count: int, label: str = "") -> NDArray[np.float64]:
    words = KeyStream.repeatable(1, f"{falls}{label}")
    return np.stack([draw_in_axes(np.array(falls), words) for _ in range(count)])


def circle_law(fall: float) -> NDArray[np.float64]:
    """Distribution function of the angle of a draw in the plane, on a grid over half a circle."""
    angles = np.linspace(-math.pi / 2, math.pi / 2, 20_001)
    density = np.exp(-fall * np.sin(angles) ** 2)
    summed = integrate.cumulative_trapezoid(density, angles, initial=0)
    return np.stack([angles, summed / summed[-1]])


def sphere_law(falls: list[float]) -> NDArray[np.float64]:
    """Distribution function of the first coordinate of a draw in space, by quadrature over the circles it cuts."""
    heights = np.linspace(-1, 1, 4001)
    around = np.linspace(0, 2 * math.pi, 721)[:-1]
    rest = (1 - heights**2)[:, None]
    logs = -falls[0] * heights[:, None] ** 2 - rest * (falls[1] * np.cos(around) ** 2 + falls[2] * np.sin(around) ** 2)
    density = np.exp(logs).mean(axis=1)
    summed = integrate.cumulative_trapezoid(density, heights, initial=0)
    return np.stack([heights, summed / summed[-1]])


def fits(drawn: NDArray[np.float64], law: NDArray[np.float64]) -> bool:
    return bool(stats.kstest(drawn, lambda at: np.interp(at, *law)).pvalue > ALARM)


def angles_of(drawn: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.arctan(drawn[:, 1] / drawn[:, 0])


@pytest.mark.slow
@pytest.mark.parametrize("fall", [0.0, 0.7, 5.0, 400.0])
def test_in_the_plane_draws_follow_the_law(fall: float) -> None:
    drawn = draws([0.0, fall], 4000)
    assert fits(angles_of(drawn), circle_law(fall))
    assert stats.binomtest(int((drawn[:, 0] > 0).sum()), len(drawn)).pvalue > ALARM


def test_a_hurried_draw_follows_the_same_law() -> None:
    words = KeyStream.repeatable(1, "hurried")
    drawn = np.stack([draw_in_axes(np.array([0.0, 5.0]), words, hurry=True) for _ in range(4000)])
    assert fits(angles_of(drawn), circle_law(5.0))


@pytest.mark.slow
@pytest.mark.parametrize("falls", [[0.0, 0.5, 4.0], [0.0, 0.0, 30.0], [0.0, 12.0, 12.5], [3.0, 0.0, 1.0]])
def test_in_space_draws_follow_the_law(falls: list[float]) -> None:
    assert fits(draws(falls, 4000)[:, 0], sphere_law(falls))


def mean_squares(falls: NDArray[np.float64]) -> NDArray[np.float64]:
    """E[x_i^2], from the derivative of the normalising constant as an integral along a line of the complex plane.

    The constant is proportional to the integral of e^s times the product of (s + a_j)^(-1/2); its derivative by a_i
    has a factor -1/2 / (s + a_i) more.
    """

    def integral(extra: int | None) -> float:
        def real(y: float) -> float:
            at = 1.0 + 1j * y + falls
            value = np.exp(1.0 + 1j * y - 0.5 * np.log(at).sum())
            return float((value if extra is None else value / (2 * at[extra])).real)

        return integrate.quad(real, 0, 4000, limit=20_000)[0]

    whole = integral(None)
    return np.array([integral(place) / whole for place in range(len(falls))])


@pytest.mark.nightly
def test_in_ten_dimensions_the_mean_squares_are_right() -> None:
    falls = np.r_[0.0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128]
    expected = mean_squares(falls)
    assert expected.sum() == pytest.approx(1.0, abs=2e-5)
    squares = np.square(draws(falls.tolist(), 4000))
    error = squares.std(axis=0) / math.sqrt(len(squares))
    assert (np.abs(squares.mean(axis=0) - expected) < 5.5 * error + 1e-5).all()


@pytest.mark.nightly
def test_dividing_by_the_envelope_instead_of_multiplying_would_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mistake that others make: e^-u (1 + 2u/b)^(-q/2), which favours the axis too much."""

    def divided(falling: NDArray[np.float64], envelope: float, size: int) -> NDArray[np.float64]:
        return -falling - size / 2 * np.log1p(2 * falling / envelope)

    monkeypatch.setattr(bingham, "log_acceptance", divided)
    assert not fits(angles_of(draws([0.0, 0.7], 4000)), circle_law(0.7))
    assert not fits(draws([0.0, 0.5, 4.0], 4000)[:, 0], sphere_law([0.0, 0.5, 4.0]))


@pytest.mark.parametrize("size", [2, 3, 10, 100])
def test_acceptance_probabilities_reach_but_never_exceed_one(size: int) -> None:
    falls = np.r_[0.0, np.geomspace(0.1, 1e6, size - 1)]
    envelope = envelope_of(falls)
    assert (1 / (envelope + 2 * falls)).sum() == pytest.approx(1.0, rel=1e-9)
    logs = log_acceptance(np.linspace(0, 2 * size, 100_001), envelope, size)
    assert -1e-6 < logs.max() <= 1e-12


@pytest.mark.parametrize("size", [2, 5, 30, 200])
def test_enough_proposals_are_accepted_at_any_concentration(size: int) -> None:
    """By the mean probability of acceptance over proposals: at least .82/sqrt(size), so that 128 sqrt(size) suffice."""
    rng = np.random.default_rng(size)
    for falls in (
        np.r_[0.0, np.full(size - 1, 1e7)],
        np.r_[0.0, np.geomspace(1.0, 1e7, size - 1)],
        np.r_[np.zeros(size - 1), 1e7],
        np.r_[0.0, np.full(size - 1, 1.0)],
        np.zeros(size),
    ):
        envelope = envelope_of(falls)
        squares = np.square(rng.standard_normal((20_000, size)) / np.sqrt(1 + 2 * falls / envelope))
        accepted = np.exp(log_acceptance(squares @ falls / squares.sum(axis=1), envelope, size))
        assert accepted.mean() > 0.82 / math.sqrt(size)
    assert bingham.TRIES * 0.82 / math.log(2) > 150


@pytest.mark.slow
def test_an_axis_is_drawn_around_the_matrix_s_own_axes() -> None:
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    words = KeyStream.repeatable(2, "turned")
    drawn = np.stack([draw_axis(turn @ np.diag([5.0, 0.0]) @ turn.T + 100 * np.eye(2), words) for _ in range(4000)])
    assert fits(angles_of(drawn @ turn), circle_law(5.0))
    assert np.allclose(np.linalg.norm(drawn, axis=1), 1)


def test_how_many_words_a_draw_takes_says_nothing_of_the_data() -> None:
    taken = []
    for falls in ([0.0, 0.0, 0.0], [0.0, 1.0, 1e6]):
        stream, count = KeyStream.repeatable(3, "x"), [0]

        class Counting:
            def words(self, number: int, stream: KeyStream = stream, count: list[int] = count) -> NDArray[np.uint32]:
                count[0] += number
                return stream.words(number)

        draw_in_axes(np.array(falls), Counting())
        taken.append(count[0])
    assert taken[0] == taken[1]


def test_a_draw_that_finds_nothing_says_so_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bingham, "log_acceptance", lambda falling, *_: np.full(len(falling), -np.inf))
    with pytest.raises(AskAgainError):
        draws([0.0, 1.0], 1)
