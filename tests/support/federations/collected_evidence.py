"""Evidence of jobs of a federation in one process, for tests of what holds and what does not."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from ledgers import Place
from local_federation import Enrolment, now, permissive_policy, spec

from dpspca.client.connection.calls import CoordinatorLink
from dpspca.client.connection.statements import StatementRequests
from dpspca.client.evidence import Findings, collect, verify
from dpspca.common.algorithms import catalogue
from dpspca.common.approval_record import APPROVE
from dpspca.common.job import Budget
from dpspca.common.names import Role
from dpspca.common.results import PrivacyStatement
from dpspca.common.trust import SignedJob
from dpspca.common.trust.identity import Identity
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.approval import make_decision
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.jobs import JobRegistry, ProviderSetup, Statements
from dpspca.provider.ledger import Decided
from dpspca.provider.policy import Policy

SITES = ("north", "south")
MODEL, BILL = b"a model", b"a bill of materials"
SPEC = spec(method="analyze-gauss", options={}, explained_variance=False)


def _approval(provider: Identity, job: SignedJob, person: str, login: str) -> Decided:
    at = int(now().timestamp())
    return make_decision(
        provider,
        job=job.job_id,
        data_set="cohort",
        verdict=APPROVE,
        person=person,
        login=login,
        reason="as planned",
        decided_at=at,
        expires_at=at + 3600,
    )


class CoordinatorProcess:
    """A coordinator that knows one job, and passes requests on to providers."""

    def __init__(self, job: SignedJob, homes: dict[str, Statements]) -> None:
        self._job = job
        self._homes = homes

    async def Get(self, request: pb.JobName, timeout: float) -> pb.Job:  # noqa: ASYNC109, N802  # of the rpc
        known = [pb.Participant(name=name, answered=1, asked=1) for name in self._homes]
        return pb.Job(
            job=self._job.job_id,
            state="done",
            answered=1,
            queries=1,
            signed_job=self._job.to_bytes(),
            participants=known,
        )

    async def Statements(  # noqa: N802
        self,
        request: pb.StatementsRequest,
        timeout: float,  # noqa: ASYNC109
    ) -> AsyncIterator[pb.Statement]:
        for name in request.providers:
            if name in self._homes:
                yield pb.Statement(provider=name, signed_statement=self._homes[name].state(request.signed_request)[1])


@dataclass(frozen=True)
class Case:
    """Evidence of one job, evidence of another, and who can sign."""

    file: bytes
    other: bytes
    ada: Identity
    eve: Identity
    fingerprint: str
    collected: Callable[[SignedJob], bytes]
    job: SignedJob

    def raw(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.file)
        return read


@contextmanager
def collected_in(folder: Path) -> Iterator[Case]:
    """Run two jobs, and collect evidence of each.

    At north, maria and ben approved both: the first from an account each, the second from one account.
    """
    enrolment = Enrolment.create(folder)
    ada, eve = (enrolment.identity(Role.ANALYST, name) for name in ("ada", "eve"))
    both = (SPEC, replace(SPEC, budget=Budget(2.0, 1e-6)))
    jobs = [enrolment.job(each, ada, SITES) for each in both]
    specs = {job.job_id: each for job, each in zip(jobs, both, strict=True)}
    policy, revoked = Policy.parse(permissive_policy()), enrolment.revocations()
    homes, ledgers = dict[str, Statements](), []
    for number, name in enumerate(SITES):
        me, rows = enrolment.identity(Role.PROVIDER, name), np.random.default_rng(number).standard_normal((40, 30))
        ledgers.append(Place(folder / name / "ledger.db", folder / f"{name}-head" / "head").start())
        setup = ProviderSetup(
            "", lambda me=me: me, lambda: revoked, now, {"cohort": check_rows(rows)}, lambda: policy, ledgers[-1]
        )
        registry, homes[name] = JobRegistry(setup), Statements(setup)
        if name == "north":
            for person in ("maria", "ben"):
                ledgers[-1].decide(_approval(me, jobs[0], person, f"account of {person}"))
                ledgers[-1].decide(_approval(me, jobs[1], person, "shared"))
        for job in jobs:
            opened = registry.open(job)
            opened.responder.respond(0, next(catalogue.run(opened.plan)))
        registry.close(jobs[0].job_id, "done")  # and is forgotten in memory

    def collected(job: SignedJob) -> bytes:
        stub: Any = CoordinatorProcess(job, homes)
        plan = catalogue.plan(specs[job.job_id])
        promised = PrivacyStatement.of(plan, parties=2, fresh_noise=True, federated=True)
        return asyncio.run(
            collect(
                StatementRequests(stub, CoordinatorLink(retry_seconds=0), ada, now), job.job_id, promised, MODEL, BILL
            )
        )

    files = [collected(job) for job in jobs]
    fingerprint = verify(files[0]).facts["authority"]["fingerprint"]
    yield Case(files[0], files[1], ada, eve, fingerprint, collected, jobs[0])
    for ledger in ledgers:
        ledger.shut()


def codes(found: Findings) -> set[str]:
    return {each.code for each in found.failed}
