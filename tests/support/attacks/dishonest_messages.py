"""Jobs of dishonest analysts and answers of dishonest providers, each with a part of the expected refusal."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from dishonest_peers import DishonestProvider
from local_federation import Enrolment, now, spec

from dpspca.common.names import PartyName, Role
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs.sums import LARGEST_ANSWER

HONEST = ("site-0", "site-1")
DISHONEST = "site-2"
COUNT = (0, bytes(8))
"""A provider's answer to the first query of a job if it has no rows: zero, which does not change the sum."""
ANSWER = bytes(30 * 2 * 8)

Case = Callable[[Enrolment, Identity], SignedJob]


def sign_unchecked(identity: Identity, **changes: Any) -> SignedJob:
    """Sign an envelope that the library would not sign."""
    audience = [PartyName("town", Role.PROVIDER, "site-0")]
    envelope = JobEnvelope.draw(spec().to_json().encode(), audience, "cohort", now=now(), life=timedelta(hours=1))
    payload = replace(envelope, **{"analyst": identity.name.name} | changes).to_bytes()
    signature = read_key(identity.key_pem).sign(payload, ec.ECDSA(SHA256()))
    return SignedJob(payload, signature, identity.certificate_pem)


def foreign(enrolment: Enrolment) -> SignedJob:
    other = Enrolment.create(enrolment.folder / "other", "other")
    return sign_unchecked(other.identity(Role.ANALYST, "bea"), federation="other")


def borrowed(enrolment: Enrolment, identity: Identity) -> SignedJob:
    signed = sign_unchecked(enrolment.identity(Role.ANALYST, "eve"))
    return replace(signed, certificate_pem=identity.certificate_pem)


def tampered(signed: SignedJob) -> SignedJob:
    looser = replace(signed, payload=signed.payload.replace(b'"epsilon":4.0', b'"epsilon":9.0'))
    assert looser != signed
    return looser


DISHONEST_JOBS: dict[str, tuple[Case, str | tuple[str, ...]]] = {
    "tampered with": (lambda enrolment, bea: tampered(enrolment.job(spec(), bea, HONEST)), "wrong-signer"),
    "not signed": (
        lambda enrolment, bea: replace(enrolment.job(spec(), bea, HONEST), signature=bytes(70)),
        "wrong-signer",
    ),
    "signed by another key": (borrowed, "wrong-signer"),
    "of another federation's analyst": (lambda enrolment, _: foreign(enrolment), "wrong-signer"),
    "for another federation": (lambda _, bea: sign_unchecked(bea, federation="other"), ("wrong-audience", "other")),
    "expired": (
        lambda enrolment, bea: enrolment.job(spec(), bea, HONEST, now=now() - timedelta(hours=2)),
        "not-now",
    ),
    "not yet valid": (
        lambda enrolment, bea: enrolment.job(spec(), bea, HONEST, now=now() + timedelta(hours=2)),
        "not-now",
    ),
    "signed by a provider": (
        lambda enrolment, _: sign_unchecked(enrolment.identity(Role.PROVIDER, "eve")),
        "wrong-role",
    ),
    "signed by the coordinator": (
        lambda enrolment, _: sign_unchecked(enrolment.identity(Role.COORDINATOR, "eve")),
        "wrong-role",
    ),
    "signed by somebody else": (
        lambda enrolment, _: enrolment.job(spec(), enrolment.identity(Role.ANALYST, "mallory"), HONEST),
        ("dpspca://town/analyst/mallory", "dpspca://town/analyst/bea"),
    ),
    "of somebody else, signed by the caller": (
        lambda _, bea: sign_unchecked(bea, analyst="eve"),
        ("wrong-signer", "eve"),
    ),
    "of nobody": (lambda _, bea: sign_unchecked(bea, analyst=""), ("wrong-signer", "bea")),
    "of an unreadable spec": (lambda _, bea: sign_unchecked(bea, spec=b'{"version":'), "INVALID_ARGUMENT"),
}


Misbehaviour = Callable[[DishonestProvider, pb.Query], Awaitable[None]]


def answer_of(*values: int) -> bytes:
    return np.resize(np.array(values, dtype="<i8"), 60).tobytes()


DISHONEST_ANSWERS: dict[str, tuple[Misbehaviour, str]] = {
    "in no order": (lambda site, ask: site.answer(ask, (1, ANSWER)), "not the next frame"),
    "too short": (lambda site, ask: site.answer(ask, (0, ANSWER[:-8])), "not the next frame"),
    "no bytes": (lambda site, ask: site.answer(ask, (0, b"")), "not the next frame"),
    "too long": (lambda site, ask: site.answer(ask, (0, ANSWER + bytes(8))), "not the next frame"),
    "a broken number": (lambda site, ask: site.answer(ask, (0, ANSWER[:-3])), "not the next frame"),
    "too large": (lambda site, ask: site.answer(ask, (0, answer_of(0, LARGEST_ANSWER + 1))), "lattice"),
    "too small": (lambda site, ask: site.answer(ask, (0, answer_of(0, -LARGEST_ANSWER - 1))), "lattice"),
    "the smallest of all": (lambda site, ask: site.answer(ask, (0, answer_of(-(2**63)))), "lattice"),
    "the last number": (lambda site, ask: site.answer(ask, (2**32 - 1, ANSWER)), "not the next frame"),
    "a refusal": (lambda site, ask: site.refuse(ask, "\n\x1b[2J" + "x" * 9999), "Refused: "),
}
