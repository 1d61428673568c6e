"""A federation on this machine for as long as it is needed: fresh certificates, shard files, and a process a party.

However the block ends, its processes are ended and its folder, keys included, is removed; so it is when this process
is told to stop, or its terminal goes away. Nothing listens on any address but this machine's own.
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
from dpspca.common.names import PartyName, Role
from dpspca.common.spec import JobSpec
from dpspca.common.text import printable
from dpspca.common.trust import Authority
from dpspca.common.trust import identity as identities
from dpspca.provider.policy import suggest

DATA_SET: Final = "demo"
FEDERATION: Final = "loopback"
COORDINATOR: Final = "hub"
ANALYST: Final = "analyst"
POLICY: Final = "policy.toml"
REVOCATIONS: Final = "revoked.pem"
PARENT: Final = "DPSPCA_PARENT"
"""In the environment of a daemon: the process that it was started for, and ends with."""
LISTEN: Final = "127.0.0.1:0"
"""At whatever port is free; nobody else can reach it."""
PROGRAM: Final = (sys.executable, "-P", "-m", "dpspca")
"""This very installation, whatever lies in the folder that it is called from."""
GRACE: Final = 10.0
"""Seconds that a process may take to end by itself."""

LOOK: Final = 0.05
"""Seconds between two looks at the processes."""
TOLD: Final = 10
"""Lines of its log that are told of a process that is gone."""


class PartyLostError(DpspcaError):
    """A process of the federation ended by itself; ``log`` is the end of what it said."""

    code = "party-lost"

    def __init__(self, what: str, remedy: str, log: Sequence[str]) -> None:
        super().__init__(what, remedy)
        self.log = tuple(log)


@dataclass(frozen=True, slots=True)
class Party:
    """A program that runs, and the file that it logs to."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def said(self) -> str:
        """Give all that it has said so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def require_alive(self) -> None:
        """Raise if it has ended, with the end of its log."""
        code = self.process.poll()
        if code is not None:
            raise self.lost(f"The process of {self.name} ended by itself, with exit code {code}.")

    def lost(self, what: str) -> PartyLostError:
        """Say what is wrong with it, with the end of its log."""
        return PartyLostError(what, "See the end of its log, and start anew.", self.said().splitlines()[-TOLD:])


@dataclass(frozen=True, slots=True)
class Loopback:
    """A federation that runs: where its coordinator listens, an identity that may ask it, and the processes."""

    address: str
    analyst: Path
    parties: Sequence[Party]

    async def watch_over(self) -> NoReturn:
        """Raise as soon as one of the processes ends."""
        while True:
            for party in self.parties:
                party.require_alive()
            await asyncio.sleep(LOOK)


@dataclass(slots=True)
class Parties:
    """The processes, and the folder that they share."""

    folder: Path
    authority: Authority
    running: list[Party] = field(default_factory=list)

    def enrol(self, role: Role, name: str) -> Path:
        """Make a key and a certificate that the authority signed, in a folder of the party's own."""
        party = PartyName(self.authority.federation, role, name)
        request = identities.request(self.folder / name, party)
        certificate = self.authority.sign(request, expected=party, days=1)
        identities.install(self.folder / name, certificate, self.authority.certificate_pem)
        return self.folder / name

    def start(self, role: Role, name: str, settings: str) -> Party:
        """Start a party's program as its operator would; what it says goes to a file."""
        config = self.folder / f"{name}.toml"
        config.write_text(f'{settings}\nidentity = "{name}"\nrevocations = "{REVOCATIONS}"\n', encoding="utf-8")
        command = [*PROGRAM, role.value, "start", "--config", str(config)]
        with (self.folder / f"{name}.log").open("wb") as log:
            # A group of its own: the keys that interrupt this process are not for it, it is ended below.
            process = subprocess.Popen(  # noqa: S603  # our own program
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                env=os.environ | {PARENT: str(os.getpid())},
            )
        self.running.append(Party(name, process, Path(log.name)))
        return self.running[-1]

    def provide(  # who it is, what it offers, and to whom
        self,
        name: str,
        files: Mapping[str, Path],
        address: str,
        policy: str,
        persons: Mapping[str, Path] | None = None,
    ) -> Party:
        """Enrol a provider, and start its daemon over files, each under the name of a data set.

        ``persons`` are files that say whose the rows of data sets are.
        """
        self.enrol(Role.PROVIDER, name)
        settings = {"coordinator": address, "policy": policy, "ledger": f"{name}-ledger/ledger.db"}
        lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        for table, listed in (("data_sets", files), ("persons", persons or {})):
            named = ", ".join(f"{data_set} = {json.dumps(file.name)}" for data_set, file in listed.items())
            lines.append(f"{table} = {{ {named} }}")
        return self.start(Role.PROVIDER, name, "\n".join(lines))

    def end(self) -> None:
        """End every process that was started: politely, then surely."""
        processes = [party.process for party in self.running]
        self.running.clear()
        try:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                process.kill()
                process.wait()


@contextmanager
def founded() -> Iterator[Parties]:
    """Found a federation that ends with the block: its processes first, then its folder."""
    with _told_to_stop(), tempfile.TemporaryDirectory(prefix="dpspca-") as place:
        folder = Path(place)
        parties = Parties(folder, Authority.init(folder / "authority", FEDERATION, lambda: datetime.now(UTC)))
        (folder / REVOCATIONS).write_bytes(parties.authority.revocation_list())
        try:
            yield parties
        finally:
            parties.end()


@contextmanager
def federation(shards: Mapping[str, FloatArray], job: JobSpec) -> Iterator[Loopback]:
    """Run a coordinator, and for every shard a provider that allows jobs like this one."""
    with founded() as parties:
        yield _begin(parties, shards, job)


@contextmanager
def telling_why() -> Iterator[None]:
    """Print the end of the log of a process that is gone."""
    try:
        yield
    except PartyLostError as problem:
        for line in problem.log:
            typer.echo(printable(line), err=True)
        raise


def _begin(parties: Parties, shards: Mapping[str, FloatArray], job: JobSpec) -> Loopback:
    """Start all parties; the coordinator loads while the shards are written."""
    parties.enrol(Role.COORDINATOR, COORDINATOR)
    coordinator = parties.start(Role.COORDINATOR, COORDINATOR, f'listen = "{LISTEN}"')
    files = {name: write_rows(parties.folder / name, rows, job.schema.names) for name, rows in shards.items()}
    analyst = parties.enrol(Role.ANALYST, ANALYST)
    (parties.folder / POLICY).write_text(suggest(catalogue.plan(job), DATA_SET, [ANALYST]), encoding="utf-8")
    address = _address(coordinator)
    for name, file in files.items():
        parties.provide(name, {DATA_SET: file}, address, POLICY)
    return Loopback(address, analyst, parties.running)


def write_rows(stem: Path, rows: Any, columns: Sequence[str] | None) -> Path:  # noqa: ANN401  # dense or sparse
    """Write a provider's rows: as text where the columns have names, which the other form cannot hold."""
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
    """Wait until the coordinator listens; its log says where."""
    while not (found := re.search(r"listening on (\S+)\n", coordinator.said())):
        coordinator.require_alive()
        sleep(LOOK)
    return found[1]


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Take a request to stop like an interrupt from the keyboard: by default it would end us before the others."""
    asked = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in asked:
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_DFL)
