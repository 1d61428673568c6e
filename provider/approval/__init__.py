"""Jobs that a person has to approve: the queue, the decisions, and what they say in words."""

from .approvals import Approvals, AwaitingApprovalError, RequestExpiredError
from .decisions import (
    ApprovalStatus,
    NotApprovedError,
    RejectedError,
    SharedAccountError,
    approval_status,
    make_decision,
    require_approved,
    require_own_account,
    require_signed,
)
from .queue import QUEUE_FILE, ApprovalQueue, QueueError, StoredDecision
from .requests import TRANSITIONS, ApprovalRequest, RequestEvent, RequestState
from .words import (
    CENTERING,
    PROBLEMS,
    SignedContent,
    balance_facts,
    decision_facts,
    lines,
    request_facts,
    requested_job_facts,
    summary,
)

__all__ = [
    "CENTERING",
    "PROBLEMS",
    "QUEUE_FILE",
    "TRANSITIONS",
    "ApprovalQueue",
    "ApprovalRequest",
    "ApprovalStatus",
    "Approvals",
    "AwaitingApprovalError",
    "NotApprovedError",
    "QueueError",
    "RejectedError",
    "RequestEvent",
    "RequestExpiredError",
    "RequestState",
    "SharedAccountError",
    "SignedContent",
    "StoredDecision",
    "approval_status",
    "balance_facts",
    "decision_facts",
    "lines",
    "make_decision",
    "request_facts",
    "requested_job_facts",
    "require_approved",
    "require_own_account",
    "require_signed",
    "summary",
]
