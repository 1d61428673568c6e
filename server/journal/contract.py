"""The contract of every journal: what it records, and what it promises.

It records four things, each in one synced transaction before anybody outside can see the effect: that a job was
accepted; the digest of the next query with the sum of the query before, and its weights; how a job ended, with its
model; and that a job is forgotten. The second and third also record the receipts that providers sent with their
answers. Answers are not recorded: providers keep them and send the same bytes again.

A restart replays a job's coroutine from its sums. An altered sum is detected, because it leads to another query than
the one that was recorded with it.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from dpspca.common.arrays import Integers
from dpspca.common.decoding import STORED, decode, parse_json
from dpspca.common.errors import DpspcaError
from dpspca.common.results import Weighed
from dpspca.common.transport import FRAME
from dpspca.server.job_states import JobRecord

PIECE: Final = FRAME
"""Bytes of a stored piece of a sum or model: large ones are never copied whole, and models are sent piece by piece."""

_MOST: Final = 1 << 32
_QUERIES: Final = "questions"
"""The key under which version 0.1.0 wrote a job's number of queries; it stays in use."""

NO_RECEIPTS: Final[Mapping[str, bytes]] = MappingProxyType({})


class JournalError(DpspcaError):
    """The journal cannot be written or read, or another coordinator holds it. The caller must stop all work."""

    code = "journal"


class DamagedJournalError(JournalError):
    """The journal has content that no coordinator writes."""

    code = "journal-damaged"


class JournalLostError(JournalError):
    """This coordinator does not hold the journal (any longer). Another one may hold it."""

    code = "journal-lost"


class StoppingError(JournalError):
    """The coordinator is stopping, and accepts nothing new."""

    code = "stopping"


@dataclass(frozen=True, eq=False, slots=True)
class Sum:
    """The complete sum of the answers to one query, the number of providers in it, and how they were weighed."""

    total: Integers
    parties: int
    weighed: Weighed | None = None


@dataclass(frozen=True, slots=True)
class RecordedQuery:
    """A query that may have been sent: the digest of its content.

    If its sum is recorded, then also the number of answers, and how they were weighed.
    """

    digest: str
    parties: int | None
    weighed: Weighed | None = None


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """A job in the journal. ``queries`` of its queries may have been sent; the last has no sum."""

    job: JobRecord
    signed: bytes
    queries: int
    model_bytes: int


class Journal(Protocol):
    """A journal. Used by one thread at a time.

    When a method returns, its whole change is on disk. When it raises ``JournalError``, its caller must act as if the
    change had not happened. A journal has one holder at a time, and no other process can write to it.
    """

    heartbeat_seconds: float
    """How often ``check`` must be called for the hold to last."""

    def hold(self) -> bool:
        """Become the only holder and prepare the journal; false while another holds it."""
        ...

    def check(self) -> None:
        """Raise if the journal is no longer held."""
        ...

    def accept(self, job: JobRecord, signed: bytes) -> None:
        """Record a new job."""
        ...

    def ask(
        self,
        job: JobRecord,
        position: int,
        digest: str,
        before: Sum | None,
        receipts: Mapping[str, bytes] = NO_RECEIPTS,
    ) -> None:
        """Record a running job's state, its next query, and the sum of the query before, if there is one.

        ``receipts`` replace those that the journal has of the same providers.
        """
        ...

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        """Record how a running job ended, and delete its sums. A job that is done has a model; no other job has one.

        ``receipts`` replace those that the journal has of the same providers.
        """
        ...

    def forget(self, jobs: Collection[str]) -> None:
        """Delete everything about these jobs."""
        ...

    def drop_models(self, jobs: Collection[str]) -> None:
        """Delete the models of these jobs."""
        ...

    def jobs(self) -> list[RecordedJob]:
        """Return every job, in the order of acceptance."""
        ...

    def job(self, name: str) -> JobRecord | None:
        """Return a job's state, if the job is known."""
        ...

    def query(self, job: str, position: int) -> RecordedQuery | None:
        """Return a query of a running job, if it may have been sent."""
        ...

    def total(self, job: str, position: int, shape: tuple[int, ...]) -> Integers:
        """Return a recorded sum."""
        ...

    def model(self, job: str, piece: int) -> bytes:
        """Return a piece of a model; past its end, no bytes."""
        ...

    def signed(self, job: str) -> bytes:
        """Return a job as its analyst signed it; no bytes if it is not known."""
        ...

    def receipts(self) -> dict[str, bytes]:
        """Return the last receipt of every provider. Receipts stay when their jobs are forgotten."""
        ...

    def close(self) -> None:
        """Release the journal without changing it."""
        ...


def write_job(job: JobRecord) -> str:
    """Write a job's state as JSON."""
    fields = asdict(job)
    fields[_QUERIES] = fields.pop("queries")
    return json.dumps(fields, sort_keys=True)


def read_job(text: str) -> JobRecord:
    """Read what ``write_job`` wrote."""
    try:
        raw = parse_json(text, "The job")
        raw["queries"] = raw.pop(_QUERIES)
        job = decode(JobRecord, raw, STORED)
        _require_counts(job.queries, job.answered, job.bytes_moved >> 32)
        for each in job.participants.values():
            _require_counts(each.asked, each.answered, each.rows or 0)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise damaged_error(f"a job's state cannot be read ({type(problem).__name__})") from None
    return job


def _require_counts(*numbers: int) -> None:
    """Refuse numbers that do not fit into the 32 bits that messages have for them."""
    for number in numbers:
        if not 0 <= number < _MOST:
            raise ValueError(number)


def read_weights(text: str | None, parties: int | None) -> Weighed | None:
    """Read how the answers in a sum were weighed; None if they were added up as they were."""
    try:
        return None if text is None else Weighed.from_json(text, parties or 0)
    except ValueError:
        raise damaged_error("the weights of a sum cannot be read") from None


def join(pieces: Iterable[bytes], shape: tuple[int, ...]) -> Integers:
    """Join the pieces of a sum."""
    total = np.empty(shape, dtype="<i8")
    content, start = total.data.cast("B"), 0
    for piece in pieces:
        end = start + len(piece)
        if end <= len(content):
            content[start:end] = piece
        start = end
    if start != len(content):
        raise damaged_error(f"a sum has {start} bytes instead of {len(content)}")
    return total.astype(np.int64, copy=False)


def damaged_error(what: str) -> DamagedJournalError:
    """Return the error for contents that no coordinator writes."""
    return DamagedJournalError(
        f"The journal is damaged: {what}.", "Restore a backup of it, or start with a new journal."
    )
