"""A job that waits for a person's approval, and the table of its states. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from dpspca.common.errors import RefusedError


class RequestState(StrEnum):
    """The state of a request for approval. Only a waiting one can be approved."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    ENDED = "ended"


class RequestEvent(StrEnum):
    """Events of a request."""

    ASK = "be asked for again"
    APPROVE = "be approved"
    REJECT = "be rejected"
    EXPIRE = "expire"
    END = "end"


_S, _E = RequestState, RequestEvent
TRANSITIONS: Final[Mapping[tuple[RequestState, RequestEvent], RequestState]] = MappingProxyType(
    {
        (_S.WAITING, _E.ASK): _S.WAITING,
        (_S.WAITING, _E.APPROVE): _S.APPROVED,
        (_S.WAITING, _E.REJECT): _S.REJECTED,
        (_S.WAITING, _E.EXPIRE): _S.EXPIRED,
        (_S.WAITING, _E.END): _S.ENDED,
        (_S.APPROVED, _E.ASK): _S.WAITING,  # the policy asks for more than it did when the job was approved
        (_S.APPROVED, _E.REJECT): _S.REJECTED,
        (_S.APPROVED, _E.END): _S.ENDED,
    }
)
"""The events that each state of a request allows, and the next states. Anything else is refused and changes nothing."""


def after(state: RequestState, event: RequestEvent) -> RequestState:
    """Return the state after an event, or refuse an event that the state does not allow."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise RefusedError(f"A job that is {state} cannot {event}.", "Ask the analyst to sign a new job.")
    return found


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A job in the queue. Times are in seconds since 1970. ``lapses_at`` is when it stops waiting for a decision."""

    job: str
    analyst: str
    data_set: str
    asked_at: int
    lapses_at: int
    expires_at: int
    state: RequestState
