"""The ledger's entry about a job that is opened: what is admitted, and at what price."""

from hashlib import sha256
from secrets import token_hex
from typing import Final

from dpspca.common.names import PartyName
from dpspca.common.plan import Plan
from dpspca.common.trust import JobEnvelope, SignedJob
from dpspca.provider.ledger import Opening, extent_of

BLIND_BYTES: Final = 16


def opening_of(signed: SignedJob, envelope: JobEnvelope, plan: Plan, analyst: PartyName, data_digest: str) -> Opening:
    """Make the entry that says what is admitted, and at what price."""
    spec = plan.spec
    return Opening(
        job=signed.job_id,
        data_set=envelope.data_set,
        data_digest=data_digest,
        analyst=analyst.uri,
        unit=spec.unit,
        spec_epsilon=spec.budget.epsilon,
        spec_delta=spec.budget.delta,
        units=plan.price.units,
        slack_units=plan.price.slack_units,
        issued_at=envelope.issued_at,
        expires_at=envelope.expires_at,
        signature_hash=sha256(signed.to_bytes()).hexdigest(),
        blind=token_hex(BLIND_BYTES),
        protects=extent_of(spec.unit, spec.rows_per_person, spec.norm_bound),
        queries=len(plan),
        answer_bytes=plan.answer_bytes,
    )
