"""Checks evidence offline: every signature, every certificate at the time of the job, and whether the parts agree.

The chain: the authority's certificate vouches for the analyst and for each provider. The analyst signed the job and the
requests. Each provider signed its statements in reply to these requests, and its receipt. The analyst signed the file.
So nobody but a provider could have written what it states, and nobody but the analyst could have put the file together.
A dishonest analyst can leave statements out, and is believed only about what ``COLLECTOR`` lists.

Certificates have expired when this is read years later. Each is judged at the time that its signature states.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

from cryptography.hazmat.primitives.hashes import SHA256

from dpspca.common.errors import DpspcaError, require_trust
from dpspca.common.names import shortened
from dpspca.common.trust import JOB_SKEW, StatementKind, federation_of, holder_at, read_authority

from .content import outcomes_in_words, stated_facts
from .document import Evidence, StoredModel
from .findings import Findings
from .parts import (
    BROKEN,
    JobOfEvidence,
    check_approvals,
    check_unconfirmed_prices,
    moment,
    read_approvals,
    read_record,
    read_terms,
    rejected_by,
    require_request,
    stated_content,
)
from .promise import check_promise
from .software import check_software

COLLECTOR: Final = (
    "For these parts there is only the word of the analyst who signed the file: when it was collected, what the "
    "coordinator reported, the model's hash, the version and the digest of the software and the hash of its bill of "
    "materials. The analyst may also have left statements out."
)

PERSONS: Final = (
    "Each provider states that, and whoever can use its key can decide in the name of anybody whom its policy lists. "
    "Its steward can compare the entries with the ledger."
)

Reader: TypeAlias = Callable[[Findings, bytes, JobOfEvidence, str], tuple[str, dict[str, Any]]]

_READERS: Final[Mapping[StatementKind, Reader]] = {
    StatementKind.RECORD: read_record,
    StatementKind.TERMS: read_terms,
    StatementKind.APPROVALS: read_approvals,
}
_WORDS: Final = {
    StatementKind.RECORD: "the ledger's record of the job",
    StatementKind.TERMS: "the terms of the data set",
    StatementKind.APPROVALS: "what persons decided about the job",
}


def verify(
    content: bytes,
    *,
    fingerprint: str | None = None,
    model: bytes | None = None,
    bill_of_materials: bytes | None = None,
) -> Findings:
    """Check evidence. The other arguments are what the reader knows: a fingerprint, and files to compare."""
    found = Findings()
    try:
        evidence = Evidence.from_bytes(content)
    except DpspcaError as problem:
        found.check("form", "", holds=False, otherwise=str(problem))
        return found
    found.check("form", "The file is complete and in the canonical form of evidence.", holds=True, otherwise="")
    found.facts |= stated_facts(evidence)
    _check_authority(found, evidence, fingerprint)
    with found.checking("collector-signature", "The analyst who collected it signed the whole file."):
        evidence.require_signature()
    job = _check_job(found, evidence)
    if job:
        _check_requests(found, evidence, job)
        _check_providers(found, evidence, job)
    check_promise(found, evidence, job)
    _check_files(found, evidence, model, bill_of_materials)
    check_software(found, "software", "the collector", evidence.software, evidence.software_digest)
    _state_limits(found, evidence)
    return found


def _check_authority(found: Findings, evidence: Evidence, known: str | None) -> None:
    """Check that the authority is the one that the reader knows. Without one, say what to compare."""
    try:
        certificate = read_authority(evidence.authority.encode())
    except DpspcaError as problem:
        found.check("authority", "", holds=False, otherwise=problem.what)
        return
    federation, fingerprint = federation_of(certificate), certificate.fingerprint(SHA256()).hex(":").upper()
    found.facts["authority"] = {"federation": federation, "fingerprint": fingerprint}
    if known is None:
        found.cannot_know(
            "authority",
            f"Whether the authority of {federation} is the true one. Compare its fingerprint with one that you trust, "
            f"or give that with --fingerprint: {fingerprint}",
        )
        return
    found.check(
        "authority",
        f"The authority of {federation} has the fingerprint that you gave.",
        holds=known == fingerprint,
        otherwise=f"The authority has another fingerprint than you gave: {fingerprint}",
    )


def _check_job(found: Findings, evidence: Evidence) -> JobOfEvidence | None:
    try:
        job = JobOfEvidence.of(evidence)
    except DpspcaError as problem:
        found.check("job-signature", "", holds=False, otherwise=f"The job: {problem.what}")
        return None
    found.facts["job"] = job.facts()
    what = (
        f"{job.analyst} signed job {job.signed.job_id} about '{job.envelope.data_set}' for "
        f"{', '.join(job.envelope.audience)} at {job.issued_at:%Y-%m-%d %H:%M:%S} UTC."
    )
    found.check("job-signature", what, holds=True, otherwise="")
    with found.checking("job-certificate", "The analyst's certificate was valid when the job was signed."):
        holder_at(job.signed.certificate_pem, job.authority, job.issued_at)
    _check_collector(found, evidence, job)
    return job


def _check_collector(found: Findings, evidence: Evidence, job: JobOfEvidence) -> None:
    try:
        at = moment(evidence.collected_at)
        collector = holder_at(evidence.collector.encode(), job.authority, at)
        require_trust(collector == job.analyst, f"{collector} collected the evidence of another analyst's job.", BROKEN)
        early = evidence.collected_at < job.envelope.issued_at - JOB_SKEW
        require_trust(not early, "The evidence was collected before the job was signed.", BROKEN)
    except DpspcaError as problem:
        found.check("collector", "", holds=False, otherwise=problem.what)
        return
    what = (
        f"The job's own analyst, {collector}, collected the file at {at:%Y-%m-%d %H:%M:%S} UTC, with a certificate "
        "valid then."
    )
    found.check("collector", what, holds=True, otherwise="")


def _check_requests(found: Findings, evidence: Evidence, job: JobOfEvidence) -> None:
    """Check that the analyst asked for just the kinds of statements that are known here."""
    known = {str(kind) for kind in _READERS}  # an earlier version knew fewer
    found.check(
        "requests",
        "The file has no request for a kind of statement that this version does not know.",
        holds=evidence.requests.keys() <= known,
        otherwise=f"The file has other requests than {', '.join(sorted(known))}. Use the version that wrote it.",
    )
    for kind in _READERS:
        if kind in evidence.requests:
            with found.checking(f"request-{kind}", f"The analyst signed the request for {_WORDS[kind]}."):
                require_request(evidence, kind, job)


def _check_providers(found: Findings, evidence: Evidence, job: JobOfEvidence) -> None:
    strangers = sorted(evidence.statements.keys() - set(job.envelope.audience))
    found.check(
        "audience",
        "All statements are of providers that the job names.",
        holds=not strangers,
        otherwise=f"There are statements of providers that the job does not name: {', '.join(strangers)[:200]}",
    )
    found.facts["without_statements"] = [name for name in job.envelope.audience if not evidence.statements.get(name)]
    found.facts["providers"] = {name: _check_provider(found, evidence, job, name) for name in job.envelope.audience}
    check_unconfirmed_prices(found, found.facts["providers"])


def _check_provider(found: Findings, evidence: Evidence, job: JobOfEvidence, name: str) -> dict[str, Any]:
    """Check what one provider stated, and return it as plain values."""
    stated, facts = evidence.statements.get(name, {}), dict[str, Any]()
    if not stated:
        found.lacks(
            f"statements-{name}",
            f"What {name} would state: the file has no statement of it. It was not connected, or had nothing to say. "
            "When it is connected, the job's analyst can collect again with --force: `dpspca evidence JOB`.",
        )
        return facts
    if stated.keys() - set(_READERS):
        what = (
            f"{name} states something of a kind that this version does not know. Use the version that wrote the file."
        )
        found.check(f"kinds-{name}", "", holds=False, otherwise=what)
    for kind, read in _READERS.items():
        if kind not in stated:
            continue
        try:
            what, facts[kind] = read(found, stated_content(evidence, job, name, kind), job, name)
        except DpspcaError as problem:
            found.check(f"{kind}-{name}", "", holds=False, otherwise=f"{name}, {_WORDS[kind]}: {problem.what}")
        else:
            found.check(
                f"{kind}-{name}", f"{name} signed, with a certificate valid then: {what}", holds=True, otherwise=""
            )
    check_approvals(found, facts, name)
    for kind in _READERS:
        if kind not in stated:
            _note_missing(found, kind, name, rejected_by(facts))
    return facts


def _note_missing(found: Findings, kind: StatementKind, name: str, rejected: str | None) -> None:
    """Note a statement that a provider did not make. One that rejected the job has no record of it to state."""
    code = f"{kind}-{name}"
    if kind is StatementKind.RECORD and rejected is not None:
        found.cannot_know(code, f"{name}: {_WORDS[kind]}. It states none, because {rejected} rejected the job there.")
    else:
        found.lacks(code, f"{name}: {_WORDS[kind]}. The file has no such statement of it.")


def _check_files(found: Findings, evidence: Evidence, model: bytes | None, bill_of_materials: bytes | None) -> None:
    """Compare files that the reader has with the hashes in the file."""
    named, bill = evidence.model, evidence.bill_of_materials
    if model is not None:
        same = named == StoredModel.of(model)
        found.check(
            "model",
            "The model is the one that the analyst had.",
            holds=same,
            otherwise="The model is not the one that the analyst had." if named else "The analyst named no model.",
        )
    elif named is not None:
        found.cannot_know("model", "Whether a model that you have is the one meant here. Give it with --model.")
    if bill_of_materials is not None:
        found.check(
            "bill-of-materials",
            "The bill of materials is the one that the analyst named.",
            holds=bill == sha256(bill_of_materials).hexdigest(),
            otherwise="The analyst named another bill of materials, or none.",
        )
    elif bill is not None:
        found.cannot_know("bill-of-materials", "Which packages the analyst used. Give the bill of materials.")


def _state_limits(found: Findings, evidence: Evidence) -> None:
    """State the limits of any such file."""
    state, answered = shortened(evidence.reported.state), evidence.reported.answered
    outcomes = outcomes_in_words(evidence.reported)
    for code, what in (
        ("collector-word", COLLECTOR),
        ("revocation", "Whether a certificate had been revoked when it was used: the file has no revocation lists."),
        (
            "coordinator",
            f"Whether the job was {state} with {answered} answered queries, as the coordinator reported: {outcomes}.",
        ),
        ("origin", "Whether the model came from these answers: that rests on the coordinator's honesty."),
        (
            "persons",
            f"Whether the persons named decided. {PERSONS}",
        ),
        ("rows", "Whether providers used the right rows and fresh noise: each is trusted with its own."),
        ("clocks", "Whether times are exact: each party used its own clock."),
        ("later", "What happened after the file was collected. A job may have spent more, up to what was reserved."),
    ):
        found.cannot_know(code, what)
