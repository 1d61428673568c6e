"""All that a ledger's entries say, taken in one after the other. Pure: no clock, no file, no lock.

``append`` has the same result whether an entry was just decided on (``books.py``) or is read again after years; an
entry that does not follow from those before it is refused. Every step costs the same however long the ledger is.

Jobs that are over may be forgotten (``trim``), so that memory does not grow with their number; whoever has the entries
is then asked whether one was there. Without that, a job would be admitted, and answered, a second time.

KeptPromises for each data set, each analyst on it and each job, in whole units: spent and reserved. What is spent never
becomes less, but for the price of queries whose answers were never stored, which have never left; they are given
back when their job closes. No balance depends on time.

A job has entries from its first query on. Before that it has spent nothing and was told nothing, so its plan's price
is reserved in memory alone (``admit``): a job that ends without a query takes no place on the disk.
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
    Entry,
    Fact,
    Founded,
    Head,
    LedgerError,
    Named,
    Opening,
    Quarantined,
    Released,
    Reserved,
    Stored,
    Vouched,
    link,
)
from .promises import KeptPromises
from .quotas import Usage

QUARANTINED: Final = "quarantined"


class History:
    """All that a ledger's entries say. Whoever trims them gives what says how forgotten jobs ``ended``."""

    def __init__(self, find_end: FindEnd = no_forgotten_jobs) -> None:
        self.head = Head("", 0, GENESIS)
        self.jobs: dict[str, JobAccount] = {}  # by name, but for those that are forgotten
        self._find_end = find_end
        self.data_sets: dict[str, Account] = {}
        self.named: set[str] = set()
        """Data sets of which it was recorded what their rows say."""
        self.rows: dict[str, str] = {}
        """The data set that rows were offered as when they were first answered about, by each name for what they say.
        Entries of earlier versions have the rows' digest alone, which is one such name."""
        self.analysts: dict[tuple[str, str], Account] = {}
        """By data set and analyst."""
        self.written_off: dict[str, Account] = {}
        """What operators counted as spent beyond what was recorded; in ``data_sets`` too, and in force for analysts."""
        self.quarantine: str | None = None
        """Why nothing is answered, if so."""
        self.names: set[str] = set()
        """What this ledger has been called."""
        self._seen_elsewhere: dict[str, int] = {}
        """Ledgers to which this one was found to have lost entries, and up to how many."""
        self._kept = KeptPromises()
        self._usage = Usage()
        self._open: dict[str, JobAccount] = {}
        self._unasked: dict[str, tuple[str, int]] = {}
        """Jobs that ended before they were asked anything: how, and when they expire. No entry tells of these."""
        self._untrimmed: list[JobAccount] = []
        self._accounted: set[str] | None = None
        self.signed_after = 0
        """Only jobs signed later are answered: others may have been, in what a quarantine was about."""

    @classmethod
    def replay(cls, entries: Iterable[Entry]) -> Self:
        """Work out every balance anew."""
        books = cls()
        for entry in entries:
            books.append(entry)
        return books

    # --- Reading ------------------------------------------------------------------------------------------------------

    def standing(self, job: str) -> JobPosition | None:
        """Say how far a job has come."""
        found = self.jobs.get(job)
        return found.standing if found else None

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        """Give the data set that rows of one of these names were offered as first, if they were answered about."""
        return next((self.rows[name] for name in sorted(names) if name in self.rows), None)

    def open_jobs(self) -> tuple[str, ...]:
        """List the jobs that are open."""
        return tuple(self._open)

    def query(self, job: str, position: int) -> QueryRecord | None:
        """Give the query that a position was reserved for."""
        found = self.jobs.get(job)
        return found.queries[position] if found and 0 <= position < len(found.queries) else None

    def is_decided(self, seen: Head) -> bool:
        """Tell whether a head that is lacking here, or one further on, was in a quarantine already.

        Entries that this ledger loses after its release are never among those: it has another name since.
        """
        return seen.entries <= self._seen_elsewhere.get(seen.ledger, 0)

    @property
    def ended(self) -> list[str]:
        """List the jobs that are over and were not left to their entries yet."""
        return [job.opening.job for job in self._untrimmed]

    def trim(self) -> None:
        """Leave jobs that are over to their entries: of each job and query, a kilobyte would stay for ever.

        Nobody gets an answer of them again, and none is opened again.
        """
        for name in self.ended:
            del self.jobs[name]
        self._untrimmed.clear()

    def forget(self, now: float) -> None:
        """Forget jobs that ended without a query once they have expired, when nobody believes them any longer."""
        for name in [name for name, (_, expires_at) in self._unasked.items() if expires_at <= now]:
            del self._unasked[name]

    def is_over(self, job: str) -> bool:
        """Tell whether nobody can ask for a job's answers again."""
        return job not in self._open

    @property
    def has_jobs(self) -> bool:
        """Tell whether a job was ever admitted."""
        return bool(self.analysts)

    def outbox(self) -> Iterator[Release]:
        """List every answer that was stored, and so may have left, job by job."""
        for job in self.jobs.values():
            yield from job.releases()

    # --- Jobs that were asked nothing yet -----------------------------------------------------------------------------

    def admit(self, opening: Opening, at: int, named: Named | None = None) -> None:
        """Reserve the price of a job's plan until it ends. Nothing is written before it is asked its first query.

        A crash forgets the job, and no more is lost than was written: it has spent nothing and was told nothing. Shown
        again, it is admitted again.
        """
        self._begin(opening, at).unwritten = (opening, named) if named else (opening,)

    def unwritten(self, job: str) -> tuple[Fact, ...]:
        """Give what is to be recorded of a job with its first query: that it was opened, and about which rows."""
        found = self._open.get(job)
        return found.unwritten if found else ()

    def withdraw(self, job: str, state: str) -> None:
        """End a job that was asked nothing, without a trace but in memory; any other stays as it is."""
        found = self._open.get(job)
        if found is not None and found.unwritten:
            self._unasked[job] = state, found.opening.expires_at
            self._end(found, state)
            del self.jobs[job], self._open[job]

    # --- Taking entries in --------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Take the next entry in, or refuse it: it is altered, out of place, or does not follow."""
        if entry.number != self.head.entries + 1 or entry.hash != link(self.head.hash, entry.content):
            raise LedgerError(
                f"The ledger is not as it was written: its chain breaks at entry {self.head.entries + 1}.",
                "Restore a backup.",
            )
        if not self._follows(entry.fact):
            raise LedgerError(f"Entry {entry.number} does not follow from those before it.", "Restore a backup.")
        self._take(entry)
        ledger = self.head.ledger
        if isinstance(entry.fact, Founded | Released):
            ledger = entry.fact.ledger or ledger
            self.names.add(ledger)
        self.head = Head(ledger, entry.number, entry.hash)

    def _follows(self, fact: Fact) -> bool:  # noqa: PLR0911  # one way out for each kind
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
                return job is not None and fact.returned == job.returnable()
            case Founded():
                return self.head.entries == 0
            case Vouched():
                return self._kept.lacks(fact.data_set) and 0 < fact.protects < math.inf
            case Released():
                return self._accounted is not None and all(map(_is_amount, fact.counted.values()))
            case _:
                return self.head.entries > 0

    def _take(self, entry: Entry) -> None:
        match entry.fact:
            case Reserved() as fact:
                self._take_reserved(fact)
            case Stored() as fact:
                answer = Answer(entry.at, tuple(fact.shape), fact.bytes, fact.sha256)
                self.jobs[fact.job].queries[fact.position].answer = answer
            case Opening() as fact:
                self._take_opening(fact, entry.at)
            case Named() as fact:
                self._take_named(fact)
            case Closed() as fact:
                self._take_closed(fact)
            case Quarantined() as fact:
                self._take_quarantined(fact)
            case Released() as fact:
                self._take_released(fact, entry.at)
            case _:
                self._take_word(entry.fact)

    def _take_word(self, fact: Fact) -> None:
        """Take in what is said of the ledger itself: that it began, who took it over, what an operator vouched for."""
        if isinstance(fact, Vouched):
            self._kept.vouch(fact.data_set, fact.protects)

    def _take_named(self, fact: Named) -> None:
        self.named.add(fact.data_set)
        for name in fact.rows:
            self.rows.setdefault(name, fact.data_set)

    def _take_opening(self, fact: Opening, at: int) -> None:
        self.rows.setdefault(fact.data_digest, fact.data_set)
        if fact.job not in self.jobs:
            self._begin(fact, at)
        self.jobs[fact.job].unwritten = ()

    def _begin(self, opening: Opening, at: int) -> JobAccount:
        analyst = self.analysts.setdefault((opening.data_set, opening.analyst), Account())
        data_set = self.data_sets.setdefault(opening.data_set, Account())
        job = JobAccount(opening, at, (Account(), analyst, data_set))
        self.jobs[opening.job] = self._open[opening.job] = job
        self._usage.begin(opening.analyst, opening.plan, at)
        for account in job.accounts:
            account.reserved += opening.price
        return job

    def _take_reserved(self, fact: Reserved) -> None:
        job = self._open[fact.job]
        if not job.queries:
            self._kept.take(job.opening.data_set, job.opening.promise)
        job.queries.append(QueryRecord(fact.query, fact.digest, fact.price))
        for account in job.accounts:
            account.reserved -= fact.price
            account.spent += fact.price

    def _take_closed(self, fact: Closed) -> None:
        job = self._open.pop(fact.job)
        lost = fact.returned - job.account.reserved  # of answers that were never stored
        self._end(job, fact.state)
        self._untrimmed.append(job)
        for account in job.accounts:
            account.spent -= lost

    def _end(self, job: JobAccount, state: str) -> None:
        """Take back what a job has not spent, and let its analyst have the room that it took."""
        job.state = state
        self._usage.end(job.opening.analyst, job.opening.plan)
        held = job.account.reserved
        for account in job.accounts:
            account.reserved -= held

    def _take_quarantined(self, fact: Quarantined) -> None:
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

    def _take_released(self, fact: Released, at: int) -> None:
        self.quarantine, self.signed_after = None, at + JOB_SKEW
        self._accounted = (self._accounted or set()) | set(fact.counted)
        for name, counted in fact.counted.items():
            for accounts in (self.data_sets, self.written_off):
                accounts.setdefault(name, Account()).spent += Price(*counted)


def _is_amount(counted: Sequence[int]) -> bool:
    """Tell whether this is a number of units and one of slack units."""
    return len(counted) == len(fields(Price)) and min(counted) >= 0
