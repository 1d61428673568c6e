"""Who takes part when messages are fuzzed: identities and signed jobs, made once, for they take long to make.

What is signed differs from run to run, and inputs that are kept must not. So messages may hold a word in its place, and
``completed`` puts in what the word stands for.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from town import Town, now

from dpspca.common.algorithms import catalogue
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Step
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent, RowQuery
from dpspca.common.queries.rows import BasisQuery, ColumnsQuery, ColumnSums
from dpspca.common.spec import Budget, Centering, JobSpec, Schema
from dpspca.common.trust.connection_proof import CHALLENGE_BYTES, sign_challenge
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.receipts import sign_receipt
from dpspca.common.trust.revocations import RevocationList
from dpspca.common.trust.signing import JobEnvelope, SignedJob, sign
from dpspca.common.trust.statements import Kind, SignedRequest, StatementRequest, sign_request, sign_statement
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
    minimum_parties=2,
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
"""What an analyst can sign, and who reads it must not repeat as it is."""
LETTERS: Final = {"8": 8, "1": 1}
"""How much of a job's name is given by the word for it, a stroke and this; else all of it."""
FULL: Final = replace(PLAIN, centering=Centering.PRIVATE, mean_bound=2.0, explained_variance=True)
"""Queries of most kinds."""


@dataclass(frozen=True)
class People:
    """A federation's members, what they have signed, and since when."""

    born: datetime
    revoked: RevocationList
    identities: dict[str, Identity]
    good: dict[bytes, SignedJob]
    """Jobs that everybody should serve, by the words that stand for them."""
    bad: dict[bytes, SignedJob]
    """Jobs that nobody should."""
    specs: dict[str, JobSpec]
    """What is asked by each good job, by its name."""

    odd: dict[bytes, SignedJob]
    """Jobs of odd specs, which are bad too."""
    requests: dict[bytes, SignedRequest]
    """Requests for statements, by the words that stand for them."""
    statement: bytes
    """What north stated in reply to the first of them."""

    def completed(self, message: Any, challenge: bytes = b"", provider: str = "north") -> Any:
        """Put what was signed in the place of the words for it."""
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
def people() -> People:
    """Found a town, and let its inhabitants sign; the same ones for the whole process."""
    with tempfile.TemporaryDirectory() as folder:
        town, born = Town.found(Path(folder)), now()
        roles = {"hub": Role.COORDINATOR, "ada": Role.ANALYST, "bob": Role.ANALYST, "eve": Role.ANALYST}
        known = {name: town.identity(role, name) for name, role in roles.items()}
        known |= {name: town.identity(Role.PROVIDER, name) for name in SITES}
        bad = _bad_jobs(town, known, born)
        town.authority.revoke(known["eve"].name)
        specs = {b"plain": PLAIN, b"full": FULL, b"bob's": PLAIN, b"last": PLAIN}
        good = {
            word: town.job(spec, known["bob" if word == b"bob's" else "ada"], SITES, now=born)
            for word, spec in specs.items()
        }
        named = {good[word].job_id: spec for word, spec in specs.items()}
        odd = {word: signed(town, known["ada"], spec, born) for word, spec in ODD_SPECS.items()}
        asked = _requests_of(known, born)
        stated = sign_statement(b"{}", asked[b"terms"], known["north"]).to_bytes()
        return People(born, town.revocations(), known, good, bad, named, odd, asked, stated)


def _requests_of(known: dict[str, Identity], born: datetime) -> dict[bytes, SignedRequest]:
    """Sign requests for statements, some of which nobody answers."""

    def request(who: str, kind: Kind, about: str, at: datetime = born) -> SignedRequest:
        return sign_request(StatementRequest.draw(kind, about, known[who].name, at), known[who])

    return {
        b"terms": request("ada", Kind.TERMS, "cohort"),
        b"terms of nothing": request("ada", Kind.TERMS, "elsewhere"),
        b"terms for bob": request("bob", Kind.TERMS, "cohort"),
        b"terms for eve": request("eve", Kind.TERMS, "cohort"),
        b"old terms": request("ada", Kind.TERMS, "cohort", born - timedelta(days=1)),
        b"record": request("ada", Kind.RECORD, "0" * 64),
    }


def _bad_jobs(town: Town, known: dict[str, Identity], born: datetime) -> dict[bytes, SignedJob]:
    """Sign, as analysts can, what is not to be served; and forge what they did not sign."""
    ada, day = known["ada"], timedelta(days=1)
    honest = town.job(PLAIN, ada, SITES, now=born)
    specs = {
        b"no spec": b"\0",
        b"unknown key": b'{"components of a stranger":1}',
        b"not a plan": replace(PLAIN, options={"sparsity": 0}).to_json().encode(),
        b"unknown method": replace(PLAIN, method="none").to_json().encode(),
        b"wide": replace(PLAIN, schema=Schema(2**20)).to_json().encode(),
    }
    return {
        b"of eve": town.job(PLAIN, known["eve"], SITES, now=born),
        b"for others": town.job(PLAIN, ada, ["west"], now=born),
        b"other data": town.job(PLAIN, ada, SITES, "elsewhere", now=born),
        b"over": town.job(PLAIN, ada, SITES, now=born - day),
        b"to come": town.job(PLAIN, ada, SITES, now=born + day),
        b"forged": replace(honest, certificate_pem=known["bob"].certificate_pem),
        b"of north": replace(honest, certificate_pem=known["north"].certificate_pem),
    } | {word: signed(town, ada, spec, born) for word, spec in specs.items()}


def signed(town: Town, analyst: Identity, spec: bytes, born: datetime) -> SignedJob:
    """Sign any bytes as a job's content."""
    audience = [PartyName(town.authority.federation, Role.PROVIDER, name) for name in SITES]
    return sign(JobEnvelope.draw(spec, audience, "cohort", now=born, life=timedelta(hours=1)), analyst)


def make_query(step: Step, turn: int = 0) -> RowQuery:
    """Make a query that a step of a plan admits; another one for another turn."""
    extent = step.extent
    if issubclass(step.query, BasisQuery):
        return step.query(np.roll(np.eye(extent.dimension), turn, axis=0)[:, : extent.columns])
    if issubclass(step.query, ColumnsQuery | ColumnSums):
        return step.query(extent.dimension)
    return step.query()


def ask(word: bytes, spec: JobSpec, position: int, turn: int = 0) -> pb.Ask:
    """Announce a query of a job's plan, with its content."""
    plan = catalogue.plan(spec)
    query = make_query(plan[min(position, len(plan) - 1)], turn)
    announced = query.announcement
    extent: Extent = announced.extent
    return pb.Ask(
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
    """Welcome a provider as somebody."""
    return pb.ToProvider(welcome=pb.Welcome(certificate=who.encode(), proof=who.encode(), heartbeat_seconds=heartbeat))


def seeds() -> Sequence[Sequence[pb.ToProvider]]:
    """Give conversations that a coordinator could hold."""
    asked = [
        (word, spec, position)
        for word, spec in ((b"plain", PLAIN), (b"full", FULL))
        for position in range(len(catalogue.plan(spec)))
    ]
    whole = [pb.ToProvider(ask=ask(*each)) for each in asked]
    framed = [pb.ToProvider(ask=ask(*each)) for each in asked]
    pieces = []
    for message in framed:
        content, message.ask.content = message.ask.content, b""
        pieces += [message, pb.ToProvider(frame=pb.Frame(content=content))]
    ended = pb.ToProvider(farewell=pb.Farewell(job="plain", state="done"))
    return [
        [welcome(), *whole, ended],
        [welcome(), *pieces, pb.ToProvider(heartbeat=pb.Heartbeat())],
        [welcome("ada"), *whole],
        [welcome(), *(pb.ToProvider(ask=ask(word, PLAIN, 0)) for word in people().bad)],
    ]
