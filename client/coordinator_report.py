"""An operator's view of a coordinator, on its own machine: parties, connections, jobs and certificates.

Jobs and parties are read from the journal, while the coordinator runs. The coordinator itself is asked who is connected
and whom it saw before. The mailbox says who was invited and asked for a certificate. A party of which none of the three
knows is not listed: all certificates ever signed are known to the authority alone (`dpspca study show`).
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import grpc.aio

from dpspca.common.errors import DpspcaError
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import CoordinatorSettings, DatabaseUrl, read_settings, require_own
from dpspca.common.transport import Mail, rpc
from dpspca.common.trust import (
    EXPIRED,
    REVOKED,
    Identity,
    RevocationList,
    certificate_status,
    identity,
    load_revocations,
    owner_of,
)
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.protos.dpspca.v1 import federation_pb2_grpc as pb_grpc
from dpspca.server.job_states import JobRecord
from dpspca.server.journal import read_jobs

from .clock import now
from .connection import AWAY, CONNECTED, UNKNOWN, Presence, probe
from .enrolment import certificates, mailbox_folder

JOURNAL_FILE: Final = "journal.db"
"""Name of the coordinator's journal in the folder of its settings, unless they name another."""


def journal_location(settings: CoordinatorSettings, config: Path) -> Path | DatabaseUrl:
    """Return where a coordinator keeps its journal."""
    return settings.journal or config.parent / JOURNAL_FILE


async def facts(config: Path) -> dict[str, Any]:
    """Return everything about a coordinator, as plain values."""
    require_own(CoordinatorSettings, config)
    settings = read_settings(CoordinatorSettings, config)
    me = Identity.load(settings.identity)
    jobs, receipts = await asyncio.to_thread(read_jobs, journal_location(settings, config))
    problem, live = await _ask(settings, me)
    invited = await asyncio.to_thread(_invited, settings, config, me)
    revoked = await asyncio.to_thread(_revoked, settings, me)
    seen = {(each.role, each.name): each for each in live or ()}
    sources = _Sources(me, jobs, receipts, seen, invited, revoked, is_asked=live is not None)
    return {
        "coordinator": str(me.name),
        "address": str(settings.listen),
        "serving": not problem,
        "problem": problem or None,
        "certificates": await asyncio.to_thread(certificates.facts, config),
        "parties": [*sources.parties()],
        "jobs": [_job(each) for each in reversed(jobs)],
    }


async def _ask(settings: CoordinatorSettings, me: Identity) -> tuple[str, list[Presence] | None]:
    """Ask the running coordinator about all parties. Return its problem if it does not serve, and its list of parties.

    The list is None if there is a problem, or if the coordinator still runs an earlier version, which has no such list.
    """
    try:
        address = probe.address_of(settings)
        await probe.ask(address, me, "")
        async with rpc.dial(address, me) as channel:
            call = pb_grpc.PartyServiceStub(channel).Parties(pb.PartiesRequest(), timeout=probe.TIMEOUT_SECONDS)
            return "", [Presence.of(each) async for each in call]
    except grpc.aio.AioRpcError:
        return "", None
    except DpspcaError as problem:
        return str(problem), None


def _revoked(settings: CoordinatorSettings, me: Identity) -> RevocationList | None:
    try:
        return load_revocations(settings.revocations, me.authority_pem)
    except DpspcaError:  # `certificates` says what is wrong with it
        return None


def _invited(settings: CoordinatorSettings, config: Path, me: Identity) -> set[PartyName]:
    """Return the parties that used the mailbox. They were invited, and perhaps never connected."""
    if settings.mailbox is None:
        return set()
    with suppress(DpspcaError, OSError):
        key = identity.mailbox_key(settings.identity)
        kinds = {f".{Mail.REQUEST}", f".{Mail.CERTIFICATE}"}
        slots = {path.stem for path in mailbox_folder(settings, config).iterdir() if path.suffix in kinds}
        return {owner for slot in slots if (owner := owner_of(slot, key, me.name.federation))}
    return set()


@dataclass(frozen=True, slots=True)
class _Sources:
    """Everything that says something about parties."""

    me: Identity
    jobs: list[JobRecord]
    receipts: dict[str, bytes]
    """The last receipt of each provider, with the certificate that it had."""
    live: dict[tuple[str, str], Presence]
    """The parties that the running coordinator lists, by role and name."""
    invited: set[PartyName]
    revoked: RevocationList | None
    is_asked: bool
    """Whether the coordinator gave a list of the parties that are connected."""

    def parties(self) -> Iterator[dict[str, Any]]:
        """Yield what is known of each party, providers first."""
        counts = {
            Role.PROVIDER: Counter(name for job in self.jobs for name in job.participants),
            Role.ANALYST: Counter(job.analyst.rpartition("/")[2] for job in self.jobs),
        }
        for role, taken_part in counts.items():
            known = {name for kind, name in self.live if kind == role}
            known |= self._asked if role is Role.PROVIDER else {*taken_part}
            known |= {each.name for each in self.invited if each.role is role}
            known |= self.receipts.keys() if role is Role.PROVIDER else set()
            yield from (self._party(role, name, taken_part[name]) for name in sorted(known))

    @property
    def _asked(self) -> set[str]:
        """The providers that were asked a query. A job may also name others, and misspell them."""
        return {name for job in self.jobs for name, each in job.participants.items() if each.asked}

    def _party(self, role: Role, name: str, jobs: int) -> dict[str, Any]:
        live = self.live.get((role, name))
        state, until = (live.state, live.certificate_until) if live else self._by_receipt(role, name)
        since = live.since if live and not live.since_start else None
        return {
            "role": str(role),
            "name": name,
            "state": state,
            "connected": state == CONNECTED if self.is_asked else None,
            "since": _text(since),
            "connection": _connection(role, state, since),
            "data_sets": [*live.data_sets] if live else [],
            "jobs": jobs,
            "certificate_until": _text(until),
        }

    def _by_receipt(self, role: Role, name: str) -> tuple[str | None, datetime | None]:
        """Return the state of a party that the coordinator does not list, and until when its certificate is valid."""
        absent = UNKNOWN if role is Role.PROVIDER else AWAY
        state = absent if self.is_asked else None
        if role is not Role.PROVIDER or name not in self.receipts or self.revoked is None:
            return state, None
        certificate = pb.Receipt.FromString(self.receipts[name]).certificate
        try:
            standing = certificate_status(certificate, self.me.authority_pem, now(), self.revoked)
        except DpspcaError:
            return state, None
        return standing.problem or state, standing.until


def _connection(role: Role, state: str | None, since: datetime | None) -> str:
    """Say in a few words whether a party is connected. An analyst is while a command runs."""
    when = f" since {since:%Y-%m-%d %H:%M} UTC" if since else ""
    if role is Role.ANALYST and state == AWAY:
        return ""
    return {
        CONNECTED: f"connected{when}",
        AWAY: f"not connected{when}",
        REVOKED: f"certificate revoked, not connected{when}",
        EXPIRED: f"certificate expired, not connected{when}",
        UNKNOWN: "not connected since the coordinator started",
        None: "",
    }.get(state, "")


def _job(job: JobRecord) -> dict[str, Any]:
    facts = asdict(job)
    return {
        "job": facts.pop("name"),
        **facts,
        "state": str(job.state),
        "submitted": _time(job.submitted),
        "ended": _time(job.ended) if job.ended else None,
        "participants": [{"name": name, **asdict(each)} for name, each in job.participants.items()],
    }


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _text(moment: datetime | None) -> str | None:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}" if moment else None
