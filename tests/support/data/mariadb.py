"""A real MariaDB server for tests, on a socket in a temporary folder."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pymysql
import pytest
from timeouts import TIMEOUT

OWNER = "mysql"
STANDARD = "SET SESSION sql_mode = 'ANSI_QUOTES'"  # names in double quotes, as in the other databases of tests


@dataclass
class MariaServer:
    """A running server."""

    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def database(self, *statements: str) -> str:
        """Create a database with what these statements make, and return its address for SQLAlchemy."""
        name = f"rows_{next(self.numbers)}"
        with pymysql.connect(user="root", unix_socket=str(self.folder / "socket"), autocommit=True) as connection:
            for statement in (f"CREATE DATABASE {name} CHARACTER SET utf8mb4", f"USE {name}", STANDARD, *statements):
                connection.cursor().execute(statement)
        return f"mysql+pymysql://root@/{name}?unix_socket={self.folder / 'socket'}"

    def end_sessions(self) -> None:
        """End every session but the one that does this."""
        with pymysql.connect(user="root", unix_socket=str(self.folder / "socket"), autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'root'"
            )
            for (number,) in cursor.fetchall():
                cursor.execute(f"KILL {number}")


def program(name: str) -> str:
    """Return the path of a MariaDB program, or skip the test."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip(f"MariaDB's {name} is not installed (Debian: apt-get install mariadb-server)")
    return found


@contextmanager
def server() -> Iterator[MariaServer]:
    """Create a server, start it, and remove it at the end. If root starts it, it becomes another user."""
    install, daemon = program("mariadb-install-db"), program("mariadbd")
    folder = Path(tempfile.mkdtemp(prefix="dpspca-"))
    who = [f"--user={OWNER}"] if os.geteuid() == 0 else []
    if who:
        shutil.chown(folder, OWNER)
    common = ["--no-defaults", f"--datadir={folder / 'data'}", *who]
    try:
        made = subprocess.run(  # noqa: S603  # its program
            [install, *common, "--auth-root-authentication-method=normal", "--skip-test-db"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stdout + made.stderr
        process = subprocess.Popen(  # noqa: S603  # its program
            [daemon, *common, f"--socket={folder / 'socket'}", "--skip-networking", f"--pid-file={folder / 'pid'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await(process, folder / "socket")
            yield MariaServer(folder)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(TIMEOUT)
    finally:
        shutil.rmtree(folder)


def _await(process: "subprocess.Popen[bytes]", address: Path) -> None:
    """Wait until the server listens. pymysql would leave a socket open at each failure."""
    end = time.monotonic() + TIMEOUT
    while True:
        assert process.poll() is None, "the server ended"
        with socket.socket(socket.AF_UNIX) as trial, suppress(OSError):
            trial.connect(str(address))
            return
        assert time.monotonic() < end, "the server did not start"
        time.sleep(0.05)
