"""The state that follows from a ledger's entries, which are applied one after the other. Pure: no clock, file or lock.

``append`` has the same result whether an entry was just decided on (``rules.py``) or is read again after years. It
refuses an entry that does not follow from those before it. Every step costs the same, however long the ledger is.

Jobs that are over may be forgotten (``trim``), so that memory does not grow with their number. A forgotten job is then
looked up in the entries. Without that, it would be admitted and answered a second time.

For each data set, each analyst on it and each job, the spent and the reserved price are kept in whole units. What is
spent never decreases, with one exception: in version 0.1.0, a job that closed got back the price of answers that were
never stored. No balance depends on time.

A job has entries from its first query on. Before that it has spent nothing and received nothing, so its plan's price is
reserved in memory alone (``admit``): a job that ends without a query takes no space on the disk.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import Final, Self

from dpspca.common.privacy import Price
from dpspca.common.trust import JOB_SKEW

from .accounts import Account, Answer, FindEnd, JobAccount, JobPosition, QueryRecord, Release, no_forgotten_jobs
from .entries import (
    GENESIS,
    Closed,
    DamagedLedgerError,
    Decided,
    Entry,
    Fact,
    Founded,
    Head,
    Keyed,
    Lapsed,
    Named,
    Opening,
    Quarantined,
    QuarantineEnded,
    Reserved,
    Stored,
    Vouched,
    link,
)
from .promises import KeptPromises
from .quotas import Usage

QUARANTINED: Final = "quarantined"


class History:
    """The state that follows from a ledger's entries. If jobs are trimmed, ``find_end`` looks up how they ended."""

    def __init__(self, find_end: FindEnd = no_forgotten_jobs) -> None:
        self.head = Head("", 0, GENESIS)
        self.jobs: dict[str, JobAccount] = {}  # by name, without forgotten ones
        self._find_end = find_end
        self.data_sets: dict[str, Account] = {}
        self.named: set[str] = set()
        """Data sets for which fingerprints of their rows are recorded."""
        self.rows: dict[str, str] = {}
        """By each fingerprint of rows, the data set under which they were first used for an answer. Entries of earlier
        versions have only the rows' digest, which counts as a fingerprint. All are names under the provider's key."""
        self.keyed: Keyed | None = None
        """Which key that is, or None if an earlier version wrote this ledger without one."""
        self.analysts: dict[tuple[str, str], Account] = {}
        """By data set and analyst."""
        self.written_off: dict[str, Account] = {}
        """Prices that operators added to the records. Also part of ``data_sets``, and counted for analysts."""
        self.quarantine: str | None = None
        """Why the ledger is in quarantine, or None."""
        self.names: set[str] = set()
        """All names that this ledger has had."""
        self._seen_elsewhere: dict[str, int] = {}
        """By a ledger's name, the highest number of entries that was seen elsewhere and led to a quarantine."""
        self._promises = KeptPromises()
        self._usage = Usage()
        self._open: dict[str, JobAccount] = {}
        self._unasked: dict[str, tuple[str, int]] = {}
        """Jobs that ended before their first query: how they ended, and when they expire. They have no entries."""
        self.decided = 0
        """How many decisions there are, about jobs that are over, too."""
        self._decisions: dict[str, tuple[Decided, ...]] = {}
        """Decisions about jobs that are not over, by job."""
        self._untrimmed: list[JobAccount] = []
        self._accounted: set[str] | None = None
        self.signed_after = 0
        """Only jobs signed after this time are answered. Lost entries may have answered earlier ones."""

    @classmethod
    def replay(cls, entries: Iterable[Entry]) -> Self:
        """Compute every balance from the entries."""
        state = cls()
        for entry in entries:
            state.append(entry)
        return state

    @property
    def rewritten(self) -> int:
        """Number of entries that an earlier version wrote, and that were rewritten under a key."""
        return 0 if self.keyed is None else self.keyed.rewritten

    # --- Reading ------------------------------------------------------------------------------------------------------

    def standing(self, job: str) -> JobPosition | None:
        """Return how far a job has come."""
        found = self.jobs.get(job)
        return found.standing if found else None

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        """Return the data set under which rows with one of these fingerprints were first used, or None."""
        return next((self.rows[name] for name in sorted(names) if name in self.rows), None)

    def open_jobs(self) -> tuple[str, ...]:
        """List the jobs that are open."""
        return tuple(self._open)

    def query(self, job: str, position: int) -> QueryRecord | None:
        """Return the query that was reserved at a position, or None."""
        found = self.jobs.get(job)
        return found.queries[position] if found and 0 <= position < len(found.queries) else None

    def is_decided(self, seen: Head) -> bool:
        """Tell whether an earlier quarantine was already about this missing head, or one beyond it.

        This is never true of entries that the ledger loses after the end of a quarantine, which gives it a new name.
        """
        return seen.entries <= self._seen_elsewhere.get(seen.ledger, 0)

    def decisions(self, job: str) -> tuple[Decided, ...]:
        """Return the decisions of persons about a job that is not over, oldest first."""
        return self._decisions.get(job, ())

    @property
    def ended(self) -> list[str]:
        """List the jobs that are over but not yet trimmed."""
        return [job.opening.job for job in self._untrimmed]

    def trim(self) -> None:
        """Forget jobs that are over, because each job and query would otherwise take about a kilobyte for ever.

        Their answers are never sent again, and they are never opened again.
        """
        for name in self.ended:
            del self.jobs[name]
        self._untrimmed.clear()

    def forget(self, now: float) -> None:
        """Forget jobs without a query that have expired, because an expired job is refused anyway."""
        for name in [name for name, (_, expires_at) in self._unasked.items() if expires_at <= now]:
            del self._unasked[name]
        for name in [name for name, each in self._decisions.items() if each[0].expires_at <= now]:
            if name not in self._open:
                del self._decisions[name]

    def is_over(self, job: str) -> bool:
        """Tell whether a job is not open, so that its answers cannot be asked for again."""
        return job not in self._open

    @property
    def has_jobs(self) -> bool:
        """Tell whether a job was ever admitted."""
        return bool(self.analysts)

    def outbox(self) -> Iterator[Release]:
        """List every answer that was stored, and so may have left, by job."""
        for job in self.jobs.values():
            yield from job.releases()

    # --- Jobs without a query -----------------------------------------------------------------------------------------

    def admit(self, opening: Opening, at: int, named: Named | None = None) -> None:
        """Reserve the price of a job's plan until it ends. Nothing is written before its first query.

        A crash forgets the job without any loss, because it has spent nothing and received nothing. If it is sent
        again, it is admitted again.
        """
        self._begin(opening, at).unwritten = (opening, named) if named else (opening,)

    def unwritten(self, job: str) -> tuple[Fact, ...]:
        """Return the facts to record with a job's first query: that it was opened, and about which rows."""
        found = self._open.get(job)
        return found.unwritten if found else ()

    def withdraw(self, job: str, state: str) -> None:
        """End a job without a query, and note this in memory alone. Leave any other job as it is."""
        found = self._open.get(job)
        if found is not None and found.unwritten:
            self._unasked[job] = state, found.opening.expires_at
            self._end(found, state)
            del self.jobs[job], self._open[job]

    # --- Applying entries ---------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Apply the next entry, or refuse it if it was altered, is out of place, or does not follow."""
        head, fact = self.head, entry.fact
        if entry.number != head.entries + 1 or entry.hash != link(head.hash, entry.content):
            raise DamagedLedgerError(
                f"The ledger was altered: its chain breaks at entry {head.entries + 1}.", "Restore a backup."
            )
        if not self._follows(fact):
            raise DamagedLedgerError(f"Entry {entry.number} does not follow from those before it.", "Restore a backup.")
        self._apply(entry)
        ledger = head.ledger
        if isinstance(fact, (Founded, QuarantineEnded)):
            ledger = fact.ledger or ledger
            self.names.add(ledger)
        self.head = Head(ledger, entry.number, entry.hash)

    def _follows(self, fact: Fact) -> bool:  # noqa: PLR0911  # one return for each kind
        match fact:
            case Reserved():
                job = self._open.get(fact.job)
                in_turn = job is not None and fact.position == len(job.queries)
                return in_turn and job is not None and job.account.covers(fact.price)
            case Stored():
                asked = self.query(fact.job, fact.position)
                return fact.job in self._open and asked is not None and asked.answer is None
            case Opening():
                is_new = fact.job not in self.jobs or fact in self.unwritten(fact.job)
                amounts = fact.units, fact.slack_units, fact.protects, fact.queries, fact.answer_bytes
                return is_new and min(amounts) >= 0
            case Closed():
                job = self._open.get(fact.job)
                return job is not None and fact.returned in {job.returnable(), job.returned_before()}
            case Lapsed():
                return fact.job in self._decisions and not self._was_asked(fact.job)
            case Founded():
                return self.head.entries == 0
            case Keyed():
                return self.keyed is None and fact.rewritten in {0, self.head.entries}
            case Vouched():
                return self._promises.lacks(fact.data_set) and 0 < fact.protects < math.inf
            case QuarantineEnded():
                return self._accounted is not None and all(map(_is_amount, fact.counted.values()))
            case _:
                return self.head.entries > 0

    def _apply(self, entry: Entry) -> None:
        match entry.fact:
            case Reserved() as fact:
                self._apply_reserved(fact)
            case Stored() as fact:
                answer = Answer(entry.at, tuple(fact.shape), fact.bytes, fact.sha256)
                self.jobs[fact.job].queries[fact.position].answer = answer
            case Opening() as fact:
                self._apply_opening(fact, entry.at)
            case Named() as fact:
                self._apply_named(fact)
            case Closed() as fact:
                self._apply_closed(fact)
            case Quarantined() as fact:
                self._apply_quarantined(fact)
            case QuarantineEnded() as fact:
                self._apply_quarantine_end(fact, entry.at)
            case _:
                self._apply_ledger_fact(entry.fact)

    def _apply_ledger_fact(self, fact: Fact) -> None:
        """Apply a fact that moves no amount, such as what a person decided about a job, or an operator vouched for."""
        if isinstance(fact, Vouched):
            self._promises.vouch(fact.data_set, fact.protects)
        elif isinstance(fact, Keyed):
            self.keyed = fact
        elif isinstance(fact, Decided):
            self._decisions[fact.job] = (*self.decisions(fact.job), fact)
            self.decided += 1
        elif isinstance(fact, Lapsed):
            del self._decisions[fact.job]
            self._unasked[fact.job] = fact.state, fact.expires_at

    def _was_asked(self, job: str) -> bool:
        """Tell whether a job has entries of its own, which begin with its first query."""
        found = self.jobs.get(job)
        return found is not None and not found.unwritten

    def _apply_named(self, fact: Named) -> None:
        self.named.add(fact.data_set)
        for name in fact.rows:
            self.rows.setdefault(name, fact.data_set)

    def _apply_opening(self, fact: Opening, at: int) -> None:
        self.rows.setdefault(fact.data_digest, fact.data_set)
        if fact.job not in self.jobs:
            self._begin(fact, at)
        self.jobs[fact.job].unwritten = ()

    def _begin(self, opening: Opening, at: int) -> JobAccount:
        analyst = self.analysts.setdefault((opening.data_set, opening.analyst), Account())
        data_set = self.data_sets.setdefault(opening.data_set, Account())
        job = JobAccount(opening, at, (Account(), analyst, data_set))
        self.jobs[opening.job] = self._open[opening.job] = job
        self._usage.begin(opening.analyst, opening.size, at)
        for account in job.accounts:
            account.reserved += opening.price
        return job

    def _apply_reserved(self, fact: Reserved) -> None:
        job = self._open[fact.job]
        if not job.queries:
            self._promises.add(job.opening.data_set, job.opening.promise)
        price = fact.price
        job.queries.append(QueryRecord(fact.query, fact.digest, price))
        for account in job.accounts:
            account.reserved -= price
            account.spent += price

    def _apply_closed(self, fact: Closed) -> None:
        job = self._open.pop(fact.job)
        self._decisions.pop(fact.job, None)
        lost = fact.returned - job.account.reserved  # in version 0.1.0, the price of answers that were never stored
        self._end(job, fact.state)
        self._untrimmed.append(job)
        for account in job.accounts:
            account.spent -= lost

    def _end(self, job: JobAccount, state: str) -> None:
        """Free what a job has not spent, and the part of its analyst's quotas that it took."""
        job.state = state
        self._usage.end(job.opening.analyst, job.opening.size)
        held = job.account.reserved
        for account in job.accounts:
            account.reserved -= held

    def _apply_quarantined(self, fact: Quarantined) -> None:
        self.quarantine, self._accounted = fact.reason, set()
        seen, most = fact.seen_ledger, fact.seen_entries
        self._seen_elsewhere[seen] = max(most, self._seen_elsewhere.get(seen, 0))
        for name in list(self._open):
            self.withdraw(name, QUARANTINED)
        for job in self._open.values():
            held = job.account.reserved
            self._end(job, QUARANTINED)
            self._untrimmed.append(job)
            for account in job.accounts:
                account.spent += held
        self._open.clear()

    def _apply_quarantine_end(self, fact: QuarantineEnded, at: int) -> None:
        self.quarantine, self.signed_after = None, at + JOB_SKEW
        self._accounted = (self._accounted or set()) | set(fact.counted)
        for name, price in fact.prices.items():
            for accounts in (self.data_sets, self.written_off):
                accounts.setdefault(name, Account()).spent += price


def _is_amount(counted: Sequence[int]) -> bool:
    """Tell whether this is a number of units and one of slack units."""
    return len(counted) == len(fields(Price)) and min(counted) >= 0
