"""Runs pytest in forks of a process that has loaded what all tests need: loading takes a second or two, a fork no time.

``ForkServers`` is for the process that has tests to run. Each of its threads may run some at the same time: there are
as many serving processes. Run as a program, this module is such a process. It reads a line of JSON for each run, forks,
and writes a line with how pytest ended, or null if it did not in time.

A fork is like ``python -m pytest`` with other variables, in another folder, and with that folder's package. So nothing
is loaded before that belongs to the project. gRPC is not loaded either: the package sets which ciphers it may use, and
it reads that when it is loaded. A process with threads cannot be forked safely, so there are none.
"""

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import pytest

LOADED: Final = (
    *("cryptography.hazmat.primitives.asymmetric.ec", "cryptography.x509", "google.protobuf.message", "sqlite3"),
    *("hypothesis.strategies", "numpy.typing"),
    *("scipy.optimize", "scipy.sparse.linalg", "scipy.spatial", "scipy.special"),
)
"""What most tests, and the project, load from other packages."""
ABSENT: Final = ("dpspca", "grpc")
EARLY: Final = {"OPENBLAS_NUM_THREADS": "1", "SCIPY_ARRAY_API": "1"}
"""Variables that ``tests/conftest.py`` sets before numpy and scipy are loaded."""
UNUSABLE: Final = 3
"""The exit code of pytest after an error of its own."""
PAUSE: Final = 0.01
"""Seconds between two looks at whether a fork has ended."""


class ForkServers:
    """Processes that run pytest. Each starts when first needed, and all end with the ``with`` block."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = {**EARLY, **variables}
        self._idle = queue.SimpleQueue[subprocess.Popen[str]]()
        self._started = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._started.close()

    def run(
        self, folder: Path, words: Sequence[str], variables: Mapping[str, str], seconds: float
    ) -> tuple[int | None, str]:
        """Run pytest in a folder: its exit code, or None if it was ended because its time was over, and its output."""
        with tempfile.NamedTemporaryFile() as output:
            asked = [str(folder), list(words), dict(variables), output.name, seconds]
            server = self._free()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(asked) + "\n")
            server.stdin.flush()
            reply = server.stdout.readline()
            if not reply:
                raise RuntimeError(f"The process that forks ended with the code {server.wait()}.")
            self._idle.put(server)
            return json.loads(reply), output.read().decode(errors="replace")

    def _free(self) -> subprocess.Popen[str]:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            return self._started.enter_context(
                subprocess.Popen([sys.executable, __file__], env=self._variables, **pipes)  # noqa: S603  # ourselves
            )


# --- Within a process that forks --------------------------------------------------------------------------------------


def main() -> None:
    """Load what tests need, and run pytest in a fork for each line, until there are no more lines."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.path.pop(0)  # this file's folder, which pytest as a program would not have
    _load()
    for line in requests:
        replies.write(json.dumps(_forked(json.loads(line), (requests, replies))) + "\n")
        replies.flush()


def _load() -> None:
    """Load pytest, its plugins and ``LOADED`` by running an empty test: pytest loads some in a way of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
        test, settings = Path(folder, "test_nothing.py"), Path(folder, "pytest.ini")
        test.write_text("".join(f"import {each}\n" for each in LOADED) + "def test_nothing(): pass\n", encoding="utf-8")
        settings.write_text("[pytest]\naddopts = --import-mode=importlib\n", encoding="utf-8")
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-c", str(settings), str(test)])
    assert code == 0, said.getvalue()
    assert not {name.partition(".")[0] for name in sys.modules} & {*ABSENT}, "it has to come from each copy"
    assert threading.active_count() == 1
    tasks = Path("/proc/self/task")  # also those that are not of Python
    assert not tasks.is_dir() or len(list(tasks.iterdir())) == 1
    gc.collect()
    gc.freeze()  # spare every fork the garbage collection of what is loaded


def _forked(asked: tuple[str, list[str], dict[str, str], str, float], ours: Sequence[IO[str]]) -> int | None:
    """Run pytest in a fork, and return its exit code; None if it has to be ended after so many seconds."""
    folder, words, variables, output, seconds = asked
    child = os.fork()
    if child == 0:
        code = UNUSABLE
        try:
            for each in ours:
                os.close(each.fileno())
            code = _tested(folder, words, variables, output)
        except BaseException:  # noqa: BLE001  # a fork must never go on as its parent
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # taking apart what it shares with its parent would take longer than most tests
    return _waited(child, time.monotonic() + seconds)


def _waited(child: int, end: float) -> int | None:
    ended = 0
    try:
        while time.monotonic() < end:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(PAUSE)
        return None
    finally:
        if not ended:  # its time is over, or this process was interrupted
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError):
                    kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _tested(folder: str, words: list[str], variables: dict[str, str], output: str) -> int:
    """Set this process up as if it had been started as pytest in a folder, and be pytest."""
    os.setsid()  # so that what tests start can be ended with it
    written = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path[:0] = [folder, *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = ["pytest", *words]
    importlib.invalidate_caches()
    random.seed()
    importlib.import_module("hypothesis.configuration").set_hypothesis_home_dir(Path(folder, ".hypothesis"))
    code = int(pytest.main(words))
    threading._shutdown()  # type: ignore[attr-defined]  # wait for what would also keep a program from ending
    atexit._run_exitfuncs()
    return code


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # an interrupt from a terminal reaches all processes
        main()
