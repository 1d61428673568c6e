"""The states of a job, in a table that code, tests and docs share, and the limit on stored results."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from dpspca.common.errors import RefusedError


class State(StrEnum):
    """The state of a job. The last three are final."""

    WAITING = "waiting"
    AWAITING_APPROVAL = "waiting for approval"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self in {State.DONE, State.FAILED, State.CANCELLED}


class Event(StrEnum):
    """Events of a job."""

    AWAIT = "wait for approval"
    BEGIN = "begin"
    FINISH = "finish"
    FAIL = "fail"
    CANCEL = "cancel"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(
    {
        (State.WAITING, Event.AWAIT): State.AWAITING_APPROVAL,
        (State.WAITING, Event.BEGIN): State.RUNNING,
        (State.WAITING, Event.FAIL): State.FAILED,
        (State.WAITING, Event.CANCEL): State.CANCELLED,
        (State.AWAITING_APPROVAL, Event.BEGIN): State.RUNNING,
        (State.AWAITING_APPROVAL, Event.FAIL): State.FAILED,
        (State.AWAITING_APPROVAL, Event.CANCEL): State.CANCELLED,
        (State.RUNNING, Event.FINISH): State.DONE,
        (State.RUNNING, Event.FAIL): State.FAILED,
        (State.RUNNING, Event.CANCEL): State.CANCELLED,
    }
)


@dataclass(frozen=True, slots=True)
class JobParticipant:
    """One provider in one job: how many queries it was asked and answered, and why it dropped out, if it did.

    ``rows`` is how many rows it said that it has, if sums are weighed by it.

    ``awaiting_since`` is when the job began to wait for a person's approval there, in seconds since 1970. It is 0 if
    the job does not wait there. ``awaiting_until`` is when the wait ends if nobody decides.
    """

    asked: int = 0
    answered: int = 0
    reason: str = ""
    rows: int | None = None
    awaiting_since: float = 0.0
    awaiting_until: float = 0.0


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as its analyst may see it."""

    name: str
    analyst: str
    data_set: str
    queries: int
    state: State = State.WAITING
    reason: str = ""
    answered: int = 0
    step: str = ""
    bytes_moved: int = 0
    submitted: float = 0.0
    ended: float = 0.0
    participants: Mapping[str, JobParticipant] = field(default_factory=dict)

    @property
    def losses(self) -> str:
        """Say why providers dropped out: each reason once, with the names of all whose reason it is."""
        names: dict[str, list[str]] = {}
        for name, each in self.participants.items():
            if each.reason:
                names.setdefault(each.reason, []).append(name)
        return " ".join(f"{', '.join(named)}: {reason}" for reason, named in names.items())

    def after(self, event: Event, reason: str = "", *, now: float = 0.0) -> "JobRecord":
        """Return the job after an event at ``now``. An event that this state does not allow raises."""
        next_state = TRANSITIONS.get((self.state, event))
        if next_state is None:
            raise RefusedError(f"A job that is {self.state} cannot {event}.", "Check the job's state first.")
        participants = self.participants
        if self.state is State.AWAITING_APPROVAL:
            participants = {
                name: replace(each, awaiting_since=0.0, awaiting_until=0.0) for name, each in participants.items()
            }
        ended = now if next_state.is_final else 0.0
        return replace(self, state=next_state, reason=reason, ended=ended, participants=participants)

    def with_asked_at_least(self, queries: int) -> "JobRecord":
        """Return the job for a restart: each provider that takes part may have been asked this many queries."""
        asked = {
            name: each if each.reason else replace(each, asked=max(each.asked, queries))
            for name, each in self.participants.items()
        }
        return replace(self, participants=asked)

    def with_participant(self, name: str, participant: JobParticipant) -> "JobRecord":
        """Return the job with one participant's record replaced."""
        return replace(self, participants={**self.participants, name: participant})


class ResultGoneError(RefusedError):
    """The job is done, but its result was deleted to make room for newer ones."""

    code = "result-gone"


class Results:
    """Which models of finished jobs are stored, and their sizes: never more than ``max_bytes`` together.

    When they exceed the limit, the analyst with the most bytes loses the oldest result. So an analyst who stores at
    most an equal share, ``max_bytes`` divided by the number of analysts with results, loses nothing to the others.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._sizes: dict[str, dict[str, int]] = {}

    def keep(self, analyst: str, job: str, size: int) -> list[str]:
        """Add a result, and return the jobs whose results must be deleted; this job may be one of them."""
        self._sizes.setdefault(analyst, {})[job] = size
        dropped: list[str] = []
        while self.size > self.max_bytes:
            largest = max(self._sizes, key=self.size_of)
            dropped.append(next(iter(self._sizes[largest])))
            self.drop(largest, dropped[-1])
        return dropped

    def drop(self, analyst: str, job: str) -> None:
        """Remove a result, if there is one."""
        own = self._sizes.get(analyst, {})
        own.pop(job, None)
        if not own:
            self._sizes.pop(analyst, None)

    def require(self, analyst: str, job: str) -> None:
        """Refuse a result that is no longer stored."""
        if job not in self._sizes.get(analyst, {}):
            raise ResultGoneError(
                f"The job is done, but the coordinator no longer has its result: it stores at most {self.max_bytes} "
                "bytes of results and deleted this one to make room for newer ones.",
                "Use the model if you fetched it before. Otherwise submit a new job, which costs its price again.",
            )

    def size_of(self, analyst: str) -> int:
        """Count the bytes stored for an analyst."""
        return sum(self._sizes.get(analyst, {}).values())

    @property
    def size(self) -> int:
        """Count the bytes stored."""
        return sum(map(self.size_of, self._sizes))
