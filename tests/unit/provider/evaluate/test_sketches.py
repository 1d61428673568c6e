"""A provider's part in a sketch: nobody chooses its directions, nothing is drawn twice, and no map stretches it."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.range_projection import columns_of, stretch_failure, whitening
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError, InvalidQueryError, LostDrawsError, RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import slack_units
from dpspca.common.privacy.directions import (
    DIRECTION_BITS,
    NONCE_WORDS,
    STRETCH_TAIL,
    Words,
    commitment,
    directions,
    directions_key,
)
from dpspca.common.privacy.events import ApproximateEvent, GaussianEvent
from dpspca.common.privacy.keystream import repeatable_entropy
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.sketch import SEATS, WEIGHT_BITS, Commit, Peaks, Projection, Reveal, Sketch
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_csr, integer_rows
from dpspca.provider.evaluate.moments import DenseRows, SparseRows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.sketches import SketchAnswers, add_sketch, gram_of, project, round_sketch, weights
from dpspca.provider.ledger.ledger import Ledger, LedgerError, Limits, MemoryLedger, Opening
from dpspca.provider.release.responder import Responder

DIMENSION, COUNT = 12, 40
DATA = np.random.default_rng(7).standard_normal((COUNT, DIMENSION))
COMMIT, REVEAL, SKETCH, PEAKS, REACH, PROJECT = range(6)


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(DIMENSION),
        "unit": "row-replace-one",
        "budget": Budget(4.0, 1e-6),
        "norm_bound": 3.0,
        "components": 2,
        "method": "range-projection",
        "explained_variance": False,
        "options": {"oversampling": 3},
    }
    return JobSpec(**good | changes)


COLUMNS = columns_of(spec())


class Job:
    """One provider, asked step by step by a coordinator that may do as it likes."""

    def __init__(
        self,
        ledger: Ledger | None = None,
        seat: int = 1,
        seed: int = 0,
        what: JobSpec | None = None,
        rows: np.ndarray = DATA,
    ) -> None:
        self.ledger = ledger or MemoryLedger()
        self.what, self.seat, self.rows = what or spec(), seat, rows
        self.start(seed)

    def start(self, seed: int) -> None:
        """Start the provider, as after a power failure: the ledger is what is left."""
        shard = Shard(check_rows(self.rows), self.what.norm_bound)
        entropy = repeatable_entropy(seed)
        self.responder = Responder(
            catalogue.plan(self.what), shard, self.ledger, entropy, job="the job", seat=self.seat
        )

    def ask(self, position: int, query: RowQuery) -> Integers:
        return self.responder.respond(position, query)

    def committed(self) -> Words:
        return self.ask(COMMIT, Commit()).astype(np.uint32)

    def revealed(self) -> Words:
        return self.ask(REVEAL, Reveal(self.committed())).astype(np.uint32)

    def sketched(self) -> Integers:
        return self.ask(SKETCH, Sketch(self.revealed(), DIMENSION, COLUMNS))

    def scaled(self) -> np.ndarray:
        basis = whitening(self.sketched().astype(float))
        self.ask(PEAKS, Peaks(basis))
        self.ask(REACH, Peaks(basis))
        return basis


def changed(words: Words, seat: int) -> Words:
    other = words.copy()
    other[seat, 0] ^= 1
    return other


def refused(*named: object) -> Any:
    return pytest.raises(RefusedError, match=facts(*named))


# --- Directions that nobody chose -------------------------------------------------------------------------------------


def test_a_provider_answers_in_its_own_slot_and_in_no_other() -> None:
    job = Job(seat=5)
    for words in (job.committed(), job.revealed()):
        assert words[5].any()
        assert not np.delete(words, 5, axis=0).any()


def test_a_commitment_is_a_hash_of_the_nonce_and_the_job() -> None:
    commitments = {Job(seed=seed).committed().tobytes() for seed in range(20)}
    assert len(commitments) == 20
    same_nonce = {Job(seed=0, what=spec(seed=seed)).committed().tobytes() for seed in range(20)}
    assert len(same_nonce) == 20
    assert len({Job(seat=seat).committed()[seat].tobytes() for seat in range(20)}) == 20


def test_a_list_without_the_provider_s_own_commitment_is_refused() -> None:
    job = Job()
    listed = job.committed()
    before = job.ledger.standing("the job")
    for wrong in (changed(listed, 1), np.roll(listed, 1, axis=0), np.zeros_like(listed)):
        with refused("commitment", "place 2"):
            job.ask(REVEAL, Reveal(wrong))
    assert job.ledger.standing("the job") == before
    assert job.ask(REVEAL, Reveal(listed)).any()


def test_a_nonce_is_shown_for_one_list_alone() -> None:
    job = Job()
    listed = job.committed()
    job.ask(REVEAL, Reveal(listed))
    with refused("Query 2"):
        job.ask(REVEAL, Reveal(changed(listed, 9)))


def test_a_nonce_that_does_not_open_its_commitment_is_refused() -> None:
    job = Job()
    nonces = job.revealed()
    before = job.ledger.standing("the job")
    for seat in (0, 1, 2, SEATS - 1):
        with refused(f"provider {seat + 1}", "committed"):
            job.ask(SKETCH, Sketch(changed(nonces, seat), DIMENSION, COLUMNS))
    assert job.ledger.standing("the job") == before
    assert job.ask(SKETCH, Sketch(nonces, DIMENSION, COLUMNS)).any()


def test_a_commitment_that_somebody_does_not_open_ends_the_job_for_all() -> None:
    """Else whoever reveals last could choose between two sets of directions."""
    first, other = Job(seat=1, seed=1), Job(seat=3, seed=2)
    listed = first.committed() + other.committed()
    mine, theirs = (job.ask(REVEAL, Reveal(listed)).astype(np.uint32) for job in (first, other))
    with refused("provider 4", "committed"):
        first.ask(SKETCH, Sketch(mine, DIMENSION, COLUMNS))
    with refused("provider 4", "committed"):
        first.ask(SKETCH, Sketch(changed(mine + theirs, 3), DIMENSION, COLUMNS))
    assert first.ask(SKETCH, Sketch(mine + theirs, DIMENSION, COLUMNS)).any()


def test_a_sketch_is_made_once_whatever_nonces_are_sent_afterwards() -> None:
    job = Job()
    nonces = job.revealed()
    first = job.ask(SKETCH, Sketch(nonces, DIMENSION, COLUMNS))
    assert (job.ask(SKETCH, Sketch(nonces, DIMENSION, COLUMNS)) == first).all()
    with refused("Query 3"):
        job.ask(SKETCH, Sketch(changed(nonces, 1), DIMENSION, COLUMNS))


def test_directions_follow_from_all_nonces_and_the_job_on_every_machine() -> None:
    nonces = np.arange(SEATS * NONCE_WORDS, dtype=np.uint32).reshape(SEATS, NONCE_WORDS)
    key = directions_key("job", nonces)
    others = {directions_key("job", changed(nonces, seat)) for seat in range(SEATS)} | {directions_key("jo", nonces)}
    assert len(others | {key}) == SEATS + 2
    drawn = directions(key, 300, 4)
    assert (drawn == directions(key, 300, 4)).all()
    assert drawn[:2].tolist() == STORED
    assert np.std(drawn) / 2**DIRECTION_BITS == pytest.approx(1, abs=0.15)


STORED = [[2222.0, 3108.0, 3461.0, -1234.0], [-3488.0, 4304.0, 768.0, -3162.0]]
"""What every version and every machine draws from that key."""


def test_two_providers_make_the_same_directions_of_the_same_nonces() -> None:
    """Of rows that both have, sketches are alike but for noise: a seventeenth of each one's variance is rows.

    A correlation over 100,000 numbers has standard deviation .0032: false alarm at nine of them, below 1e-6.
    """
    large = spec(budget=Budget(40.0, 0.5))
    rows = np.random.default_rng(5).standard_normal((20_000, DIMENSION))
    jobs = [Job(seat=seat, seed=seat, what=large, rows=5 * rows) for seat in (0, 1)]
    listed = sum(job.committed() for job in jobs)
    nonces = sum(job.ask(REVEAL, Reveal(listed)).astype(np.uint32) for job in jobs)
    for job in jobs:
        job.ask(SKETCH, Sketch(nonces, DIMENSION, COLUMNS))
    first, second = (job.responder._sketch._sketch.ravel() for job in jobs)  # type: ignore[union-attr]
    assert np.corrcoef(first, second)[0, 1] > 0.03


# --- What was drawn is drawn once -------------------------------------------------------------------------------------


def following(answers: list[Integers]) -> RowQuery:
    """Ask what an honest coordinator of one provider would ask next."""
    match len(answers):
        case 0:
            return Commit()
        case 1:
            return Reveal(answers[COMMIT].astype(np.uint32))
        case 2:
            return Sketch(answers[REVEAL].astype(np.uint32), DIMENSION, COLUMNS)
        case position:
            basis = whitening(answers[SKETCH].astype(float))
            return Peaks(basis) if position < PROJECT else Projection(basis, DIMENSION, 1.0)


@pytest.mark.parametrize("stop", [REVEAL, SKETCH, PEAKS, REACH, PROJECT])
def test_after_a_restart_the_job_is_refused_and_nothing_is_drawn_again(stop: int) -> None:
    """A second sketch, or a second nonce, would be a second release for the price of one."""
    job = Job()
    answers: list[Integers] = []
    while len(answers) < stop:
        answers.append(job.ask(len(answers), following(answers)))
    job.start(seed=99)
    before = job.ledger.standing("the job")
    for position in range(stop):
        assert (job.ask(position, following(answers[:position])) == answers[position]).all()
    with pytest.raises(LostDrawsError):
        job.ask(stop, following(answers))
    assert job.ledger.standing("the job") == before


class Failing(MemoryLedger):
    """A ledger whose disk is full when a sketch is to be stored."""

    broken = True

    def store(self, job: str, position: int, answer: Integers) -> None:
        if position == SKETCH and self.broken:
            raise LedgerError("The disk is full.", "Make room.")
        super().store(job, position, answer)


def test_a_sketch_that_was_lost_is_not_made_again() -> None:
    ledger = Failing()
    job = Job(ledger)
    query = Sketch(job.revealed(), DIMENSION, COLUMNS)
    with pytest.raises(LedgerError):
        job.ask(SKETCH, query)
    job.responder._entropy = repeatable_entropy(99)  # a true source would give other words for another draw
    made = job.responder._sketch._sketch.copy()  # type: ignore[union-attr]
    ledger.broken = False
    job.ask(SKETCH, query)
    assert (job.responder._sketch._sketch == made).all()  # type: ignore[union-attr]


def test_one_that_was_lost_with_its_process_is_not_made_again_either() -> None:
    ledger = Failing()
    job = Job(ledger)
    query = Sketch(job.revealed(), DIMENSION, COLUMNS)
    with pytest.raises(LedgerError):
        job.ask(SKETCH, query)
    ledger.broken = False
    job.start(seed=99)
    with pytest.raises(LostDrawsError):
        job.ask(SKETCH, query)


def test_copies_of_a_provider_draw_unrelated_noise_for_other_directions() -> None:
    """Both drew one nonce, as copies do, and here they read the same bytes from the system as well.

    Rows are zero, so a sketch is its noise. A correlation of n pairs is nearly normal with deviation 1/sqrt(n): false
    alarm 2e-9 at six of them. Equal noise would cancel, and leave a row along the difference of the directions.
    """
    copies = [Job(seat=1, rows=np.zeros((3000, DIMENSION))) for _ in range(2)]
    assert (copies[0].committed() == copies[1].committed()).all()
    for number, job in enumerate(copies):
        listed, theirs = job.committed(), bytes([number] * 32)
        listed[3] = np.frombuffer(commitment(job.what.digest(), 3, theirs), dtype="<u4")
        nonces = job.ask(REVEAL, Reveal(listed)).astype(np.uint32)
        nonces[3] = np.frombuffer(theirs, dtype="<u4")
        job.ask(SKETCH, Sketch(nonces, DIMENSION, COLUMNS))
    first, second = (job.responder._sketch._sketch.ravel() for job in copies)  # type: ignore[union-attr]
    assert abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(first.size) < 6
    assert np.mean(first == second) < 0.01


def test_knowing_a_nonce_gives_no_bad_directions_in_2_to_the_60_tries() -> None:
    """As it may if a provider was copied: each try is unlucky with probability ``STRETCH_TAIL``, whatever is sought."""
    assert 2.0**60 * STRETCH_TAIL < 1e-12


# --- What it costs ----------------------------------------------------------------------------------------------------


def opened(ledger: MemoryLedger, job: str) -> None:
    what = Opening(job, "cohort", "", "ada", "", 0.0, 0.0, 1 << 90, 1 << 170, 0, 1 << 60, "")
    ledger.open(what, Limits(Filter.for_budget(10.0, 1e-5), None))


def test_stopping_once_the_directions_are_known_still_costs_the_sketch() -> None:
    """Else it could try until chance fails: each attempt may be the unlucky one, and only the last would be paid."""
    reveal = catalogue.plan(spec())[REVEAL]
    assert reveal.event == ApproximateEvent(0.0, stretch_failure(spec()))
    job = Job()
    job.committed()
    assert job.ledger.standing("the job").spent.slack_units == 0  # type: ignore[union-attr]
    job.revealed()
    job.ledger.close("the job", "cancelled")
    spent = job.ledger.standing("the job").spent  # type: ignore[union-attr]
    assert (spent.units, spent.slack_units) == (0, slack_units([ApproximateEvent(0.0, stretch_failure(spec()))]))


def test_a_lifetime_of_epsilon_20_has_slack_for_thousands_of_attempts() -> None:
    kept = Filter.for_budget(20.0, 1e-6)
    assert kept.whole.slack_units > 2000 * slack_units([ApproximateEvent(0.0, stretch_failure(spec()))])


# --- No map stretches a row ---------------------------------------------------------------------------------------


MAPS = {
    "huge": np.full((5, 5), 1e308),
    "tiny": np.full((5, 5), 5e-324),
    "mixed": np.diag([1e300, 1e-300, 1.0, 0.0, -1e150]),
    "equal columns": np.full((5, 5), 1e-5),
    "zero": np.zeros((5, 5)),
    "one column": np.eye(5) * 1e-4,
}


@pytest.mark.parametrize("name", MAPS)
def test_no_row_seen_through_a_map_is_longer_than_its_reach(name: str) -> None:
    sketch = np.random.default_rng(1).integers(-(2**16) + 1, 2**16, (60, 5)).astype(np.int32)
    seen = weights(sketch, MAPS[name])
    assert np.isfinite(seen).all()
    assert (seen == np.rint(seen)).all()
    assert np.abs(seen).max() <= 2**WEIGHT_BITS


@pytest.mark.parametrize("reach", [2.0**-20, 0.3, 1.0, float(np.sqrt(5))])
@pytest.mark.parametrize("name", MAPS)
def test_replacing_a_row_moves_a_projection_within_its_price_for_any_map(name: str, reach: float) -> None:
    """The neighbour has the opposite row, the furthest that there is, in the place of each row in turn."""
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((30, 4))
    rows *= 3.0 / np.linalg.norm(rows, axis=1)[:, None]
    sketch = rng.integers(-(2**16) + 1, 2**16, (30, 5)).astype(np.int32)
    asked = Projection(MAPS[name], 4, reach)
    exact = project(DenseRows(integer_rows(rows, 3.0)), sketch, asked).astype(float)
    allowed = asked.movement(spec().unit, l1=False)
    for place in range(30):
        other = rows.copy()
        other[place] *= -1
        moved = project(DenseRows(integer_rows(other, 3.0)), sketch, asked) - exact
        assert np.linalg.norm(moved) <= allowed


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
def test_t03_a_map_that_is_not_finite_is_refused(entry: float) -> None:
    wrong = np.eye(COLUMNS)
    wrong[2, 1] = entry
    for asked in (lambda: Peaks(wrong), lambda: Projection(wrong, DIMENSION, 1.0)):
        with pytest.raises(InvalidQueryError, match=facts("NaN")):
            asked()


@pytest.mark.parametrize("reach", [np.nan, np.inf, 0.0, -1.0, 2.3])
def test_a_reach_that_no_row_or_any_row_could_have_is_refused(reach: float) -> None:
    with pytest.raises(InvalidQueryError, match=facts(reach, "2^-20")):
        Projection(np.eye(COLUMNS), DIMENSION, reach)


def test_the_noise_on_a_projection_follows_its_reach() -> None:
    step, unit = catalogue.plan(spec())[PROJECT], spec().unit
    near, far = (step.fit_to(Projection(np.eye(COLUMNS), DIMENSION, reach), unit) for reach in (0.25, 1.0))
    assert far.noise_std == pytest.approx(4 * near.noise_std, rel=1e-6)
    assert isinstance(step.event, GaussianEvent)
    assert isinstance(near.event, GaussianEvent)
    assert near.event.mu <= step.event.mu
    assert step.noise_std == pytest.approx(np.sqrt(COLUMNS) * far.noise_std, rel=1e-6)


def test_a_map_of_another_width_is_refused() -> None:
    job = Job()
    job.scaled()
    with pytest.raises(DpspcaError):
        job.ask(PROJECT, Projection(np.eye(COLUMNS + 1), DIMENSION, 1.0))


# --- Arithmetic -------------------------------------------------------------------------------------------------------


def test_sketch_and_projection_are_equal_for_dense_and_sparse_rows() -> None:
    rng = np.random.default_rng(3)
    stored = scipy.sparse.random_array((5000, 50), density=0.05, rng=rng, format="csr")
    whole = integer_rows(stored.toarray(), 2.0)
    kinds = [DenseRows(whole), SparseRows(integer_csr(stored, 2.0))]
    omega = directions(bytes(32), 50, 5)
    sketches = []
    for rows in kinds:
        noise = np.arange(5000 * 5, dtype=np.int64).reshape(5000, 5)
        add_sketch(noise, rows, omega)
        sketches.append(noise)
    exact = np.arange(5000 * 5).reshape(5000, 5) + whole.astype(object) @ omega.astype(np.int64).astype(object)
    assert (sketches[0] == exact).all()
    assert (sketches[1] == exact).all()
    kept = round_sketch(sketches[0], 1e9)
    assert (gram_of(kept) == kept.astype(object).T @ kept.astype(object)).all()
    asked = Projection(whitening(gram_of(kept).astype(float)), 50, 1.0)
    seen = weights(kept, asked.map)
    seen[np.square(seen).sum(axis=1) > 2.0**40] = 0
    expected = (whole.astype(object).T @ seen.astype(np.int64).astype(object)) >> 7
    for rows in kinds:
        assert (project(rows, kept, asked) == expected).all()


def test_sparse_rows_are_never_made_dense() -> None:
    """A hundred entries in each of 200 rows of four million columns: dense, they would fill six gigabytes."""
    rng = np.random.default_rng(4)
    places = rng.integers(0, 2**22, (200, 100)).ravel()
    stored = scipy.sparse.csr_array((np.ones(20_000), (np.repeat(np.arange(200), 100), places)), shape=(200, 2**22))
    rows = SparseRows(integer_csr(stored, 20.0))
    noise = np.zeros((200, 2), dtype=np.int64)
    add_sketch(noise, rows, directions(bytes(32), 2**22, 2))
    kept = round_sketch(noise, 1e9)
    asked = Projection(whitening(gram_of(kept).astype(float)), 2**22, 1.0)
    assert np.count_nonzero(project(rows, kept, asked).any(axis=1)) <= 20_000


def test_peaks_are_never_below_what_is_there() -> None:
    job = Job()
    basis = whitening(job.sketched().astype(float))
    told = job.ask(PEAKS, Peaks(basis))[1] / 2**WEIGHT_BITS
    kept = job.responder._sketch._sketch  # type: ignore[union-attr]
    exact = kept @ basis
    np.testing.assert_allclose(told[:-1], np.abs(exact).max(axis=0), atol=1e-5)
    assert told[-1] >= np.sqrt(np.square(weights(kept, basis)).sum(axis=1).max()) / 2**WEIGHT_BITS


def test_a_sketch_answers_nothing_else() -> None:
    from dpspca.common.queries.rows import Count  # noqa: PLC0415  # no other test here knows of it

    def rows() -> DenseRows:
        return DenseRows(integer_rows(DATA, 3.0))

    with pytest.raises(InvalidQueryError):
        SketchAnswers(rows, "job", 0).evaluate(Count())


def test_a_provider_beyond_the_last_slot_refuses_to_take_part() -> None:
    with refused(129, 128):
        Job(seat=SEATS).committed()
