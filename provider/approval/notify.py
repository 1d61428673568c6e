"""Runs the steward's own command for each job that begins to wait for approval.

The command runs without a shell, with a small environment, in a session of its own, for a limited time. It gets the
job's identifier, data set and analyst in its environment, and a summary as JSON on its standard input. Failures are
logged. Nothing waits for it: commands run one after the other in a thread of their own.

A notification counts as made when the command has ended, however it ended. One that was pending or running when the
daemon stopped is made again after its start. So the command runs at least once for each job.
"""

import json
import logging
import os
import queue
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final

from dpspca.common.text import printable

MOST_PENDING: Final = 64
"""Notifications that wait for the command. Further ones are tried again later."""
_PASSED_ON: Final = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
_SHOWN: Final = 300
"""Characters of the command's output that are logged if it fails."""

_log = logging.getLogger(__name__)


class Notifier:
    """Runs one command, given as a program and its arguments. Without a program, it does nothing."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = list(command)
        self._seconds = seconds
        self._pending: queue.Queue[tuple[Mapping[str, Any], Callable[[], None]]] = queue.Queue(MOST_PENDING)
        self._thread: Thread | None = None

    @property
    def is_full(self) -> bool:
        """Whether too many notifications are pending for a further one."""
        return self._pending.full()

    def notify(self, summary: Mapping[str, Any], on_end: Callable[[], None]) -> None:
        """Have the command run soon, and call ``on_end`` when it has ended. One thread at a time may call this.

        Do not call it while ``is_full``.
        """
        if not self._command:
            on_end()
            return
        self._pending.put_nowait((summary, on_end))
        if self._thread is None:
            self._thread = Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            summary, on_end = self._pending.get()
            try:
                try:
                    self.run(summary)
                finally:
                    on_end()
            except Exception:  # noqa: BLE001  # whatever a command can set off
                _log.exception("Notifying about job %.12s failed because of a bug.", summary["job"])

    def run(self, summary: Mapping[str, Any]) -> None:
        """Run the command, and log how it failed if it did."""
        variables = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        variables |= {f"DPSPCA_{name.upper()}": str(summary[name]) for name in ("job", "data_set", "analyst")}
        content = json.dumps(summary).encode()  # in ASCII, because a name may hold half a character
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(  # noqa: S603  # the operator names the command in the settings
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    env=variables,
                    start_new_session=True,
                )
            except OSError as problem:
                _log.error("No notification about job %.12s: %s", summary["job"], problem)
                return
            try:
                process.communicate(content, self._seconds)
            except subprocess.TimeoutExpired:
                _end(process)
                _log.error("Notifying about job %.12s was stopped after %g seconds.", summary["job"], self._seconds)
                return
            if process.returncode:
                output.seek(0)
                shown = printable(output.read(_SHOWN).decode("utf-8", "replace"))
                _log.error(
                    "Notifying about job %.12s failed: the command ended with %d. %s",
                    summary["job"],
                    process.returncode,
                    shown,
                )


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a command with everything that it started in its session."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    if process.stdin:
        with suppress(OSError):
            process.stdin.close()
    process.wait()
