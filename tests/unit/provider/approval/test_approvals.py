"""The daemon's part of approvals, on a real queue and ledger."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from local_federation import Enrolment

from dpspca.common.checks import check
from dpspca.common.names import Role
from dpspca.common.storage import ApprovalSettings
from dpspca.provider.approval import ApprovalQueue, ApprovalRequest, Approvals, RequestState
from dpspca.provider.approval.queue import QueueError
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy import ApprovalRule

NOON = 1_800_000_000
JOB, OTHER, ADA = "a" * 64, "b" * 64, "dpspca://town/analyst/ada"
ABOUT = {"job": JOB, "data_set": "cohort", "analyst": ADA}
EXPIRED = ("approval-expired", ABOUT)

Summarize = Callable[[ApprovalRequest, bytes], dict[str, Any]]


class Rules:
    """Rules for which a person has to approve every job."""

    approval_rule = ApprovalRule(("maria",), 1)

    def rules(self, _: str) -> "Rules":
        return self


class North:
    """A provider's approvals, with the events that they told, and a clock to set."""

    def __init__(self, folder: Path, summarize: Summarize, settings: ApprovalSettings) -> None:
        identity = Enrolment.create(folder / "town").identity(Role.PROVIDER, "north")
        self.at, self.told = NOON, list[tuple[str, dict[str, Any]]]()
        self.queue = ApprovalQueue(folder / "approvals.db")
        self.approvals = Approvals(
            self.queue,
            MemoryLedger(),
            lambda: identity,
            Rules,
            lambda: datetime.fromtimestamp(self.at, UTC),
            settings,
            summarize,
            lambda event, /, **fields: self.told.append((event, fields)),
        )

    def ask(self, job: str) -> None:
        waiting = ApprovalRequest(job, ADA, "cohort", NOON, NOON + 60, NOON + 600, RequestState.WAITING)
        self.queue.ask(waiting, b"signed", 5)


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
