"""A real Spark cluster on this machine: a master, workers and their executors, which authenticate and encrypt."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex

from coordinator_processes import free_port

SOURCE = Path(__file__).parents[3] / "src"
START_SECONDS = 120
MISSING = (
    "pyspark is not installed"
    if find_spec("pyspark") is None
    else "Java is not installed: apt-get install default-jre-headless"
    if shutil.which("java") is None
    else ""
)
"""Why there can be no Spark here."""


@dataclass
class SparkProcesses:
    """A master and its workers. Each worker starts an executor for an application."""

    folder: Path
    port: int
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def secret(self) -> Path:
        return self.folder / "secret"

    @property
    def conf(self) -> dict[str, str]:
        """What an application needs besides: small executors, which run the Python of the tests."""
        return {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.pyspark.python": sys.executable,
            "spark.executorEnv.PYTHONPATH": str(SOURCE),
            "spark.executorEnv.PYTHONWARNINGS": "ignore",
        }

    @property
    def settings(self) -> str:
        """The table of a provider's settings."""
        conf = ", ".join(f'"{key}" = "{value}"' for key, value in self.conf.items())
        return f'engine = "spark"\nmaster = "{self.master}"\nsecret = "{self.secret}"\nconf = {{ {conf} }}\n'

    def start(self, kind: str, *arguments: str) -> None:
        from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415  # only where there is Spark

        home = Path(_find_spark_home())
        own = {key: value for key, value in os.environ.items() if not key.startswith("SPARK")}
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            made = subprocess.Popen(  # noqa: S603  # of Spark
                [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *arguments],
                env=own
                | {
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_CONF_DIR": str(self.folder / "conf"),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_LOCAL_HOSTNAME": "localhost",
                    "SPARK_WORKER_DIR": str(self.folder / "work"),
                },
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        self.processes.append(made)

    def executors(self) -> list[int]:
        """Return the process numbers of the executors that run now."""
        found = []
        for status in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = status.read_bytes().split(b"\0")
            except OSError:  # it ended in the meantime
                continue
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and any(
                str(self.port).encode() in word or str(self.folder).encode() in word for word in words
            ):
                found.append(int(status.parent.name))
        return found

    def end(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)  # a worker ends its executors
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkProcesses]:
    """Run a cluster until the block ends."""
    folder.mkdir(exist_ok=True)
    cluster = SparkProcesses(folder, free_port())
    cluster.secret.touch(mode=0o600)
    secret = token_hex(16)
    cluster.secret.write_text(secret, encoding="ascii")
    defaults = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
    }
    (folder / "conf").mkdir()
    told = "".join(f"{key} {value}\n" for key, value in defaults.items())
    (folder / "conf" / "spark-defaults.conf").write_text(told, encoding="ascii")
    try:
        cluster.start("master.Master", "--host", "127.0.0.1", "--port", str(cluster.port), "--webui-port", "0")
        _says(cluster, 0, "New state: ALIVE")
        for number in range(1, workers + 1):
            cluster.start(
                "worker.Worker",
                cluster.master,
                "--host",
                "127.0.0.1",
                "--cores",
                "1",
                "--memory",
                "600m",
                "--webui-port",
                "0",
            )
            _says(cluster, number, "Successfully registered")
        yield cluster
    finally:
        cluster.end()


def _says(cluster: SparkProcesses, number: int, words: str) -> None:
    until, log = time.monotonic() + START_SECONDS, cluster.folder / f"{number}.log"
    while words not in (said := log.read_text(encoding="utf-8")):
        assert cluster.processes[number].poll() is None, said
        assert time.monotonic() < until, said
        time.sleep(0.2)
