"""What an operator sees of a coordinator, on its own machine: parties, connections, jobs and certificates.

Jobs and parties are read from the journal, beside the running coordinator. Whether a provider is connected is asked of
the coordinator itself, as a health check.
"""

import asyncio
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dpspca.common.errors import DpspcaError
from dpspca.common.names import Role
from dpspca.common.storage import CoordinatorConfig, DatabaseUrl, read_config, require_own
from dpspca.common.transport import rpc
from dpspca.common.trust import Identity, read_certificate
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.job import JobRecord
from dpspca.server.journal import read_jobs

from . import certificates, probe

JOURNAL_FILE: Final = "journal.db"
"""Name of the coordinator's journal beside its settings, unless these name another."""


def journal_location(settings: CoordinatorConfig, config: Path) -> Path | DatabaseUrl:
    """Return where a coordinator keeps its journal."""
    return settings.journal or config.parent / JOURNAL_FILE


async def facts(config: Path) -> dict[str, Any]:
    """Return everything about a coordinator, as plain values."""
    require_own(CoordinatorConfig, config)
    settings = read_config(CoordinatorConfig, config)
    me = Identity.load(settings.identity)
    jobs, receipts = await asyncio.to_thread(read_jobs, journal_location(settings, config))
    problem = await _problem(settings, me, "")
    providers = sorted({name for job in jobs for name in job.participants} | receipts.keys())
    connected = {} if problem else await _connected(settings, me, providers)
    return {
        "coordinator": str(me.name),
        "address": str(settings.listen),
        "serving": not problem,
        "problem": problem or None,
        "certificates": await asyncio.to_thread(certificates.facts, config),
        "parties": _parties(jobs, receipts, providers, connected),
        "jobs": [_job(each) for each in reversed(jobs)],
    }


async def _problem(settings: CoordinatorConfig, me: Identity, service: str) -> str:
    try:
        await probe.ask(probe.address_of(settings), me, service)
    except DpspcaError as problem:
        return str(problem)
    return ""


async def _connected(settings: CoordinatorConfig, me: Identity, providers: list[str]) -> dict[str, bool]:
    found = await asyncio.gather(*(_problem(settings, me, f"{rpc.CONNECTED}{name}") for name in providers))
    return {name: not problem for name, problem in zip(providers, found, strict=True)}


def _parties(
    jobs: list[JobRecord], receipts: dict[str, bytes], providers: list[str], connected: dict[str, bool]
) -> list[dict[str, Any]]:
    """List the providers and analysts that the journal knows. Of a provider, the receipt has the certificate."""
    of_provider = Counter(name for job in jobs for name in job.participants)
    of_analyst = Counter(job.analyst for job in jobs)
    found: list[dict[str, Any]] = [
        {
            "role": str(Role.PROVIDER),
            "name": name,
            "connected": connected.get(name),
            "jobs": of_provider[name],
            "certificate_until": _certificate_until(receipts.get(name)),
        }
        for name in providers
    ]
    return found + [
        {"role": str(Role.ANALYST), "name": name, "connected": None, "jobs": count, "certificate_until": None}
        for name, count in sorted(of_analyst.items())
    ]


def _certificate_until(receipt: bytes | None) -> str | None:
    if receipt is None:
        return None
    until = read_certificate(pb.Receipt.FromString(receipt).certificate).not_valid_after_utc
    return f"{until:%Y-%m-%dT%H:%M:%SZ}"


def _job(job: JobRecord) -> dict[str, Any]:
    return asdict(job) | {
        "state": str(job.state),
        "submitted": _time(job.submitted),
        "ended": _time(job.ended) if job.ended else None,
        "participants": [{"name": name, **asdict(each)} for name, each in job.participants.items()],
    }


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
