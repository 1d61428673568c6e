"""Jobs of dishonest analysts and answers of dishonest providers, each with a part of the expected refusal."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from puppets import Puppet
from town import Town, now, spec

from dpspca.common.names import PartyName, Role
from dpspca.common.trust.certificates import read_key
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope, SignedJob
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.jobs.rounds import LARGEST_ANSWER

HONEST = ("site-0", "site-1")
LIAR = "site-2"
COUNT = (0, bytes(8))
"""A provider's answer to the first query of a job if it has no rows: zero, which does not change the sum."""
ANSWER = bytes(30 * 2 * 8)

Case = Callable[[Town, Identity], SignedJob]


def by_hand(identity: Identity, **changes: Any) -> SignedJob:
    """Sign an envelope that the library would not sign."""
    audience = [PartyName("town", Role.PROVIDER, "site-0")]
    envelope = JobEnvelope.draw(spec().to_json().encode(), audience, "cohort", now=now(), life=timedelta(hours=1))
    payload = replace(envelope, **{"analyst": identity.name.name} | changes).to_bytes()
    signature = read_key(identity.key_pem).sign(payload, ec.ECDSA(SHA256()))
    return SignedJob(payload, signature, identity.certificate_pem)


def foreign(town: Town) -> SignedJob:
    other = Town.found(town.folder / "other", "other")
    return by_hand(other.identity(Role.ANALYST, "bea"), federation="other")


def borrowed(town: Town, identity: Identity) -> SignedJob:
    signed = by_hand(town.identity(Role.ANALYST, "eve"))
    return replace(signed, certificate_pem=identity.certificate_pem)


def tampered(signed: SignedJob) -> SignedJob:
    looser = replace(signed, payload=signed.payload.replace(b'"epsilon":4.0', b'"epsilon":9.0'))
    assert looser != signed
    return looser


JOBS: dict[str, tuple[Case, str]] = {
    "tampered with": (lambda town, bea: tampered(town.job(spec(), bea, HONEST)), "signature"),
    "not signed": (lambda town, bea: replace(town.job(spec(), bea, HONEST), signature=bytes(70)), "signature"),
    "signed by another key": (borrowed, "signature"),
    "of another federation's analyst": (lambda town, _: foreign(town), "not issued by this federation"),
    "for another federation": (lambda _, bea: by_hand(bea, federation="other"), "for the federation other"),
    "expired": (lambda town, bea: town.job(spec(), bea, HONEST, now=now() - timedelta(hours=2)), "Sign a new one"),
    "not yet valid": (lambda town, bea: town.job(spec(), bea, HONEST, now=now() + timedelta(hours=2)), "clock"),
    "signed by a provider": (
        lambda town, _: by_hand(town.identity(Role.PROVIDER, "eve")),
        "does not have the role analyst",
    ),
    "signed by the coordinator": (
        lambda town, _: by_hand(town.identity(Role.COORDINATOR, "eve")),
        "does not have the role analyst",
    ),
    "signed by somebody else": (
        lambda town, _: town.job(spec(), town.identity(Role.ANALYST, "mallory"), HONEST),
        r"was signed by .*/mallory, but .*/bea submits it",
    ),
    "of somebody else, signed by the caller": (
        lambda _, bea: by_hand(bea, analyst="eve"),
        "names eve as its analyst",
    ),
    "of nobody": (lambda _, bea: by_hand(bea, analyst=""), "names nobody as its analyst"),
    "of an unreadable spec": (lambda _, bea: by_hand(bea, spec=b'{"version":'), "INVALID_ARGUMENT"),
}


Lie = Callable[[Puppet, pb.Ask], Awaitable[None]]


def numbers(*values: int) -> bytes:
    return np.resize(np.array(values, dtype="<i8"), 60).tobytes()


LIES: dict[str, tuple[Lie, str]] = {
    "in no order": (lambda site, ask: site.answer(ask, (1, ANSWER)), "not the next frame"),
    "too short": (lambda site, ask: site.answer(ask, (0, ANSWER[:-8])), "not the next frame"),
    "no bytes": (lambda site, ask: site.answer(ask, (0, b"")), "not the next frame"),
    "too long": (lambda site, ask: site.answer(ask, (0, ANSWER + bytes(8))), "not the next frame"),
    "a broken number": (lambda site, ask: site.answer(ask, (0, ANSWER[:-3])), "not the next frame"),
    "too large": (lambda site, ask: site.answer(ask, (0, numbers(0, LARGEST_ANSWER + 1))), "lattice"),
    "too small": (lambda site, ask: site.answer(ask, (0, numbers(0, -LARGEST_ANSWER - 1))), "lattice"),
    "the smallest of all": (lambda site, ask: site.answer(ask, (0, numbers(-(2**63)))), "lattice"),
    "the last number": (lambda site, ask: site.answer(ask, (2**32 - 1, ANSWER)), "not the next frame"),
    "a refusal": (lambda site, ask: site.refuse(ask, "\n\x1b[2J" + "x" * 9999), "Refused: "),
}
