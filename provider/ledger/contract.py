"""The ledger's interface."""

from collections.abc import Iterable
from typing import Protocol

from dpspca.common.arrays import Integers
from dpspca.common.privacy import Price

from .accounts import JobPosition
from .entries import Decided, Entry, Head, Limits, Named, Opening
from .past_jobs import PastJob
from .promises import Promise


class Ledger(Protocol):
    """Open a job, then reserve, store and send for each query. ``stored`` gives the same query the same bytes again.

    Every ledger keeps this contract. The plans of all jobs that were opened fit into the limits together, in every
    order and from any number of callers. Of several callers that saw the same standing, ``reserve`` succeeds for only
    one. So there are never two answers at one position, nor two answers for one price. If a call raises, the caller may
    rely on no record of it, and must send nothing.
    """

    def open(self, opening: Opening, limits: Limits, named: Named | None = None) -> JobPosition | None:
        """Admit a job and reserve the price of its whole plan, or continue a job that was admitted before.

        The reservation, and ``named`` if it is given, are recorded with the job's first query. Until then a crash
        forgets the job, which has spent nothing and received nothing.

        One atomic step. Returns the job's standing, None before its first query. Raises ``BudgetExceededError`` if the
        plan does not fit beside everything spent and reserved, and ``RefusedError`` if the job is over or is not the
        one that was opened. Then nothing has changed.
        """
        ...

    def standing(self, job: str) -> JobPosition | None:
        """Return how far the job has come, or None before its first query."""
        ...

    def reserve(self, job: str, query: str, digest: str, before: JobPosition | None, after: JobPosition) -> bool:
        """Record durably that the query at ``before`` is about to be answered, and its price.

        One atomic step. Returns False and records nothing if the job no longer stands at ``before``. ``query`` is the
        query's name in the plan, and ``digest`` identifies its content.
        """
        ...

    def store(self, job: str, position: int, answer: Integers) -> None:
        """Record the answer durably. Only then may it be sent. Raises if the job was closed in the meantime."""
        ...

    def query_digest(self, job: str, position: int) -> str | None:
        """Return the digest of the query that was reserved at a position, or None."""
        ...

    def stored(self, job: str, position: int) -> Integers | None:
        """Return the stored answer at a position, or None if there is none or the job is not open."""
        ...

    def close(self, job: str, state: str) -> None:
        """End a job for good, delete its answers, and give back the price of queries that were never asked.

        Afterwards ``store`` refuses an answer that was still being made. Closing a job again changes nothing.
        """
        ...

    def require_within(self, data_set: str, analyst: str, limits: Limits) -> None:
        """Refuse if more is spent and reserved than these limits allow. They may have been lowered.

        If the limits allow it, every open job fits into them, because the price of its queries is already reserved.
        """
        ...

    def room(self, data_set: str, analyst: str, limits: Limits) -> Price:
        """Return the most that one further job of an analyst may cost, or refuse if none would be admitted."""
        ...

    def all_decisions(self, job: str) -> tuple[Entry, ...]:
        """Return the entry of every decision about a job, oldest first, also if the job is over."""
        ...

    def past_job(self, job: str) -> PastJob | None:
        """Return the record of a job, also long after it ended, or None if there is none."""
        ...

    def open_jobs(self) -> tuple[str, ...]:
        """List the jobs that are open."""
        ...

    def key_names(self) -> None:
        """Make sure that there is a key for the names of rows, and that no entry has anything else that names rows.

        This is called once, before any row is named.
        """
        ...

    def name_of(self, identifier: str) -> str:
        """Return the name in this ledger of rows with this digest or fingerprint: a hash under the provider's key.

        No other method takes a digest or fingerprint itself.
        """
        ...

    def data_set_of_rows(self, names: Iterable[str]) -> str | None:
        """Return the data set under which rows with one of these names were first used, or None."""
        ...

    def name_rows(self, named: Named, *, anew: bool = False) -> None:
        """Record durably that rows are about to be used under the name of a data set, if that is new.

        This is for rows that arrived after their job was opened.
        """
        ...

    def expire(self, now: float) -> None:
        """Close every job past its expiry."""
        ...

    def require_admissible(self, opening: Opening, limits: Limits) -> None:
        """Refuse a job that ``open`` would refuse now. Nothing is reserved."""
        ...

    def decide(self, decided: Decided) -> None:
        """Record durably what a person decided about a job. Refuse if the job is over."""
        ...

    def decisions(self, job: str) -> tuple[Decided, ...]:
        """Return the decisions of persons about a job that is not over, oldest first.

        Decisions are used up when the job ends, also if that was before its first query.
        """
        ...

    def require_promise(self, data_set: str, stated: Promise) -> None:
        """Refuse if the policy promises to protect neighbours that some jobs on the data set did not protect."""
        ...

    @property
    def quarantine(self) -> str | None:
        """Why the ledger is in quarantine, or None."""
        ...

    def head(self) -> Head:
        """Return how far the ledger has come."""
        ...

    def attested_head(self) -> Head | None:
        """Return the head that receipts may state, or None if the ledger ends with its process."""
        ...

    def check_head(self, seen: Head) -> str | None:
        """Compare the ledger with a head that this provider signed. Return why it goes into quarantine, or None.

        The ledger goes into quarantine if it lacks that head and no operator has decided on this yet: it may have
        forgotten what was spent.
        """
        ...
