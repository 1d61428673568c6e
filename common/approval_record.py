"""Decisions of persons at a provider about one job, as the provider states it to the job's own analyst. Pure.

A record names the job by the digest of what the analyst signed, so it is about this job and no other. It has every
decision that the provider's ledger recorded, oldest first, with its entry there, so that a steward can compare it. The
account of the operating system from which it was made concerns the provider alone: a record only numbers the accounts,
so that a reader sees whether two decisions came from the same one. Each decision is the provider's word: whoever can
use its key can decide in any name. A record has one canonical form in bytes.
"""

from collections.abc import Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from .checks import check
from .decoding import read_canonical, written
from .names import PartyName, Role, check_name

FORMAT: Final = "dpspca-approval-record-1"
APPROVE: Final = "approve"
REJECT: Final = "reject"
VERDICTS: Final = (APPROVE, REJECT)
MOST_REASON: Final = 300
"""Characters of a reason. It is sent to the analyst."""
ADMITTED: Final = "admitted"
_ASK: Final = "Use the provider's version of dpspca."


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDecision:
    """The decision of one person."""

    verdict: str
    person: str
    reason: str
    decided_at: int
    entry: int
    """The number of the ledger's entry."""
    entry_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """All decisions about one job at one provider, at one moment."""

    provider: str
    job: str
    data_set: str
    analyst: str
    stated_at: int
    state: str
    """``admitted``, or how the job stands in the queue of approvals if the provider never admitted it."""
    decisions: tuple[StatedDecision, ...]
    software: str
    accounts: tuple[int, ...] | None = None
    """For each decision, the number of its account: 1, 2, ..., in order. Earlier versions did not state it."""

    @property
    def approved_by(self) -> tuple[str, ...]:
        """The persons who approved the job, each once."""
        return tuple(dict.fromkeys(each.person for each in self.decisions if each.verdict == APPROVE))

    @property
    def shared_by(self) -> tuple[str, ...] | None:
        """The persons who approved the job from one account, of the first such account; None if it is not known."""
        if self.accounts is None:
            return None
        persons: dict[int, dict[str, None]] = {}
        for each, account in zip(self.decisions, self.accounts, strict=True):
            if each.verdict == APPROVE:
                persons.setdefault(account, {})[each.person] = None
        return next((tuple(some) for some in persons.values() if len(some) > 1), ())

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return written(self, FORMAT)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form, and refuse any other bytes."""
        return read_canonical(cls, content, FORMAT, "The record of approvals")

    def facts(self) -> dict[str, Any]:
        """Return plain values."""
        accounts = self.accounts or [None] * len(self.decisions)
        decisions = [
            asdict(each) | {"account": account} for each, account in zip(self.decisions, accounts, strict=True)
        ]
        own = {name: value for name, value in asdict(self).items() if name != "accounts"}
        return own | {"decisions": decisions, "approved_by": list(self.approved_by)}

    def check(self) -> None:
        """Refuse values that no ledger has."""
        check(self.stated_at >= 0, "The record has a negative time.", _ASK)
        for each in self.decisions:
            check_name("a person", each.person)
            known = each.verdict == APPROVE or (each.verdict == REJECT and bool(each.reason.strip()))
            check(known and len(each.reason) <= MOST_REASON, "A decision has no known verdict, or no reason.", _ASK)
            check(min(each.decided_at, each.entry - 1) >= 0, "A decision has a negative time or entry.", _ASK)
        accounts = self.accounts
        check(
            accounts is None or (len(accounts) == len(self.decisions) and accounts == number_accounts(accounts)),
            "The accounts of decisions are not numbered in order.",
            _ASK,
        )
        roles = PartyName.parse(self.provider).role, PartyName.parse(self.analyst).role
        check(roles == (Role.PROVIDER, Role.ANALYST), "The record names parties of other roles.", _ASK)


def number_accounts(names: Iterable[Hashable]) -> tuple[int, ...]:
    """Return numbers for accounts, from 1 on in the order in which they first occur. They show nothing of names."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers) + 1) for name in names)
