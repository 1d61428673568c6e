"""The coordinator's messages about jobs and data sets, as plain values. They are not trusted: no promise needs them."""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dpspca.common.checks import check
from dpspca.common.dictionary import PinnedDictionary
from dpspca.common.errors import InvalidDataError
from dpspca.common.job import Schema
from dpspca.common.names import check_name
from dpspca.common.privacy import MAX_PROVIDERS
from dpspca.common.results import Origin, Participant
from dpspca.common.version import __version__
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .bounds import COLUMNS, LISTED, PER_COLUMN, PER_OFFER, PER_PARTICIPANT, ReplyCount
from .errors import TooMuchError

FINAL: Final = frozenset({"done", "failed", "cancelled"})
AWAITING_APPROVAL: Final = "waiting for approval"
_BEFORE_QUERIES: Final = {"waiting": 0, AWAITING_APPROVAL: 1}
"""The states of a job before its first query, in their order."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A data set that one connected provider offers."""

    provider: str
    data_set: str
    schema: Schema
    dictionary: PinnedDictionary | None = None
    """The dictionary by which its rows were prepared. The provider's signed terms state the digest too."""
    is_sparse: bool = False
    """Whether its rows are stored without their zeros, so that no mean can be subtracted."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "provider": self.provider,
            "data_set": self.data_set,
            "dimension": self.schema.dimension,
            "columns": self.schema.names,
            "dictionary": None if self.dictionary is None else asdict(self.dictionary),
            "is_sparse": self.is_sparse,
        }


class OfferList:
    """Reads the offers of one list. Equal schemas are kept only once."""

    def __init__(self) -> None:
        self._kept = ReplyCount(COLUMNS)
        self._schemas: dict[Schema, Schema] = {}

    def read(self, message: pb.Offer) -> Offer:
        """Read one offer from the coordinator's message."""
        offered = message.data_set
        self._kept.add_bytes(PER_OFFER)
        columns = len(offered.columns)
        check(
            columns in {0, offered.dimension},
            f"The coordinator sent {columns} names for {offered.dimension} columns.",
            "Do not trust this coordinator, and tell its operator.",
        )
        provider, data_set = check_name("the provider", message.provider), check_name("the data set", offered.name)
        schema = Schema(offered.dimension, tuple(offered.columns) or None)
        if schema not in self._schemas:
            self._kept.add_bytes(message.ByteSize() + PER_COLUMN * columns)
            self._schemas[schema] = schema
        pinned = PinnedDictionary(offered.dictionary, offered.dictionary_title) if offered.dictionary else None
        if pinned is not None:
            self._kept.add_bytes(len(pinned.digest) + 4 * len(pinned.title))
        return Offer(provider, data_set, self._schemas[schema], pinned, offered.sparse)


@dataclass(frozen=True, slots=True)
class ParticipantStatus:
    """One provider in one job: queries sent to it, answers that count, and why it dropped out, if it did.

    ``awaiting_approval_since`` says since when a person there has to approve the job, or is None.
    ``awaiting_approval_until`` says when the wait ends if nobody decides. It is None if that is not known, either.
    """

    name: str
    asked: int
    answered: int
    reason: str
    awaiting_approval_since: datetime | None = None
    awaiting_approval_until: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with times in ISO 8601."""
        since, until = _text(self.awaiting_approval_since), _text(self.awaiting_approval_until)
        return asdict(self) | {"awaiting_approval_since": since, "awaiting_approval_until": until}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job."""

    job: str
    analyst: str
    data_set: str
    state: str
    reason: str
    queries: int
    answered: int
    step: str
    bytes_moved: int
    submitted: datetime
    ended: datetime | None
    participants: tuple[ParticipantStatus, ...]

    @classmethod
    def of(cls, message: pb.Job) -> "JobStatus":
        """Read a status from the coordinator's message."""
        if len(message.participants) > MAX_PROVIDERS:
            raise TooMuchError.of(f"{len(message.participants)} participants of one job", MAX_PROVIDERS)
        return cls(
            job=message.job,
            analyst=message.analyst,
            data_set=message.data_set,
            state=message.state,
            reason=message.reason,
            queries=message.queries,
            answered=message.answered,
            step=message.step,
            bytes_moved=message.bytes_moved,
            submitted=_moment(message.submitted),
            ended=_moment_if_known(message.ended),
            participants=tuple(
                ParticipantStatus(
                    each.name,
                    each.asked,
                    each.answered,
                    each.reason,
                    _moment_if_known(each.awaiting_approval_since),
                    _moment_if_known(each.awaiting_approval_until),
                )
                for each in message.participants
            ),
        )

    @property
    def is_final(self) -> bool:
        """Whether the job is over."""
        return self.state in FINAL

    @property
    def answered_by(self) -> int:
        """How many providers took part: they answered all that were sent, which may be fewer than were planned."""
        return sum(each.answered == self.answered for each in self.participants)

    def origin(self, method: str, data_set: str | None) -> Origin:
        """Return where the model of this job comes from, by what the coordinator reports."""
        parts = tuple(Participant(each.name, each.answered, each.reason) for each in self.participants)
        return Origin(
            method=method,
            queries=self.answered,
            software=__version__,
            data_set=data_set,
            job=self.job,
            participants=parts,
        )

    def is_news_after(self, last: "JobStatus") -> bool:
        """Whether this status is newer than ``last``. After a restart a coordinator may report an earlier one."""
        return self.is_final or (self != last and _progress(self) >= _progress(last))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with times in ISO 8601."""
        times = {"submitted": self.submitted.isoformat(), "ended": _text(self.ended)}
        return asdict(self) | times | {"participants": [each.to_dict() for each in self.participants]}


class JobList:
    """Reads the jobs of one list."""

    def __init__(self) -> None:
        self._kept = ReplyCount(LISTED)

    def read(self, message: pb.Job) -> JobStatus:
        """Read one job from the coordinator's message."""
        self._kept.add_bytes(message.ByteSize() + PER_PARTICIPANT * len(message.participants))
        return JobStatus.of(message)


def _progress(status: JobStatus) -> tuple[int, int]:
    return status.answered, _BEFORE_QUERIES.get(status.state, len(_BEFORE_QUERIES))


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _moment_if_known(seconds: float) -> datetime | None:
    """Read a time from the coordinator, which sends zero for none."""
    return _moment(seconds) if seconds else None


def _moment(seconds: float) -> datetime:
    """Read a time from the coordinator."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidDataError(
            f"The coordinator sent {seconds!r} as a time, which is out of range.",
            "Do not trust this coordinator, and tell its operator.",
        ) from None
