"""What closing a job gives back: the price of queries that were never asked. In version 0.1.0, also of lost answers."""

from dataclasses import replace

import pytest
from ledgers import BUDGET, LIMITS, answer, opening

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.plan import events, prices
from dpspca.common.privacy import Filter, Mixture, PrivacyLoss
from dpspca.common.privacy.costs import NOTHING, Price, cost_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.provider.ledger.accounts import Account, Answer, JobAccount, JobPosition, QueryRecord
from dpspca.provider.ledger.balance import Balance, Balances, epsilon_of
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.rules import LedgerState

KEPT = Answer(1, (2, 2), 32, "a" * 64)


def job(*queries: QueryRecord, left: tuple[int, int] = (0, 0)) -> JobAccount:
    """Return a job with these queries and this much still reserved."""
    accounts = Account(reserved=Price(*left)), Account(), Account()
    return JobAccount(opening(), 1, accounts, list(queries))


def asked(units: int, slack: int, *, lost: bool = False) -> QueryRecord:
    return QueryRecord("query", "d" * 64, Price(units, slack), None if lost else KEPT)


def test_closing_gives_back_the_price_of_queries_never_asked() -> None:
    ended = job(asked(5, 2), asked(7, 3, lost=True), left=(11, 4))
    assert ended.returnable() == Price(11, 4)
    assert ended.returned_before() == Price(11 + 7, 4 + 3)


def test_a_lost_first_block_costs_its_price_if_a_later_block_was_answered() -> None:
    """The later block was free because the first was paid for. Its answer left, so the price must stay spent."""
    first, later = asked(5, 2, lost=True), asked(0, 0)
    assert job(first, later).returned_before() == Price(0, 0)
    assert job(first, replace(later, answer=None), later).returned_before() == Price(0, 0)


def test_blocks_whose_answers_were_all_lost_were_given_back() -> None:
    assert job(asked(5, 2, lost=True), asked(0, 0, lost=True)).returned_before() == Price(5, 2)


def test_answers_lost_after_the_last_free_answer_were_given_back() -> None:
    assert job(asked(5, 2), asked(0, 0), asked(7, 3, lost=True)).returned_before() == Price(7, 3)


# --- The same of a whole ledger, and a real plan ----------------------------------------------------------------------

SPEC = JobSpec(
    schema=Schema(6),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(BUDGET.epsilon, BUDGET.delta),
    norm_bound=1.0,
    components=1,
    method="streaming-power",
    explained_variance=False,
    options={"rounds": 3},
)


@pytest.mark.parametrize(
    "stored",
    [(), (0,), (1,), (2,), (1, 2), (0, 1, 2)],
    ids=["none", "the first", "the second", "the last", "all but the first", "all"],
)
def test_blocks_cost_one_price_whichever_answers_were_stored(stored: tuple[int, ...]) -> None:
    """All three blocks are asked, and the stored ones leave. In the end one block's price is spent."""
    plan = catalogue.plan(SPEC)
    steps = [NOTHING, *prices(plan)]
    whole = steps[-1]
    assert whole.units == cost_units(events(plan[:1]))
    ledger = MemoryLedger(clock=lambda: 5.0)
    ledger.open(opening(unit=SPEC.unit, units=whole.units, slack_units=whole.slack_units), LIMITS)
    for at in range(len(plan)):
        before = JobPosition(at, steps[at]) if at else None
        assert ledger.reserve("job", plan[at].name, f"content {at}", before, JobPosition(at + 1, steps[at + 1]))
        if at in stored:
            ledger.store("job", at, answer("job", at))
    ledger.close("job", "done")
    account = LedgerState.replay(ledger.entries).data_sets["cohort"]
    assert Price(account.spent.units, account.spent.slack_units) == whole
    assert (account.reserved.units, account.reserved.slack_units) == (0, 0)


def test_what_is_reserved_is_taken_like_what_is_spent() -> None:
    account = Account(spent=Price(3, 1), reserved=Price(4, 2))
    assert account.taken == Price(7, 3)
    budget = Filter.for_budget(1.0, 1e-6)
    balance = Balance.of(budget, [account, None, account])
    assert (balance.taken, balance.left) == (Price(14, 6), budget.whole - Price(14, 6))
    assert Balances(balance, None).left == balance.left
    assert Balances(balance, Balance.of(budget, [account] * 3)).left == budget.whole - Price(21, 9)


def test_a_balance_never_looks_better_than_it_is() -> None:
    """What is spent is rounded up and what is left rounded down, as plain values and as shares."""
    budget = Filter.for_budget(1.0, 1e-6)
    whole = budget.whole
    spent = Price(whole.units // 3, 0)
    facts = Balance.of(budget, [Account(spent=spent, reserved=spent)]).facts()
    assert (facts["spent"]["units"], facts["reserved"]["units"]) == (spent.units, spent.units)
    assert facts["spent"]["share"] >= spent.units / whole.units
    assert facts["left"]["units"] == whole.units - 2 * spent.units
    assert facts["left"]["share"] <= facts["left"]["units"] / whole.units
    assert PrivacyLoss((Mixture(gaussian_units=spent.units),)).epsilon(1e-6) == facts["spent"]["epsilon"] < 1
    assert Balance.of(budget).jobs(spent) == 3
    assert epsilon_of(Price(0, 2**250), 1e-6) is None, "infinite: the slack is more than delta"
