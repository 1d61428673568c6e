"""The ledger's entries: every change, omission or addition is found, and every balance follows from them."""

import json
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from facts import facts
from ledgers import BUDGET, LIMITS, PRICE, SIGNED, SLACK, YEAR, opening, respond, standing_at, stands

from dpspca.common.errors import BudgetExceededError, RefusedError
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import Price
from dpspca.common.trust.signing import JOB_SKEW
from dpspca.provider.ledger.entries import (
    GENESIS,
    Closed,
    DamagedLedgerError,
    Entry,
    Fact,
    Founded,
    Head,
    LedgerError,
    Limits,
    NotQuarantinedError,
    Quarantined,
    QuarantinedError,
    QuarantineEnded,
    Reserved,
    Started,
    Stored,
)
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.rules import LedgerState


def written() -> list[Entry]:
    """One job that was answered once and closed, and one that is open."""
    ledger = MemoryLedger(clock=lambda: 5.0)
    for job in ("job", "other"):
        ledger.open(opening(job), LIMITS)
        respond(ledger, job, 0)
    ledger.close("job", "done")
    return ledger.entries


def after(state: LedgerState, *facts: Fact, at: int = SIGNED) -> LedgerState:
    for entry in state.draft(at, facts):
        state.append(entry)
    return state


def founded() -> LedgerState:
    return after(LedgerState(), Founded("one"))


def reread(entry: Entry) -> Entry:
    return Entry.read(entry.content, entry.hash)


def test_replaying_entries_gives_the_same_books() -> None:
    entries = written()
    state = LedgerState.replay(map(reread, entries))
    assert state.head == Head("memory", len(entries), entries[-1].hash)
    account = state.data_sets["cohort"]
    assert (account.spent.units, account.reserved.units) == (2 * PRICE, 2 * PRICE)
    assert (account.spent.slack_units, account.reserved.slack_units) == (2 * SLACK, 2 * SLACK)
    assert state.analysts["cohort", opening().analyst] == account
    assert state.standing("job") == stands(1)
    assert state.jobs["job"].state == "done"


def test_the_chain_can_be_checked_with_a_hash_alone() -> None:
    previous = GENESIS
    for entry in written():
        previous = sha256(f"{previous}\n{entry.content}".encode()).hexdigest()
        assert entry.hash == previous


def test_the_stored_form_of_an_entry_never_changes() -> None:
    entry = Entry.following(Head("one", 6, "a" * 64), 7, Reserved("job", 2, "product", "c" * 64, 2**80 + 1, 3))
    assert entry.content == (
        '{"at":7,"digest":"' + "c" * 64 + '","job":"job","kind":"reserved","number":7,"position":2,'
        '"question":"product","slack_units":3,"units":1208925819614629174706177}'
    )
    assert entry.hash == "f7288903d021458fc2e075af63774e327996088a9028da00ca2570e74b7448b7"
    assert reread(entry) == entry


KINDS: list[Fact] = [
    Founded("one"),
    Started("instance"),
    opening(),
    Reserved("job", 0, "product", "c", 1, 2),
    Stored("job", 0, [3, 2], 48, "d"),
    Closed("job", "done", 5, 6),
    Quarantined("why"),
    QuarantineEnded("because", {"cohort": [1, 2]}),
]


@pytest.mark.parametrize("fact", KINDS, ids=lambda fact: type(fact).__name__)
def test_every_kind_of_entry_survives_writing_and_reading(fact: Fact) -> None:
    entry = Entry.following(Head("one", 0, GENESIS), 1, fact)
    assert reread(entry).fact == fact
    assert entry.to_dict()["hash"] == entry.hash
    assert json.loads(entry.content).keys() < entry.to_dict().keys()


@pytest.mark.parametrize(
    ("old", "new"), [("}", "} "), ("}", "}{}"), ('"number":1', '"number":1.0'), ('"at":5', '"at":true')]
)
def test_a_line_with_extra_text_or_invalid_numbers_is_refused(old: str, new: str) -> None:
    entry = written()[0]
    assert old in entry.content
    with pytest.raises(DamagedLedgerError):
        Entry.read(entry.content.replace(old, new), entry.hash)


def test_no_character_of_any_entry_can_be_changed_unnoticed() -> None:
    entries = written()
    for place, entry in enumerate(entries):
        for at in range(0, len(entry.content), 7):
            changed = entry.content[:at] + chr(ord(entry.content[at]) ^ 1) + entry.content[at + 1 :]
            with pytest.raises(LedgerError):
                LedgerState.replay([*entries[:place], Entry.read(changed, entry.hash), *entries[place + 1 :]])


def test_no_entry_can_be_left_out_doubled_or_moved_unnoticed() -> None:
    entries = written()
    for place in range(len(entries) - 1):
        altered = [
            [*entries[:place], *entries[place + 1 :]],
            [*entries[: place + 1], *entries[place:]],
            [*entries[:place], entries[place + 1], entries[place], *entries[place + 2 :]],
        ]
        for sequence in altered:
            with pytest.raises(DamagedLedgerError, match=rf"entry ({place + 1}|{place + 2})\b"):
                LedgerState.replay(sequence)


OUT_OF_PLACE: list[list[Fact]] = [
    [Founded("again")],
    [Reserved("job", 0, "q", "d", 1, 0)],
    [opening(), opening()],
    [opening(), Reserved("job", 1, "q", "d", 1, 0)],
    [opening(), Reserved("job", 0, "q", "d", 3 * PRICE + 1, 0)],
    [opening(), Reserved("job", 0, "q", "d", -1, 0)],
    [opening(), Stored("job", 0, [1], 8, "d")],
    [opening(), Reserved("job", 0, "q", "d", 1, 0), *[Stored("job", 0, [1], 8, "d")] * 2],
    [opening(), Closed("job", "done", 3 * PRICE - 1, 3 * SLACK)],
    [opening(), *[Closed("job", "done", 3 * PRICE, 3 * SLACK)] * 2],
    [opening(), Closed("job", "done", 3 * PRICE, 3 * SLACK), Reserved("job", 0, "q", "d", 1, 0)],
    [opening(units=-1)],
    [QuarantineEnded("why not")],
]


@pytest.mark.parametrize("made", OUT_OF_PLACE)
def test_well_chained_entries_that_break_a_rule_are_refused(made: list[Fact]) -> None:
    """Whoever can write the file can make a valid chain, but its entries must still follow the rules."""
    state = founded()
    with pytest.raises(DamagedLedgerError, match=facts(f"Entry {1 + len(made)}")):
        after(state, *made)
    assert state.head.entries == len(made)


def test_a_chain_must_begin_with_founded() -> None:
    with pytest.raises(DamagedLedgerError, match=facts("Entry 1")):
        after(LedgerState(), Started("instance"))


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", '{"kind":"opened","number":1,"at":1}', '{"kind":"x","number":1,"at":1}']
)
def test_a_line_that_is_not_an_entry_is_a_ledger_error(line: str) -> None:
    with pytest.raises(DamagedLedgerError):
        Entry.read(line, GENESIS)


def test_deciding_changes_nothing() -> None:
    state = after(founded(), opening())
    before = replace(state.data_sets["cohort"]), state.head
    assert state.to_open(opening("other"), LIMITS) == opening("other")
    assert state.to_reserve("job", "q", "d", None, standing_at(1)) == Reserved("job", 0, "q", "d", PRICE, SLACK)
    assert state.to_close("job", "done") == Closed("job", "done", 3 * PRICE, 3 * SLACK)
    assert state.draft(1, [opening("other")])[0].number == 3
    assert (state.data_sets["cohort"], state.head) == before


def test_the_outbox_lists_what_left_when_for_whom_and_its_signature() -> None:
    (first, second) = LedgerState.replay(written()).outbox()
    assert (first.at, first.job, first.data_set, first.analyst) == (5, "job", "cohort", opening().analyst)
    assert (first.position, first.query, first.signature_hash) == (0, "query 0", "5" * 64)
    assert first.bytes == 96
    assert second.job == "other"
    assert first.sha256 != second.sha256


def test_the_outbox_leaves_out_queries_without_an_answer() -> None:
    assert list(after(founded(), opening(), Reserved("job", 0, "q", "d", PRICE, SLACK)).outbox()) == []


# --- Quarantine -------------------------------------------------------------------------------------------------------


def quarantined() -> LedgerState:
    state = after(founded(), opening(), Reserved("job", 0, "q", "d", PRICE, SLACK))
    return after(state, Quarantined("it went back"))


def test_a_quarantine_refuses_everything_and_counts_open_jobs_as_spent() -> None:
    state = quarantined()
    account = state.data_sets["cohort"]
    assert (account.spent.units, account.reserved.units) == (3 * PRICE, 0)
    assert state.jobs["job"].state == "quarantined"
    attempts: list[Any] = [
        lambda: state.to_open(opening(), LIMITS),
        lambda: state.to_open(opening("other"), LIMITS),
        lambda: state.to_reserve("job", "q", "d", stands(1), standing_at(2)),
        lambda: state.to_store("job", 0, (1,), 8, "d"),
        lambda: state.to_close("job", "done"),
    ]
    for attempted in attempts:
        with pytest.raises(QuarantinedError):
            attempted()


def test_ending_a_quarantine_counts_all_as_spent_by_default() -> None:
    budgets = {"cohort": BUDGET, "another": BUDGET}
    ended = quarantined().to_end_quarantine("looked into", budgets, {"another": Price(PRICE, 0)})
    assert ended.counted["cohort"] == [BUDGET.whole.units - 3 * PRICE, BUDGET.whole.slack_units - 3 * SLACK]
    assert ended.counted["another"] == [PRICE, 0]
    state = after(quarantined(), ended)
    late = {"issued_at": SIGNED + JOB_SKEW + 1}
    with pytest.raises(BudgetExceededError):
        state.to_open(opening("new", units=1, slack_units=0, **late), LIMITS)
    left = opening("new", data_set="another", units=BUDGET.whole.units - PRICE, **late)
    assert state.to_open(left, LIMITS) == left
    with pytest.raises(BudgetExceededError):
        state.to_open(replace(left, units=left.units + 1), LIMITS)


def test_a_write_off_counts_against_every_analyst() -> None:
    """The lost answers could have been any analyst's."""
    state = quarantined()
    after(state, state.to_end_quarantine("looked into", {}, {"cohort": Price(PRICE, 0)}))
    limits = Limits(BUDGET, analyst=BUDGET)
    plan = opening("new", analyst="another", units=BUDGET.whole.units, slack_units=0, issued_at=SIGNED + YEAR)
    with pytest.raises(BudgetExceededError, match=facts("another", "'cohort'")):
        state.to_open(plan, Limits(Filter.for_budget(2.0, 1e-5), limits.analyst))


def test_a_data_set_stays_refused_until_an_operator_names_it() -> None:
    state = quarantined()
    after(state, state.to_end_quarantine("looked into", {"cohort": BUDGET}, {}))
    forgotten = opening("new", data_set="forgotten", issued_at=SIGNED + YEAR)
    with pytest.raises(QuarantinedError, match=facts("'forgotten'")):
        state.to_open(forgotten, LIMITS)
    after(state, state.to_end_quarantine("it is new", {}, {"forgotten": Price(0, 0)}))
    assert state.to_open(forgotten, LIMITS) == forgotten


def test_a_job_signed_before_the_quarantine_ended_is_refused() -> None:
    state = quarantined()
    after(state, state.to_end_quarantine("looked into", {}, {"cohort": Price(0, 0)}), at=SIGNED)
    with pytest.raises(RefusedError, match=facts("300 seconds")):
        state.to_open(opening("lost", issued_at=SIGNED + JOB_SKEW), LIMITS)
    newer = opening("newer", issued_at=SIGNED + JOB_SKEW + 1)
    assert state.to_open(newer, LIMITS) == newer


@pytest.mark.parametrize(
    ("state", "reason", "counted", "kind", "refusal"),
    [
        (founded(), "why not", {}, NotQuarantinedError, None),
        (quarantined(), " ", {}, LedgerError, facts("--reason")),
        (quarantined(), "looked into", {"cohort": Price(-1, 0)}, LedgerError, facts("'cohort'")),
        (quarantined(), "looked into", {"cohort": Price(0, -1)}, LedgerError, facts("'cohort'")),
    ],
)
def test_a_quarantine_needs_a_reason_and_valid_amounts_to_end(
    state: LedgerState, reason: str, counted: dict[str, Price], kind: type[LedgerError], refusal: str | None
) -> None:
    with pytest.raises(kind, match=refusal):
        state.to_end_quarantine(reason, {}, counted)
