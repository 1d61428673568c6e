"""A real PostgreSQL server for tests, on a socket in a temporary folder."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from timeouts import TIMEOUT

OWNER = "postgres"


@dataclass
class Server:
    """A running server."""

    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql:///{database}?host={self.folder}&user={OWNER}"

    def database(self) -> str:
        """Create a database and return its address."""
        name = f"journal_{next(self.numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as the server's administrator."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def end_sessions(self) -> None:
        """End every other session, as an administrator would to take the journal away from a coordinator."""
        self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname <> ''"
        )


def program(name: str) -> str:
    """Return the path of a PostgreSQL program, or skip the test."""
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        pytest.skip(f"PostgreSQL's {name} is not installed (Debian: apt-get install postgresql)")
    return found


@contextmanager
def server() -> Iterator[Server]:
    """Create a cluster, start it, and remove it at the end. It cannot run as root; root starts it as another user."""
    initdb, postgres = program("initdb"), program("postgres")
    folder = Path(tempfile.mkdtemp(prefix="dpspca-"))
    who: list[str] = []
    if os.geteuid() == 0:
        there = pwd.getpwnam(OWNER)
        os.chown(folder, there.pw_uid, there.pw_gid)
        # A program changes the user. Popen(user=...) would fork this whole process, and gRPC's fork handlers crash in
        # the child while other threads call into gRPC.
        who = ["setpriv", f"--reuid={there.pw_uid}", f"--regid={there.pw_gid}", "--clear-groups"]
    try:
        _quietly([*who, initdb, "-D", str(folder / "data"), "-U", OWNER, "-A", "trust", "-E", "UTF8", "-N"])
        with _running(
            [*who, postgres, "-D", str(folder / "data"), "-k", str(folder), "-c", "listen_addresses="], folder
        ):
            yield Server(folder)
    finally:
        shutil.rmtree(folder)


def _quietly(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)  # noqa: S603  # its programs
    assert done.returncode == 0, done.stderr


@contextmanager
def _running(command: Sequence[str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen(command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603  # its programs
    try:
        _wait_for(Server(folder), process)
        yield
    finally:
        process.send_signal(signal.SIGQUIT)  # at once, because nobody reads what it holds any more
        process.wait(TIMEOUT)


def _wait_for(there: Server, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            there.run("SELECT 1")
        except psycopg.OperationalError:
            assert process.poll() is None, "PostgreSQL ended"
            assert time.monotonic() < until, "PostgreSQL did not start"
            time.sleep(0.05)
        else:
            return
