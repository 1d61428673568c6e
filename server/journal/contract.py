"""What the coordinator must not forget, and the contract of every journal that remembers it.

Four things are recorded, each in one synced transaction before it takes effect outside: that a job was accepted; which
query is asked next, by the digest of its content, and with it the sum of the query before; how a job ended, with
its model; and that a job is forgotten. With the second and the third come the receipts that its providers gave with
their answers. Answers are not recorded: providers keep them, and send the same bytes again.
A restart replays a job's coroutine from its sums. A sum that was altered cannot go unnoticed: the query it led to
was recorded in the same transaction, and would be another.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from dpspca.common import stored_values
from dpspca.common.arrays import Integers
from dpspca.common.errors import DpspcaError
from dpspca.common.transport import FRAME
from dpspca.server.job import JobRecord, Participant, State

PIECE: Final = FRAME
"""Bytes in which sums and models are kept: none is ever copied whole, and a model is sent as it is kept."""

_MOST: Final = 1 << 32
_QUERIES: Final = "questions"
"""How version 0.1.0 wrote the number of queries of a job; journals keep that form."""

NO_RECEIPTS: Final[Mapping[str, bytes]] = MappingProxyType({})


class JournalError(DpspcaError):
    """The journal cannot be written or read, or is another's: whoever gets this must not act any more."""

    code = "journal"


@dataclass(frozen=True, eq=False, slots=True)
class Sum:
    """The whole sum of the answers to one query, and how many providers' answers it holds."""

    total: Integers
    parties: int


@dataclass(frozen=True, slots=True)
class Asked:
    """A query that may have been asked: whose content it had, and how many answered if its sum is recorded."""

    digest: str
    parties: int | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A job as the journal knows it; ``queries`` may have been asked, the last of them without a sum."""

    job: JobRecord
    signed: bytes
    queries: int
    model_bytes: int


class Journal(Protocol):
    """A journal. Used by one thread at a time.

    What returns is on the disk, whole; what raises ``JournalError`` has, as far as anybody outside may assume, not
    happened, and its caller must not act on it. A journal has one holder at a time, and whoever is no longer its
    holder can write nothing.
    """

    heartbeat_seconds: float
    """How often ``check`` must be called for the hold to last."""

    def hold(self) -> bool:
        """Become the one holder, and make the journal ready; false while another holds it."""
        ...

    def check(self) -> None:
        """Raise if the journal is not held any more."""
        ...

    def accept(self, job: JobRecord, signed: bytes) -> None:
        """Record a job that was not accepted before."""
        ...

    def ask(
        self,
        job: JobRecord,
        position: int,
        digest: str,
        before: Sum | None,
        receipts: Mapping[str, bytes] = NO_RECEIPTS,
    ) -> None:
        """Record how a running job stands, its next query, and the sum of the query before, if there is one.

        With it come the receipts of providers, by name, each in the place of the one before.
        """
        ...

    def end(self, job: JobRecord, model: bytes | None, receipts: Mapping[str, bytes] = NO_RECEIPTS) -> None:
        """Record how a running job ended; done it is with a model, and only then. Its sums are dropped.

        With it come the receipts of providers, as with a query.
        """
        ...

    def forget(self, jobs: Collection[str]) -> None:
        """Drop all that is known of jobs."""
        ...

    def drop_models(self, jobs: Collection[str]) -> None:
        """Drop the models of jobs."""
        ...

    def jobs(self) -> list[Recorded]:
        """Give every job, in the order of acceptance."""
        ...

    def job(self, name: str) -> JobRecord | None:
        """Give how a job stands, if it is known."""
        ...

    def query(self, job: str, position: int) -> Asked | None:
        """Give a query of a running job, if it may have been asked."""
        ...

    def total(self, job: str, position: int, shape: tuple[int, ...]) -> Integers:
        """Give a recorded sum."""
        ...

    def model(self, job: str, piece: int) -> bytes:
        """Give a piece of a model; past its end, nothing."""
        ...

    def signed(self, job: str) -> bytes:
        """Give a job as its analyst signed it; nothing if it is not known."""
        ...

    def receipts(self) -> dict[str, bytes]:
        """Give the last receipt of every provider; they outlast the jobs that they came with."""
        ...

    def close(self) -> None:
        """Let go of the journal; it stays as it is."""
        ...


def write_job(job: JobRecord) -> str:
    """Write how a job stands."""
    fields = asdict(job)
    fields[_QUERIES] = fields.pop("queries")
    return json.dumps(fields, sort_keys=True)


def read_job(text: str) -> JobRecord:
    """Read what ``write_job`` wrote."""
    try:
        raw = json.loads(text)
        raw["queries"] = raw.pop(_QUERIES)
        participants = {name: stored_values.made(Participant, each) for name, each in raw.pop("participants").items()}
        job = stored_values.made(JobRecord, raw, participants=participants)
        _require_counts(job.queries, job.answered, job.bytes_moved >> 32)
        for each in participants.values():
            _require_counts(each.asked, each.answered)
        return replace(job, state=State(job.state))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as problem:
        raise damaged(f"how a job stands cannot be read ({type(problem).__name__})") from None


def _require_counts(*numbers: int) -> None:
    """Refuse numbers that messages, which tell them in 32 bits, could not carry."""
    for number in numbers:
        if not 0 <= number < _MOST:
            raise ValueError(number)


def join(pieces: Iterable[bytes], shape: tuple[int, ...]) -> Integers:
    """Put the pieces of a sum together, as they come."""
    total = np.empty(shape, dtype="<i8")
    content, start = total.data.cast("B"), 0
    for piece in pieces:
        end = start + len(piece)
        if end <= len(content):
            content[start:end] = piece
        start = end
    if start != len(content):
        raise damaged("a sum is not of the size that its job asks for")
    return total.astype(np.int64, copy=False)


def damaged(what: str) -> JournalError:
    """Say that what is recorded cannot be."""
    return JournalError(f"The journal is damaged: {what}.", "Restore a backup of it, or begin with a new one.")
