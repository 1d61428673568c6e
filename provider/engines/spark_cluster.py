"""A cluster of Spark: executors, which this process's driver gives tasks to.

What is sent to executors is one function of this package with messages that hold no object (``messages.py``). Replies
come back through Arrow and the Java process beside this one. The secret that protects connections is given to that
process when it runs, so that it appears in no list of processes.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Final
from uuid import uuid4

from dpspca.common.errors import DpspcaError
from dpspca.common.storage import EngineSettings, files
from dpspca.provider.data import import_extra

from .task_sender import ClusterProblemError, reason
from .worker import work

TASKS_A_PROCESSOR: Final = 4
_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
_LOST: Final = "Look at the logs of its executors, whose Python (spark.pyspark.python) needs dpspca and pyarrow."
_PYTHON: Final = "spark.pyspark.python"
_APPLICATION: Final = "dpspca provider"

_log = logging.getLogger(__name__)


class OnExecutors:
    """The function that executors apply to the messages whose places Spark gives them."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self._messages = list(messages)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Work on messages, one after the other."""
        arrow = import_extra("pyarrow")
        for batch in batches:
            for place in batch.column(0).to_pylist():
                reply = arrow.array([work(self._messages[place])], arrow.binary())
                yield arrow.RecordBatch.from_arrays([reply], ["reply"])


class SparkCluster:
    """Starts a driver when it is first asked, and again if it was lost. A process has one driver at most."""

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.master is not None  # which settings without it are refused for
        self._settings = settings
        self._master = settings.master
        self._session: Any = None
        self._connecting = Lock()

    @property
    def name(self) -> str:
        """The master's address."""
        return f"the Spark cluster at {self._master}"

    def tasks(self) -> int:
        """Return in how many tasks a pass is divided at most."""
        if self._settings.tasks is not None:
            return self._settings.tasks
        return TASKS_A_PROCESSOR * int(self._connected().sparkContext.defaultParallelism)

    def run(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Have executors do tasks. Spark gives one whose executor is lost to another executor."""
        session, group = self._connected(), uuid4().hex
        with ThreadPoolExecutor(1, thread_name_prefix="spark") as pool:
            asked = pool.submit(_collected, session, group, messages)
            try:
                replies = asked.result(self._settings.seconds)
            except TimeoutError:
                session.sparkContext.cancelJobGroup(group)
                raise ClusterProblemError(
                    f"{self.name} did not finish a pass within {self._settings.seconds} seconds.",
                    "Look at its executors, or raise seconds under [engines] in the provider's settings.",
                ) from None
            except DpspcaError:
                raise
            except Exception as problem:  # noqa: BLE001  # of Java or of a socket
                raise ClusterProblemError(f"{self.name} lost a pass: {reason(problem)}.", _LOST) from None
        yield from replies

    def _connected(self) -> Any:  # noqa: ANN401  # a session of Spark
        with self._connecting:
            if self._session is None or self._session.sparkContext._jsc is None:  # noqa: SLF001  # None once it stopped
                self._session = self._connect()
            return self._session

    def _connect(self) -> Any:  # noqa: ANN401  # a session of Spark
        spark, sql = import_extra("pyspark"), import_extra("pyspark.sql")
        import_extra("pyarrow")
        import_extra("pandas")  # which Spark asks for
        if spark.SparkContext._active_spark_context is not None:  # noqa: SLF001  # it has no public name
            raise ClusterProblemError(
                "This process already uses another Spark cluster.", "Give all data sets of a provider the same engine."
            )
        secret = None if self._settings.secret is None else _secret(self._settings.secret)
        plain = spark.SparkConf(loadDefaults=False).setAll((_QUIET | dict(self._settings.conf)).items())
        try:
            known = spark.SparkContext._gateway  # noqa: SLF001  # a process has one Java process at most
            gateway = known or import_extra("pyspark.java_gateway").launch_gateway(plain)
            conf = spark.SparkConf(_jvm=gateway.jvm).setAll(plain.getAll()).setAll(_protection(secret).items())
            context = spark.SparkContext(self._master, _APPLICATION, conf=conf, gateway=gateway)
        except Exception as problem:  # noqa: BLE001  # of Java, or because there is none
            raise ClusterProblemError(
                f"{self.name} cannot be reached: {reason(problem)}.",
                "See that the master runs, and that Java is installed here (JAVA_HOME).",
            ) from None
        context.pythonExec = self._settings.conf.get(_PYTHON, context.pythonExec)
        _log.info("Reached %s.", self.name)
        return sql.SparkSession(context)


def _secret(path: Path) -> str:
    """Read the secret, from a file that only this user can read."""
    return files.read(path, private=True).decode("ascii", "replace").strip()


def _protection(secret: str | None) -> dict[str, str]:
    """Encrypt everything that processes of the cluster send each other, by the secret that they share."""
    if secret is None:
        return {}
    return {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
        "spark.network.crypto.saslFallback": "false",
    }


def _collected(session: Any, group: str, messages: Sequence[bytes]) -> list[bytes]:  # noqa: ANN401  # of Spark
    """Run one job with a task for each message."""
    session.sparkContext.setJobGroup(group, "a pass over rows", interruptOnCancel=True)
    places = session.range(0, len(messages), 1, len(messages))
    found: list[bytes] = places.mapInArrow(OnExecutors(messages), "reply binary").toArrow().column(0).to_pylist()
    return found
