"""The contract of all ledgers: reserve the plan, charge before answering, answer a query once, keep to the budget."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from facts import facts
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import (
    BUDGET,
    EXPIRY,
    LIMITS,
    PRICE,
    SLACK,
    YEAR,
    answer,
    digest,
    opening,
    quick_folder,
    reserve,
    respond,
    stands,
)

from dpspca.common.errors import BudgetExceededError, DataChangedError, DpspcaError, JobEndedError, RefusedError
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import Price
from dpspca.provider.ledger.accounts import Account
from dpspca.provider.ledger.entries import DamagedLedgerError, Decided, Lapsed
from dpspca.provider.ledger.ledger import BaseLedger, Head, Limits, MemoryLedger, Opening
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.ledger.sqlite import SqliteLedger, read_ledger_state


@dataclass(frozen=True)
class Kept:
    """A ledger, and its balances recomputed from its entries."""

    ledger: BaseLedger
    replayed: Callable[[], LedgerState]

    def account(self, data_set: str = "cohort") -> Account:
        """Return a data set's balance: what is recorded, and what is reserved for jobs without a query."""
        found = replace(self.replayed().data_sets.get(data_set, Account()))
        state = self.ledger._state
        for job in (fact for name in state.open_jobs() for fact in state.unwritten(name)):
            if isinstance(job, Opening) and job.data_set == data_set:
                found.reserved += job.price
        assert state.data_sets.get(data_set, Account()) == found
        return found

    def taken(self, data_set: str = "cohort") -> tuple[int, int]:
        """Return what is spent and what is reserved, in queries. Slack follows the same rules."""
        account = self.account(data_set)
        assert account.spent.slack_units * PRICE == account.spent.units * SLACK
        assert account.reserved.slack_units * PRICE == account.reserved.units * SLACK
        return account.spent.units // PRICE, account.reserved.units // PRICE


def in_memory() -> Kept:
    ledger = MemoryLedger()
    return Kept(ledger, lambda: LedgerState.replay(ledger.entries))


def in_a_file(folder: Path) -> tuple[Kept, SqliteLedger]:
    path = folder / "kept" / "ledger.sqlite"
    ledger = SqliteLedger(path, folder / "second" / "head")
    return Kept(ledger, lambda: read_ledger_state(path)), ledger


@pytest.fixture(params=["memory", "sqlite"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    if request.param == "memory":
        yield in_memory()
        return
    made, ledger = in_a_file(tmp_path)
    with ledger:
        yield made


def test_what_is_left_for_a_further_job_is_what_the_next_one_may_cost(kept: Kept) -> None:
    """The room of two budgets is the smaller of both, whoever took it, and the next job of that price is admitted."""
    one, other = opening().analyst, "dpspca://town/analyst/other"
    shared = Limits(BUDGET, Filter.for_budget(0.6, 1e-6))
    assert shared.analyst
    whole, own = BUDGET.whole, shared.analyst.whole
    assert kept.ledger.room("cohort", one, LIMITS) == whole
    assert kept.ledger.room("cohort", one, shared).units == min(whole.units, own.units)
    kept.ledger.open(opening(), LIMITS)
    price = opening().price
    assert kept.ledger.room("cohort", one, LIMITS) == kept.ledger.room("cohort", other, LIMITS) == whole - price
    assert kept.ledger.room("cohort", one, shared).units == max(0, own.units - price.units)
    respond(kept.ledger, "job", 0)
    assert kept.ledger.room("cohort", one, LIMITS) == whole - price
    kept.ledger.close("job", "done")
    left = kept.ledger.room("cohort", other, LIMITS)
    assert left == whole - Price(PRICE, SLACK)
    with pytest.raises(BudgetExceededError):
        kept.ledger.open(opening("more", units=left.units + 1, slack_units=0), LIMITS)
    assert kept.ledger.open(opening("last", units=left.units, slack_units=left.slack_units), LIMITS) is None
    assert kept.ledger.room("cohort", other, LIMITS) == Price()


def test_a_ledger_that_lacks_nothing_is_in_no_quarantine(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    assert kept.ledger.quarantine is None


def test_a_job_is_recalled_as_it_was_while_it_runs_and_long_after_it_ended(kept: Kept) -> None:
    ledger = kept.ledger
    assert ledger.past_job("job") is None
    ledger.open(opening(), LIMITS)
    ledger.open(opening("another"), LIMITS)
    for position in range(2):
        respond(ledger, "job", position)
        respond(ledger, "another", position)
    assert reserve(ledger, "job", 2)  # its answer is never stored
    running = ledger.past_job("job")
    assert running
    digests = [f"{position} {sha256(answer('job', position).tobytes()).hexdigest()}\n" for position in range(2)]
    assert (running.state, len(running.queries), running.answers) == ("open", 3, 2)
    assert running.answers_digest == sha256("".join(digests).encode()).hexdigest()
    assert running.spent == Price(3 * PRICE, 3 * SLACK)
    ledger.close("job", "done")
    respond(ledger, "another", 2)
    over = ledger.past_job("job")
    assert over
    assert (over.state, over.spent, over.opened_at) == ("done", running.spent, running.opened_at)
    assert (over.opening, over.answers_digest, over.answers) == (running.opening, running.answers_digest, 2)
    assert ledger.past_job("jo") is None


def test_a_job_goes_from_opening_to_its_last_answer(kept: Kept) -> None:
    assert kept.ledger.open(opening(), LIMITS) is None
    for position in range(3):
        assert kept.ledger.standing("job") == stands(position)
        sent = respond(kept.ledger, "job", position)
        assert kept.ledger.query_digest("job", position) == digest("job", position)
        again = kept.ledger.stored("job", position)
        assert again is not None
        assert again.dtype == np.int64
        assert (again == sent).all()
    assert kept.ledger.open(opening(), LIMITS) == stands(3)


def test_a_query_that_was_never_asked_has_no_record(kept: Kept) -> None:
    assert kept.ledger.standing("job") is None
    assert kept.ledger.query_digest("job", 0) is None
    assert kept.ledger.stored("job", 0) is None
    kept.ledger.open(opening(), LIMITS)
    assert kept.ledger.query_digest("job", -1) is None
    assert reserve(kept.ledger, "job", 0)
    assert kept.ledger.stored("job", 0) is None


def test_opening_reserves_the_whole_plan_and_answering_spends_it(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    assert kept.taken() == (0, 3)
    assert reserve(kept.ledger, "job", 0)
    assert kept.taken() == (1, 2)
    kept.ledger.store("job", 0, answer("job", 0))
    assert kept.taken() == (1, 2)


def test_all_jobs_of_all_analysts_share_the_budget_of_a_data_set(kept: Kept) -> None:
    for number in range(3):
        kept.ledger.open(opening(f"job {number}", analyst=f"analyst {number}"), LIMITS)
    before = kept.ledger.head()
    with pytest.raises(
        BudgetExceededError, match=facts("'cohort'", "mu = 0.0748525", "(epsilon = 1, delta = 1e-06)")
    ) as caught:
        kept.ledger.open(opening("one too many", analyst="analyst 4"), LIMITS)
    assert "nothing was spent" in caught.value.what
    assert kept.ledger.head() == before
    assert kept.taken() == (0, 9)
    kept.ledger.open(opening("elsewhere", data_set="another cohort"), LIMITS)


@pytest.mark.parametrize(("units", "slack"), [(1, 0), (0, 1)])
def test_a_budget_is_exact_to_the_last_unit(kept: Kept, units: int, slack: int) -> None:
    kept.ledger.open(opening("first"), LIMITS)
    rest = BUDGET.whole.units - 3 * PRICE, BUDGET.whole.slack_units - 3 * SLACK
    with pytest.raises(BudgetExceededError):
        kept.ledger.open(opening("dearer", units=rest[0] + units, slack_units=rest[1] + slack), LIMITS)
    kept.ledger.open(opening("fits", units=rest[0], slack_units=rest[1]), LIMITS)
    with pytest.raises(BudgetExceededError):
        kept.ledger.open(opening("late", units=units, slack_units=slack), LIMITS)


def test_an_analysts_budget_can_be_less_than_the_data_sets(kept: Kept) -> None:
    limits = Limits(BUDGET, analyst=Filter.for_budget(0.5, 1e-6))
    share = Filter.for_budget(0.5, 1e-6).whole.units
    plan: dict[str, Any] = {"units": share, "slack_units": 0}
    kept.ledger.open(opening("first", **plan), limits)
    with pytest.raises(BudgetExceededError, match=facts("dpspca://town/analyst/first", "'cohort'", "mu = 0")):
        kept.ledger.open(opening("second", **plan), limits)
    kept.ledger.open(opening("third", analyst="another", **plan), limits)
    kept.ledger.open(opening("fourth", data_set="another cohort", **plan), limits)


def test_a_budget_can_be_raised_and_lowered_but_never_below_what_is_taken(kept: Kept) -> None:
    kept.ledger.open(opening("first"), LIMITS)
    with pytest.raises(BudgetExceededError, match=facts("'cohort'")):
        kept.ledger.open(opening("second"), Limits(Filter.for_budget(0.1, 1e-6)))
    assert kept.ledger.open(opening("first"), Limits(Filter.for_budget(0.1, 1e-6))) is None
    kept.ledger.open(opening("second", units=9 * PRICE), Limits(Filter.for_budget(2.0, 1e-5)))


def test_opening_a_job_again_reserves_nothing_more(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    before = kept.ledger.head()
    assert kept.ledger.open(opening(signature_hash="6" * 64), LIMITS) == stands(1)
    assert kept.ledger.head() == before
    assert kept.taken() == (1, 2)


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"data_digest": "e" * 64}, DataChangedError, None),
        ({"data_set": "another"}, RefusedError, facts("data set")),
        ({"analyst": "another"}, RefusedError, facts("analyst")),
        ({"units": 1}, RefusedError, facts("units")),
    ],
)
def test_t16_a_job_whose_data_or_terms_changed_is_refused(
    kept: Kept, changes: dict[str, Any], kind: type[RefusedError], reason: str | None
) -> None:
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    before = kept.ledger.head()
    with pytest.raises(kind, match=reason):
        kept.ledger.open(opening(**changes), LIMITS)
    assert kept.ledger.head() == before


def test_jobs_on_one_data_set_protect_one_unit(kept: Kept) -> None:
    kept.ledger.open(opening("first"), LIMITS)
    before = kept.ledger.head()
    with pytest.raises(RefusedError, match=facts("'cohort'", "unit = row-add-remove", "row-replace-one")):
        kept.ledger.open(opening("second", unit="row-replace-one"), LIMITS)
    assert kept.ledger.head() == before
    kept.ledger.open(opening("third", unit="row-replace-one", data_set="another"), LIMITS)


def test_of_callers_that_saw_the_same_balance_one_reserves(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    assert reserve(kept.ledger, "job", 0)
    before = kept.ledger.head()
    assert not reserve(kept.ledger, "job", 0)
    assert not reserve(kept.ledger, "job", 2)
    assert kept.ledger.head() == before
    assert kept.taken() == (1, 2)


def test_a_query_that_costs_more_than_reserved_is_refused(kept: Kept) -> None:
    kept.ledger.open(opening(units=PRICE - 1), LIMITS)
    with pytest.raises(RefusedError, match=facts("Query 1")):
        reserve(kept.ledger, "job", 0)
    assert kept.ledger.standing("job") is None


def test_an_answer_is_stored_once_and_only_if_it_was_charged(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    with pytest.raises(RefusedError, match=facts("Query 1")):
        kept.ledger.store("job", 0, answer("job", 0))
    sent = respond(kept.ledger, "job", 0)
    with pytest.raises(RefusedError, match=facts("Query 1")):
        kept.ledger.store("job", 0, sent + 1)
    again = kept.ledger.stored("job", 0)
    assert again is not None
    assert (again == sent).all()


def test_t17_an_answer_never_crosses_jobs(kept: Kept) -> None:
    for job in ("job", "other"):
        kept.ledger.open(opening(job), LIMITS)
    sent = {job: respond(kept.ledger, job, 0) for job in ("job", "other")}
    for job, made in sent.items():
        again = kept.ledger.stored(job, 0)
        assert again is not None
        assert (again == made).all()


def test_t22_a_query_stays_paid_for_if_its_job_ends_before_its_answer(kept: Kept) -> None:
    """The refusal shows how long the answer was in the making. If that were free, it could be repeated."""
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    assert reserve(kept.ledger, "job", 1)
    kept.ledger.close("job", "aborted")
    assert kept.taken() == (2, 0)
    with pytest.raises(BudgetExceededError):
        kept.ledger.open(opening("next", units=BUDGET.whole.units - 2 * PRICE + 1), LIMITS)
    kept.ledger.open(opening("next", units=BUDGET.whole.units - 2 * PRICE), LIMITS)


@pytest.mark.parametrize("state", ["expired", "cancelled"])
def test_t22_a_job_that_expires_in_the_middle_costs_what_was_asked(kept: Kept, state: str) -> None:
    kept.ledger.open(opening(), LIMITS)
    assert reserve(kept.ledger, "job", 0)
    if state == "expired":
        kept.ledger.expire(opening().expires_at)
    else:
        kept.ledger.close("job", state)
    assert kept.taken() == (1, 0)


def test_an_answer_that_is_ready_after_its_job_closed_is_refused(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    assert reserve(kept.ledger, "job", 0)
    kept.ledger.close("job", "aborted")
    with pytest.raises(JobEndedError, match=facts("(aborted)")):
        kept.ledger.store("job", 0, answer("job", 0))
    assert kept.ledger.stored("job", 0) is None


def test_closing_is_final_and_closing_again_changes_nothing(kept: Kept) -> None:
    kept.ledger.close("never opened", "aborted")
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger.close("job", "done")
    before = kept.ledger.head()
    kept.ledger.close("job", "aborted")
    assert kept.ledger.head() == before
    with pytest.raises(JobEndedError, match=facts("(done)")):
        kept.ledger.open(opening(), LIMITS)
    with pytest.raises(JobEndedError, match=facts("(done)")):
        reserve(kept.ledger, "job", 1)
    assert kept.ledger.stored("job", 0) is None


def test_a_closed_job_stays_closed_and_sends_no_answers(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger.close("job", "done")
    kept.ledger.expire(EXPIRY - 1)
    before = kept.ledger.head()
    for work in (lambda: kept.ledger.open(opening(), LIMITS), lambda: reserve(kept.ledger, "job", 1)):
        with pytest.raises(JobEndedError, match=facts("(done)")):
            work()
    kept.ledger.close("job", "aborted")
    assert kept.ledger.head() == before
    assert kept.ledger.stored("job", 0) is None


def test_an_expired_job_is_closed_and_its_answers_are_dropped(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    kept.ledger.open(opening("longer", expires_at=EXPIRY + 1), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger.expire(EXPIRY - 1)
    assert kept.taken() == (1, 5)
    assert kept.ledger.stored("job", 0) is not None
    kept.ledger.expire(EXPIRY)
    assert kept.taken() == (1, 3)
    assert kept.ledger.stored("job", 0) is None
    for position in (0, 1):
        with pytest.raises(JobEndedError, match=facts("(expired)")):
            reserve(kept.ledger, "job", position)
    with pytest.raises(JobEndedError, match=facts("(expired)")):
        kept.ledger.open(opening(), LIMITS)


@pytest.mark.parametrize("years", [-10, -1 / 8760, 1 / 8760, 10])
def test_t15_no_clock_refills_a_budget(kept: Kept, years: float) -> None:
    for number in range(3):
        kept.ledger.open(opening(f"job {number}"), LIMITS)
        for position in range(3):
            respond(kept.ledger, f"job {number}", position)
    kept.ledger.expire(EXPIRY + years * YEAR)
    assert kept.taken() == (9, 0)
    with pytest.raises(BudgetExceededError):
        kept.ledger.open(opening("late", expires_at=int(EXPIRY + 20 * YEAR)), LIMITS)


def test_t12_a_ledger_s_own_receipts_never_quarantine_it(kept: Kept) -> None:
    heads = [kept.ledger.attested_head()]
    for name in ("first", "second"):
        kept.ledger.open(opening(name), LIMITS)
        for position in range(3):
            respond(kept.ledger, name, position)
            heads.append(kept.ledger.attested_head())
        kept.ledger.close(name, "done")
    before = kept.ledger.head()
    assert [kept.ledger.check_head(head) for head in heads if head] == [None] * sum(map(bool, heads))
    assert kept.ledger.head() == before
    kept.ledger.open(opening("third"), LIMITS)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7, 3), (2, 3, 4), (200_003, 2)])
def test_an_answer_of_any_shape_comes_back_unchanged(kept: Kept, shape: tuple[int, ...]) -> None:
    kept.ledger.open(opening(), LIMITS)
    made = np.random.default_rng(1).integers(-(2**62), 2**62, shape)
    assert reserve(kept.ledger, "job", 0)
    kept.ledger.store("job", 0, np.asarray(made)[..., ::-1] if shape else np.asarray(made))
    again = kept.ledger.stored("job", 0)
    assert again is not None
    assert again.shape == shape
    assert np.array_equal(again, np.asarray(made)[..., ::-1] if shape else made)


def test_a_stored_answer_cannot_be_changed_from_outside(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    sent = respond(kept.ledger, "job", 0)
    with pytest.raises(ValueError, match=facts("read-only")):
        sent += 1
    again = kept.ledger.stored("job", 0)
    assert again is not None
    assert (again == sent).all()
    with pytest.raises(ValueError, match=facts("read-only")):
        again += 1


def test_a_job_that_ends_without_a_query_leaves_no_entry(kept: Kept) -> None:
    before = kept.ledger.head()
    for number in range(40):
        kept.ledger.open(opening(f"job {number}"), LIMITS)
        assert kept.taken() == (0, 3)
        kept.ledger.close(f"job {number}", "cancelled")
    with pytest.raises(JobEndedError, match=facts("(cancelled)")):
        kept.ledger.open(opening("job 7"), LIMITS)
    kept.ledger.open(opening("late"), LIMITS)
    kept.ledger.expire(EXPIRY)
    assert kept.ledger.head() == before
    assert kept.taken() == (0, 0)
    assert kept.ledger.open_jobs() == ()


def test_a_job_is_recorded_with_its_first_query(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    before = kept.ledger.head().entries
    assert not kept.replayed().jobs
    assert reserve(kept.ledger, "job", 0)
    assert kept.ledger.head().entries == before + 2
    assert kept.replayed().jobs["job"].opening == opening()
    assert reserve(kept.ledger, "job", 1)
    assert kept.ledger.head().entries == before + 3


@pytest.fixture
def hasty_switching() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switching")
def test_t11_jobs_that_are_opened_at_once_never_overspend(kept: Kept) -> None:
    barrier = Barrier(8)

    def open_one(number: int) -> bool:
        barrier.wait()
        try:
            kept.ledger.open(opening(f"job {number}"), LIMITS)
        except BudgetExceededError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        admitted = list(pool.map(open_one, range(8)))
    assert sum(admitted) == 3
    assert kept.taken() == (0, 9)


@pytest.mark.usefixtures("hasty_switching")
def test_t11_a_query_reserved_at_once_is_paid_once(kept: Kept) -> None:
    kept.ledger.open(opening(), LIMITS)
    barrier = Barrier(8)

    def ask(_: int) -> bool:
        barrier.wait()
        return reserve(kept.ledger, "job", 0)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1
    assert kept.taken() == (1, 2)


JOBS = st.sampled_from(["a", "b", "c", "d"])
STEPS = st.one_of(
    st.tuples(st.just("open"), JOBS, st.integers(1, 4)),
    st.tuples(st.sampled_from(["reserve", "store"]), JOBS, st.integers(0, 3)),
    st.tuples(st.just("close"), JOBS, st.just(0)),
    st.tuples(st.just("expire"), JOBS, st.integers(EXPIRY - 2, EXPIRY + 2)),
)


def attempt(ledger: BaseLedger, step: tuple[str, str, int]) -> Any:
    """Do one step, and return its outcome in a comparable form."""
    name, job, number = step
    try:
        match name:
            case "open":
                expires = EXPIRY + ord(job) % 3
                plan: dict[str, Any] = {"units": number * PRICE, "slack_units": number * SLACK, "expires_at": expires}
                return ledger.open(opening(job, **plan), LIMITS)
            case "reserve":
                return reserve(ledger, job, number)
            case "store":
                return ledger.store(job, number, answer(job, number))
            case "close":
                return ledger.close(job, "aborted")
            case _:
                return ledger.expire(number)
    except DpspcaError as problem:
        return str(problem)


def seen(kept: Kept) -> Any:
    state = kept.replayed()
    stored = {(job, at): kept.ledger.stored(job, at) for job in state.jobs for at in range(4)}
    return (
        state.data_sets,
        {name: (job.state, job.account, len(job.queries)) for name, job in state.jobs.items()},
        {key: None if each is None else each.tobytes() for key, each in stored.items()},
        [(each.job, each.position, each.sha256) for each in state.outbox()],
    )


# A job that nobody opened is the one liberty of the ledger in memory.
@given(steps=st.lists(STEPS, max_size=25))
@settings(max_examples=25)
def test_all_ledgers_agree_after_any_steps_and_stay_within_budget(
    steps: list[tuple[str, str, int]],
) -> None:
    with quick_folder() as folder:
        filed, ledger = in_a_file(folder)
        with ledger:
            remembered = in_memory()
            opened: set[str] = set()
            for step in steps:
                if step[0] == "reserve" and step[1] not in opened:
                    continue
                outcome = attempt(filed.ledger, step)
                assert outcome == attempt(remembered.ledger, step)
                opened |= {step[1]} if step[0] == "open" and not isinstance(outcome, str) else set()
                taken = filed.account()
                assert taken.spent.units + taken.reserved.units <= BUDGET.whole.units
                assert len(list(filed.replayed().outbox())) * PRICE <= taken.spent.units
            assert seen(filed) == seen(remembered)


def test_a_ledger_in_memory_ignores_receipts_of_other_processes() -> None:
    """The ledger of another process is gone with it, and its receipts say nothing about this one."""
    ledger = MemoryLedger()
    assert ledger.check_head(Head("memory", 1 << 20, "0" * 64)) is None
    ledger.open(opening(), LIMITS)


# --- Decisions of persons ---------------------------------------------------------------------------------------------


def decided(job: str = "job", verdict: str = "approve", person: str = "maria", expires_at: int = EXPIRY) -> Decided:
    return Decided(
        job=job,
        data_set="cohort",
        verdict=verdict,
        person=person,
        login="m",
        reason="",
        decided_at=1,
        expires_at=expires_at,
        certificate="c",
        signature="5",
    )


def test_a_decision_is_recorded_once_and_moves_no_amount(kept: Kept) -> None:
    kept.ledger.decide(decided())
    entries = kept.ledger.head().entries
    kept.ledger.decide(decided())
    assert kept.ledger.head().entries == entries
    kept.ledger.decide(decided(person="ben"))
    assert [each.person for each in kept.ledger.decisions("job")] == ["maria", "ben"]
    assert kept.replayed().decisions("job") == kept.ledger.decisions("job")
    assert kept.taken() == (0, 0)
    kept.ledger.open(opening(), LIMITS)
    kept.ledger.decide(decided(verdict="reject"))
    assert [each.verdict for each in kept.ledger.decisions("job")] == ["approve", "approve", "reject"]


def test_decisions_are_used_up_when_their_job_ends(kept: Kept) -> None:
    kept.ledger.decide(decided())
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger.close("job", "done")
    assert kept.ledger.decisions("job") == kept.replayed().decisions("job") == ()
    with pytest.raises(JobEndedError, match=facts("(done)")):
        kept.ledger.decide(decided())


def test_every_decision_is_found_long_after_its_job_ended(kept: Kept) -> None:
    """Some come before their job's first entry, some after, and a rejected job has no entry of its own."""
    kept.ledger.decide(decided())
    kept.ledger.decide(decided("rejected", "reject"))
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger.decide(decided(verdict="reject", person="ben"))
    kept.ledger.close("job", "withdrawn")
    kept.ledger._state.forget(EXPIRY)
    facts = [each.fact for each in kept.ledger.all_decisions("job")]
    assert facts == [decided(), decided(verdict="reject", person="ben")]
    assert [each.fact for each in kept.ledger.all_decisions("rejected")] == [decided("rejected", "reject")]
    assert kept.ledger.all_decisions("jo") == ()


@pytest.mark.parametrize("opened", [False, True])
def test_decisions_are_used_up_also_if_their_job_ends_before_its_first_query(kept: Kept, opened: bool) -> None:
    """Otherwise the approval of a cancelled job would still be good after a restart."""
    kept.ledger.decide(decided())
    if opened:
        kept.ledger.open(opening(), LIMITS)
    kept.ledger.close("job", "cancelled")
    kept.ledger.close("job", "cancelled")
    for state in (kept.ledger._state, kept.replayed()):
        assert state.decisions("job") == ()
        with pytest.raises(JobEndedError, match=facts("(cancelled)")):
            state.to_open(opening(), LIMITS)


def test_decisions_about_expired_jobs_are_forgotten_and_others_stay(kept: Kept) -> None:
    for job in ("job", "other"):
        kept.ledger.decide(decided(job))
    kept.ledger.decide(decided("later", expires_at=EXPIRY + 1))
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    kept.ledger._state.forget(EXPIRY)
    assert [bool(kept.ledger.decisions(job)) for job in ("job", "other", "later")] == [True, False, True]


def test_what_would_be_refused_is_refused_without_a_reservation(kept: Kept) -> None:
    kept.ledger.require_admissible(opening(), LIMITS)
    assert kept.taken() == (0, 0)
    kept.ledger.open(opening(), LIMITS)
    kept.ledger.close("job", "done")
    with pytest.raises(JobEndedError, match=facts("(done)")):
        kept.ledger.require_admissible(opening(), LIMITS)


def test_a_lapse_that_does_not_follow_is_refused(kept: Kept) -> None:
    """Entries that nobody wrote: a lapse of a job without decisions, and of one that was asked a query."""
    state = kept.ledger._state
    (stray,) = state.draft(1, [Lapsed("job", "cancelled", EXPIRY)])
    with pytest.raises(DamagedLedgerError, match=facts("Entry")):
        state.append(stray)
    kept.ledger.decide(decided())
    kept.ledger.open(opening(), LIMITS)
    respond(kept.ledger, "job", 0)
    (late,) = state.draft(1, [Lapsed("job", "cancelled", EXPIRY)])
    with pytest.raises(DamagedLedgerError, match=facts("Entry")):
        state.append(late)
