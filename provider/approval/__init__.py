"""Jobs that a person has to approve: the queue, the decisions, and what they say in words."""

from .decisions import (
    APPROVE,
    REJECT,
    NotApprovedError,
    RejectedError,
    Standing,
    make_decision,
    require_approved,
    require_signed,
    standing_of,
)
from .desk import ApprovalDesk, AwaitingApprovalError, RequestExpiredError
from .queue import QUEUE_FILE, ApprovalQueue, QueueError, StoredDecision
from .requests import TRANSITIONS, Request, RequestEvent, RequestState
from .words import CENTERING, SignedContent, balance_facts, decision_facts, job_facts, lines, request_facts, summary

__all__ = [
    "APPROVE",
    "CENTERING",
    "QUEUE_FILE",
    "REJECT",
    "TRANSITIONS",
    "ApprovalDesk",
    "ApprovalQueue",
    "AwaitingApprovalError",
    "NotApprovedError",
    "QueueError",
    "RejectedError",
    "Request",
    "RequestEvent",
    "RequestExpiredError",
    "RequestState",
    "SignedContent",
    "Standing",
    "StoredDecision",
    "balance_facts",
    "decision_facts",
    "job_facts",
    "lines",
    "make_decision",
    "request_facts",
    "require_approved",
    "require_signed",
    "standing_of",
    "summary",
]
