"""A federation as in production: a folder of settings, with coordinator and providers as processes that may restart."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from local_federation import Enrolment
from numpy.typing import NDArray
from timeouts import TIMEOUT

from dpspca.common.names import Role
from dpspca.common.trust.identity import Identity

DPSPCA = (sys.executable, "-m", "dpspca")
PULSE = """
import sys
from functools import partial
from dpspca.cli import main
from dpspca.cli.commands import daemons
daemons.Coordinator = partial(daemons.Coordinator, heartbeat_seconds=int(sys.argv.pop(1)))
main.main()
"""
"""The program, with another heartbeat interval of the coordinator, in seconds."""
KEEPING = """
from dpspca.cli import main
from dpspca.provider.ledger.database import Database
Database.drop = lambda *_: None
main.main()
"""
"""The program, with a provider that keeps the answers of finished jobs, so that models can be computed again."""

AS_DEPLOYED = ("env", "MALLOC_ARENA_MAX=2", "GLIBC_TUNABLES=glibc.malloc.tcache_count=0")
"""The settings of the C library in the image and in the units, for tests of memory. Without them, each thread fills a
cache of up to a quarter of a megabyte over hours, which looks like a memory leak."""

Rows = Mapping[str, Mapping[str, NDArray[np.float64]]]
"""The rows of each data set of each provider, by name."""


class Process:
    """A daemon in a separate process. It can be started again with the same settings."""

    def __init__(self, name: str, command: Sequence[str], log: Path, ready: str) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._ready = ready
        self._born_at = 0

    async def start(self) -> None:
        """Start the process."""
        self._born_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stderr=log)

    async def until_ready(self) -> None:
        await self.says(self._ready)

    async def says(self, words: str, seconds: float = TIMEOUT) -> None:
        """Wait until the log contains these words since the last start."""
        async with asyncio.timeout(seconds):
            while words not in (said := self.said):
                assert self.alive, f"{self.name} ended with {self._process.returncode}: {said}"
                await asyncio.sleep(0.05)

    @property
    def said(self) -> str:
        """Everything that the process logged since its last start."""
        with self.log.open("rb") as log:
            log.seek(self._born_at)
            return log.read().decode()

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    @property
    def number(self) -> int:
        """Return the process id."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """Kill the process, also if it is stopped."""
        self.send(signal.SIGKILL)
        await self._process.wait()

    async def end(self) -> int:
        """Terminate the process and return its exit code."""
        self.send(signal.SIGTERM)
        async with asyncio.timeout(TIMEOUT):
            return await self._process.wait()

    async def away_with_it(self) -> None:
        """Kill the process if it is running."""
        if hasattr(self, "_process") and self.alive:
            await self.kill()


@dataclass(frozen=True)
class Daemons:
    """The daemons of a federation, and the paths of their files."""

    enrolment: Enrolment
    hub: Process
    providers: dict[str, Process]
    ada: Identity
    address: str

    @property
    def everybody(self) -> list[Process]:
        return [self.hub, *self.providers.values()]

    @property
    def journal(self) -> Path:
        return self.enrolment.folder / "journal.db"

    def ledger(self, provider: str) -> Path:
        return self.enrolment.folder / f"{provider}-ledger" / "ledger.db"

    def head(self, provider: str) -> Path:
        """Return the path of the ledger's head file."""
        return self.enrolment.folder / f"provider-{provider}" / "ledger-head"


@asynccontextmanager
async def daemons(
    folder: Path,
    address: str,
    policy: str,
    rows: Rows,
    heartbeat_seconds: int | None = None,
    within: Callable[[str], Sequence[str]] = lambda _: (),
    *,
    keeping: bool = False,
) -> AsyncIterator[Daemons]:
    """Set up a federation in a folder, run it, and kill what still runs at the end.

    ``within`` returns, for a party's name, the command prefix that runs its program in the right place. With
    ``keeping``, providers drop no answers.
    """
    enrolment = Enrolment.create(folder)
    ada = enrolment.identity(Role.ANALYST, "ada")
    _write_settings(enrolment, address, policy, rows)
    pulse = (sys.executable, "-c", PULSE, str(heartbeat_seconds)) if heartbeat_seconds else DPSPCA
    words = ("coordinator", "start", "--config", str(folder / "hub.toml"))
    hub = Process("hub", (*within("hub"), *pulse, *words), folder / "hub.log", "listening on")
    program = (sys.executable, "-c", KEEPING) if keeping else DPSPCA
    providers = {name: _provider(folder, name, (*within(name), *program)) for name in rows}
    running = Daemons(enrolment, hub, providers, ada, address)
    try:
        for each in running.everybody:
            await each.start()
        for each in running.everybody:
            await each.until_ready()
        for provider in providers.values():
            await provider.says("Connected")
        yield running
    finally:
        for each in running.everybody:
            await each.away_with_it()


def _provider(folder: Path, name: str, program: Sequence[str]) -> Process:
    command = (*program, "provider", "start", "--config", str(folder / f"{name}.toml"))
    return Process(name, command, folder / f"{name}.log", f"provider/{name} offers")


def _write_settings(enrolment: Enrolment, address: str, policy: str, rows: Rows) -> None:
    folder = enrolment.folder
    enrolment.identity(Role.COORDINATOR, "hub")
    (folder / "revoked.pem").write_bytes(enrolment.authority.revocation_list())
    (folder / "policy.toml").write_text(policy)
    _write(folder / "ada.toml", coordinator=address, identity="analyst-ada")
    _write(folder / "hub.toml", listen=address, identity="coordinator-hub", revocations="revoked.pem")
    for name, data_sets in rows.items():
        enrolment.identity(Role.PROVIDER, name)
        for data_set, content in data_sets.items():
            np.save(folder / f"{name}-{data_set}.npy", content)
        _write(
            folder / f"{name}.toml",
            coordinator=address,
            identity=f"provider-{name}",
            revocations="revoked.pem",
            policy="policy.toml",
            ledger=f"{name}-ledger/ledger.db",
        )
        with (folder / f"{name}.toml").open("a") as file:
            file.write("[data_sets]\n" + "".join(f'{each} = "{name}-{each}.npy"\n' for each in data_sets))


def _write(path: Path, **told: str) -> None:
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items()))
