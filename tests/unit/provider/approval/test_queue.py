"""The queue of jobs that wait for approval: its table of states, its limits, and its file."""

import itertools
import sqlite3
from pathlib import Path

import pytest
from facts import facts

from dpspca.common.errors import RefusedError
from dpspca.provider.approval.queue import (
    DAY,
    MOST_WAITING,
    MOST_WAITING_OF_ONE,
    ApprovalQueue,
    QueueError,
    QueueFullError,
)
from dpspca.provider.approval.requests import TRANSITIONS, ApprovalRequest, RequestEvent, RequestState, after
from dpspca.provider.ledger.entries import Decided

NOON = 10 * DAY + DAY // 2
PLENTY = 10**6


def request(job: str = "a", analyst: str = "ada", at: int = NOON) -> ApprovalRequest:
    return ApprovalRequest(job, analyst, "cohort", at, at + 10, at + 20, RequestState.WAITING)


DECIDED = Decided(
    job="a",
    data_set="cohort",
    verdict="approve",
    person="maria",
    login="m",
    reason="",
    decided_at=1,
    expires_at=2,
    certificate="",
    signature="",
)


@pytest.fixture
def queue(tmp_path: Path) -> ApprovalQueue:
    return ApprovalQueue(tmp_path / "approvals.db")


@pytest.mark.parametrize(("state", "event"), list(itertools.product(RequestState, RequestEvent)))
def test_t09_an_event_is_in_the_table_of_requests_or_refused(state: RequestState, event: RequestEvent) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(RefusedError, match=facts(state, event)):
            after(state, event)


def test_only_a_waiting_request_can_be_approved() -> None:
    assert [pair for pair, state in TRANSITIONS.items() if state is RequestState.APPROVED] == [
        (RequestState.WAITING, RequestEvent.APPROVE)
    ]


def test_before_the_first_request_there_is_no_file_and_nothing_waits(queue: ApprovalQueue) -> None:
    assert queue.requests() == []
    assert queue.find("a") is None
    assert queue.change("a", RequestEvent.END) is None
    queue.forget(NOON)
    assert not queue.path.exists()


def test_a_request_keeps_its_place_and_signed_job_while_it_may_be_shown(queue: ApprovalQueue) -> None:
    assert queue.ask(request(), b"signed", PLENTY) == request()
    assert queue.ask(request(at=NOON + 5), b"signed", PLENTY) == request()
    assert queue.signed("a") == b"signed"
    assert queue.path.stat().st_mode & 0o077 == 0
    assert queue.change("a", RequestEvent.APPROVE) is RequestState.APPROVED
    assert queue.signed("a") == b"signed"
    again = queue.ask(request(at=NOON + 5), b"signed", PLENTY)  # the policy asks for more than before
    assert (again.state, again.asked_at, again.lapses_at) == (RequestState.WAITING, NOON, NOON + 15)
    queue.change("a", RequestEvent.END)
    assert queue.signed("a") == b""
    assert queue.ask(request(), b"signed", PLENTY).state is RequestState.ENDED
    with pytest.raises(RefusedError):
        queue.change("a", RequestEvent.APPROVE)


def test_a_decision_stays_until_it_is_taken(queue: ApprovalQueue) -> None:
    queue.ask(request(), b"", PLENTY)
    number = queue.decide(DECIDED)
    ((stored),) = queue.untaken()
    assert (stored.number, stored.read()) == (number, DECIDED)
    queue.mark_taken(number, "no")
    assert queue.untaken() == []
    assert [each.problem for each in queue.decisions("a")] == ["no"]


def test_expired_requests_are_forgotten_with_their_decisions(queue: ApprovalQueue) -> None:
    queue.ask(request(), b"", PLENTY)
    queue.mark_taken(queue.decide(DECIDED))
    queue.forget(NOON + 19)
    assert len(queue.requests()) == 1
    queue.forget(11 * DAY)
    assert (queue.requests(), queue.decisions("a")) == ([], [])


def test_t35_jobs_that_expire_soon_count_for_the_whole_day(queue: ApprovalQueue) -> None:
    """Otherwise an analyst could have the steward notified every few seconds."""
    for number in range(3):
        at = NOON + 20 * number
        queue.ask(request(f"{number}", at=at), b"", 3)
        queue.change(f"{number}", RequestEvent.EXPIRE)
        queue.forget(at + 20)
    with pytest.raises(QueueFullError, match=facts(3)):
        queue.ask(request("one too many", at=NOON + 60), b"", 3)
    tomorrow = NOON + DAY
    queue.forget(tomorrow)
    assert queue.requests() == []
    queue.ask(request("tomorrow", at=tomorrow), b"", 3)


def test_a_waiting_request_is_announced_once(queue: ApprovalQueue) -> None:
    queue.ask(request(), b"", PLENTY)
    assert [each.job for each in queue.unannounced()] == ["a"]
    queue.mark_announced("a")
    assert queue.unannounced() == []


def test_t35_one_analyst_or_all_cannot_fill_the_queue(queue: ApprovalQueue) -> None:
    for number in range(MOST_WAITING_OF_ONE):
        queue.ask(request(f"{number}"), b"", PLENTY)
    with pytest.raises(QueueFullError, match=facts(MOST_WAITING_OF_ONE)):
        queue.ask(request("more"), b"", PLENTY)
    queue.change("0", RequestEvent.END)
    queue.ask(request("more"), b"", PLENTY)
    for number in range(MOST_WAITING - MOST_WAITING_OF_ONE):
        queue.ask(request(f"other-{number}", f"analyst-{number}"), b"", PLENTY)
    with pytest.raises(QueueFullError, match=facts(MOST_WAITING)):
        queue.ask(request("last", "grace"), b"", PLENTY)


def test_t35_an_analyst_cannot_ask_more_often_in_a_day_than_the_quota_says(queue: ApprovalQueue) -> None:
    for number in range(3):
        queue.ask(request(f"{number}"), b"", 3)
        queue.change(f"{number}", RequestEvent.END)
    with pytest.raises(QueueFullError, match=facts(3)):
        queue.ask(request("more"), b"", 3)
    queue.ask(request("more", at=NOON + DAY), b"", 3)


def test_a_file_of_another_program_a_newer_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    def made(name: str, *statements: str) -> ApprovalQueue:
        connection = sqlite3.connect(tmp_path / name)
        for each in statements:
            connection.execute(each)
        connection.commit()
        connection.close()
        return ApprovalQueue(tmp_path / name)

    kept = made("newer")
    kept.path.unlink()
    kept.ask(request(), b"", PLENTY)
    for queue in (
        made("other", "CREATE TABLE things (x)"),
        made("newer", "PRAGMA user_version = 99"),
    ):
        with pytest.raises(QueueError):
            queue.requests()
        with pytest.raises(QueueError):
            queue.ask(request("b"), b"", PLENTY)
    (tmp_path / "noise").write_bytes(b"noise" * 1000)
    with pytest.raises(QueueError, match=facts(tmp_path / "noise")):
        ApprovalQueue(tmp_path / "noise").requests()


def test_rows_that_no_daemon_writes_are_refused(queue: ApprovalQueue) -> None:
    queue.ask(request(), b"", PLENTY)
    with queue._writing() as run:
        run("UPDATE requests SET state = 'perhaps'")
    with pytest.raises(QueueError):
        queue.find("a")


def test_a_file_left_empty_by_a_crash_is_used(queue: ApprovalQueue) -> None:
    queue.path.touch(0o600)
    assert queue.requests() == []
    assert queue.ask(request(), b"", PLENTY) == request()
