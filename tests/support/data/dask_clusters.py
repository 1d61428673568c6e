"""A real Dask cluster on this machine: a scheduler and worker processes, which speak TLS with one another."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from coordinator_processes import free_port
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from timeouts import TIMEOUT

SOURCE = Path(__file__).parents[3] / "src"


def write_certificates(folder: Path) -> None:
    """Write an authority (ca.pem), and certificates with keys of the cluster and of a provider."""
    now, own = datetime.now(UTC), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a cluster's authority")])

    def signed(subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_authority: bool) -> x509.Certificate:
        made = x509.CertificateBuilder(name, subject, key, x509.random_serial_number())
        made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        made = made.add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(own.public_key())
        return made.add_extension(issuer, critical=False).sign(own, hashes.SHA256())

    def write(path: Path, content: bytes) -> None:
        path.touch(mode=0o600)
        path.write_bytes(content)

    pem = serialization.Encoding.PEM
    write(folder / "ca.pem", signed(name, own.public_key(), is_authority=True).public_bytes(pem))
    for party in ("cluster", "provider"):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
        write(folder / f"{party}.pem", signed(subject, key.public_key(), is_authority=False).public_bytes(pem))
        form = serialization.PrivateFormat.PKCS8
        write(folder / f"{party}-key.pem", key.private_bytes(pem, form, serialization.NoEncryption()))


@dataclass
class DaskProcesses:
    """A scheduler and its workers."""

    folder: Path
    port: int
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"tls://127.0.0.1:{self.port}"

    @property
    def settings(self) -> str:
        """The table of a provider's settings."""
        names = {"ca": "ca.pem", "cert": "provider.pem", "key": "provider-key.pem"}
        files = "".join(f'{key} = "{self.folder / name}"\n' for key, name in names.items())
        return f'engine = "dask"\nscheduler = "{self.address}"\n{files}'

    @property
    def workers(self) -> list["subprocess.Popen[bytes]"]:
        return self.processes[1:]

    def start(self, *command: str, env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
        own = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            made = subprocess.Popen(  # noqa: S603  # of Dask
                [sys.executable, "-m", *command, *self._tls],
                env=own | {"PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "ignore"} | (env or {}),
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self.processes.append(made)
        return made

    def start_worker(self, env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
        """Start a worker of one process and one thread, which nobody starts again if it is killed."""
        return self.start(
            "distributed.cli.dask_worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--local-directory", str(self.folder), "--death-timeout", "60", env=env,
        )  # fmt: skip

    @property
    def _tls(self) -> list[str]:
        names = {"--tls-ca-file": "ca.pem", "--tls-cert": "cluster.pem", "--tls-key": "cluster-key.pem"}
        return [word for key, name in names.items() for word in (key, str(self.folder / name))]

    def end(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGKILL)
            process.wait()


@contextmanager
def dask_cluster(folder: Path, workers: int = 2) -> Iterator[DaskProcesses]:
    """Run a cluster until the block ends."""
    folder.mkdir(exist_ok=True)
    write_certificates(folder)
    cluster = DaskProcesses(folder, free_port())
    try:
        cluster.start(
            "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(cluster.port), "--protocol", "tls",
            "--no-dashboard", "--no-show", "--no-jupyter",
        )  # fmt: skip
        _listens(cluster)
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        cluster.end()


def _listens(cluster: DaskProcesses) -> None:
    until = time.monotonic() + TIMEOUT
    while True:
        assert cluster.processes[0].poll() is None, (cluster.folder / "0.log").read_text(encoding="utf-8")
        assert time.monotonic() < until
        try:
            socket.create_connection(("127.0.0.1", cluster.port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
