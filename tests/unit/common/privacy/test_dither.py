"""Rounding errors of mechanisms in floating point against the bounds that their price rests on.

Draws are worked out again in 60 digits, from the same random words, which are read here by the documented layout.
"""

import math
import re
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from facts import facts, names_facts
from numpy.typing import NDArray

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, PlanOverBudgetError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import Step, events
from dpspca.common.privacy import continuous, dither
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.calibration import gaussian_delta
from dpspca.common.privacy.events import ApproximateEvent, PureEvent
from dpspca.common.privacy.keystream import KeyStream
from dpspca.common.privacy.noise import DRAW_SLACK
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.subspace import DrawnSubspace, PerturbedSubspace, PublishedSubspace
from dpspca.common.results import PrivacyStatement
from dpspca.provider.evaluate import bingham, mechanisms
from dpspca.provider.evaluate.mechanisms import release_subspace

mpmath.mp.dps = 60


class Written:
    """Hands out words that were written down, then those of a stream, and remembers all of them."""

    def __init__(self, first: list[int], seed: int = 0) -> None:
        self.first, self.stream, self.told = list(first), KeyStream.repeatable(seed, "written"), []

    def words(self, count: int) -> NDArray[np.uint32]:
        taken, self.first = self.first[:count], self.first[count:]
        drawn = np.concatenate([np.array(taken, np.uint32), self.stream.words(count - len(taken))])
        self.told.append(drawn)
        return drawn


class Zeros:
    """The words of the most extreme draw there is."""

    def words(self, count: int) -> NDArray[np.uint32]:
        return np.zeros(count, np.uint32)


def ideals(told: list[NDArray[np.uint32]], *, middle: bool = True) -> list[tuple[mpmath.mpf, int, int]]:
    """Read uniform numbers and their two coins off one draw's words: the middles of cells, or their lower ends."""
    pairs, further = told[0].reshape(-1, 2), iter(told[1].reshape(-1, 6) if len(told) > 1 else ())
    found = []
    for high, low in pairs.tolist():
        exact = Fraction((high << 30) + (low >> 2), 2**62)
        cell = Fraction(1, 2**62)
        if high < 2**20:
            cell /= 2**192
            for place, word in enumerate(next(further).tolist(), 1):
                exact += Fraction(word, 2 ** (62 + 32 * place))
        exact += cell / 2 if middle else 0
        found.append((mpmath.mpf(exact.numerator) / exact.denominator, 1 - 2 * (low & 1), 1 - (low & 2)))
    return found


def ideal_normal(uniform: mpmath.mpf, sign: int, half: int) -> mpmath.mpf:
    """The number at which the distribution function has the value that the words say; no inverse function is used."""
    if half > 0:
        return sign * mpmath.sqrt(2) * mpmath.erfinv(uniform / 2)
    tail = uniform / 4
    start = mpmath.sqrt(-2 * mpmath.log(tail)) if tail < 0.01 else mpmath.mpf("0.8")
    return sign * mpmath.findroot(lambda z: mpmath.log(mpmath.erfc(z / mpmath.sqrt(2)) / 2) - mpmath.log(tail), start)


def ideal_cauchy(uniform: mpmath.mpf, sign: int, half: int) -> mpmath.mpf:
    tangent = mpmath.tan(mpmath.pi / 4 * uniform)
    return sign * (tangent if half > 0 else 1 / tangent)


EXTREME = [0, 0, 0, 1, 0, 2, 0, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1, 2, 2**31, 0, 2**20, 2, 2**20 - 1, 2, 5, 7]


@pytest.mark.parametrize(("draw", "ideal"), [(continuous.normals, ideal_normal), (continuous.cauchys, ideal_cauchy)])
def test_every_number_is_next_to_the_ideal_one_also_in_the_tails(draw: object, ideal: object) -> None:
    words = Written(EXTREME)
    drawn = draw(64, words)  # type: ignore[operator]
    for middle in (True, False):
        for found, expected in zip(drawn, ideals(words.told, middle=middle), strict=True):
            if expected[0] < continuous.UNREACHED:
                continue  # of which the event pays for the probability
            exact = ideal(*expected)  # type: ignore[operator]
            # What lies within a cell is as close: near 1 a number of the next cell is as near zero as this one.
            assert abs(found - exact) <= abs(exact) * mpmath.mpf(2) ** -47 + mpmath.mpf(2) ** -61 * (expected[2] > 0)


def test_no_uniform_number_is_too_large_to_reach_where_probability_is_left() -> None:
    """With 53 bits nothing below 2^-54 was drawn, and no normal number beyond 8.3 deviations."""
    assert continuous.uniforms(1, Zeros())[0] < continuous.UNREACHED
    assert abs(continuous.normals(1, Written([0, 2, *[0] * 6]))[0]) > 16
    assert abs(continuous.cauchys(1, Written([0, 2, *[0] * 6]))[0]) > 2.0**204


def test_a_proposal_with_probability_exp_minus_100_can_be_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None below e^-37.43 was, ever: a set of probability 2.4e-21 over one data set had none over its neighbour."""
    monkeypatch.setattr(bingham, "log_acceptance", lambda falling, *_: np.full(len(falling), -100.0))
    assert np.isfinite(bingham.draw_in_axes(np.array([0.0, 50.0]), Zeros())).all()


def matrix(array: NDArray[np.float64]) -> mpmath.matrix:
    return mpmath.matrix(array.tolist())


def square_of(frame: mpmath.matrix, columns: int) -> mpmath.matrix:
    scaled = frame / max(mpmath.sqrt(columns), mpmath.mnorm(frame, "f"))
    return scaled * scaled.T


def exact_turn(drawn: list[mpmath.mpf], columns: int) -> mpmath.matrix:
    """Reflections that take an axis to a direction, or to its opposite, the sign being the direction's own."""
    turned = mpmath.eye(columns)
    for place in reversed(range(columns)):
        row = drawn[place * columns + place : (place + 1) * columns]
        length = mpmath.sqrt(mpmath.fsum(x * x for x in row))
        direction = mpmath.matrix([x / length for x in row])
        sign = 1 if direction[0] >= 0 else -1
        away = direction.copy()
        away[0] += sign
        reflected = mpmath.eye(len(row)) - away * away.T * (2 / (away.T * away)[0])
        whole = mpmath.eye(columns)
        for i in range(len(row)):
            for j in range(len(row)):
                whole[place + i, place + j] = reflected[i, j] * (-sign if j == 0 else 1)
        turned = whole * turned
    return turned


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["gaussian", "student", "cauchy"])
def test_a_perturbed_frame_drifts_less_than_the_noise_on_it_hides(kind: str, seed: int) -> None:
    """One factor is measured generously: the computed frame and scale stand for exact ones of a nearby matrix."""
    dimension, columns = 5, 2
    query = (PublishedSubspace if kind == "cauchy" else PerturbedSubspace)(dimension, None, columns)
    event = ApproximateEvent(1.0, 1e-6) if kind == "gaussian" else PureEvent(1.0)
    square = np.diag([500.0, 300.0, 90.0, 20.0, 1.0]) + seed
    words = Written([], seed)
    frame = mechanisms.perturb_frame(query, event, square, words)
    values, vectors = np.linalg.eigh(square)
    turns = [ideal_normal(*each) for each in ideals(words.told[: 1 + _further(words.told[0])])]
    rest = words.told[1 + _further(words.told[0]) :]
    drawn = [(ideal_cauchy if kind == "cauchy" else ideal_normal)(*each) for each in ideals(rest)]
    entries = dimension * columns
    if kind == "student":
        spread = mpmath.sqrt(mpmath.fsum(z * z for z in drawn[entries:]) / entries)
        drawn = [z / spread for z in drawn[:entries]]
    constants = mechanisms._constants(query, event, entries)
    scale = mechanisms.smooth.smooth_bound(values[-2] - values[-3], 1, 2, constants.beta) / constants.alpha
    noise = mpmath.matrix(dimension, columns)
    for place in range(entries):
        noise[place // columns, place % columns] = drawn[place] * scale
    exact = matrix(vectors[:, -columns:]) * exact_turn(turns, columns) + noise
    difference = square_of(matrix(frame), columns) - square_of(exact, columns)
    assert mpmath.mnorm(difference, "f") < dither.drift(dimension, columns) / 16


@pytest.mark.parametrize("falls", [[0.0, 5.0, 40.0], [0.0, 0.01, 1e6], [3.0, 0.0, 1e9]])
def test_an_axis_drifts_less_than_the_noise_on_it_hides(falls: list[float]) -> None:
    """The first proposal that exact arithmetic accepts is the one that was chosen, and is as good as the same."""
    words = Written([], int(falls[2]))
    axis = bingham.draw_in_axes(np.array(falls), words)
    envelope = mpmath.mpf(bingham.envelope_of(np.array(falls)))
    numbers = [ideal_normal(*each) for each in ideals(words.told[:2])]
    chances = ideals(words.told[2:])
    for place, (chance, _, _) in enumerate(chances):
        proposed = [z / mpmath.sqrt(1 + 2 * a / envelope) for z, a in zip(numbers[3 * place :], falls, strict=False)]
        length = mpmath.sqrt(mpmath.fsum(x * x for x in proposed))
        falling = mpmath.fsum(a * (x / length) ** 2 for x, a in zip(proposed, falls, strict=True))
        log_most = (3 - envelope) / 2 - mpmath.mpf("1.5") * mpmath.log(3 / envelope)
        if mpmath.log(chance) < log_most - falling + mpmath.mpf("1.5") * mpmath.log(1 + 2 * falling / envelope):
            exact = mpmath.matrix([x / length for x in proposed])
            break
    difference = square_of(matrix(axis[:, None]), 1) - square_of(exact, 1)
    assert mpmath.mnorm(difference, "f") < dither.drift(3, 1) / 16


def _further(first: NDArray[np.uint32]) -> int:
    return int((first[0::2] < 2**20).any()) or 1  # a draw always asks for further words, if only for none


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 48.0])
@pytest.mark.parametrize(("dimension", "columns"), [(2, 1), (100, 10), (2048, 100)])
def test_the_noise_hides_the_drift_for_a_quarter_of_what_is_left_of_epsilon(
    dimension: int, columns: int, epsilon: float
) -> None:
    width = dither.deviation(dimension, columns, epsilon)
    spent = epsilon * dither.ROUNDING_SHARE / 4
    assert gaussian_delta(spent, dither.drift(dimension, columns) / width) < 2.0**-165
    left = dither.mechanism_event(ApproximateEvent(epsilon, 1e-6))
    assert left.epsilon + 2 * spent < epsilon
    assert math.exp(spent) * left.delta < 1e-6
    assert dither.deviation(dimension, columns, dither.least_epsilon(dimension, columns)) < 1


def test_what_is_missed_is_part_of_the_slack() -> None:
    """Numbers drawn from where places are missing, over all proposals that are expected, and draws that fail."""
    for dimension in (1, 50, 2048):
        proposals = 2 * dimension * math.ceil(bingham.TRIES * math.sqrt(dimension)) * (dimension + 1)
        failing = dimension * math.exp(-bingham.ROUNDS * bingham.TRIES * 0.002)
        missed = Fraction(proposals * continuous.UNREACHED) + Fraction(failing)
        assert missed <= dither.MISS_PROBABILITY
        drawn = Fraction(DRAW_SLACK) * dimension * (dimension + 1) / 2
        assert Fraction(dither.slack(dimension)) >= drawn + 2 * missed + Fraction(2.0**-165)
        assert dither.slack(dimension) < 1e-41  # as the statement says


def test_the_noise_is_in_what_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same draw of the mechanism is released differently each time, and by more than its drift."""
    frame = np.eye(4)[:, :1]
    monkeypatch.setattr(mechanisms, "_subspace", lambda *_: frame)
    squares = [dither.noisy_projection(frame, 1.0, KeyStream.repeatable(seed, "")) for seed in range(200)]
    off = np.stack([square[np.triu_indices(4)] for square in squares])
    expected = dither.deviation(4, 1, 1.0) * 2**dither.PLACES
    # 2,000 draws: the deviation is known to 1.6 %, so that 9 % are 5.6 deviations, a false alarm below 1e-7.
    assert off.std(axis=0).mean() == pytest.approx(expected, rel=0.09)
    assert all((square == square.T).all() for square in squares)
    answers = {
        release_subspace(
            DrawnSubspace(4), PureEvent(0.001), np.eye(4, dtype=np.int64), 1, KeyStream.repeatable(s, "")
        ).tobytes()
        for s in range(20)
    }
    assert len(answers) == 20


def job(budget: Budget, method: str = "ppca") -> JobSpec:
    return JobSpec(
        schema=Schema(6),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=budget,
        norm_bound=1.0,
        components=2,
        method=method,
    )


def planned(budget: Budget, method: str) -> tuple[Step, ...]:
    return catalogue.plan(job(budget, method))


def number_in(text: str) -> str:
    """Return the last number with an exponent in a message."""
    return re.findall(r"[\d.]+e-\d+", text)[-1]


@pytest.mark.parametrize("method", ["ppca", "output-perturbation", "sulq", "analyze-gauss"])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_a_delta_too_small_for_the_draws_is_refused_with_the_least_one(method: str, epsilon: float) -> None:
    with pytest.raises(PlanOverBudgetError, match=facts(1e-60)) as caught:
        planned(Budget(epsilon, 1e-60), method)
    least = float(number_in(caught.value.remedy))
    listed = events(planned(Budget(epsilon, least), method))
    assert compose(listed).delta(epsilon) <= least
    with pytest.raises(PlanOverBudgetError, match=facts(f"{least:g}", f"{0.98 * least:g}")):
        planned(Budget(epsilon, 0.98 * least), method)


@pytest.mark.parametrize("method", ["ppca", "output-perturbation"])
def test_no_mechanism_in_floating_point_is_purely_private_by_its_price(method: str) -> None:
    """Also a pure mechanism's event says how far it is from its ideal, and every step is charged for it."""
    listed = events(planned(Budget(1.0, 1e-30), method))
    (released,) = (event for event in listed if isinstance(event, PureEvent))
    assert released.slack == dither.slack(6)
    assert compose([released]).delta(released.epsilon) >= (1 + math.exp(released.epsilon)) * dither.slack(6)
    assert compose([released]).epsilon(0.0) == math.inf


def test_an_epsilon_too_small_for_rounding_is_refused_with_the_least_one() -> None:
    from dataclasses import replace  # noqa: PLC0415

    def plan(epsilon: float) -> tuple[Step, ...]:
        return catalogue.plan(replace(job(Budget(epsilon, 1e-9)), explained_variance=False))

    with pytest.raises(InvalidParameterError, match=facts("epsilon 1e-08")) as caught:
        plan(1e-8)
    least = float(number_in(caught.value.what))
    assert plan(least * 1.01)


def test_the_statement_says_that_rounding_is_part_of_the_promise() -> None:
    spec = job(Budget(1.0, 1e-30))
    statement = PrivacyStatement.of(catalogue.plan(spec), parties=1, fresh_noise=True)
    assert statement.caveat == PerturbedSubspace.caveat
    assert names_facts(statement.caveat, "256th", "1e-41")
    assert statement.caveat in statement.text
