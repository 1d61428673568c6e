"""Decisions of persons at a provider about one job, as the provider states it to the job's own analyst. Pure.

A record names the job by the digest of what the analyst signed, so it is about this job and no other. It has every
decision that the provider's ledger recorded, oldest first, without the account of the operating system from which it
was made: that concerns the provider alone. A record has one canonical form in bytes.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from .checks import check
from .decoding import STORED, decode, parse_form
from .errors import DpspcaError, InvalidDataError
from .names import PartyName, Role

FORMAT: Final = "dpspca-approval-record-1"
APPROVE: Final = "approve"
REJECT: Final = "reject"
VERDICTS: Final = (APPROVE, REJECT)
_ASK: Final = "Use the provider's version of dpspca."


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedDecision:
    """The decision of one person."""

    verdict: str
    person: str
    reason: str
    decided_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRecord:
    """All decisions about one job at one provider, at one moment. Empty if nobody was asked."""

    provider: str
    job: str
    data_set: str
    analyst: str
    stated_at: int
    decisions: tuple[StatedDecision, ...]
    software: str

    @property
    def approved_by(self) -> tuple[str, ...]:
        """The persons who approved the job, each once."""
        return tuple(dict.fromkeys(each.person for each in self.decisions if each.verdict == APPROVE))

    @property
    def rejection(self) -> StatedDecision | None:
        """The first rejection, which is final, or None."""
        return next((each for each in self.decisions if each.verdict == REJECT), None)

    def to_bytes(self) -> bytes:
        """Return the canonical form."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read the canonical form, and refuse any other bytes."""
        try:
            read: Self = decode(cls, parse_form(content, FORMAT), STORED)
            read._check()
        except DpspcaError:
            raise InvalidDataError("The record of approvals cannot be read.", _ASK) from None
        if read.to_bytes() != content:
            raise InvalidDataError("The record of approvals is not in its canonical form.", _ASK)
        return read

    def facts(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"decisions": [asdict(each) for each in self.decisions]}

    def _check(self) -> None:
        sound = all(each.verdict in VERDICTS and each.decided_at >= 0 for each in self.decisions)
        check(sound and self.stated_at >= 0, "The record has an unknown verdict or a negative time.", _ASK)
        roles = PartyName.parse(self.provider).role, PartyName.parse(self.analyst).role
        check(roles == (Role.PROVIDER, Role.ANALYST), "The record names parties of other roles.", _ASK)
