"""The daemon's part of approvals, on a real queue and ledger."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
from local_federation import Enrolment

from dpspca.common.approval_record import APPROVE
from dpspca.common.checks import check
from dpspca.common.names import Role
from dpspca.common.storage import ApprovalSettings
from dpspca.provider.approval import ApprovalQueue, ApprovalRequest, Approvals, RequestState, make_decision
from dpspca.provider.approval.queue import QueueError
from dpspca.provider.ledger.entries import Decided, LedgerError
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy import ApprovalRule, UnreadablePolicyError

NOON = 1_800_000_000
JOB, OTHER, NEXT, STUDY = (letter * 64 for letter in "abcd")
ADA = "dpspca://town/analyst/ada"
ABOUT = {"job": JOB, "data_set": "cohort", "analyst": ADA}
EXPIRED = ("approval-expired", ABOUT)

Summarize = Callable[[ApprovalRequest, bytes], dict[str, Any]]


class Rules:
    """Rules for which a person has to approve every job. Data sets in ``closed`` have a table that cannot be read."""

    approval_rule = ApprovalRule(("maria",), 1)
    closed: ClassVar[set[str]] = set()

    def rules(self, data_set: str) -> "Rules":
        if data_set in self.closed:
            raise UnreadablePolicyError(f"The policy for {data_set!r} cannot be read.", "Correct it.")
        return self


class North:
    """A provider's approvals, with the events that they told, and a clock to set."""

    def __init__(self, folder: Path, summarize: Summarize, settings: ApprovalSettings) -> None:
        identity = Enrolment.create(folder / "town").identity(Role.PROVIDER, "north")
        self.at, self.told = NOON, list[tuple[str, dict[str, Any]]]()
        self.queue, self.ledger, self.identity = ApprovalQueue(folder / "approvals.db"), MemoryLedger(), identity
        self.approvals = Approvals(
            self.queue,
            self.ledger,
            lambda: identity,
            Rules,
            lambda: datetime.fromtimestamp(self.at, UTC),
            settings,
            summarize,
            lambda event, /, **fields: self.told.append((event, fields)),
        )

    def ask(self, job: str, data_set: str = "cohort", seconds: int = 60) -> None:
        waiting = ApprovalRequest(job, ADA, data_set, NOON, NOON + seconds, NOON + 600, RequestState.WAITING)
        self.queue.ask(waiting, b"signed", 5)

    def approve(self, job: str, data_set: str = "cohort") -> None:
        """Put an approval into the queue."""
        about = {"job": job, "data_set": data_set, "decided_at": NOON, "expires_at": NOON + 600}
        self.queue.decide(
            make_decision(self.identity, verdict=APPROVE, person="maria", login="m", reason="", **about)  # type: ignore[arg-type]
        )

    @property
    def states(self) -> dict[str, str]:
        return {each.job: each.state.value for each in self.queue.requests()}


def north_in(folder: Path, summarize: Summarize | None = None, *notify: str) -> North:
    return North(folder, summarize or (lambda request, _: {"job": request.job}), ApprovalSettings(notify=notify))


def test_events_tell_once_that_a_job_waits_and_that_nobody_decided(tmp_path: Path) -> None:
    north = north_in(tmp_path)
    north.ask(JOB)
    for _ in range(3):
        north.approvals.work()
    assert north.told == [("awaiting-approval", ABOUT | {"until": NOON + 60})]
    north.at += 60
    for _ in range(3):
        north.approvals.work()
    assert north.told[1:] == [EXPIRED]


@pytest.fixture
def closed() -> Iterator[set[str]]:
    """Give the data sets whose tables cannot be read."""
    yield Rules.closed
    Rules.closed.clear()


def test_a_closed_table_delays_nothing_on_other_data_sets(
    tmp_path: Path, closed: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    north = north_in(tmp_path)
    closed.add("study")
    for job, data_set in ((STUDY, "study"), (JOB, "cohort")):
        north.ask(job, data_set)
        north.approve(job, data_set)
    north.ask(OTHER, seconds=0)
    north.approvals.work()
    north.ask(NEXT)
    for _ in range(3):
        north.approvals.work()
    assert north.states == {STUDY: "waiting", JOB: "approved", OTHER: "expired", NEXT: "waiting"}
    assert [fields["job"] for event, fields in north.told if event == "awaiting-approval"] == [STUDY, NEXT]
    assert caplog.text.count("'study' cannot be read") == 1
    closed.clear()
    north.approvals.work()
    assert north.states[STUDY] == "approved"
    closed.add("study")
    north.approve(STUDY, "study")
    north.approvals.work()
    assert caplog.text.count("'study' cannot be read") == 2, "it was solved meanwhile"


def test_a_decision_that_the_ledger_cannot_record_delays_no_other_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    north = north_in(tmp_path)
    decide = north.ledger.decide

    def broken(decided: Decided) -> None:
        if decided.job == JOB:
            raise LedgerError("The disk is full.", "Make room.")
        decide(decided)

    monkeypatch.setattr(north.ledger, "decide", broken)
    for job in (JOB, OTHER):
        north.ask(job)
        north.approve(job)
    north.ask(NEXT, seconds=0)
    north.approvals.work()
    assert north.states == {JOB: "waiting", OTHER: "approved", NEXT: "expired"}
    assert [each.taken for each in north.queue.decisions(JOB)] == [False]


def test_a_notification_that_a_stop_cut_short_is_made_again(tmp_path: Path) -> None:
    """A job counts as announced once the steward's command has ended. Its event is told once for each announcement."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    wait = f"echo >> '{ran}'; while ! test -e '{go}'; do sleep 0.02; done"
    before = north_in(tmp_path, lambda *_: ABOUT, "/bin/sh", "-c", wait)
    before.ask(JOB)
    for _ in range(3):
        before.approvals.work()
    wait_until(ran.exists)
    assert [each.job for each in before.queue.unannounced()] == [JOB], "a daemon that starts now makes it again"
    assert len(before.told) == 1
    go.touch()
    wait_until(lambda: not before.queue.unannounced())
    before.approvals.work()
    assert len(before.told) == 1
    assert ran.read_text().count("\n") == 1


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_no_event_is_lost_if_the_queue_cannot_note_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    north = north_in(tmp_path)
    north.ask(JOB)
    north.at += 60

    def full_disk(*_: object) -> None:
        raise QueueError("The disk is full.", "Make room.")

    with monkeypatch.context() as broken:
        broken.setattr(north.queue, "change", full_disk)
        north.approvals.work()
    north.approvals.work()
    assert north.told == [EXPIRED, EXPIRED]
    assert [each.state for each in north.queue.requests()] == [RequestState.EXPIRED]


def test_a_job_that_cannot_be_read_holds_up_no_notification(tmp_path: Path) -> None:
    shown = tmp_path / "shown"

    def only_other(request: ApprovalRequest, _: bytes) -> dict[str, Any]:
        check(request.job == OTHER, "Another version wrote it.", "Reject it.")
        return {**ABOUT, "job": request.job}

    north = north_in(tmp_path, only_other, "/bin/sh", "-c", f"cat >> '{shown}'; echo >> '{shown}'")
    north.ask(JOB)
    north.ask(OTHER)
    north.approvals.work()
    assert [(event, fields["job"]) for event, fields in north.told] == [
        ("awaiting-approval", JOB),
        ("awaiting-approval", OTHER),
    ]
    until = time.monotonic() + 20
    while not shown.exists() or shown.read_text().count("\n") < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    unread, read = (json.loads(line) for line in shown.read_text().splitlines())
    assert (unread["job"], unread["state"]) == (JOB, "waiting")
    assert "Another version" in unread["problem"]
    assert read == {**ABOUT, "job": OTHER}
