"""What was promised, reserved and answered. The order of its calls is the order of ``respond.py``.

The rules are those of ``books.py`` for every ledger; kinds of ledger differ in where entries and answers are kept.
``MemoryLedger`` is the ledger of one process, gone with it: enough where the rows, the analyst and the noise share that
process. ``sqlite_ledger.py`` has the one that lasts.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from threading import RLock
from typing import Final, Protocol, TypeAlias

import numpy as np

from dpspca.common.arrays import Integers

from .accounts import FindEnd, JobPosition, QueryRecord, no_forgotten_jobs
from .entries import Entry, Fact, Founded, Head, LedgerError, Limits, Named, Opening, QuarantinedError
from .promises import Promise
from .rules import EXPIRED, Books

__all__ = ["BaseLedger", "Head", "Ledger", "LedgerError", "Limits", "MemoryLedger", "Opening", "QuarantinedError"]

Clock: TypeAlias = Callable[[], float]
"""Seconds since 1970. Balances never depend on it."""

ANSWER: Final = np.dtype("<i8")
"""How the entries of an answer are kept."""
_NEVER: Final = 1 << 62
_NO_LIMIT: Final = 1 << 300


class Ledger(Protocol):
    """Open, then for each query reserve, store, send; ``stored`` lets the same query get the same bytes again.

    Every ledger keeps this contract. The plans of all jobs that were opened fit into the limits together, in every
    order and from any number of callers. Of callers that saw the same standing, ``reserve`` succeeds for one: two
    answers to one position, or a price paid once for two answers, cannot come about. What raises has recorded nothing
    that a caller may rely on, and nothing may be sent.
    """

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        """Admit a job and reserve the price of its whole plan; or go on with one that was admitted before.

        What is reserved is recorded with the job's first query, and so is under which name its rows are offered, if
        ``named`` says it. Until then a crash forgets the job, which has spent nothing and was told nothing.

        One atomic step. Gives the job's standing, None before its first query. Raises ``BudgetExceededError`` when
        the plan does not fit beside everything spent and reserved, and ``RefusedError`` when the job is over or is not
        the one that was opened; then nothing happened.
        """
        ...

    def standing(self, job: str) -> JobPosition | None:
        """Say how far the job has come, None before its first query."""
        ...

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        """Record durably that the query at ``before`` is about to be answered, and what that costs.

        One atomic step. False, and nothing recorded, when the job no longer stands at ``before``. ``query`` is its
        name in the plan, ``digest`` that of its content.
        """
        ...

    def store(self, job: str, position: int, answer: Integers) -> None:
        """Record the answer durably; only then may it be sent. Raises if the job was closed meanwhile."""
        ...

    def query_digest(self, job: str, position: int) -> str | None:
        """Give the digest of the query that a position was reserved for."""
        ...

    def stored(self, job: str, position: int) -> Integers | None:
        """Give the answer of a position, if it was made and its job is open."""
        ...

    def close(self, job: str, state: str) -> None:
        """End a job for good, drop its answers, and give back the price of queries whose answers were never stored.

        An answer that is being made is refused by ``store`` afterwards. Closing again changes nothing.
        """
        ...

    def require_within(self, data_set: str, analyst: str, limits: Limits) -> None:
        """Refuse if all that is spent and promised is more than these limits allow: they may have been lowered.

        While they do, every job that is open fits into them: what a query costs was promised before.
        """
        ...

    def open_jobs(self) -> tuple[str, ...]:
        """List the jobs that are open."""
        ...

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        """Give the data set that rows of one of these names were offered as when they were first answered about."""
        ...

    def name_rows(self, named: Named, *, anew: bool = False) -> None:
        """Record durably that rows are about to be answered about under the name of a data set, if that is new.

        For rows that arrived since their job was opened.
        """
        ...

    def expire(self, now: float) -> None:
        """Close every job past its expiry."""
        ...

    def require_promise(self, data_set: str, stated: Promise) -> None:
        """Refuse a policy's promise for neighbours that some jobs on a data set did not protect."""
        ...

    def head(self) -> Head:
        """Say how far the ledger has come."""
        ...

    def attested_head(self) -> Head | None:
        """Give the head that whoever gets an answer may be told of; None if the ledger is gone with its process."""
        ...

    def check_head(self, seen: Head) -> str | None:
        """Hear of a head that this provider told of. Give the reason, if that puts the ledger into quarantine.

        It does if the ledger lacks that head, which was never decided on: it may have forgotten what was spent.
        """
        ...


class BaseLedger(ABC):
    """A ledger but for where it is kept; safe to call from any number of threads."""

    def __init__(self, clock: Clock, find_end: FindEnd = no_forgotten_jobs) -> None:
        self._clock = clock
        self._books = Books(find_end)
        self._lock = RLock()

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        with self._lock:
            at = int(self._clock())
            if admitted := self._books.to_open(opening, limits, at):
                self._books.admit(admitted, at, self._books.to_name(named) if named else None)
            return self._books.standing(opening.job)

    def standing(self, job: str) -> JobPosition | None:
        with self._lock:
            return self._books.standing(job)

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        with self._lock:
            reserved = self._books.to_reserve(job, query, digest, before, after)
            return reserved is not None and self._record(*self._books.unwritten(job), reserved)

    def store(self, job: str, position: int, answer: Integers) -> None:
        content = _content(answer)
        digest = sha256(content).hexdigest()
        answer.setflags(write=False)  # what is sent is what is kept
        with self._lock:
            fact = self._books.to_store(job, position, answer.shape, content.nbytes, digest)
            self._record(fact, answer=(job, position, content))

    def query_digest(self, job: str, position: int) -> str | None:
        with self._lock:
            self._books.require_trusted()
            query = self._books.query(job, position)
            return query.digest if query else None

    def stored(self, job: str, position: int) -> Integers | None:
        with self._lock:
            self._books.require_trusted()  # what is kept here may not be what was sent
            query = None if self._books.is_over(job) else self._books.query(job, position)
            return self._fetch(job, position, query) if query and query.answer else None

    def close(self, job: str, state: str) -> None:
        with self._lock:
            self._books.withdraw(job, state)
            self._record(self._books.to_close(job, state))
            self._drop()

    def require_within(self, data_set: str, analyst: str, limits: Limits) -> None:
        with self._lock:
            self._books.require_within(data_set, analyst, limits)

    def open_jobs(self) -> tuple[str, ...]:
        with self._lock:
            return self._books.open_jobs()

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        with self._lock:
            return self._books.data_set_of_rows(names)

    def name_rows(self, named: Named, *, anew: bool = False) -> None:
        with self._lock:
            self._record(self._books.to_name(named, anew=anew))

    def expire(self, now: float) -> None:
        with self._lock:
            overdue = self._books.overdue(now)
            for job in overdue:
                self._books.withdraw(job, EXPIRED)
            self._record(*(self._books.to_close(job, EXPIRED) for job in overdue))
            self._drop()
            self._books.forget(now)

    def require_promise(self, data_set: str, stated: Promise) -> None:
        with self._lock:
            self._books.require_promise(data_set, stated)

    def head(self) -> Head:
        with self._lock:
            return self._books.head

    def vouch(self, data_set: str, protects: float, reason: str) -> None:
        """Record what an operator says that jobs protected of which an earlier version did not record it."""
        with self._lock:
            self._record(self._books.to_vouch(data_set, protects, reason))

    @abstractmethod
    def attested_head(self) -> Head | None:
        """See ``Ledger``."""

    @abstractmethod
    def check_head(self, seen: Head) -> str | None:
        """See ``Ledger``."""

    def _record(self, *facts: Fact | None, answer: "StoredAnswer | None" = None) -> bool:
        """Write facts down and take them in, if there are any; all of them or none."""
        entries = self._books.draft(int(self._clock()), [fact for fact in facts if fact is not None])
        if not entries:
            return False
        self._write(entries, answer)
        for entry in entries:
            self._books.append(entry)
        return True

    @abstractmethod
    def _write(self, entries: Sequence[Entry], answer: "StoredAnswer | None") -> None:
        """Keep entries, and the answer that one of them is about: all of it, durably, or raise."""

    @abstractmethod
    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        """Give the kept answer of a query; None if it was dropped."""

    @abstractmethod
    def _drop(self) -> None:
        """Drop the answers of jobs that are over, for nobody is given them again; their hashes stay."""


StoredAnswer: TypeAlias = tuple[str, int, memoryview]
"""An answer's job, position and bytes."""


def _content(answer: Integers) -> memoryview:
    """See an answer as bytes; it is copied only if it does not lie in one piece."""
    return np.ascontiguousarray(answer, dtype=ANSWER).reshape(-1).view(np.uint8).data


class MemoryLedger(BaseLedger):
    """A ledger in memory.

    It takes one liberty: a job that nobody opened is held to its own plan alone. Who holds rows, noise and ledger in
    one process has nobody to be held to.
    """

    def __init__(self, clock: Clock = time.time) -> None:
        super().__init__(clock)
        self.entries: list[Entry] = []
        self._answers: dict[tuple[str, int], memoryview] = {}
        self._opened: set[str] = set()
        self._record(Founded("memory"))

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        self._opened.add(opening.job)
        return super().open(opening, limits, named)

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        with self._lock:
            if job not in self._opened and job not in self._books.jobs:
                self._books.admit(_by_itself(job), int(self._clock()))
            return super().reserve(job, query, digest, before, after)

    def attested_head(self) -> None:
        return None

    def check_head(self, seen: Head) -> None:
        return None  # another process told of it, whose rows, noise and ledger are gone

    def _write(self, entries: Sequence[Entry], answer: StoredAnswer | None) -> None:
        if answer:
            job, position, content = answer
            self._answers[job, position] = content.toreadonly()
        self.entries.extend(entries)

    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        content = self._answers.get((job, position))
        if content is None or query.answer is None:
            return None
        return np.frombuffer(content, dtype=ANSWER).reshape(query.answer.shape)

    def _drop(self) -> None:
        for key in [key for key in self._answers if self._books.is_over(key[0])]:
            del self._answers[key]


def _by_itself(job: str) -> Opening:
    """Make up the opening of a job whose data set is nobody else's, with a price that no plan reaches."""
    return Opening(
        job=job,
        data_set=f"of {job}",
        data_digest="",
        analyst="",
        unit="",
        spec_epsilon=0.0,
        spec_delta=0.0,
        units=_NO_LIMIT,
        slack_units=_NO_LIMIT,
        issued_at=0,
        expires_at=_NEVER,
        signature_hash="",
    )
