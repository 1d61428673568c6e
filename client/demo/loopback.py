"""A temporary federation on this machine: new certificates, files of rows, and one process for each party.

When the block ends, for whatever reason, its processes are stopped and its folder is removed, including the keys. This
also holds if this process gets a signal to stop, or if its terminal is closed. All parties listen on the loopback
address only.
"""

import asyncio
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import sleep
from typing import Any, Final, NoReturn

import numpy as np
import scipy.sparse
import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError
from dpspca.common.job import JobSpec
from dpspca.common.names import PartyName, Role
from dpspca.common.storage import posix
from dpspca.common.text import printable
from dpspca.common.trust import Authority
from dpspca.common.trust import identity as identities
from dpspca.provider.kernels import SWITCH
from dpspca.provider.policy import suggest

DATA_SET: Final = "demo"
FEDERATION: Final = "loopback"
COORDINATOR: Final = "hub"
ANALYST: Final = "analyst"
POLICY: Final = "policy.toml"
REVOCATIONS: Final = "revoked.pem"
PARENT_VARIABLE: Final = "DPSPCA_PARENT"
"""Environment variable of a daemon: the id of its parent process. The daemon stops when that process is gone."""
LISTEN: Final = "127.0.0.1:0"
"""Any free port. Other machines cannot reach it."""
PROGRAM: Final = (sys.executable, "-P", "-m", "dpspca")
"""The program of this installation. With -P, files in the current folder are not imported."""
STOP_SECONDS: Final = 10.0
"""How long a process may take to stop before it is killed."""

POLL_SECONDS: Final = 0.05
"""Time between two checks of the processes."""
LOG_LINES: Final = 10
"""Number of last lines of its log that are shown if a process failed."""


class PartyLostError(DpspcaError):
    """A process of the federation ended unexpectedly. ``log`` has the last lines of its log."""

    code = "party-lost"

    def __init__(self, what: str, remedy: str, log: Sequence[str]) -> None:
        super().__init__(what, remedy)
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Party:
    """A running process of a party, and its log file."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def log_text(self) -> str:
        """Return its log so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def require_alive(self) -> None:
        """Raise if the process has ended, with the end of its log."""
        code = self.process.poll()
        if code is not None:
            raise self.lost(f"The process of {self.name} ended unexpectedly, with exit code {code}.")

    def lost(self, what: str) -> PartyLostError:
        """Return the error for this party, with the end of its log."""
        return PartyLostError(
            what, "See the end of its log, then start again.", self.log_text().splitlines()[-LOG_LINES:]
        )


@dataclass(frozen=True, slots=True)
class Loopback:
    """A running federation: the coordinator's address, the folder of an analyst's identity, and the processes."""

    address: str
    analyst: Path
    parties: Sequence[Party]

    async def require_alive(self) -> NoReturn:
        """Wait until one of the processes ends, and raise."""
        while True:
            for party in self.parties:
                party.require_alive()
            await asyncio.sleep(POLL_SECONDS)


@dataclass(slots=True)
class Parties:
    """The processes of a federation, and the folder that they share."""

    folder: Path
    authority: Authority
    running: list[Party] = field(default_factory=list)

    def enrol(self, role: Role, name: str) -> Path:
        """Create a key and a certificate signed by the authority, in a new folder of the party. Return the folder."""
        party = PartyName(self.authority.federation, role, name)
        request = identities.request(self.folder / name, party)
        certificate = self.authority.sign(request, expected=party, days=1)
        identities.install(self.folder / name, certificate, self.authority.certificate_pem)
        return self.folder / name

    def start(self, role: Role, name: str, settings: str) -> Party:
        """Start a party's program as its operator would. Its output goes to a log file."""
        config = self.folder / f"{name}.toml"
        config.write_text(f'{settings}\nidentity = "{name}"\nrevocations = "{REVOCATIONS}"\n', encoding="utf-8")
        command = [*PROGRAM, role.value, "start", "--config", str(config)]
        with (self.folder / f"{name}.log").open("wb") as log:
            # A process group of its own, so that Ctrl-C does not reach it. It is stopped below instead.
            process = subprocess.Popen(  # noqa: S603  # our own program
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={SWITCH: "off"} | os.environ | {PARENT_VARIABLE: str(os.getpid())},  # rows are few
            )
        self.running.append(Party(name, process, Path(log.name)))
        return self.running[-1]

    def start_provider(  # who it is, what it offers, and to whom
        self,
        name: str,
        files: Mapping[str, Path],
        address: str,
        policy: str,
        persons: Mapping[str, Path] | None = None,
    ) -> Party:
        """Enrol a provider, and start its daemon. ``files`` has a file of rows for each name of a data set.

        ``persons`` has a persons file for each data set that needs one.
        """
        self.enrol(Role.PROVIDER, name)
        settings = {"coordinator": address, "policy": policy, "ledger": f"{name}-ledger/ledger.db"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        for table, listed in (("data_sets", files), ("persons", persons or {})):
            named = ", ".join(f"{data_set} = {json.dumps(file.name)}" for data_set, file in listed.items())
            lines.append(f"{table} = {{ {named} }}")
        return self.start(Role.PROVIDER, name, "\n".join(lines))

    def end(self) -> None:
        """Stop every process: first with a signal to stop, then by killing it."""
        processes = [party.process for party in self.running]
        self.running.clear()
        try:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def new_federation() -> Iterator[Parties]:
    """Found a federation. At the end of the block, stop its processes and then remove its folder."""
    posix.require()
    with _stop_signals_interrupt(), tempfile.TemporaryDirectory(prefix="dpspca-") as place:
        folder = Path(place)
        parties = Parties(folder, Authority.init(folder / "authority", FEDERATION, lambda: datetime.now(UTC)))
        (folder / REVOCATIONS).write_bytes(parties.authority.revocation_list())
        try:
            yield parties
        finally:
            parties.end()


@contextmanager
def federation(shards: Mapping[str, FloatArray], job: JobSpec) -> Iterator[Loopback]:
    """Run a coordinator, and for every shard a provider whose policy allows jobs like this one."""
    with new_federation() as parties:
        yield _begin(parties, shards, job)


@contextmanager
def log_on_failure() -> Iterator[None]:
    """Print the end of a party's log if its process ended unexpectedly."""
    try:
        yield
    except PartyLostError as problem:
        for line in problem.log:
            typer.echo(printable(line), err=True)
        raise


def _begin(parties: Parties, shards: Mapping[str, FloatArray], job: JobSpec) -> Loopback:
    """Start all parties. The coordinator starts while the files of rows are written."""
    parties.enrol(Role.COORDINATOR, COORDINATOR)
    coordinator = parties.start(Role.COORDINATOR, COORDINATOR, f'listen = "{LISTEN}"')
    files = {name: write_rows(parties.folder / name, rows, job.schema.names) for name, rows in shards.items()}
    analyst = parties.enrol(Role.ANALYST, ANALYST)
    (parties.folder / POLICY).write_text(suggest(catalogue.plan(job), DATA_SET, [ANALYST]), encoding="utf-8")
    address = _address(coordinator)
    for name, file in files.items():
        parties.start_provider(name, {DATA_SET: file}, address, POLICY)
    return Loopback(address, analyst, parties.running)


def write_rows(stem: Path, rows: Any, columns: Sequence[str] | None) -> Path:  # noqa: ANN401  # dense or sparse
    """Write a provider's rows to a file: CSV if the columns have names, because NPY cannot hold names."""
    if isinstance(rows, scipy.sparse.csr_array):
        path = stem.with_suffix(".npz")
        scipy.sparse.save_npz(path, rows)
        return path
    if columns is None:
        path = stem.with_suffix(".npy")
        np.save(path, rows)
        return path
    path = stem.with_suffix(".csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows.tolist()])
    return path


def _address(coordinator: Party) -> str:
    """Wait until the coordinator listens, and return its address from its log."""
    while not (found := re.search(r"listening on (\S+)\n", coordinator.log_text())):
        coordinator.require_alive()
        sleep(POLL_SECONDS)
    return found[1]


@contextmanager
def _stop_signals_interrupt() -> Iterator[None]:
    """Handle SIGTERM and SIGHUP like Ctrl-C. By default they would end this process before it stops the others."""
    asked = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in asked:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_DFL)
