"""The ledger's rules: what may be recorded next, decided from its entries alone. Pure: no clock, no file, no lock.

The methods ``to_...`` return the fact to record, or refuse, and change nothing. ``history.py`` applies facts.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dpspca.common.errors import DataChangedError, JobEndedError, RefusedError
from dpspca.common.privacy import NOTHING, Filter, Price
from dpspca.common.trust import JOB_SKEW

from .accounts import JobAccount, JobPosition
from .balance import Balance, Balances, admit
from .entries import (
    Closed,
    Decided,
    Entry,
    Fact,
    Head,
    Lapsed,
    LedgerError,
    Limits,
    Named,
    NotQuarantinedError,
    Opening,
    QuarantinedError,
    QuarantineEnded,
    Reserved,
    Stored,
    Vouched,
)
from .history import QUARANTINED, History
from .promises import Promise, require_kept

__all__ = ["EXPIRED", "QUARANTINED", "LedgerState"]

EXPIRED: Final = "expired"

_PINNED: Final = ("data_set", "data_digest", "analyst", "unit", "spec_epsilon", "spec_delta", "units", "slack_units")


class LedgerState(History):
    """The records of a ledger, and the rules for new ones."""

    # --- Deciding -----------------------------------------------------------------------------------------------------

    def draft(self, at: int, facts: Iterable[Fact]) -> list[Entry]:
        """Write facts as the entries that come next."""
        head, made = self.head, []
        for fact in facts:
            made.append(Entry.following(head, at, fact))
            head = Head(head.ledger, made[-1].number, made[-1].hash)
        return made

    def to_open(self, opening: Opening, limits: Limits, at: int = 0) -> Opening | None:
        """Return the opening if the job may be admitted with its whole plan, or None if it is already admitted."""
        self.require_trusted()
        known = self.jobs.get(opening.job)
        if known is not None:
            _require_same(known, opening)
            return None
        self._require_new(opening.job)
        self._require_accounted(opening)
        self.require_promise(opening.data_set, Promise(opening.unit, limits.promise.extent if limits.promise else 0.0))
        if limits.quotas is not None:
            self._usage.require_room(opening.analyst, opening.size, limits.quotas, at)
        self._require_room(opening.data_set, opening.analyst, limits, opening.price)
        return opening

    def require_within(self, data_set: str, analyst: str, limits: Limits) -> None:
        """Refuse if more is spent and reserved than these limits allow. They may have been lowered."""
        self._require_room(data_set, analyst, limits, NOTHING)

    def room(self, data_set: str, analyst: str, limits: Limits) -> Price:
        """Return the most that one further job of an analyst may cost, or refuse if none would be admitted at all."""
        self.require_trusted()
        self._require_decided(data_set)
        if limits.promise:
            self.require_promise(data_set, limits.promise)
        return self.balances(data_set, analyst, limits).left

    def balances(self, data_set: str, analyst: str, limits: Limits) -> Balances:
        """Return how the budgets of a data set and of an analyst stand, whether or not a job would be admitted.

        What an operator wrote off after a quarantine may have been spent by any analyst, so it counts against each.
        """
        shared = Balance.of(limits.data_set, [self.data_sets.get(data_set)])
        if limits.analyst is None:
            return Balances(shared, None)
        own = [self.analysts.get((data_set, analyst)), self.written_off.get(data_set)]
        return Balances(shared, Balance.of(limits.analyst, own))

    def _require_room(self, name: str, analyst: str, limits: Limits, plan: Price) -> None:
        shared, own = self.balances(name, analyst, limits)
        admit(shared, plan, f"the data set '{name}'")
        if own is not None:
            admit(own, plan, f"{analyst} on the data set '{name}'")

    def require_promise(self, data_set: str, stated: Promise) -> None:
        """Refuse a promise beyond what jobs protect: jobs that were asked a query, and open jobs that may be."""
        waiting = (job.opening for job in self._open.values() if job.opening.data_set == data_set)
        require_kept(data_set, self._promises.of(data_set, (each.promise for each in waiting)), stated)

    def to_vouch(self, data_set: str, protects: float, reason: str) -> Vouched:
        """State what jobs on a data set protected, where an earlier version did not record it."""
        if not self._promises.lacks(data_set):
            raise LedgerError(
                f"The ledger records what every job on the data set '{data_set}' protected.",
                "Nothing is missing, so there is nothing to state.",
            )
        if not reason.strip() or not 0 < protects < math.inf:
            raise LedgerError(
                f"The reason {reason!r} is empty, or {protects:g} is not a positive number.",
                "Give --reason and --protects.",
            )
        return Vouched(data_set, protects, reason)

    def to_name(self, named: Named, *, anew: bool = False) -> Named | None:
        """Record under which data set rows are used for answers. Return None if this is known or nothing is answered.

        Whether the first entry is written does not depend on the rows' content: rows of zeros have no fingerprint, and
        are recorded without one.
        """
        known = named.data_set in self.named and self.rows.keys() >= set(named.rows)
        return None if self.quarantine is not None or (known and not anew) else named

    def to_reserve(
        self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition
    ) -> Reserved | None:
        """Move the next query's price from reserved to spent. Return None if the job no longer stands at ``before``."""
        found = self._open_job(job)
        if found.standing != before:
            return None
        own = found.account
        price = after.spent - own.spent
        if after.reached != len(found.queries) + 1 or not own.covers(price):
            raise RefusedError(f"Query {after.reached} costs more than is reserved for its job.", "Sign a new job.")
        return Reserved(job, after.reached - 1, query, digest, *price.pair)

    def to_store(self, job: str, position: int, shape: Sequence[int], size: int, digest: str) -> Stored:
        """Store the one answer to a query that was paid for."""
        found = self._open_job(job)
        if not 0 <= position < len(found.queries) or found.queries[position].answer is not None:
            raise RefusedError(
                f"Query {position + 1} was not reserved, or its answer is already stored.",
                "Reserve a query first, and store its answer once.",
            )
        return Stored(job, position, list(shape), size, digest)

    def to_close(self, job: str, state: str) -> Closed | None:
        """End a job that was asked a query. Return None if it is over or unknown."""
        self.require_trusted()
        found = self._open.get(job)
        return Closed(job, state, *found.returnable().pair) if found and not found.unwritten else None

    def to_decide(self, decided: Decided) -> Decided | None:
        """Record what a person decided about a job that is not over. Return None if this is recorded already."""
        self.require_trusted()
        known = self.jobs.get(decided.job)
        if known is None:
            self._require_new(decided.job)
        elif known.state is not None:
            raise _over(known.state)
        return None if decided in self.decisions(decided.job) else decided

    def to_lapse(self, job: str, state: str) -> Lapsed | None:
        """Use up the decisions about a job that ends before its first query. Return None if there are none."""
        found = self.decisions(job)
        return Lapsed(job, state, found[0].expires_at) if found and not self._was_asked(job) else None

    def to_end_quarantine(
        self, reason: str, budgets: Mapping[str, Filter], counted: Mapping[str, Price]
    ) -> QuarantineEnded:
        """End a quarantine. A data set in ``budgets`` but not in ``counted`` counts as wholly spent.

        A data set that is in neither stays refused, and can be named later.
        """
        if self._accounted is None:
            raise NotQuarantinedError("This ledger was never quarantined.", "There is no quarantine to end.")
        if not reason.strip():
            raise LedgerError("Ending a quarantine needs a reason.", "Give --reason: why the ledger may be used again.")
        negative = sorted(name for name, price in counted.items() if not NOTHING.is_within(price))
        if negative:
            raise LedgerError(f"The amount for '{negative[0]}' is negative.", "Count what may have been spent, or 0.")
        whole = {name: self.balances(name, "", Limits(budget)).data_set.left for name, budget in budgets.items()}
        return QuarantineEnded(reason, {name: list(price.pair) for name, price in sorted({**whole, **counted}.items())})

    def overdue(self, now: float) -> list[str]:
        """List the open jobs that have expired."""
        return [name for name, job in self._open.items() if job.opening.expires_at <= now]

    # --- Refusing -----------------------------------------------------------------------------------------------------

    def require_trusted(self) -> None:
        """Refuse while the ledger is in quarantine."""
        if self.quarantine is not None:
            raise QuarantinedError(
                "The ledger is in quarantine, because it may lack entries about what was spent.",
                "The provider's operator must decide what counts as spent.",
            )

    def _require_accounted(self, opening: Opening) -> None:
        """After a quarantine, refuse a job that may have been answered in the entries that are lost."""
        if self._accounted is None:
            return
        self._require_decided(opening.data_set)
        if opening.issued_at <= self.signed_after:
            raise RefusedError(
                "This job was signed before the last quarantine ended, or just after it, so it may have been answered.",
                f"Sign a new job at least {JOB_SKEW} seconds after the operator ended the quarantine.",
            )

    def _require_decided(self, data_set: str) -> None:
        """After a quarantine, refuse a data set until an operator has decided what counts as spent."""
        if self._accounted is not None and data_set not in self._accounted:
            raise QuarantinedError(
                f"Since a quarantine, nobody has decided what counts as spent for the data set '{data_set}'.",
                "The provider's operator must decide: see `dpspca ledger end-quarantine --help`.",
            )

    def _open_job(self, name: str) -> JobAccount:
        self.require_trusted()
        job = self.jobs.get(name)
        if job is None:
            self._require_new(name)
            raise RefusedError(f"Job {name:.12} is not open at this provider.", "Open it first.")
        if job.state is not None:
            raise _over(job.state)
        return job

    def _require_new(self, job: str) -> None:
        """Refuse a job that has ended and was forgotten in memory."""
        state = self._unasked[job][0] if job in self._unasked else self._find_end(job, self.head.entries)
        if state is not None:
            raise _over(state)


def _over(state: str) -> JobEndedError:
    return JobEndedError(f"This job has ended at this provider ({state}) and is not answered again.", "Sign a new job.")


def _require_same(job: JobAccount, opening: Opening) -> None:
    if job.state is not None:
        raise _over(job.state)
    changed = [name for name in _PINNED if getattr(job.opening, name) != getattr(opening, name)]
    if "data_digest" in changed:
        raise DataChangedError("The data changed since this job was opened.", "Sign a new job.")
    if changed:
        raise RefusedError(
            f"The {changed[0].replace('_', ' ')} of this job changed since it was opened.", "Sign a new job."
        )
