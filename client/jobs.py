"""What the coordinator tells of jobs and data sets, as plain values. It is a stranger's word: nothing rests on it."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidDataError
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.lattice import MAX_PARTIES
from dpspca.common.spec import JobSpec, Schema, check
from dpspca.common.transport.names import check_name
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .bounds import COLUMNS, LISTED, PER_COLUMN, PER_OFFER, PER_PARTICIPANT, Count
from .errors import TooMuchError

FINAL: Final = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Offer:
    """A data set at one provider that is connected now."""

    provider: str
    data_set: str
    schema: Schema

    def to_dict(self) -> dict[str, Any]:
        """Give plain values."""
        return {
            "provider": self.provider,
            "data_set": self.data_set,
            "dimension": self.schema.dimension,
            "columns": self.schema.names,
        }


class Offers:
    """Reads the offers of one list. Columns are kept once, however many providers offer the same."""

    def __init__(self) -> None:
        self._kept = Count(COLUMNS)
        self._schemas: dict[Schema, Schema] = {}

    def read(self, message: pb.Offer) -> Offer:
        """Read the coordinator's message."""
        told = message.data_set
        self._kept.add_bytes(PER_OFFER)
        columns = len(told.columns)
        check(
            columns in {0, told.dimension},
            f"The coordinator sent {columns} names for {told.dimension} columns.",
            "Do not trust it, and tell its operator.",
        )
        provider, data_set = check_name("the provider", message.provider), check_name("the data set", told.name)
        schema = Schema(told.dimension, tuple(told.columns) or None)
        if schema not in self._schemas:
            self._kept.add_bytes(message.ByteSize() + PER_COLUMN * columns)
            self._schemas[schema] = schema
        return Offer(provider, data_set, self._schemas[schema])


@dataclass(frozen=True, slots=True)
class ParticipantStatus:
    """One provider in one job: what it was asked, what of its answers counts, and why it dropped out if it did."""

    name: str
    asked: int
    answered: int
    reason: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands."""

    name: str
    analyst: str
    data_set: str
    state: str
    reason: str
    questions: int
    answered: int
    step: str
    bytes_moved: int
    submitted: datetime
    ended: datetime | None
    participants: tuple[ParticipantStatus, ...]

    @classmethod
    def of(cls, message: pb.Job) -> "JobStatus":
        """Read the coordinator's message."""
        if len(message.participants) > MAX_PARTIES:
            raise TooMuchError.of(f"{len(message.participants)} participants of a job", MAX_PARTIES)
        return cls(
            name=message.job,
            analyst=message.analyst,
            data_set=message.data_set,
            state=message.state,
            reason=message.reason,
            questions=message.questions,
            answered=message.answered,
            step=message.step,
            bytes_moved=message.bytes_moved,
            submitted=_moment(message.submitted),
            ended=_moment(message.ended) if message.ended else None,
            participants=tuple(
                ParticipantStatus(each.name, each.asked, each.answered, each.reason) for each in message.participants
            ),
        )

    @property
    def is_final(self) -> bool:
        """Tell whether nothing more will happen."""
        return self.state in FINAL

    def is_news_after(self, told: "JobStatus") -> bool:
        """Tell whether this is news to whoever was told that: a coordinator that starts anew goes back a little."""
        behind = (self.answered, self.state != "waiting") < (told.answered, told.state != "waiting")
        return self.is_final or (self != told and not behind)

    def to_dict(self) -> dict[str, Any]:
        """Give plain values; times in ISO 8601."""
        times = {"submitted": self.submitted.isoformat(), "ended": self.ended.isoformat() if self.ended else None}
        return asdict(self) | times


class Listed:
    """Reads the jobs of one list."""

    def __init__(self) -> None:
        self._kept = Count(LISTED)

    def read(self, message: pb.Job) -> JobStatus:
        """Read the coordinator's message."""
        self._kept.add_bytes(message.ByteSize() + PER_PARTICIPANT * len(message.participants))
        return JobStatus.of(message)


@lru_cache(maxsize=1024)
def spent(spec: JobSpec, questions: int) -> float:
    """Give the epsilon, at the job's delta, that a job's first questions cost a provider that answered them.

    How many questions there are and how noisy each is was fixed beforehand, so composing those asked is right.
    """
    paid = catalogue.plan(spec)[:questions]
    return compose(events(paid)).epsilon(spec.budget.delta) if events(paid) else 0.0


def _moment(seconds: float) -> datetime:
    """Read a time of the coordinator's."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidDataError("The coordinator tells a time that is none.", "Do not trust it.") from None
