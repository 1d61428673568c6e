"""The signed parts of evidence: the job, the requests, and what each provider stated, each compared with the job."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

from google.protobuf.message import DecodeError

from dpspca.client.terms import refusals
from dpspca.common.algorithms import catalogue
from dpspca.common.approval_record import ADMITTED, APPROVE, REJECT, ApprovalRecord
from dpspca.common.errors import InvalidDataError, NotTrustedError, RefusedError, require_trust
from dpspca.common.job import JobSpec, Terms
from dpspca.common.ledger_record import OPEN, LedgerRecord, record_facts
from dpspca.common.names import PartyName, Role, shortened
from dpspca.common.plan import Plan
from dpspca.common.privacy import format_up
from dpspca.common.trust import (
    JOB_SKEW,
    JobEnvelope,
    SignedJob,
    SignedRequest,
    SignedStatement,
    StatementKind,
    StatementRequest,
    requester_of,
    signer_of,
    verify_receipt,
    verify_statement,
)
from dpspca.common.version import __version__
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.policy import JobRequest

from .document import Evidence
from .findings import Findings
from .software import check_software

BROKEN: Final = "Get the evidence again."
_DID: Final = {APPROVE: "approved", REJECT: "rejected"}
COLLECTING_SECONDS: Final = 3600
"""The most seconds between a request for statements and the end of collecting."""


@dataclass(frozen=True, slots=True)
class JobOfEvidence:
    """The job that evidence is about, as its signed bytes say."""

    signed: SignedJob
    envelope: JobEnvelope
    spec: JobSpec
    plan: Plan
    analyst: PartyName
    issued_at: datetime
    authority: bytes = field(repr=False)

    @classmethod
    def of(cls, evidence: Evidence) -> "JobOfEvidence":
        """Read the job, and refuse it if the analyst that it names did not sign it."""
        authority, signed = evidence.authority.encode(), SignedJob.from_bytes(from_hex(evidence.job))
        require_trust(signed.to_bytes().hex() == evidence.job, "The signed job is not in its canonical form.", BROKEN)
        analyst = signer_of(signed, authority)
        envelope = JobEnvelope.from_bytes(signed.payload)
        owner = (analyst.role, analyst.federation, analyst.name)
        named = (Role.ANALYST, envelope.federation, envelope.analyst)
        require_trust(owner == named, f"The job names {envelope.analyst}, but {analyst} signed it.", BROKEN)
        spec = JobSpec.from_json(envelope.spec)
        return cls(signed, envelope, spec, catalogue.plan(spec), analyst, moment(envelope.issued_at), authority)

    def provider(self, name: str) -> PartyName:
        """Return the provider of this name in the job's federation."""
        return PartyName(self.analyst.federation, Role.PROVIDER, name)

    def facts(self) -> dict[str, Any]:
        """Return the job as plain values."""
        return {
            "job": self.signed.job_id,
            "analyst": self.analyst.uri,
            "data_set": self.envelope.data_set,
            "providers": [*self.envelope.audience],
            "issued_at": self.envelope.issued_at,
            "expires_at": self.envelope.expires_at,
            "spec": self.spec.to_dict(),
        }


def require_request(evidence: Evidence, kind: StatementKind, job: JobOfEvidence) -> None:
    """Refuse a request that the job's analyst did not sign, for this kind, about this job, when the file was made."""
    signed, request = read_request(evidence, kind)
    asked, analyst = requester_of(signed, job.authority, moment(request.issued_at))
    about = job.signed.job_id if kind.is_about_a_job else job.envelope.data_set
    require_trust(signed.to_bytes().hex() == evidence.requests[kind], "A request is not in its canonical form.", BROKEN)
    require_trust(analyst == job.analyst, f"{analyst} asked for statements about another analyst's job.", BROKEN)
    require_trust((asked.kind, asked.about) == (kind, about), "A request is about something else.", BROKEN)
    near = abs(evidence.collected_at - asked.issued_at) <= COLLECTING_SECONDS
    require_trust(near, "A request was signed at another time than the evidence.", BROKEN)


def read_request(evidence: Evidence, kind: StatementKind) -> tuple[SignedRequest, StatementRequest]:
    """Read a request, without checking it."""
    if kind not in evidence.requests:
        raise NotTrustedError("There is no request for this statement.", BROKEN)
    signed = SignedRequest.from_bytes(from_hex(evidence.requests[kind]))
    return signed, StatementRequest.from_bytes(signed.payload)


def stated_content(evidence: Evidence, job: JobOfEvidence, name: str, kind: StatementKind) -> bytes:
    """Return the content of a statement that this provider signed in reply to the analyst's request."""
    signed, asked = read_request(evidence, kind)
    written = evidence.statements[name][kind]
    statement = SignedStatement.from_bytes(from_hex(written))
    require_trust(statement.to_bytes().hex() == written, "A statement is not in its canonical form.", BROKEN)
    return verify_statement(statement, signed, job.provider(name), job.authority, at=moment(asked.issued_at))


def read_record(found: Findings, content: bytes, job: JobOfEvidence, name: str) -> tuple[str, dict[str, Any]]:
    """Hold a ledger's record against the job, and return it in words and as plain values."""
    record, envelope = LedgerRecord.from_bytes(content), job.envelope
    digest = sha256(job.signed.to_bytes()).hexdigest()
    about = (record.provider, record.job, record.signed_job, record.data_set, record.analyst, record.unit)
    expected = (
        job.provider(name).uri,
        job.signed.job_id,
        digest,
        envelope.data_set,
        job.analyst.uri,
        str(job.spec.unit),
    )
    require_trust(about == expected, "The record is about something else than this job.", BROKEN)
    within = record.expires_at == envelope.expires_at and record.queries <= len(job.plan)
    require_trust(within, "The record has more queries, or another expiry, than the job.", BROKEN)
    reserved = format_up(record.reserved.mu, 4)
    confirmed = _check_price(found, record, job, name)
    check_software(found, f"software-{name}", name, record.software, record.software_digest)
    facts = record_facts(record) | {"ledger": None, "price_confirmed": confirmed}
    if record.receipt:
        receipt = _receipt(record.receipt, job, name)
        facts["ledger"] = {"name": receipt.ledger, "entries": receipt.entries, "hash": receipt.hash}
        what = f"{name} signed a receipt: its ledger then ended with entry {receipt.entries}, hash {receipt.hash}."
        found.check(f"receipt-{name}", what, holds=True, otherwise="")
    else:
        found.lacks(f"receipt-{name}", f"{name}: how many entries its ledger had. It keeps no permanent ledger.")
    ended = "is still open there" if record.state == OPEN else f"ended there as '{record.state}'"
    doubt = "" if confirmed else " (not confirmed)"
    what = (
        f"its ledger has this job. It stored {record.answers} answers to {record.queries} queries, spent mu "
        f"{format_up(record.spent.mu, 4)} of mu {reserved} that was reserved{doubt}, and the job {ended}."
    )
    return what, facts


def _check_price(found: Findings, record: LedgerRecord, job: JobOfEvidence, name: str) -> bool:
    """Hold what was reserved against the price of the job. Another version of the software may compute another one.

    Which version that was is the provider's word, so a difference is never taken for agreement. In no version does a
    job cost nothing.
    """
    confirmed = record.reserved == job.plan.price
    reserved, price = format_up(record.reserved.mu, 4), format_up(job.plan.price.mu, 4)
    if not confirmed and record.software != __version__ and not record.reserved.is_free:
        found.cannot_know(
            f"price-{name}",
            f"Whether {name} reserved the price that follows from the job. By its word, version "
            f"{shortened(record.software)} of dpspca reserved mu {reserved}, and {__version__} computes mu {price}.",
        )
        return confirmed
    found.check(
        f"price-{name}",
        f"{name} reserved the price that follows from the job: mu {price}.",
        holds=confirmed,
        otherwise=f"{name} reserved mu {reserved}, but the job costs mu {price}.",
    )
    return confirmed


def check_unconfirmed_prices(found: Findings, providers: Mapping[str, Mapping[str, Any]]) -> None:
    """Compare prices that no check could confirm: any one version computes the same price for every provider."""
    reserved: dict[str, dict[tuple[int, int], str]] = {}
    for name, facts in providers.items():
        record = facts.get(StatementKind.RECORD)
        if record and not record["price_confirmed"]:
            amount = (record["reserved"]["units"], record["reserved"]["slack_units"])
            reserved.setdefault(record["software"], {}).setdefault(amount, name)
    for version, by in reserved.items():
        if len(by) > 1:
            one, other, *_ = by.values()
            what = f"{one} and {other} reserved different prices with one version of dpspca, {shortened(version)}."
            found.check("prices", "", holds=False, otherwise=what)


def read_terms(found: Findings, content: bytes, job: JobOfEvidence, name: str) -> tuple[str, dict[str, Any]]:
    """Hold terms against the job, and return them in words and as plain values."""
    terms, envelope = Terms.from_bytes(content), job.envelope
    about = (terms.provider, terms.data_set, terms.analyst)
    same = about == (job.provider(name).uri, envelope.data_set, job.analyst.uri)
    require_trust(same, "The terms are about something else.", BROKEN)
    when = f"{moment(terms.stated_at):%Y-%m-%d %H:%M:%S} UTC"
    if not envelope.issued_at - JOB_SKEW <= terms.stated_at < envelope.expires_at:
        found.cannot_know(
            f"terms-then-{name}",
            f"Whether the terms of {name} were the same when the job ran: these are of {when}, when it was over.",
        )
    asked = JobRequest.of_plan(job.plan, job.analyst, envelope.audience)
    broken = [each.what for each in refusals(terms, asked) if each.code == RefusedError.code]
    kept = f"does not keep them: {broken[0]}" if broken else "keeps them."
    return f"its terms at {when}. The job {kept}", terms.to_dict()


def read_approvals(found: Findings, content: bytes, job: JobOfEvidence, name: str) -> tuple[str, dict[str, Any]]:
    """Hold a provider's record of decisions against the job, and return it in words and as plain values."""
    record, envelope = ApprovalRecord.from_bytes(content), job.envelope
    about = (record.provider, record.job, record.data_set, record.analyst)
    expected = (job.provider(name).uri, job.signed.job_id, envelope.data_set, job.analyst.uri)
    require_trust(about == expected, "The record of approvals is about something else than this job.", BROKEN)
    times = [record.stated_at, *(each.decided_at for each in record.decisions)]
    early = min(times) < envelope.issued_at - JOB_SKEW
    require_trust(not early, "A person decided about the job before it was signed.", BROKEN)
    late = max(times) > record.stated_at + JOB_SKEW
    require_trust(not late, "A person decided about the job after that was stated.", BROKEN)
    _check_accounts(found, record, name)
    return _decisions_in_words(record), record.facts()


def _check_accounts(found: Findings, record: ApprovalRecord, name: str) -> None:
    """Say whether the persons who approved the job each used an account of their own."""
    persons, shared = record.approved_by, record.shared_by
    if len(persons) > 1 and shared is not None and not shared:
        what = f"{name} states that {' and '.join(persons)} approved the job from an account each."
        found.check(f"accounts-{name}", what, holds=True, otherwise="")
    elif len(persons) > 1:
        why = f"{' and '.join(shared)} used one account" if shared else "it does not state their accounts"
        what = f"Whether different people approved the job at {name}: {why}."
        found.cannot_know(f"accounts-{name}", what)


def _decisions_in_words(record: ApprovalRecord) -> str:
    standing = "it had admitted the job" if record.state == ADMITTED else f"the job was {record.state} there"
    begin = f"at {_when(record.stated_at)} {standing}"
    accounts = record.accounts or [None] * len(record.decisions)
    decided = (
        f"{each.person} {_DID[each.verdict]} it at {_when(each.decided_at)}, entry {each.entry}"
        + ("" if account is None else f", account {account}")
        + (f" ({each.reason})" if each.reason else "")
        for each, account in zip(record.decisions, accounts, strict=True)
    )
    return f"{begin}. {'; '.join(decided)}." if record.decisions else f"{begin}, and no person had decided about it."


def check_approvals(found: Findings, facts: Mapping[str, Any], name: str) -> None:
    """Compare the decisions that a provider states with its terms and with its ledger's record of the job.

    A policy may have changed since. But no job is admitted after a rejection, which is final.
    """
    approvals, terms = facts.get(StatementKind.APPROVALS), facts.get(StatementKind.TERMS)
    record = facts.get(StatementKind.RECORD)
    if approvals and terms and approvals["state"] == ADMITTED:
        by, needed = len(approvals["approved_by"]), terms["conditions"]["approvals_needed"]
        if by < needed:
            found.cannot_know(
                f"approved-{name}",
                f"Why {name} admitted the job: {by} persons approved it, and the terms ask for {needed}. The policy "
                "may have asked for fewer then.",
            )
    if approvals and record:
        rejected = [each["decided_at"] for each in approvals["decisions"] if each["verdict"] == REJECT]
        found.check(
            f"rejection-{name}",
            f"{name} admitted the job before anybody rejected it, or nobody did.",
            holds=min(rejected, default=math.inf) + JOB_SKEW >= record["opened_at"],
            otherwise=f"{name} states that the job was rejected before it was admitted, which no provider does.",
        )


def rejected_by(facts: Mapping[str, Any]) -> str | None:
    """Return who rejected a job that the provider, by its statement of decisions, did not admit."""
    approvals = facts.get(StatementKind.APPROVALS)
    if not approvals or approvals["state"] == ADMITTED:
        return None
    return next((each["person"] for each in approvals["decisions"] if each["verdict"] == REJECT), None)


def _when(at: int) -> str:
    return f"{moment(at):%Y-%m-%d %H:%M:%S} UTC"


def from_hex(text: str) -> bytes:
    """Read lower-case hexadecimal, and nothing else."""
    try:
        read = bytes.fromhex(text)
    except ValueError:
        read = b""
    if not text or read.hex() != text:
        raise InvalidDataError("A part of the file is not in hexadecimal.", BROKEN)
    return read


def moment(at: int) -> datetime:
    """Return a time of the file, which may hold anything."""
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidDataError("A time in the file is out of range.", BROKEN) from None


def _receipt(written: str, job: JobOfEvidence, name: str) -> pb.Receipt:
    """Read a receipt. Refuse one that the provider did not sign, or that is not in its canonical form."""
    try:
        read = pb.Receipt.FromString(from_hex(written))
    except DecodeError:
        raise InvalidDataError("The receipt cannot be read.", BROKEN) from None
    exact = read.SerializeToString(deterministic=True).hex() == written
    require_trust(exact, "The receipt is not in its canonical form.", BROKEN)
    verify_receipt(read, job.provider(name), job.authority)
    return read
