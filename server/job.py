"""What can become of a job, a table that code, tests and docs read alike; and how long its result is kept."""

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
    participants: Mapping[str, Participant] = field(default_factory=dict)

    def after(self, event: Event, reason: str = "", *, now: float = 0.0) -> "JobRecord":
        """Give the job after an event at ``now``; one that cannot happen raises, and nothing happened."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RefusedError(f"A job that is {self.state} cannot {event}.", "Look at the job's state first.")
        return replace(self, state=following, reason=reason, ended=now if following.is_final else 0.0)

    def asked_up_to(self, queries: int) -> "JobRecord":
        """Give the job as it may be after a restart, which nobody noted: all that take part may have been asked."""
        asked = {
            name: each if each.reason else replace(each, asked=max(each.asked, queries))
            for name, each in self.participants.items()
        }
        return replace(self, participants=asked)

    def with_participant(self, name: str, participant: Participant) -> "JobRecord":
        """Give the job with one participant's record replaced."""
        return replace(self, participants={**self.participants, name: participant})


class ResultGoneError(RefusedError):
    """The job is done, and its result has made room for newer ones."""

    code = "result-gone"


class Results:
    """Which models of finished jobs are kept, and how many bytes they take: never more than ``most`` together.

    Where there are too many, whoever keeps most loses the oldest of theirs. So an analyst who keeps no more than an
    equal share, ``most`` divided by the number of analysts that keep any, loses nothing to the others.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._kept: dict[str, dict[str, int]] = {}

    def keep(self, analyst: str, job: str, size: int) -> list[str]:
        """Keep a result, and give the jobs whose results have to go: it may be one of them."""
        self._kept.setdefault(analyst, {})[job] = size
        gone: list[str] = []
        while self.size > self.most:
            loser = max(self._kept, key=self.size_of)
            gone.append(next(iter(self._kept[loser])))
            self.drop(loser, gone[-1])
        return gone

    def drop(self, analyst: str, job: str) -> None:
        """Let a result go, if there is one."""
        own = self._kept.get(analyst, {})
        own.pop(job, None)
        if not own:
            self._kept.pop(analyst, None)

    def require(self, analyst: str, job: str) -> None:
        """Refuse a result that is not kept any more."""
        if job not in self._kept.get(analyst, {}):
            raise ResultGoneError(
                "The job is done, but its result is no longer here: a coordinator keeps results up to a limit, and "
                "this one made room for newer ones.",
                "Use the model if it was fetched before; else submit the job anew, which costs its privacy again.",
            )

    def size_of(self, analyst: str) -> int:
        """Count the bytes kept for an analyst."""
        return sum(self._kept.get(analyst, {}).values())

    @property
    def size(self) -> int:
        """Count the bytes kept."""
        return sum(map(self.size_of, self._kept))
