"""The base of all ledgers, and the ledger in memory. ``release/responder.py`` is its caller.

Every ledger follows the rules of ``rules.py``. Ledgers differ in where they keep entries and answers. ``MemoryLedger``
ends with its process: this is enough if rows, analyst and noise share that process. ``sqlite.py`` has the durable one.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from secrets import token_bytes
from threading import RLock
from typing import Final, TypeAlias

import numpy as np

from dpspca.common.arrays import Integers
from dpspca.common.privacy import Price

from .accounts import FindEnd, JobPosition, QueryRecord, no_forgotten_jobs
from .contract import Ledger
from .entries import Closed, Decided, Entry, Fact, Founded, Head, LedgerError, Limits, Named, Opening, QuarantinedError
from .past_jobs import PastJob
from .promises import Promise
from .row_key import KEY_BYTES, RowKey
from .rules import EXPIRED, LedgerState

__all__ = ["BaseLedger", "Head", "Ledger", "LedgerError", "Limits", "MemoryLedger", "Opening", "QuarantinedError"]

Clock: TypeAlias = Callable[[], float]
"""Seconds since 1970. Balances never depend on it."""

Observer: TypeAlias = Callable[[Fact], None]
"""Called for every fact when it holds. It must neither fail nor wait."""

ANSWER: Final = np.dtype("<i8")
"""The type of a stored answer's entries."""
_NEVER: Final = 1 << 62
_NO_LIMIT: Final = 1 << 300


class BaseLedger(ABC):
    """The base of all ledgers. Subclasses say where entries and answers are kept. Safe to call from many threads."""

    def __init__(self, clock: Clock, find_end: FindEnd = no_forgotten_jobs) -> None:
        self._clock = clock
        self._state = LedgerState(find_end)
        self._lock = RLock()
        self.observer: Observer = _nobody

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        with self._lock:
            at = int(self._clock())
            if admitted := self._state.to_open(opening, limits, at):
                self._state.admit(admitted, at, self._state.to_name(named) if named else None)
                self.observer(admitted)
            return self._state.standing(opening.job)

    def standing(self, job: str) -> JobPosition | None:
        with self._lock:
            return self._state.standing(job)

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        with self._lock:
            reserved = self._state.to_reserve(job, query, digest, before, after)
            return reserved is not None and self._record(*self._state.unwritten(job), reserved)

    def store(self, job: str, position: int, answer: Integers) -> None:
        content = _content(answer)
        digest = sha256(content).hexdigest()
        answer.setflags(write=False)  # so that what is sent is what was stored
        with self._lock:
            fact = self._state.to_store(job, position, answer.shape, content.nbytes, digest)
            self._record(fact, answer=(job, position, content))

    def query_digest(self, job: str, position: int) -> str | None:
        with self._lock:
            self._state.require_trusted()
            query = self._state.query(job, position)
            return query.digest if query else None

    def stored(self, job: str, position: int) -> Integers | None:
        with self._lock:
            self._state.require_trusted()  # the answer stored here may not be the one that was sent
            query = None if self._state.is_over(job) else self._state.query(job, position)
            return self._fetch(job, position, query) if query and query.answer else None

    def close(self, job: str, state: str) -> None:
        with self._lock:
            lapsed = None if self._state.quarantine else self._state.to_lapse(job, state)
            self._withdraw(job, state)
            self._record(self._state.to_close(job, state), lapsed)
            self._drop()

    def require_admissible(self, opening: Opening, limits: Limits) -> None:
        with self._lock:
            self._state.to_open(opening, limits, int(self._clock()))

    def decide(self, decided: Decided) -> None:
        with self._lock:
            self._record(self._state.to_decide(decided))

    def decisions(self, job: str) -> tuple[Decided, ...]:
        with self._lock:
            return self._state.decisions(job)

    def require_within(self, data_set: str, analyst: str, limits: Limits) -> None:
        with self._lock:
            self._state.require_within(data_set, analyst, limits)

    def room(self, data_set: str, analyst: str, limits: Limits) -> Price:
        with self._lock:
            return self._state.room(data_set, analyst, limits)

    @abstractmethod
    def all_decisions(self, job: str) -> tuple[Entry, ...]:
        """See ``Ledger``."""

    def past_job(self, job: str) -> PastJob | None:
        with self._lock:
            found = self._state.jobs.get(job)
            return PastJob.of(found) if found else self._forgotten_job(job)

    def _forgotten_job(self, job: str) -> PastJob | None:
        """Return the record of a job that is no longer in memory. By default, no job is ever forgotten."""
        return None

    def open_jobs(self) -> tuple[str, ...]:
        with self._lock:
            return self._state.open_jobs()

    def name_of(self, identifier: str) -> str:
        return self._row_key().name_of(identifier)

    @abstractmethod
    def key_names(self) -> None:
        """See ``Ledger``."""

    @abstractmethod
    def _row_key(self) -> RowKey:
        """Return the key for the names of rows."""

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        with self._lock:
            return self._state.data_set_of_rows(names)

    def name_rows(self, named: Named, *, anew: bool = False) -> None:
        with self._lock:
            self._record(self._state.to_name(named, anew=anew))

    def expire(self, now: float) -> None:
        with self._lock:
            overdue = self._state.overdue(now)
            for job in overdue:
                self._withdraw(job, EXPIRED)
            self._record(*(self._state.to_close(job, EXPIRED) for job in overdue))
            self._drop()
            self._state.forget(now)

    def require_promise(self, data_set: str, stated: Promise) -> None:
        with self._lock:
            self._state.require_promise(data_set, stated)

    @property
    def quarantine(self) -> str | None:
        with self._lock:
            return self._state.quarantine

    def head(self) -> Head:
        with self._lock:
            return self._state.head

    def vouch(self, data_set: str, protects: float, reason: str) -> None:
        """Record an operator's statement of what earlier jobs protected, where an earlier version did not record it."""
        with self._lock:
            self._record(self._state.to_vouch(data_set, protects, reason))

    @abstractmethod
    def attested_head(self) -> Head | None:
        """See ``Ledger``."""

    @abstractmethod
    def check_head(self, seen: Head) -> str | None:
        """See ``Ledger``."""

    def _record(self, *facts: Fact | None, answer: "StoredAnswer | None" = None) -> bool:
        """Write and apply the facts that are not None: all of them or none. Return whether there were any."""
        entries = self._state.draft(int(self._clock()), [fact for fact in facts if fact is not None])
        if not entries:
            return False
        self._write(entries, answer)
        for entry in entries:
            self._state.append(entry)
            if not isinstance(entry.fact, Opening):  # seen when the job was admitted
                self.observer(entry.fact)
        return True

    def _withdraw(self, job: str, state: str) -> None:
        """End a job that has no entry, if this is one."""
        found = self._state.jobs.get(job)
        if found and found.unwritten:
            self.observer(Closed(job, state, *found.opening.price.pair))
        self._state.withdraw(job, state)

    @abstractmethod
    def _write(self, entries: Sequence[Entry], answer: "StoredAnswer | None") -> None:
        """Store entries, and the answer that one of them is about: all of it, durably, or raise."""

    @abstractmethod
    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        """Return the stored answer to a query, or None if it was deleted."""

    @abstractmethod
    def _drop(self) -> None:
        """Delete the answers of jobs that are over, because they are never sent again. Their hashes stay."""


def _nobody(_: Fact) -> None:
    """Observe nothing."""


StoredAnswer: TypeAlias = tuple[str, int, memoryview]
"""An answer's job, position and bytes."""


def _content(answer: Integers) -> memoryview:
    """View an answer as bytes. It is copied only if it is not contiguous."""
    return np.ascontiguousarray(answer, dtype=ANSWER).reshape(-1).view(np.uint8).data


class MemoryLedger(BaseLedger):
    """A ledger in memory.

    It differs in one way: a job that was not opened is limited by its own plan alone. A process that holds rows, noise
    and ledger need not protect the rows from any other party.
    """

    def __init__(self, clock: Clock = time.time) -> None:
        super().__init__(clock)
        self.entries: list[Entry] = []
        self._answers: dict[tuple[str, int], memoryview] = {}
        self._opened: set[str] = set()
        self._key = RowKey(token_bytes(KEY_BYTES))
        self._record(Founded("memory"))

    def key_names(self) -> None:
        pass  # it has a key from the beginning

    def _row_key(self) -> RowKey:
        return self._key

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        self._opened.add(opening.job)
        return super().open(opening, limits, named)

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        with self._lock:
            if job not in self._opened and job not in self._state.jobs:
                self._state.admit(_by_itself(job), int(self._clock()))
            return super().reserve(job, query, digest, before, after)

    def attested_head(self) -> None:
        return None

    def check_head(self, seen: Head) -> None:
        return None  # the head is from an earlier process, whose rows, noise and ledger are gone

    def _write(self, entries: Sequence[Entry], answer: StoredAnswer | None) -> None:
        if answer:
            job, position, content = answer
            self._answers[job, position] = content.toreadonly()
        self.entries.extend(entries)

    def all_decisions(self, job: str) -> tuple[Entry, ...]:
        return tuple(each for each in self.entries if isinstance(each.fact, Decided) and each.fact.job == job)

    def _fetch(self, job: str, position: int, query: QueryRecord) -> Integers | None:
        content = self._answers.get((job, position))
        if content is None or query.answer is None:
            return None
        return np.frombuffer(content, dtype=ANSWER).reshape(query.answer.shape)

    def _drop(self) -> None:
        for key in [key for key in self._answers if self._state.is_over(key[0])]:
            del self._answers[key]


def _by_itself(job: str) -> Opening:
    """Return an opening for a job with a data set of its own and a price that no plan reaches."""
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
