"""A federation on this machine for as long as it is needed: fresh certificates, shard files, and a process a party.

However the block ends, its processes are ended and its folder, keys included, is removed; so it is when this process
is told to stop, or its terminal goes away. Nothing listens on any address but this machine's own.
"""

import csv
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError
from dpspca.common.transport import identity as identities
from dpspca.common.transport.authority import Authority
from dpspca.common.transport.names import PartyName, Role

DATA_SET: Final = "demo"
FEDERATION: Final = "loopback"
COORDINATOR: Final = "hub"
ANALYST: Final = "analyst"
LISTEN: Final = "127.0.0.1:0"
"""At whatever port is free; nobody else can reach it."""
GRACE: Final = 10.0
"""Seconds that a process may take to end by itself."""

Process: TypeAlias = "subprocess.Popen[str]"


class PartyLostError(DpspcaError):
    """A process of the federation ended by itself."""

    code = "party-lost"


@dataclass(frozen=True, slots=True)
class Loopback:
    """A federation that runs: where its coordinator listens, and the folder of an identity that may ask it."""

    address: str
    analyst: Path


@dataclass(slots=True)
class _Parties:
    """The processes, and the folder that they share."""

    folder: Path
    authority: Authority
    running: list[Process] = field(default_factory=list)

    def enrol(self, role: Role, name: str) -> Path:
        """Make a key and a certificate that the authority signed, in a folder of the party's own."""
        party = PartyName(self.authority.federation, role, name)
        request = identities.request(self.folder / name, party)
        certificate = self.authority.sign(request, expected=party, days=1)
        identities.install(self.folder / name, certificate, self.authority.certificate_pem)
        return self.folder / name

    def start(self, role: Role, name: str, settings: str) -> Process:
        """Start a party's program as its operator would; what it says goes to a pipe or a file."""
        config = self.folder / f"{name}.toml"
        config.write_text(f'{settings}\nidentity = "{name}"\nrevocations = "revoked.pem"\n', encoding="utf-8")
        command = [sys.executable, "-m", "dpspca", role.value, "start", "--config", str(config)]
        with (self.folder / f"{name}.log").open("w") as log:
            told = subprocess.PIPE if role is Role.COORDINATOR else log
            # A group of its own: the keys that interrupt this process are not for it, it is ended below.
            process = subprocess.Popen(command, stdout=log, stderr=told, text=True, process_group=0)  # noqa: S603
        self.running.append(process)
        return process

    def end(self) -> None:
        """End every process that was started: politely, then surely."""
        try:
            for process in self.running:
                process.terminate()
            for process in self.running:
                process.wait(GRACE)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in self.running:
                process.kill()
                process.communicate()


@contextmanager
def federation(shards: Mapping[str, FloatArray], columns: Sequence[str] | None = None) -> Iterator[Loopback]:
    """Run a coordinator, and a provider for every shard."""
    with _told_to_stop(), tempfile.TemporaryDirectory(prefix="dpspca-demo-") as place:
        folder = Path(place)
        parties = _Parties(folder, Authority.init(folder / "authority", FEDERATION, lambda: datetime.now(UTC)))
        try:
            yield _begin(parties, shards, columns)
        finally:
            parties.end()


def _begin(parties: _Parties, shards: Mapping[str, FloatArray], columns: Sequence[str] | None) -> Loopback:
    """Start all parties; the coordinator loads while the shards are written."""
    parties.enrol(Role.COORDINATOR, COORDINATOR)
    (parties.folder / "revoked.pem").write_bytes(parties.authority.revocation_list())
    coordinator = parties.start(Role.COORDINATOR, COORDINATOR, f'listen = "{LISTEN}"')
    files = {name: _write(parties.folder / name, rows, columns) for name, rows in shards.items()}
    for name in files:
        parties.enrol(Role.PROVIDER, name)
    analyst = parties.enrol(Role.ANALYST, ANALYST)
    address = _address(coordinator)
    for name, file in files.items():
        offered = f'coordinator = "{address}"\ndata_sets = {{ {DATA_SET} = {json.dumps(file.name)} }}'
        parties.start(Role.PROVIDER, name, offered)
    return Loopback(address, analyst)


def _write(stem: Path, rows: FloatArray, columns: Sequence[str] | None) -> Path:
    """Write a provider's rows: as text where the columns have names, which the other form cannot hold."""
    if columns is None:
        path = stem.with_suffix(".npy")
        np.save(path, rows)
        return path
    path = stem.with_suffix(".csv")
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows.tolist()])
    return path


def _address(coordinator: Process) -> str:
    """Wait until the coordinator listens; its first line ends in where."""
    assert coordinator.stderr is not None
    line = coordinator.stderr.readline().strip()
    _, said, address = line.rpartition("listening on ")
    if not said:
        raise PartyLostError(f"The coordinator did not start: {line or 'it said nothing'}.", "See what it says.")
    return address


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
