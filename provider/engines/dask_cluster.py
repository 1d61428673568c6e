"""A cluster of Dask: a scheduler, and workers that it gives tasks to.

This provider sends only the name of one function, ``engines.work``, and messages that hold no object (``messages.py``).
The key of this provider's certificate stays in the file that settings name: it is used for the handshake alone. Dask
itself reads what its processes send with pickle, so anybody who controls the scheduler or a worker can run code here.
"""

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from threading import Lock
from typing import Any, Final
from uuid import uuid4

from dpspca.common.storage import EngineSettings
from dpspca.provider.data import import_extra

from .task_sender import ClusterProblemError, reason
from .worker import work

CONNECT_SECONDS: Final = 20.0
WORKER_SECONDS: Final = 60.0
"""How long to wait for the first worker of a cluster that has none."""
TASKS_A_PROCESSOR: Final = 4
"""So that a processor that is done early takes work from one that is late."""

_log = logging.getLogger(__name__)


class DaskCluster:
    """Connects when it is first asked, and again if the connection was lost."""

    def __init__(self, settings: EngineSettings) -> None:
        assert settings.scheduler is not None  # which settings without it are refused for
        self._settings = settings
        self._address = settings.scheduler
        self._client: Any = None
        self._connecting = Lock()

    @property
    def name(self) -> str:
        """The scheduler's address."""
        return f"the Dask cluster at {self._address}"

    def tasks(self) -> int:
        """Return in how many tasks a pass is divided at most."""
        if self._settings.tasks is not None:
            return self._settings.tasks
        return TASKS_A_PROCESSOR * sum(self._processors().values())

    def run(self, messages: Sequence[bytes]) -> Iterator[bytes]:
        """Have workers do tasks. The scheduler gives one whose worker is lost to another worker."""
        distributed, client = import_extra("distributed"), self._connected()
        self._processors()
        run = uuid4().hex  # so that no task is taken for an earlier one, whose result the scheduler may still have
        futures = [
            client.submit(work, message, key=f"dpspca-{run}-{place}", pure=False)
            for place, message in enumerate(messages)
        ]
        try:
            done = distributed.as_completed(
                futures, loop=client.loop, with_results=True, timeout=self._settings.seconds
            )
            yield from (reply for _, reply in done)
        except distributed.TimeoutError:
            raise ClusterProblemError(
                f"{self.name} did not finish a pass within {self._settings.seconds} seconds.",
                "Look at its workers, or raise seconds under [engines] in the provider's settings.",
            ) from None
        except (Exception, CancelledError) as problem:  # noqa: BLE001  # of Dask, or of a worker that lacks a package
            raise ClusterProblemError(
                f"{self.name} lost a pass: {reason(problem)}.",
                "Look at the logs of its scheduler and workers: they may have run out of memory, or lack dpspca.",
            ) from None
        finally:
            client.cancel(futures, force=True)

    def _processors(self) -> dict[str, int]:
        """Return the number of threads of each worker. Wait a while for the first."""
        client = self._connected()
        found: dict[str, int] = dict(client.nthreads())
        if not found:
            try:
                client.wait_for_workers(1, timeout=WORKER_SECONDS)
            except TimeoutError:
                raise ClusterProblemError(
                    f"{self.name} has no worker.", "Start a worker, and see that it reaches the scheduler."
                ) from None
            found = dict(client.nthreads())
        return found

    def _connected(self) -> Any:  # noqa: ANN401  # a client of Dask
        with self._connecting:
            if self._client is None or self._client.status != "running":
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:  # noqa: ANN401  # a client of Dask
        distributed, settings = import_extra("distributed"), self._settings
        security = None
        if self._address.startswith("tls://"):
            security = distributed.Security(
                tls_ca_file=str(settings.ca),
                tls_client_cert=str(settings.cert),
                tls_client_key=str(settings.key),
                require_encryption=True,
            )
        try:
            client = distributed.Client(
                self._address, security=security, timeout=CONNECT_SECONDS, set_as_default=False, direct_to_workers=False
            )
        except (OSError, TimeoutError, ValueError) as problem:
            raise ClusterProblemError(
                f"{self.name} cannot be reached: {reason(problem)}.",
                "See that the scheduler runs and that its authority issued this provider's certificate for it.",
            ) from None
        _log.info("Reached %s.", self.name)
        return client
