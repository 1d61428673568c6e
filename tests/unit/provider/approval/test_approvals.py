"""The daemon's part of approvals, on a real queue and ledger."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from local_federation import Enrolment

from dpspca.common.names import Role
from dpspca.provider.approval import ApprovalQueue, ApprovalRequest, Approvals, RequestState
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.policy import ApprovalRule

NOON = 1_800_000_000
JOB, ADA = "a" * 64, "dpspca://town/analyst/ada"


class Rules:
    """Rules for which a person has to approve every job."""

    approval_rule = ApprovalRule(("maria",), 1)

    def rules(self, _: str) -> "Rules":
        return self


def test_events_tell_once_that_a_job_waits_and_that_nobody_decided(tmp_path: Path) -> None:
    north = Enrolment.create(tmp_path / "town").identity(Role.PROVIDER, "north")
    told, at = list[tuple[str, dict[str, Any]]](), [NOON]
    queue = ApprovalQueue(tmp_path / "approvals.db")
    approvals = Approvals(
        queue,
        MemoryLedger(),
        lambda: north,
        Rules,
        lambda: datetime.fromtimestamp(at[0], UTC),
        summarize=lambda request, _: {"job": request.job},
        events=lambda event, /, **fields: told.append((event, fields)),
    )
    queue.ask(ApprovalRequest(JOB, ADA, "cohort", NOON, NOON + 60, NOON + 600, RequestState.WAITING), b"signed", 5)
    about = {"job": JOB, "data_set": "cohort", "analyst": ADA}
    for _ in range(3):
        approvals.work()
    assert told == [("awaiting-approval", about | {"until": NOON + 60})]
    at[0] += 60
    for _ in range(3):
        approvals.work()
    assert told[1:] == [("approval-expired", about)]
