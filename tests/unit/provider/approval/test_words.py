"""What a steward reads about a job before deciding."""

from typing import Any

import pytest
from facts import names_facts
from steward import ADA, POLICY, job, opening

from dpspca.common import queries
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import BudgetExceededError
from dpspca.common.privacy.costs import Price
from dpspca.common.queries.base import Query
from dpspca.provider.approval.words import KINDS, MOST_NAMES, _asked, _request, balance_facts, decision_facts
from dpspca.provider.ledger.entries import Decided, Founded, Limits, Quarantined
from dpspca.provider.ledger.reader import decision_entry_facts
from dpspca.provider.ledger.rules import LedgerState
from dpspca.provider.policy.rules import Policy, Rules

PLAN = catalogue.plan(job())
LATER = 1 << 40


def test_every_kind_of_answer_is_described() -> None:
    kinds = {
        each.kind
        for each in vars(queries).values()
        if isinstance(each, type) and issubclass(each, Query)
        if hasattr(each, "kind")
    }
    assert len(kinds) > 20
    assert kinds <= KINDS.keys()


def asks(columns: int) -> dict[str, Any]:
    return {
        "column_names": [f"c{place}" for place in range(columns)], "columns": columns, "unit": "row-add-remove",
        "centering": "none", "scaling": "none", "options": {}, "explained_variance": True, "components": 2,
        "method": "auto", "summary": "decides", "norm_bound": 4.0, "dictionary": "ab" * 32,
    }  # fmt: skip


def test_the_approver_sees_the_columns_and_the_dictionary() -> None:
    """Which columns leave matters most to an ethics board. So they are named, and what is not named is counted."""
    told = _asked(asks(MOST_NAMES))
    assert all(f"'c{place}'" in told for place in range(MOST_NAMES))
    assert "--json" not in told
    assert names_facts(told, "dictionary", "ab" * 6)
    more = _asked(asks(MOST_NAMES + 3))
    assert names_facts(more, 3, "--json")
    assert f"'c{MOST_NAMES}'" not in more


def released(written_off: Price) -> LedgerState:
    """A ledger whose operator ended a quarantine and counted an amount as spent."""
    state = LedgerState()
    for entry in state.draft(0, [Founded("one"), Quarantined("lost")]):
        state.append(entry)
    for entry in state.draft(0, [state.to_end_quarantine("looked into", {}, {"cohort": written_off})]):
        state.append(entry)
    return state


def jobs_that_the_ledger_admits(state: LedgerState, rules: Rules) -> int:
    price, limits = PLAN.price, Limits(*rules.budgets)
    for number in range(100):
        asked = opening(
            f"job {number}", job(), units=price.units, slack_units=price.slack_units, issued_at=LATER, expires_at=LATER
        )
        try:
            assert state.to_open(asked, limits)
        except BudgetExceededError:
            return number
        state.admit(asked, 0)
    raise AssertionError


@pytest.mark.parametrize("per_analyst", [True, False])
@pytest.mark.parametrize("fifths", [0, 1, 3, 5])
def test_as_many_such_jobs_fit_as_the_ledger_admits(fifths: int, per_analyst: bool) -> None:
    """What an operator wrote off after a quarantine counts against every analyst."""
    text = POLICY if per_analyst else POLICY.replace("per_analyst", "# per_analyst")
    rules = Policy.parse(text).rules("cohort")
    own = Policy.parse(POLICY).rules("cohort").budgets[1]
    assert own is not None
    state = released(Price(own.whole.units * fifths // 5))
    shown = balance_facts(state, rules, ADA, PLAN)
    assert shown.keys() == ({"data_set", "analyst"} if per_analyst else {"data_set"})
    room = state.room("cohort", ADA, Limits(*rules.budgets))
    fitting = min(each["further_such_jobs"] for each in shown.values())
    assert fitting == PLAN.price.times_in(room) == jobs_that_the_ledger_admits(state, rules)
    assert (fitting > 0) == (fifths < 5 or not per_analyst)
    assert min(each["left"]["units"] for each in shown.values()) == room.units


def test_a_decision_has_its_own_time_and_in_the_ledger_that_of_its_entry() -> None:
    stated = {"job": "job", "data_set": "cohort", "verdict": "approve", "person": "maria", "login": "ml", "reason": ""}
    decided = Decided(**stated, decided_at=60, expires_at=LATER, certificate="", signature="")
    (entry,) = LedgerState().draft(3600, [decided])
    shown, recorded = decision_facts(decided), decision_entry_facts(entry)
    assert shown["decided"] == recorded["decided"] == "1970-01-01T00:01:00Z"
    assert (recorded["recorded_at"], recorded["entry"]) == ("1970-01-01T01:00:00Z", 1)
    assert "at" not in shown.keys() | recorded.keys()


@pytest.mark.parametrize(("unit", "is_said"), [("person-add-remove", True), ("row-add-remove", False)])
def test_the_approver_sees_how_many_rows_of_a_person_are_used(unit: str, is_said: bool) -> None:
    about = {
        "asks": asks(3) | {"unit": unit, "rows_per_person": 4, "protects": ""}, "providers": ["north"],
        "minimum_providers": 1, "price": {"epsilon": 1.0, "delta": 1e-6, "mu": 0.3}, "state": "waiting",
        "answers": 0, "answer_bytes": 0, "leaves": [],
    }  # fmt: skip
    assert any(names_facts(line, "rows_per_person = 4") for line in _request(about)) == is_said
