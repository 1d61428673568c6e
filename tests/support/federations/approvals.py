"""A provider whose policy asks for a person's approval: its files, and decisions as its steward makes them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from local_federation import Enrolment, RunningFederation, now, permissive_policy, spec
from timeouts import TIMEOUT

from dpspca.client.connection.jobs import JobStatus
from dpspca.client.federation import AsyncJob
from dpspca.client.steward.approvals import ApprovalOffice
from dpspca.common.job import Schema
from dpspca.common.names import Role
from dpspca.common.storage import read_settings
from dpspca.common.storage.settings import ProviderSettings
from dpspca.common.trust.identity import Identity
from dpspca.common.trust.signing import JobEnvelope
from dpspca.provider.approval import ApprovalRequest, RequestState
from dpspca.provider.ledger.reader import ledger_paths
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.policy.file import CurrentPolicy
from dpspca.provider.startup import approvals_of

MARIA, BEN = "maria", "ben"


def human_policy(*approvers: str, needed: int = 1, **changes: str) -> str:
    """Return a policy that allows every job that these persons approve."""
    names = ", ".join(f'"{each}"' for each in approvers or (MARIA,))
    rule = f'approval = "human"\napprovers = [{names}]\napprovals_needed = {needed}\n'
    return permissive_policy() + rule + "".join(f"{key} = {value}\n" for key, value in changes.items())


@dataclass
class Site:
    """A provider's settings, policy and identity on disk."""

    name: str
    folder: Path
    identity: Identity

    @classmethod
    def made(cls, enrolment: Enrolment, name: str, policy: str, more: str = "") -> "Site":
        folder = enrolment.folder / f"site-of-{name}"
        folder.mkdir()
        me = enrolment.identity(Role.PROVIDER, name)
        (folder / "policy.toml").write_text(policy)
        (folder / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
        (folder / "provider.toml").write_text(
            f'coordinator = "127.0.0.1:1"\nidentity = "{enrolment.folder}/provider-{name}"\n'
            'revocations = "revoked.pem"\n'
            f'policy = "policy.toml"\nledger = "ledger/ledger.db"\n[data_sets]\ncohort = "rows.npy"\n{more}'
        )
        return cls(name, folder, me)

    @property
    def config(self) -> Path:
        return self.folder / "provider.toml"

    @property
    def office(self) -> ApprovalOffice:
        """The steward's commands. Each use reads the files anew, as each command does."""
        return ApprovalOffice.of(self.config)

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """Open the ledger, and yield the settings of a daemon."""
        settings = read_settings(ProviderSettings, self.config)
        policy = CurrentPolicy(settings.policy)
        with SqliteLedger(*ledger_paths(settings, self.config)) as ledger:
            harness = approvals_of(settings, self.config, ledger, lambda: self.identity, policy.get, now)
            yield {"ledger": ledger, "policy": policy.get, "approvals": harness}

    async def decide(self, job: str, verdict: str, person: str = MARIA, reason: str = "") -> dict[str, Any]:
        """Decide about a job as the command does, beside the running daemon, from the person's own account."""
        office = self.office

        def decide() -> dict[str, Any]:
            with patch.dict(os.environ, {"SUDO_USER": f"account-of-{person}"}):
                return office.decide(office.find(job), verdict, person, reason)

        return await asyncio.to_thread(decide)


@contextmanager
def joined(running: RunningFederation, site: Site) -> Iterator[dict[str, Any]]:
    """Yield what ``running.start`` needs for a site."""
    running.known[site.name] = site.identity
    with site.open() as settings:
        yield settings


def waiting_job(
    enrolment: Enrolment, site: Site, names: tuple[str, ...] = ("a", "b", "c", "d"), data_set: str = "cohort"
) -> str:
    """Put a job into a provider's queue, as its daemon does."""
    what = spec(schema=Schema.of(names), options={"sparsity": 4, "rounds": 2}, components=2)
    home = enrolment.folder / f"{Role.ANALYST}-ada"
    ada = Identity.load(home) if home.exists() else enrolment.identity(Role.ANALYST, "ada")
    signed = enrolment.job(what, ada, [site.name], data_set=data_set)
    at, expires = int(now().timestamp()), JobEnvelope.from_bytes(signed.payload).expires_at
    request = ApprovalRequest(
        signed.job_id, "dpspca://town/analyst/ada", data_set, at, at + 3600, expires, RequestState.WAITING
    )
    (site.folder / "ledger").mkdir(mode=0o700, exist_ok=True)
    site.office.queue.ask(request, signed.to_bytes(), 100)
    return signed.job_id


async def awaiting(job: AsyncJob, *providers: str) -> JobStatus:
    """Wait until a job waits for approval by exactly these providers."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            status = await job.status()
            assert not status.is_final, status
            if {each.name for each in status.participants if each.awaiting_approval_since} == set(providers):
                return status
            await asyncio.sleep(0.02)
