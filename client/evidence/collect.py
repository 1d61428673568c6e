"""Collects the evidence of a job from the coordinator and from its providers, and signs it as the job's analyst."""

from hashlib import sha256

from dpspca.client.connection import NO_TRUST, Collected, JobStatus, StatementRequests, bounds
from dpspca.common.errors import RefusedError
from dpspca.common.results import PrivacyStatement
from dpspca.common.storage import installed_digest
from dpspca.common.trust import JobEnvelope, SignedJob, StatementKind
from dpspca.common.version import __version__
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

from .document import Evidence, Outcome, Reported, StoredModel
from .promise import promise


async def collect(
    requests: StatementRequests,
    job: str,
    statement: PrivacyStatement,
    model: bytes | None,
    bill_of_materials: bytes | None,
) -> bytes:
    """Return the evidence of a job, signed. ``job`` is the whole name of a job of this analyst."""
    reply = await requests.link.ask(lambda: requests.stub.Get(pb.JobName(job=job), timeout=bounds.ANSWER_SECONDS))
    signed = SignedJob.from_bytes(reply.signed_job)
    if signed.job_id != job:
        raise RefusedError("The coordinator replied with another job than the one asked for.", NO_TRUST)
    status, envelope = JobStatus.of(reply), JobEnvelope.from_bytes(signed.payload)
    collected = {
        kind: await requests.ask(kind, job if kind.is_about_a_job else envelope.data_set, envelope.audience)
        for kind in StatementKind
    }
    me = requests.identity
    return (
        Evidence(
            authority=me.authority_pem.decode(),
            collector=me.certificate_pem.decode(),
            collected_at=int(requests.clock().timestamp()),
            job=reply.signed_job.hex(),
            promise=promise(statement),
            statement=statement.text,
            reported=_reported(status),
            requests={kind: each.request.to_bytes().hex() for kind, each in collected.items()},
            statements=_by_provider(collected),
            model=None if model is None else StoredModel.of(model),
            software=__version__,
            bill_of_materials=None if bill_of_materials is None else sha256(bill_of_materials).hexdigest(),
            software_digest=installed_digest(),
        )
        .signed_by(me)
        .to_bytes()
    )


def _reported(status: JobStatus) -> Reported:
    outcomes = {each.name: Outcome(each.asked, each.answered, each.reason) for each in status.participants}
    return Reported(status.state, status.answered, outcomes)


def _by_provider(collected: dict[StatementKind, Collected]) -> dict[str, dict[str, str]]:
    names = {name for each in collected.values() for name in each.statements}
    return {name: _of_provider(name, collected) for name in sorted(names)}


def _of_provider(name: str, collected: dict[StatementKind, Collected]) -> dict[str, str]:
    return {kind: each.statements[name].to_bytes().hex() for kind, each in collected.items() if name in each.statements}
