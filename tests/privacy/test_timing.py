"""The processor time of an answer discloses nothing about its rows or its noise.

Tests compare only ranks of times, and only the processor time of this thread, so that a busy machine or a changing
clock rate causes no false alarms. Every test states the probability that it fails although time discloses nothing.
"""

import math
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.keystream import Draw, Purpose
from dpspca.common.privacy.noise import DiscreteGaussian, DiscreteLaplace
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.common.transport import wire
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Evaluator, Responder

FALSE_ALARM: Final = 1e-6


def seconds(work: Callable[[], object]) -> float:
    """Measure the processor time that this thread spends on some work."""
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 1e9


# --- Denormal numbers in a query -----------------------------------------------------------------------------------

DIMENSION: Final = 64
ROWS: Final = 2000
ODD: Final = slice(DIMENSION - 8, DIMENSION)
"""The rows of a basis that hold next to nothing: denormal numbers, or small ones of the ordinary kind."""
DENORMAL, ORDINARY = 2.0**-1070, 2.0**-800
SPEC: Final = JobSpec(
    schema=Schema(DIMENSION),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=4,
    explained_variance=False,
    options={"sparsity": DIMENSION, "rounds": 2},
    method="dps-pca",
)
PAIRS: Final = 60
TIMES: Final = 8
"""How often an answer is timed. Only the least counts, as what else a machine does can only make an answer longer."""
MARGIN: Final = 1.1
"""What a query may take longer than another without that being counted, as a factor.

Rounding the basis itself takes some microseconds more where it has denormal numbers, which whoever asks knows. That is
less than a tenth of an answer, and does not depend on rows.
"""
MOST: Final = int(stats.binom.isf(FALSE_ALARM, PAIRS, 0.5))
"""Of so many pairs one and the same may be slower. Which is asked first is a coin's choice: were times alike, the other
would have been slower as often, so that the number is at most binomial whatever else the machine does meanwhile."""


def asking(speck: float) -> CovarianceProduct:
    basis = np.zeros((DIMENSION, 4))
    basis[: ODD.start], _ = thin_qr(np.random.default_rng(0).standard_normal((ODD.start, 4)))
    basis[ODD] = speck
    return CovarianceProduct(basis)


def rows(*, empty: bool) -> NDArray[np.float64]:
    """Make rows; where the basis has next to nothing they have nothing either, or something."""
    made = np.random.default_rng(1).standard_normal((ROWS, DIMENSION))
    made[:, ODD] *= not empty
    return made


def shard(*, empty: bool) -> Shard:
    return Shard(check_rows(rows(empty=empty)), 4.0, threads=1)


def answering(over: Evaluator, query: RowQuery) -> float:
    """Measure what a provider spends on a query from its bytes to those of its answer, as its job's first."""
    content, announced = bytes(query.content()), query.announcement

    def once() -> float:
        responder = Responder(catalogue.plan(SPEC), over, MemoryLedger(), system_entropy)

        def answer() -> None:
            reader = wire.QueryReader(announced, responder._gate.plan[0])
            for sequence, frame in enumerate(wire.frames(content)):
                reader.add(sequence, bytes(frame))
            wire.answer_content(responder.respond(0, reader.query()))

        return seconds(answer)

    return min(once() for _ in range(TIMES))


def slower(first: Callable[[], float], second: Callable[[], float]) -> int:
    """Count the pairs in which the first took longer, by more than the margin."""
    coin, count = np.random.default_rng(), 0
    for turned in coin.integers(2, size=PAIRS):
        if turned:
            other = second()
            one = first()
        else:
            one = first()
            other = second()
        count += one > MARGIN * other
    return count


@pytest.mark.slow
def test_t04_denormal_numbers_in_a_basis_take_no_longer_than_others() -> None:
    """False alarm 1e-6. Multiplied as they are, these would make an answer take ten times as long and more."""
    over = shard(empty=False)
    assert slower(lambda: answering(over, asking(DENORMAL)), lambda: answering(over, asking(ORDINARY))) <= MOST


@pytest.mark.nightly
def test_t04_time_of_a_denormal_query_does_not_depend_on_zeros_in_rows() -> None:
    """False alarm 2e-6, half for each direction. Zero times a denormal number is quick, and any other number is not."""

    def over(*, empty: bool) -> Callable[[], float]:
        def fresh() -> float:  # rows anew each time: or where they lie in memory would decide all pairs alike
            made = shard(empty=empty)
            made.evaluate(asking(ORDINARY))  # what is made ready once is no part of it
            return answering(made, asking(DENORMAL))

        return fresh

    nothing, something = over(empty=True), over(empty=False)
    assert slower(something, nothing) <= MOST
    assert slower(nothing, something) <= MOST


@pytest.mark.nightly
def test_an_evaluator_whose_time_depends_on_denormals_is_found() -> None:
    """It takes ten times as long, as it would; and is missed only if twelve of sixty and more take no tenth longer."""

    class Leaky(Shard):
        def evaluate(self, query: RowQuery) -> Integers:
            assert isinstance(query, CovarianceProduct)
            if ((np.abs(query.basis) < np.finfo(float).tiny) & (query.basis != 0)).any():
                for _ in range(9):
                    super().evaluate(query)
            return super().evaluate(query)

    over = Leaky(check_rows(rows(empty=False)), 4.0, threads=1)
    assert slower(lambda: answering(over, asking(DENORMAL)), lambda: answering(over, asking(ORDINARY))) > MOST


# --- The time of a draw -----------------------------------------------------------------------------------------------

DRAWS: Final = 5000
MOST_AUC: Final = 0.55
LAWS: Final[dict[str, Callable[[float], Any]]] = {
    "gaussian": DiscreteGaussian.with_std_at_least,
    "laplace": DiscreteLaplace.with_scale_at_least,
}


def area(times: NDArray[np.float64], marked: NDArray[np.bool_]) -> float:
    """Give the probability that a marked draw took longer than another: the area under the ROC curve."""
    ranks = stats.rankdata(times)
    count = int(marked.sum())
    return float((ranks[marked].sum() - count * (count + 1) / 2) / (count * (marked.size - count)))


def told(draw: Callable[[], Integers]) -> float:
    """Say how well the times of draws tell which are large, or which have a positive sum."""
    draw()
    times, sizes, sums = np.empty((3, DRAWS))
    for at in range(DRAWS):
        begun = time.thread_time_ns()
        noise = draw()
        times[at] = time.thread_time_ns() - begun
        sizes[at], sums[at] = np.abs(noise).sum(dtype=np.float64), noise.sum(dtype=np.float64)
    areas = [area(times, each > np.median(each)) for each in (sizes, sums)]
    return max(max(found, 1 - found) for found in areas)


@pytest.mark.parametrize("count", [1, 24, 1024])
@pytest.mark.parametrize("width", [20.5, 2.0**20, 2.0**40])
@pytest.mark.parametrize("law", LAWS)
def test_t22_the_time_of_a_draw_does_not_disclose_its_size_or_sign(law: str, width: float, count: int) -> None:
    """False alarm 1e-9 for each of two queries, 4e-8 for all 18 cases together.

    Draws are independent of each other. Were they of their times too, whatever those are, the marked half would be any
    half with the same probability, and the area normal around 1/2 with a variance of (n + 1)/(3 n^2), but for ties,
    which lower it: 0.05 are 6.1 standard deviations.
    """
    assert 2 * stats.norm.sf((MOST_AUC - 0.5) / math.sqrt((DRAWS + 1) / (3 * DRAWS**2))) < 1e-9
    noise, entropy = LAWS[law](width), system_entropy(Draw("test", 0, 0, "", Purpose.NOISE))
    assert told(lambda: noise.sample(count, entropy)) <= MOST_AUC


def test_a_rejection_sampler_is_found() -> None:
    """Noise that is small is drawn anew by a sampler of the textbook: its time tells which is."""
    noise, entropy = DiscreteGaussian.with_std_at_least(300.0), system_entropy(Draw("test", 0, 0, "", Purpose.NOISE))

    def draw() -> Integers:
        drawn = noise.sample(24, entropy)
        for _ in range(int(np.abs(drawn).sum() > 24 * 300 * math.sqrt(2 / math.pi))):
            noise.sample(24, entropy)
        return drawn

    assert told(draw) > MOST_AUC
