"""What can become of a job: a table that code, tests and docs read alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from dpspca.common.errors import RefusedError


class State(StrEnum):
    """Where a job stands. The last three are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Tell whether nothing more will happen."""
        return self in {State.DONE, State.FAILED, State.CANCELLED}


class Event(StrEnum):
    """What happens to a job."""

    BEGIN = "begin"
    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (State.WAITING, Event.BEGIN): State.RUNNING,
        (State.WAITING, Event.FAIL): State.FAILED,
        (State.WAITING, Event.CANCEL): State.CANCELLED,
        (State.RUNNING, Event.FINISH): State.DONE,
        (State.RUNNING, Event.FAIL): State.FAILED,
        (State.RUNNING, Event.CANCEL): State.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True)
class Participant:
    """One provider in one job: what it was asked, what of its answers counts, and why it dropped out if it did."""

    asked: int = 0
    answered: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its analyst may see it."""

    name: str
    analyst: str
    data_set: str
    questions: int
    state: State = State.WAITING
    reason: str = ""
    answered: int = 0
    step: str = ""
    bytes_moved: int = 0
    submitted: float = 0.0
    ended: float = 0.0
    participants: Mapping[str, Participant] = field(default_factory=dict)

    def after(self, event: Event, reason: str = "", *, now: float = 0.0) -> "Job":
        """Give the job after an event at ``now``; one that cannot happen raises, and nothing happened."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RefusedError(f"A job that is {self.state} cannot {event}.", "Look at the job's state first.")
        return replace(self, state=following, reason=reason, ended=now if following.is_final else 0.0)

    def with_participant(self, name: str, participant: Participant) -> "Job":
        """Give the job with one participant's record replaced."""
        return replace(self, participants={**self.participants, name: participant})
