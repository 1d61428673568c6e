"""The parties of fuzzed messages: identities and signed jobs. They are made once, because that takes long.

Signatures differ between runs, but stored inputs must not. So messages contain a word in place of signed bytes, and
``completed`` replaces the word.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from local_federation import Enrolment, now

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Step
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent, RowQuery
from dpspca.common.queries.rows import BasisQuery, ColumnsQuery, ColumnSums
from dpspca.common.trust.connection_proof import CHALLENGE_BYTES, sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import sign_receipt
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign
from dpspca.common.trust.statements import SignedRequest, StatementKind, StatementRequest, sign_request, sign_statement
from dpspca.protos.dpspca.v1 import federation_pb2 as pb

DIMENSION: Final = 6
SITES: Final = ("north", "south", "east")
PLAIN: Final = JobSpec(
    schema=Schema(DIMENSION),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=2,
    explained_variance=False,
    minimum_providers=2,
    answer_seconds=60,
    options={"sparsity": 6, "rounds": 3},
    method="dps-pca",
)
"""Three products, one after the other."""
ODD_SPECS: Final = {
    b"half a letter": b'{"\\ud800":1}',
    b"half a letter, twice": b'{"\\ud800":1,"\\ud800":2}',
    b"a line": b'{"x\\nJob done.":1}',
    b"a long key": b'{"%s":1}' % (b"x" * 2**20),
}
"""Specs that an analyst can sign, and that must not be printed as they are."""
LETTERS: Final = {"8": 8, "1": 1}
"""How many letters of a job's name replace "WORD/8" or "WORD/1". The word alone is replaced by the whole name."""
FULL: Final = replace(PLAIN, centering=Centering.PRIVATE, mean_bound=2.0, explained_variance=True)
"""Queries of most kinds."""


@dataclass(frozen=True)
class FuzzParties:
    """The identities of a federation, and the jobs that they signed."""

    started_at: datetime
    revoked: RevocationList
    identities: dict[str, Identity]
    good: dict[bytes, SignedJob]
    """Valid jobs, by the words that stand for them."""
    bad: dict[bytes, SignedJob]
    """Jobs that every party must refuse."""
    specs: dict[str, JobSpec]
    """The specs of the valid jobs, by job name."""

    odd: dict[bytes, SignedJob]
    """Jobs with odd specs, which must be refused too."""
    requests: dict[bytes, SignedRequest]
    """Requests for statements, by the words that stand for them."""
    statement: bytes
    """What north stated in reply to the first of them."""

    def completed(self, message: Any, challenge: bytes = b"", provider: str = "north") -> Any:
        """Replace words by the signed bytes that they stand for."""
        whole = type(message).FromString(message.SerializeToString())
        one = whole.DESCRIPTOR.oneofs_by_name and whole.WhichOneof("message")
        told = getattr(whole, one) if one else whole
        known = self.good | self.bad | self.odd
        if hasattr(told, "signed_job") and told.signed_job in known:
            told.signed_job = known[told.signed_job].to_bytes()
        if hasattr(told, "signed_request") and told.signed_request in self.requests:
            told.signed_request = self.requests[told.signed_request].to_bytes()
        if hasattr(told, "job"):
            word, _, letters = told.job.partition("/")
            if word.encode() in known:
                told.job = known[word.encode()].job_id[: LETTERS.get(letters)]
        if isinstance(told, pb.Welcome):
            self._introduce(told, challenge, provider)
        if hasattr(told, "receipt") and told.HasField("receipt"):
            self._sign(told.receipt)
        return whole

    def _introduce(self, welcome: pb.Welcome, challenge: bytes, provider: str) -> None:
        shown = self.identities.get(welcome.certificate.decode("latin-1"))
        signer = self.identities.get(welcome.proof.decode("latin-1"))
        if shown:
            welcome.certificate = shown.certificate_pem
        if signer and len(challenge) == CHALLENGE_BYTES:
            welcome.proof = sign_challenge(signer, challenge, self.identities[provider].name)

    def _sign(self, receipt: pb.Receipt) -> None:
        shown = self.identities.get(receipt.certificate.decode("latin-1"))
        signer = self.identities.get(receipt.signature.decode("latin-1"))
        if shown:
            receipt.certificate = shown.certificate_pem
        if signer:
            receipt.signature = sign_receipt(signer, receipt).signature


@cache
def fuzz_parties() -> FuzzParties:
    """Create the parties and their signed jobs, once per process."""
    with tempfile.TemporaryDirectory() as folder:
        enrolment, started_at = Enrolment.create(Path(folder)), now()
        roles = {"hub": Role.COORDINATOR, "ada": Role.ANALYST, "bob": Role.ANALYST, "eve": Role.ANALYST}
        known = {name: enrolment.identity(role, name) for name, role in roles.items()}
        known |= {name: enrolment.identity(Role.PROVIDER, name) for name in SITES}
        bad = _bad_jobs(enrolment, known, started_at)
        enrolment.authority.revoke(known["eve"].name)
        specs = {b"plain": PLAIN, b"full": FULL, b"bob's": PLAIN, b"last": PLAIN}
        good = {
            word: enrolment.job(spec, known["bob" if word == b"bob's" else "ada"], SITES, now=started_at)
            for word, spec in specs.items()
        }
        named = {good[word].job_id: spec for word, spec in specs.items()}
        odd = {word: signed(enrolment, known["ada"], spec, started_at) for word, spec in ODD_SPECS.items()}
        asked = _requests_of(known, started_at)
        stated = sign_statement(b"{}", asked[b"terms"], known["north"]).to_bytes()
        return FuzzParties(started_at, enrolment.revocations(), known, good, bad, named, odd, asked, stated)


def _requests_of(known: dict[str, Identity], started_at: datetime) -> dict[bytes, SignedRequest]:
    """Sign requests for statements, some of which nobody answers."""

    def request(who: str, kind: StatementKind, about: str, at: datetime = started_at) -> SignedRequest:
        return sign_request(StatementRequest.draw(kind, about, known[who].name, at), known[who])

    return {
        b"terms": request("ada", StatementKind.TERMS, "cohort"),
        b"terms of nothing": request("ada", StatementKind.TERMS, "elsewhere"),
        b"terms for bob": request("bob", StatementKind.TERMS, "cohort"),
        b"terms for eve": request("eve", StatementKind.TERMS, "cohort"),
        b"old terms": request("ada", StatementKind.TERMS, "cohort", started_at - timedelta(days=1)),
        b"record": request("ada", StatementKind.RECORD, "0" * 64),
        b"approvals": request("ada", StatementKind.APPROVALS, "0" * 64),
    }


def _bad_jobs(enrolment: Enrolment, known: dict[str, Identity], started_at: datetime) -> dict[bytes, SignedJob]:
    """Sign jobs that must be refused, and forge jobs that were not signed."""
    ada, day = known["ada"], timedelta(days=1)
    honest = enrolment.job(PLAIN, ada, SITES, now=started_at)
    specs = {
        b"no spec": b"\0",
        b"unknown key": b'{"components of a stranger":1}',
        b"not a plan": replace(PLAIN, options={"sparsity": 0}).to_json().encode(),
        b"unknown method": replace(PLAIN, method="none").to_json().encode(),
        b"wide": replace(PLAIN, schema=Schema(2**20)).to_json().encode(),
    }
    return {
        b"of eve": enrolment.job(PLAIN, known["eve"], SITES, now=started_at),
        b"for others": enrolment.job(PLAIN, ada, ["west"], now=started_at),
        b"other data": enrolment.job(PLAIN, ada, SITES, "elsewhere", now=started_at),
        b"over": enrolment.job(PLAIN, ada, SITES, now=started_at - day),
        b"to come": enrolment.job(PLAIN, ada, SITES, now=started_at + day),
        b"forged": replace(honest, certificate_pem=known["bob"].certificate_pem),
        b"of north": replace(honest, certificate_pem=known["north"].certificate_pem),
    } | {word: signed(enrolment, ada, spec, started_at) for word, spec in specs.items()}


def signed(enrolment: Enrolment, analyst: Identity, spec: bytes, started_at: datetime) -> SignedJob:
    """Sign any bytes as a job's content."""
    audience = [PartyName(enrolment.authority.federation, Role.PROVIDER, name) for name in SITES]
    return sign(JobEnvelope.draw(spec, audience, "cohort", now=started_at, life=timedelta(hours=1)), analyst)


def make_query(step: Step, turn: int = 0) -> RowQuery:
    """Return a query that fits a step of a plan. Different turns give different queries."""
    extent = step.extent
    if issubclass(step.query, BasisQuery):
        return step.query(np.roll(np.eye(extent.dimension), turn, axis=0)[:, : extent.columns])
    if issubclass(step.query, ColumnsQuery | ColumnSums):
        return step.query(extent.dimension)
    return step.query()


def ask(word: bytes, spec: JobSpec, position: int, turn: int = 0) -> pb.Query:
    """Announce a query of a job's plan, with its content."""
    plan = catalogue.plan(spec)
    query = make_query(plan[min(position, len(plan) - 1)], turn)
    announced = query.announcement
    extent: Extent = announced.extent
    return pb.Query(
        signed_job=word,
        position=position,
        kind=announced.kind,
        dimension=extent.dimension,
        columns=extent.columns,
        nonzero_rows=extent.nonzero_rows,
        centred=announced.centred,
        threshold=announced.threshold,
        power=announced.power,
        content=bytes(query.content()),
    )


def welcome(who: str = "hub", heartbeat: int = 20) -> pb.ToProvider:
    """Return a welcome message of any party."""
    return pb.ToProvider(welcome=pb.Welcome(certificate=who.encode(), proof=who.encode(), heartbeat_seconds=heartbeat))


def seeds() -> Sequence[Sequence[pb.ToProvider]]:
    """Return conversations of a coordinator from which fuzzing starts."""
    asked = [
        (word, spec, position)
        for word, spec in ((b"plain", PLAIN), (b"full", FULL))
        for position in range(len(catalogue.plan(spec)))
    ]
    whole = [pb.ToProvider(query=ask(*each)) for each in asked]
    framed = [pb.ToProvider(query=ask(*each)) for each in asked]
    pieces = []
    for message in framed:
        content, message.query.content = message.query.content, b""
        pieces += [message, pb.ToProvider(frame=pb.Frame(content=content))]
    ended = pb.ToProvider(farewell=pb.Farewell(job="plain", state="done"))
    return [
        [welcome(), *whole, ended],
        [welcome(), *pieces, pb.ToProvider(heartbeat=pb.Heartbeat())],
        [welcome("ada"), *whole],
        [welcome(), *(pb.ToProvider(query=ask(word, PLAIN, 0)) for word in fuzz_parties().bad)],
    ]
