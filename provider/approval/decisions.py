"""A person's decision about a job, signed with the provider's key, and what all decisions about a job come to. Pure.

Anybody who can use the provider's key on the provider's machine can decide, in the name of any person whom the policy
names. The signature covers the job's digest, so that a decision is about no other job. The job names its data set and
its providers, so that the decision counts on no other data set and at no other provider.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import combinations
from typing import Final

from dpspca.common.approval_record import APPROVE, MOST_REASON, REJECT, VERDICTS
from dpspca.common.checks import check, check_known
from dpspca.common.decoding import STORED, decode, parse_json
from dpspca.common.errors import DpspcaError, RefusedError
from dpspca.common.names import PartyName
from dpspca.common.text import sentence
from dpspca.common.trust import Identity, sign_texts, verify_texts
from dpspca.provider.ledger import Decided
from dpspca.provider.policy import ApprovalRule

_PURPOSE: Final = "a person's decision about a job"
_SIGNED: Final = (
    "job", "data_set", "verdict", "person", "login", "reason", "decided_at", "expires_at",
)  # fmt: skip


class ApprovalStatus(StrEnum):
    """The state of a job's approval, as its decisions make it."""

    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"


class RejectedError(RefusedError):
    """A person at the provider rejected the job."""

    code = "rejected"


class NotApprovedError(RefusedError):
    """Too few persons at the provider approved the job."""

    code = "not-approved"


class SharedAccountError(RefusedError):
    """Two persons approved a job from one account, so it may have been one person."""

    code = "shared-account"


def make_decision(  # noqa: PLR0913  # the parts of a decision
    identity: Identity,
    *,
    job: str,
    data_set: str,
    verdict: str,
    person: str,
    login: str,
    reason: str,
    decided_at: int,
    expires_at: int,
) -> Decided:
    """Sign a decision. A rejection needs a reason, because the analyst sees it."""
    check_known("verdict", verdict, VERDICTS)
    check(
        verdict == APPROVE or bool(reason.strip()),
        "A rejection needs a reason, which the analyst sees.",
        "Give one.",
    )
    check(len(reason) <= MOST_REASON, f"The reason has {len(reason)} characters.", f"Use at most {MOST_REASON}.")
    parts = (job, data_set, verdict, person, login, reason, str(decided_at), str(expires_at))
    signature = sign_texts(identity, _PURPOSE, *parts)
    return Decided(
        job=job,
        data_set=data_set,
        verdict=verdict,
        person=person,
        login=login,
        reason=reason,
        decided_at=decided_at,
        expires_at=expires_at,
        certificate=identity.certificate_pem.decode(),
        signature=signature.hex(),
    )


def require_signed(decided: Decided, provider: PartyName, authority_pem: bytes) -> None:
    """Refuse a decision that this provider's key did not sign."""
    parts = [str(getattr(decided, name)) for name in _SIGNED]
    try:
        signature = bytes.fromhex(decided.signature)
    except ValueError:
        signature = b""
    verify_texts(signature, decided.certificate.encode(), authority_pem, provider, _PURPOSE, *parts)


def approval_status(decisions: Sequence[Decided], rule: ApprovalRule | None) -> ApprovalStatus:
    """Return the result of decisions under the present rule. A rejection is final, whatever else was decided.

    Only persons whom the rule names now count, each once, and each from an account that no other of them used.
    """
    if any(each.verdict == REJECT for each in decisions):
        return ApprovalStatus.REJECTED
    if rule is None:
        return ApprovalStatus.APPROVED
    approvals = [each for each in decisions if each.verdict == APPROVE and each.person in rule.approvers]
    enough = any(map(_are_of_different_persons, combinations(approvals, rule.needed)))
    return ApprovalStatus.APPROVED if enough else ApprovalStatus.WAITING


def _are_of_different_persons(approvals: Sequence[Decided]) -> bool:
    persons, logins = {each.person for each in approvals}, {each.login for each in approvals}
    return len(persons) == len(logins) == len(approvals)


def require_own_account(decided: Decided, earlier: Sequence[Decided], rule: ApprovalRule) -> None:
    """Refuse an approval from the account of another approver, if the rule asks for several persons."""
    if rule.needed == 1 or decided.verdict != APPROVE:
        return
    for each in earlier:
        same_account = each.verdict == APPROVE and each.login == decided.login
        if same_account and each.person != decided.person and each.person in rule.approvers:
            raise SharedAccountError(
                f"{each.person} approved this job from the account {decided.login!r:.80}, so {decided.person} cannot "
                f"approve it from there: {rule.needed} different persons have to, each from an account of their own.",
                f"{decided.person} has to decide from another account. Give each approver one, with sudo.",
            )


def require_approved(decisions: Sequence[Decided], rule: ApprovalRule | None) -> None:
    """Refuse a job that persons rejected, or that too few of them approved."""
    match approval_status(decisions, rule):
        case ApprovalStatus.REJECTED:
            raise rejection(decisions)
        case ApprovalStatus.WAITING:
            raise NotApprovedError(
                "The job needs the approval of a person at this provider, and does not have it.", "Sign a new job."
            )
        case ApprovalStatus.APPROVED:
            pass


def rejection(decisions: Sequence[Decided]) -> RejectedError:
    """Return the error for a rejected job: who rejected it, and why."""
    first = next(each for each in decisions if each.verdict == REJECT)
    reason = sentence(first.reason)
    return RejectedError(f"Rejected by {first.person}: {reason}", "Ask the steward, or sign another job.")


def write_decision(decided: Decided) -> str:
    """Write a decision as JSON."""
    return json.dumps(asdict(decided), sort_keys=True)


def read_decision(text: str) -> Decided:
    """Read what ``write_decision`` wrote. Whether it was signed is checked by ``require_signed``."""
    try:
        return decode(Decided, parse_json(text, "The decision"), STORED)
    except DpspcaError as problem:
        raise RefusedError("A stored decision cannot be read.", "Decide again.") from problem
