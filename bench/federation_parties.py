"""The parties of a federation for ``federation.py``: their files, and the parties in this or another process.

A party is a context manager that yields what others must know of it, such as an address. ``in_this_process`` enters it
in this event loop, ``in_new_process`` in a process of its own. Parties read their identities and lists from files each
time they need one, as the real daemons do.
"""

import asyncio
import multiprocessing
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, TypeAlias

from dpspca.common.names import PartyName, Role
from dpspca.common.trust import identity as identities
from dpspca.common.trust.authority import Authority
from dpspca.common.trust.identity import CurrentIdentity, CurrentRevocations
from dpspca.provider.connection.daemon import Daemon
from dpspca.provider.data.formats import FORMATS
from dpspca.provider.data.sources import read_rows
from dpspca.provider.jobs.registry import ProviderSetup
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.ledger.sqlite import SqliteLedger
from dpspca.provider.policy.file import CurrentPolicy
from dpspca.server.coordinator import Coordinator
from dpspca.server.journal.sqlite import SqliteJournal, TemporaryJournal

Party: TypeAlias = Callable[..., AbstractAsyncContextManager[str]]

DATA_SET: Final = "cohort"
POLICY: Final = "policy.toml"
COORDINATOR: Final = "hub"
ANALYST: Final = "ada"
TIMEOUT: Final = 60

_SPAWN: Final = multiprocessing.get_context("spawn")
_MEGABYTE: Final = 1e6


def create_federation(folder: Path, providers: Iterable[str]) -> None:
    """Create an authority and the identities of a coordinator, an analyst and these providers."""
    authority = Authority.init(folder / "authority", "town", now)
    parties = {COORDINATOR: Role.COORDINATOR, ANALYST: Role.ANALYST} | dict.fromkeys(providers, Role.PROVIDER)
    for name, role in parties.items():
        request = identities.request(folder / name, PartyName("town", role, name))
        identities.install(folder / name, authority.sign(request), authority.certificate_pem)
    (folder / "revoked.pem").write_bytes(authority.revocation_list())


def now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def coordinator(folder: Path, durable: bool) -> AsyncIterator[str]:  # noqa: FBT001  # as a case has it
    """Run a coordinator, and yield its address."""
    identity, revocations = _identity_files(folder, COORDINATOR)
    journal = SqliteJournal(folder / "journal.db") if durable else TemporaryJournal()
    running = Coordinator(identity.get, revocations.get, now, journal=journal)
    await running.start("127.0.0.1:0")
    try:
        yield running.address
    finally:
        await running.stop(grace=1)


@asynccontextmanager
async def providers(folder: Path, address: str, durable: bool, *names: str) -> AsyncIterator[str]:  # noqa: FBT001
    """Run providers in one event loop. Yield when all are connected."""
    daemons = [_daemon(folder, address, name, durable=durable) for name in names]
    running = [asyncio.create_task(daemon.run()) for daemon in daemons]
    try:
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*(daemon.connected.wait() for daemon in daemons))
        yield ""
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class RunningParty:
    """A running party and its process."""

    address: str
    process: int

    def resident(self) -> float:
        """Return its memory now, in megabytes."""
        return self._status("VmRSS")

    def peak(self) -> float:
        """Return its peak of memory since ``forget_peak``, in megabytes."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process}/clear_refs").write_text("5", encoding="ascii")

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> float:
        lines = Path(f"/proc/{self.process}/status").read_text(encoding="ascii").splitlines()
        value = next(line.split()[1] for line in lines if line.startswith(f"{name}:"))
        return int(value) * 1024 / _MEGABYTE


@asynccontextmanager
async def in_new_process(party: Party, *arguments: Any) -> AsyncIterator[RunningParty]:  # noqa: ANN401  # what the party takes
    """Run a party in a new process."""
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_run, args=(theirs, party, arguments), daemon=True)
    process.start()
    theirs.close()
    try:
        address = await asyncio.to_thread(ours.recv)
        assert process.pid is not None
        yield RunningParty(address, process.pid)
    finally:
        ours.close()  # this makes it stop
        await asyncio.to_thread(process.join)


@asynccontextmanager
async def in_this_process(party: Party, *arguments: Any) -> AsyncIterator[RunningParty]:  # noqa: ANN401  # what the party takes
    """Run a party in this event loop."""
    async with party(*arguments) as address:
        yield RunningParty(address, os.getpid())


def _run(pipe: Connection, party: Party, arguments: tuple[Any, ...]) -> None:
    asyncio.run(_hold(pipe, party, arguments))


async def _hold(pipe: Connection, party: Party, arguments: tuple[Any, ...]) -> None:
    """Keep a party running until the other end of the pipe is closed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with party(*arguments) as address:
        pipe.send(address)
        loop.add_reader(pipe.fileno(), stop.set)
        await stop.wait()
        loop.remove_reader(pipe.fileno())


def _identity_files(folder: Path, name: str) -> tuple[CurrentIdentity, CurrentRevocations]:
    identity = CurrentIdentity(folder / name)
    return identity, CurrentRevocations(folder / "revoked.pem", identity.get().authority_pem)


def _daemon(folder: Path, address: str, name: str, *, durable: bool) -> Daemon:
    identity, revocations = _identity_files(folder, name)
    path = next(path for path in folder.glob(f"{name}.*") if path.suffix in FORMATS)
    stored = (folder / f"{name}-ledger" / "ledger.db", folder / name / "ledger-head")
    ledger = SqliteLedger(*stored) if durable else MemoryLedger()
    policy = CurrentPolicy(folder / POLICY)
    return Daemon(
        ProviderSetup(address, identity.get, revocations.get, now, {DATA_SET: read_rows(path)}, policy.get, ledger)
    )
