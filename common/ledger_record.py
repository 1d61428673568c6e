"""The ledger's record of one job, as the provider states it to the job's own analyst. Pure.

A record names the job by the hash of its signed bytes, so it is about this job and no other. It says what was reserved
and spent, how many answers were stored, and how far the ledger had come. The digest of the answers lets the steward
show later, with ``dpspca outbox``, that these very answers were meant. A record has one canonical form in bytes.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final, Self

from .checks import check
from .decoding import read_canonical, written
from .names import PartyName, Role
from .privacy import Price

FORMAT: Final = "dpspca-ledger-record-1"
OPEN: Final = "open"
"""The state of a job that has not ended."""
_ASK: Final = "Use the provider's version of dpspca."


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One job at one provider, at one moment."""

    provider: str
    job: str
    data_set: str
    analyst: str
    unit: str
    signed_job: str
    """SHA-256 of the job as it was sent, with its signature and certificate."""
    stated_at: int
    opened_at: int
    expires_at: int
    state: str
    """``open``, or how the job ended at this provider."""
    queries: int
    """Queries that were paid for."""
    answers: int
    """Answers that were stored, and may have been sent."""
    answers_digest: str
    """See ``answers_digest``."""
    reserved: Price
    """The price of the whole plan, which was reserved when the job was admitted."""
    spent: Price
    receipt: str
    """The provider's receipt of its ledger, in hexadecimal; empty if its ledger ends with its process."""
    software: str
    software_digest: str | None = None
    """SHA-256 of the files of the provider's software. Earlier versions did not state it."""

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return written(self, FORMAT)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form, and refuse any other bytes."""
        return read_canonical(cls, content, FORMAT, "The record of a ledger")

    def check(self) -> None:
        """Refuse values that no ledger has."""
        amounts = (*self.reserved.pair, *self.spent.pair, self.stated_at, self.opened_at, self.expires_at)
        counts = 0 <= self.answers <= self.queries and self.spent.is_within(self.reserved)
        check(
            min(amounts) >= 0 and counts,
            "The record has negative numbers, more answers than queries, or more spent than reserved.",
            _ASK,
        )
        roles = PartyName.parse(self.provider).role, PartyName.parse(self.analyst).role
        check(roles == (Role.PROVIDER, Role.ANALYST), "The record names parties of other roles.", _ASK)


def answers_digest(answers: Iterable[tuple[int, str]]) -> str:
    """Return one digest of all stored answers: of a line for each, its position from 0 on and its SHA-256."""
    return sha256("".join(f"{position} {digest}\n" for position, digest in answers).encode()).hexdigest()


def record_facts(record: LedgerRecord) -> dict[str, Any]:
    """Return a record as plain values, with its prices in mu."""
    return asdict(record) | {"reserved_mu": record.reserved.mu, "spent_mu": record.spent.mu}
