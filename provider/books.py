"""The ledger's rules and balances, worked out from its entries alone. Pure: no clock, no file, no lock.

``to_...`` decides: it gives the fact to record, or refuses, and changes nothing. ``append`` takes an entry in, with the
same result whether it was just decided or is read again after years; an entry that does not follow from those before
it is refused. Every step costs the same however long the ledger is.

Jobs that are over may be forgotten (``trim``), so that memory does not grow with their number; whoever has the entries
is then asked whether one was there. Without that, a job would be admitted, and answered, a second time.

Kept for each data set, each analyst on it and each job, in whole units: spent and reserved. What is spent never
becomes less, but for the price of questions whose answers were never stored, which have never left; they are given
back when their job closes. No balance depends on time.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

from dpspca.common.errors import RefusedError
from dpspca.common.plan import Price
from dpspca.common.privacy.accountant import Filter
from dpspca.common.transport.signing import JOB_SKEW

from .accounts import Account, Answer, Ended, Job, Question, Release, admit, nothing_forgotten
from .entries import (
    GENESIS,
    Closed,
    Entry,
    Fact,
    Founded,
    Head,
    LedgerError,
    Limits,
    Opening,
    Quarantined,
    QuarantinedError,
    Released,
    Reserved,
    Started,
    Stored,
    link,
)
from .gate import Standing

QUARANTINED: Final = "quarantined"
EXPIRED: Final = "expired"

_PINNED: Final = ("data_set", "data_digest", "analyst", "unit", "spec_epsilon", "spec_delta", "units", "slack_units")


class Books:
    """All that a ledger's entries say. Whoever trims them gives what says how forgotten jobs ``ended``."""

    def __init__(self, ended: Ended = nothing_forgotten) -> None:
        self.head = Head("", 0, GENESIS)
        self.jobs: dict[str, Job] = {}  # by name, but for those that are forgotten
        self._ended = ended
        self.data_sets: dict[str, Account] = {}
        self.rows: dict[str, str] = {}  # by their digest, the first name that they had
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
        self._units: dict[str, str] = {}
        """What the jobs on each data set protect."""
        self._open: dict[str, Job] = {}
        self._untrimmed: list[Job] = []
        self._accounted: set[str] | None = None
        self.signed_after = 0
        """Only jobs signed later are answered: others may have been, in what a quarantine was about."""

    @classmethod
    def replay(cls, entries: Iterable[Entry]) -> "Books":
        """Work out every balance anew."""
        books = cls()
        for entry in entries:
            books.append(entry)
        return books

    # --- Deciding -----------------------------------------------------------------------------------------------------

    def draft(self, at: int, facts: Iterable[Fact]) -> list[Entry]:
        """Write facts as the entries that come next."""
        head, made = self.head, []
        for fact in facts:
            made.append(Entry.following(head, at, fact))
            head = Head(head.ledger, made[-1].number, made[-1].hash)
        return made

    def to_open(self, opening: Opening, limits: Limits) -> Opening | None:
        """Admit a job with its whole plan, or find it admitted already: then there is nothing to record."""
        self.require_trusted()
        known = self.jobs.get(opening.job)
        if known is not None:
            _require_same(known, opening)
            return None
        self._require_new(opening.job)
        self._require_accounted(opening)
        self._require_one_unit(opening)
        name, plan = opening.data_set, (opening.units, opening.slack_units)
        admit(limits.data_set, [self.data_sets.get(name)], plan, f"the data set '{name}'")
        if limits.analyst is not None:
            taken = [self.analysts.get((name, opening.analyst)), self.written_off.get(name)]
            admit(limits.analyst, taken, plan, f"{opening.analyst} on the data set '{name}'")
        return opening

    def _require_one_unit(self, opening: Opening) -> None:
        """Keep to one unit: the prices of two do not add up to a promise in either."""
        unit = self._units.get(opening.data_set, opening.unit)
        if unit != opening.unit:
            raise RefusedError(
                f"Jobs on the data set '{opening.data_set}' protect {unit}; this one would protect {opening.unit}.",
                "Sign a job of that unit.",
            )

    def to_reserve(
        self, job: str, question: str, digest: str, before: Standing | None, after: Standing
    ) -> Reserved | None:
        """Move the next question's price from reserved to spent; None if the job no longer stands at ``before``."""
        found = self._open_job(job)
        if found.standing != before:
            return None
        own = found.account
        units = after.spent.units - own.spent_units
        slack = after.spent.slack_units - own.spent_slack_units
        if after.reached != len(found.questions) + 1 or not own.covers(units, slack):
            raise RefusedError("This question costs more than was reserved for its job.", "Sign a new job.")
        return Reserved(job, after.reached - 1, question, digest, units, slack)

    def to_store(self, job: str, position: int, shape: Sequence[int], size: int, digest: str) -> Stored:
        """Keep the one answer of a question that was paid for."""
        found = self._open_job(job)
        if not 0 <= position < len(found.questions) or found.questions[position].answer is not None:
            raise RefusedError(f"No answer is awaited at question {position + 1}.", "Reserve first, and store once.")
        return Stored(job, position, list(shape), size, digest)

    def to_close(self, job: str, state: str) -> Closed | None:
        """End a job; None if it is over, or was never there."""
        self.require_trusted()
        found = self._open.get(job)
        return Closed(job, state, *found.returnable()) if found else None

    def to_release(
        self, reason: str, budgets: Mapping[str, Filter], counted: Mapping[str, tuple[int, int]]
    ) -> Released:
        """End a quarantine. A data set of these budgets of which nothing is said counts as spent, whole.

        One that is in neither stays refused; it can be named later, in a release of its own.
        """
        if self._accounted is None:
            raise LedgerError("This ledger was never quarantined.", "There is nothing to release.")
        if not reason.strip():
            raise LedgerError("A release needs a reason.", "Say why the ledger may be used, for whoever audits it.")
        if min((amount for pair in counted.values() for amount in pair), default=0) < 0:
            raise LedgerError("Less than nothing cannot have been spent.", "Count what may have been spent, or 0.")
        whole = {name: self._rest(name, budget) for name, budget in budgets.items()}
        return Released(reason, {name: list(amounts) for name, amounts in sorted({**whole, **counted}.items())})

    def overdue(self, now: float) -> list[str]:
        """List the open jobs past their expiry."""
        return [name for name, job in self._open.items() if job.opening.expires_at <= now]

    # --- Reading ------------------------------------------------------------------------------------------------------

    def standing(self, job: str) -> Standing | None:
        """Say how far a job has come."""
        found = self.jobs.get(job)
        return found.standing if found else None

    def unfinished(self) -> tuple[str, ...]:
        """List the jobs that are open."""
        return tuple(self._open)

    def question(self, job: str, position: int) -> Question | None:
        """Give the question that a position was reserved for."""
        found = self.jobs.get(job)
        return found.questions[position] if found and 0 <= position < len(found.questions) else None

    def is_decided(self, seen: Head) -> bool:
        """Tell whether a head that is lacking here, or one further on, was in a quarantine already.

        Entries that this ledger loses after its release are never among those: it has another name since.
        """
        return seen.entries <= self._seen_elsewhere.get(seen.ledger, 0)

    def trim(self) -> None:
        """Leave jobs that are over to their entries: of each job and question, a kilobyte would stay for ever.

        Nobody gets an answer of them again, and none is opened again.
        """
        for job in self._untrimmed:
            del self.jobs[job.opening.job]
        self._untrimmed.clear()

    def is_over(self, job: str) -> bool:
        """Tell whether nobody can ask for a job's answers again."""
        return job not in self._open

    @property
    def has_jobs(self) -> bool:
        """Tell whether a job was ever admitted."""
        return bool(self._units)

    def outbox(self) -> Iterator[Release]:
        """List every answer that was stored, and so may have left, job by job."""
        for job in self.jobs.values():
            yield from job.releases()

    # --- Taking entries in --------------------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Take the next entry in, or refuse it: it is altered, out of place, or does not follow."""
        if entry.number != self.head.entries + 1 or entry.hash != link(self.head.hash, entry.content):
            raise LedgerError(
                f"The ledger is not as it was written: its chain breaks at entry {self.head.entries + 1}.",
                "Restore a backup of it.",
            )
        if not self._follows(entry.fact):
            raise LedgerError(f"Entry {entry.number} does not follow from those before it.", "Restore a backup of it.")
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
                in_turn = job is not None and fact.position == len(job.questions)
                return in_turn and job is not None and job.account.covers(fact.units, fact.slack_units)
            case Stored():
                asked = self.question(fact.job, fact.position)
                return fact.job in self._open and asked is not None and asked.answer is None
            case Opening():
                return fact.job not in self.jobs and min(fact.units, fact.slack_units) >= 0
            case Closed():
                job = self._open.get(fact.job)
                return job is not None and (fact.returned_units, fact.returned_slack_units) == job.returnable()
            case Founded():
                return self.head.entries == 0
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
                self.jobs[fact.job].questions[fact.position].answer = answer
            case Opening() as fact:
                self._take_opening(fact, entry.at)
            case Closed() as fact:
                self._take_closed(fact)
            case Quarantined() as fact:
                self._take_quarantined(fact)
            case Released() as fact:
                self._take_released(fact, entry.at)
            case Founded() | Started():
                pass

    def _take_opening(self, fact: Opening, at: int) -> None:
        self._units[fact.data_set] = fact.unit
        self.rows.setdefault(fact.data_digest, fact.data_set)
        analyst = self.analysts.setdefault((fact.data_set, fact.analyst), Account())
        data_set = self.data_sets.setdefault(fact.data_set, Account())
        job = Job(fact, at, (Account(), analyst, data_set))
        self.jobs[fact.job] = self._open[fact.job] = job
        for account in job.accounts:
            account.hold(fact.units, fact.slack_units)

    def _take_reserved(self, fact: Reserved) -> None:
        job = self._open[fact.job]
        job.questions.append(Question(fact.question, fact.digest, fact.units, fact.slack_units))
        for account in job.accounts:
            account.hold(-fact.units, -fact.slack_units)
            account.spend(fact.units, fact.slack_units)

    def _take_closed(self, fact: Closed) -> None:
        job = self._open.pop(fact.job)
        job.state = fact.state
        self._untrimmed.append(job)
        unused = job.account.reserved_units, job.account.reserved_slack_units
        lost = fact.returned_units - unused[0], fact.returned_slack_units - unused[1]
        for account in job.accounts:
            account.hold(-unused[0], -unused[1])
            account.spend(-lost[0], -lost[1])

    def _take_quarantined(self, fact: Quarantined) -> None:
        self.quarantine, self._accounted = fact.reason, set()
        seen, most = fact.seen_ledger, fact.seen_entries
        self._seen_elsewhere[seen] = max(most, self._seen_elsewhere.get(seen, 0))
        for job in self._open.values():
            job.state = QUARANTINED
            self._untrimmed.append(job)
            held = job.account.reserved_units, job.account.reserved_slack_units
            for account in job.accounts:
                account.hold(-held[0], -held[1])
                account.spend(*held)
        self._open.clear()

    def _take_released(self, fact: Released, at: int) -> None:
        self.quarantine, self.signed_after = None, at + JOB_SKEW
        self._accounted = (self._accounted or set()) | set(fact.counted)
        for name, (units, slack) in fact.counted.items():
            for accounts in (self.data_sets, self.written_off):
                accounts.setdefault(name, Account()).spend(units, slack)

    # --- Refusing -----------------------------------------------------------------------------------------------------

    def require_trusted(self) -> None:
        """Refuse while the ledger is quarantined."""
        if self.quarantine is not None:
            raise QuarantinedError(
                "The ledger is quarantined: it may have forgotten what was spent.",
                "The provider's operator has to say what counts as spent.",
            )

    def _require_accounted(self, opening: Opening) -> None:
        """After a quarantine refuse what may have been answered in the part that is lost."""
        if self._accounted is None:
            return
        if opening.data_set not in self._accounted:
            raise QuarantinedError(
                f"After a quarantine nobody has said what of the data set '{opening.data_set}' counts as spent.",
                "The provider's operator has to say it.",
            )
        if opening.issued_at <= self.signed_after:
            raise RefusedError(
                "This job is older than the last quarantine, or hardly younger, and may have been answered.",
                f"Sign it anew, {JOB_SKEW} seconds after the operator ended the quarantine at the earliest.",
            )

    def _open_job(self, name: str) -> Job:
        self.require_trusted()
        job = self.jobs.get(name)
        if job is None:
            self._require_new(name)
            raise RefusedError("This job was not opened here.", "Open it first.")
        if job.state is not None:
            raise _over(job.state)
        return job

    def _require_new(self, job: str) -> None:
        """Refuse a job that was there before, and is forgotten."""
        state = self._ended(job, self.head.entries)
        if state is not None:
            raise _over(state)

    def _rest(self, name: str, budget: Filter) -> tuple[int, int]:
        taken = self.data_sets.get(name, Account())
        return (
            max(0, budget.budget_units - taken.spent_units - taken.reserved_units),
            max(0, budget.slack_budget_units - taken.spent_slack_units - taken.reserved_slack_units),
        )


def _is_amount(counted: Sequence[int]) -> bool:
    """Tell whether this is a number of units and one of slack units."""
    return len(counted) == len(fields(Price)) and min(counted) >= 0


def _over(state: str) -> RefusedError:
    return RefusedError(f"This job is over here ({state}); it is not answered again.", "Sign a new job.")


def _require_same(job: Job, opening: Opening) -> None:
    if job.state is not None:
        raise _over(job.state)
    changed = [name for name in _PINNED if getattr(job.opening, name) != getattr(opening, name)]
    if "data_digest" in changed:
        raise RefusedError("The data changed since this job was opened.", "Sign a new job.")
    if changed:
        raise RefusedError(f"This job was opened with another {changed[0].replace('_', ' ')}.", "Sign a new job.")
