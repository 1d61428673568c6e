"""The mechanisms from outside: what they release, its law, and that neighbours are as hard to tell apart as promised.

False alarm: 1e-6 for each test of a law or of probabilities; the words are fixed.
"""

import math

import numpy as np
import pytest
from facts import facts
from numpy.typing import NDArray
from scipy import stats

from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import AskAgainError, InvalidQueryError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy import audit, smooth
from dpspca.common.privacy.events import ApproximateEvent, Event, GaussianEvent, PureEvent
from dpspca.common.privacy.keystream import KeyStream, repeatable_entropy
from dpspca.common.privacy.smooth import Constants
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.subspace import (
    SUBSPACE_QUERIES,
    DrawnSubspace,
    PerturbedSubspace,
    PublishedSubspace,
    SubspaceQuery,
    WalkedSubspace,
    WeightedDrawnSubspace,
    WeightedPerturbedSubspace,
)
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate import bingham, mechanisms
from dpspca.provider.evaluate.mechanisms import draw_frame, exponent, release_subspace, walk_frame
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder

ALARM = 1e-6
RUNS = 1500
SQUARE = 2**34
"""A row of norm one, squared, in a provider's integers."""


def gram(*values: float) -> NDArray[np.int64]:
    return np.diag((np.array(values) * SQUARE).astype(np.int64))


def angles(query: SubspaceQuery, event: Event, square: NDArray[np.int64], seed: int = 0) -> np.ndarray:
    """Angles of released lines in the plane, in [-pi/2, pi/2]."""
    words = KeyStream.repeatable(seed, f"{query.kind}{event}{square.tolist()}")
    found = np.stack([release_subspace(query, event, square, 1, words) for _ in range(RUNS)])
    return np.arctan2(2 * found[:, 0, 1], found[:, 0, 0] - found[:, 1, 1]) / 2


def reference(gap: float, step: int, event: Event, seed: int, factor: float = 1.0) -> np.ndarray:
    """The same from numpy's own generator, written down anew for one axis of the plane."""
    rng = np.random.default_rng(seed)
    if isinstance(event, ApproximateEvent):
        constants = smooth.gaussian_constants(2, event.epsilon, event.delta)
        noise = rng.standard_normal((RUNS, 2))
    else:
        constants = smooth.student_constants(2, event.epsilon)
        noise = rng.standard_normal((RUNS, 2)) / np.sqrt(rng.chisquare(2, (RUNS, 1)) / 2)
    scale = factor * smooth.smooth_bound(gap, step, 1, constants.beta) / constants.alpha
    noisy = np.array([1.0, 0.0]) + scale * noise
    return np.arctan(noisy[:, 1] / noisy[:, 0])


PRICES: list[Event] = [PureEvent(1.0), ApproximateEvent(1.0, 1e-4)]


@pytest.mark.parametrize("event", PRICES)
@pytest.mark.parametrize(("query", "step"), [(PerturbedSubspace(2), 1), (WeightedPerturbedSubspace(2), 2)])
def test_a_perturbed_axis_has_noise_of_the_smooth_bound(query: PerturbedSubspace, step: int, event: Event) -> None:
    found = angles(query, event, gram(310, 10))
    assert stats.ks_2samp(found, reference(300, step, event, 1)).pvalue > ALARM
    # Noise half as wide would be noticed by the same test.
    assert stats.ks_2samp(found, reference(300, step, event, 1, factor=0.5)).pvalue < ALARM


def test_published_pure_noise_is_cauchy_of_the_paper_s_scale() -> None:
    event = PureEvent(1.0)
    rng = np.random.default_rng(2)
    bound = smooth.smooth_bound(50, 1, 1, 1 / 12)
    noise = 6 * math.sqrt(2) * bound * rng.standard_cauchy((RUNS, 2))
    noisy = np.stack([rng.choice([-1.0, 1.0], RUNS), np.zeros(RUNS)], axis=1) + noise
    found = angles(PublishedSubspace(2), event, gram(60, 10))
    assert stats.ks_2samp(found, np.arctan(noisy[:, 1] / noisy[:, 0])).pvalue > ALARM


def test_published_approximate_noise_is_normal_of_the_paper_s_scale() -> None:
    event = ApproximateEvent(1.0, 1e-4)
    rng = np.random.default_rng(3)
    tail = math.log(2e4)
    scale = 5 * smooth.smooth_bound(300, 1, 1, 1 / (4 * (2 + tail))) * math.sqrt(2 * tail)
    noisy = np.array([1.0, 0.0]) + scale * rng.standard_normal((RUNS, 2))
    found = angles(PublishedSubspace(2), event, gram(310, 10))
    assert stats.ks_2samp(found, np.arctan(noisy[:, 1] / noisy[:, 0])).pvalue > ALARM


def told_apart(some: np.ndarray, others: np.ndarray, claim: tuple[float, float]) -> float:
    """Probability of what is found under the claim: for the wedge of angles that the first half tells best."""
    edges = np.linspace(-math.pi / 2, math.pi / 2, 25)
    counts = [np.histogram(part[::2], edges)[0] for part in (some, others)]
    likelier = counts[0] > math.exp(claim[0]) * counts[1]
    inside = [likelier[np.clip(np.digitize(part[1::2], edges) - 1, 0, 23)] for part in (some, others)]
    return audit.event("", *inside, claim, ALARM).probability


NEIGHBOURS: list[tuple[SubspaceQuery, NDArray[np.int64]]] = [
    (PerturbedSubspace(2), gram(4, 1)),
    (DrawnSubspace(2), gram(4, 1)),
    (WeightedPerturbedSubspace(2), gram(4, 2) + np.array([[0, SQUARE], [SQUARE, 0]])),
    (WeightedDrawnSubspace(2), gram(3, 2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("query", "other"), NEIGHBOURS)
def test_neighbours_angles_differ_no_more_than_the_event_allows(query: SubspaceQuery, other: NDArray[np.int64]) -> None:
    """Rows by which small squares differ: (4, 0) against (4, 1), or one turned; a black box but for its answers."""
    event = PureEvent(0.5)
    some, others = angles(query, event, gram(4, 0), seed=1), angles(query, event, other, seed=2)
    assert told_apart(some, others, (0.5, 0.0)) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("query", [DrawnSubspace(2), WeightedDrawnSubspace(2)])
def test_an_exponent_eight_times_too_large_would_be_told_apart(
    query: SubspaceQuery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The densities of one row, and of another or none, then differ by e^2 and more, where e^(1/2) was promised."""
    monkeypatch.setattr(mechanisms, "exponent", lambda query, epsilon: 8 * exponent(query, epsilon))
    some, others = (angles(query, PureEvent(0.5), each) for each in (gram(0, query.step - 1), gram(1, 0)))
    assert told_apart(some, others, (0.5, 0.0)) < ALARM


def test_noise_that_ignores_how_the_gap_may_shrink_would_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours with a gap and all but without: noise of the local sensitivity alone gives them away."""
    monkeypatch.setattr(smooth, "student_constants", lambda *_: Constants(10.0, 10.0))
    some, others = (angles(PerturbedSubspace(2), PureEvent(0.5), each) for each in (gram(2, 0), gram(2, 1)))
    assert told_apart(some, others, (0.5, 0.0)) < ALARM


@pytest.mark.nightly
def test_a_chain_of_two_axes_has_its_target_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plane of density exp(tr(V^T W V)) misses the axis w with probability proportional to exp(-w^T W w)."""
    monkeypatch.setattr(mechanisms, "BURN_IN", 15)
    weight = np.diag([3.0, 1.0, 0.0])
    words = KeyStream.repeatable(4, "chain")
    missed = []
    for _ in range(300):
        plane = walk_frame(weight, 2, words)
        missed.append(1 - np.square(plane).sum(axis=1))
    heights = np.linspace(0, 1, 1001)
    around = np.linspace(0, 2 * math.pi, 721)[:-1]
    logs = -3 * heights[:, None] ** 2 - (1 - heights[:, None] ** 2) * np.cos(around) ** 2
    summed = np.cumsum(np.exp(logs).mean(axis=1))
    found = np.sqrt(np.clip(np.array(missed)[:, 0], 0, 1))
    assert stats.kstest(found, lambda at: np.interp(at, heights, summed / summed[-1])).pvalue > ALARM


@pytest.mark.slow
def test_each_axis_is_drawn_in_the_complement_for_its_share_of_epsilon() -> None:
    """In space, with half of the weight each: the second axis as an independent reading of the method draws it."""
    weight = np.diag([8.0, 2.0, 0.0])
    words, rng = KeyStream.repeatable(5, "axes"), np.random.default_rng(6)
    found = np.stack([draw_frame(weight, 2, words) for _ in range(3000)])
    cells = rng.standard_normal((200_000, 3))
    cells /= np.linalg.norm(cells, axis=1)[:, None]
    logs = np.einsum("ni,ij,nj->n", cells, weight / 2, cells)
    first = cells[np.log(rng.random(len(cells))) < logs - 4.0][:3000]
    second = []
    for axis in first:
        beside = np.linalg.svd(axis[None])[2][1:]
        left = beside @ weight @ beside.T / 2
        circle = np.linspace(0, math.pi, 400)[:-1]
        ways = np.stack([np.cos(circle), np.sin(circle)])
        chances = np.exp(np.einsum("in,ij,jn->n", ways, left, ways))
        second.append(ways[:, rng.choice(399, p=chances / chances.sum())] @ beside)
    for place in range(3):
        assert stats.ks_2samp(found[:, place, 0] ** 2, first[:, place] ** 2).pvalue > ALARM
        assert stats.ks_2samp(found[:, place, 1] ** 2, np.array(second)[:, place] ** 2).pvalue > ALARM


@pytest.mark.parametrize("kind", SUBSPACE_QUERIES)
@pytest.mark.parametrize("columns", [1, 3, 5])
def test_the_answer_is_a_lattice_projection_weighted_by_public_counts(kind: type[SubspaceQuery], columns: int) -> None:
    query = kind(5, None, columns)
    words = KeyStream.repeatable(7, query.kind)
    answer = release_subspace(query, PureEvent(2.0), gram(50, 20, 10, 1, 0), 81, words)
    assert answer.shape == (5, 5)
    assert answer.dtype == np.int64
    projection = answer / (81 if query.weighted else 1) * 2.0**-30
    assert query.weighted == ("weighted" in query.kind)
    assert np.allclose(projection, projection.T)
    assert np.allclose(projection @ projection, projection, atol=1e-7)
    assert np.trace(projection) == pytest.approx(columns)


@pytest.mark.parametrize("query", SUBSPACE_QUERIES)
def test_the_whole_space_is_released_without_noise(
    query: type[SubspaceQuery],
) -> None:
    answer = release_subspace(query(3, None, 3), PureEvent(0.1), gram(3, 2, 1), 1, KeyStream.repeatable(8, ""))
    assert np.allclose(answer * 2.0**-30, np.eye(3), atol=1e-8)


@pytest.mark.parametrize("query", SUBSPACE_QUERIES)
def test_with_a_large_budget_the_eigenvectors_come_back(query: type[SubspaceQuery]) -> None:
    rows = np.random.default_rng(9).standard_normal((20_000, 4)) * [0.3, 0.2, 0.05, 0.01]
    shard = Shard(check_rows(rows), 1.0)
    answer = shard.release(query(4, None, 2), PureEvent(40.0), KeyStream.repeatable(9, ""))
    projection = answer * 2.0**-30 / (len(rows) if query(2).weighted else 1)
    assert np.allclose(projection, np.diag([1.0, 1, 0, 0]), atol=0.1)


def test_a_failed_draw_is_answered_when_asked_again_free_of_charge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = JobSpec(
        schema=Schema(3),
        unit=PrivacyUnit.ROW_ADD_REMOVE,
        budget=Budget(1.0, 1e-30),
        norm_bound=1.0,
        components=1,
        method="ppca",
        explained_variance=False,
    )
    shard, ledger = Shard(check_rows(np.eye(3)), 1.0), MemoryLedger()
    responder = Responder(catalogue.plan(job), shard, ledger, repeatable_entropy(11))
    with monkeypatch.context() as patched:
        patched.setattr(bingham, "log_acceptance", lambda falling, *_: np.full(len(falling), -np.inf))
        with pytest.raises(AskAgainError):
            responder.respond(0, DrawnSubspace(3))
    paid = ledger.standing(job.digest())
    answer = responder.respond(0, DrawnSubspace(3))
    assert paid is not None
    assert ledger.standing(job.digest()) == paid
    assert (responder.respond(0, DrawnSubspace(3)) == answer).all()


@pytest.mark.parametrize("unit", [PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE])
@pytest.mark.parametrize("method", ["ppca", "output-perturbation"])
def test_many_rows_outweigh_few_only_where_their_numbers_are_public(method: str, unit: PrivacyUnit) -> None:
    """One provider has two thirds of all rows, two others the rest, along another axis."""
    many, few = np.tile(np.eye(3)[0], (4000, 1)), np.tile(np.eye(3)[1], (1000, 1))
    job = JobSpec(
        schema=Schema(3),
        unit=unit,
        budget=Budget(20.0, 1e-6),
        norm_bound=1.0,
        components=1,
        method=method,
        explained_variance=False,
    )
    (found,) = np.abs(simulate([many, few, few], job, noise_seed=1).components)
    assert found[0 if unit is PrivacyUnit.ROW_REPLACE_ONE else 1] > 0.95


@pytest.mark.parametrize(
    ("query", "event"),
    [
        (DrawnSubspace(3), ApproximateEvent(1.0, 1e-6)),
        (WalkedSubspace(3), None),
        (PerturbedSubspace(3), GaussianEvent(1.0, 1.0)),
        (PerturbedSubspace(3), None),
    ],
)
def test_a_price_that_a_mechanism_cannot_keep_is_refused(query: SubspaceQuery, event: Event | None) -> None:
    with pytest.raises(InvalidQueryError, match=facts(f"'{query.kind}'")):
        release_subspace(query, event, gram(3, 2, 1), 3, KeyStream.repeatable(10, ""))
