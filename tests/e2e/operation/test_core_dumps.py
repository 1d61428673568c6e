"""A crashed daemon writes no core file, because rows, keys and noise would be in it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from coordinator_processes import free_port
from daemons import Daemons, Process, daemons
from local_federation import permissive_policy
from timeouts import TIMEOUT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGQUIT)
ROWS = {"north": {"cohort": np.eye(3)}}
TOLD = """
import atexit, ctypes
atexit.register(lambda: print("dumpable", ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), flush=True))
from dpspca.cli.main import main
main()
"""
"""The program, which says at its end whether its memory can be dumped."""


UNLIMITED = """
import os, resource, signal, sys
for number in (signal.SIGABRT, signal.SIGSEGV, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
_, most = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (most, most))
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Becomes another program, which may leave cores of any size and may crash: in the background some may not."""
IDLE = "import sys, time; print('up', file=sys.stderr, flush=True); time.sleep(600)"


def start_program(command: Sequence[str], folder: Path, ready: str) -> subprocess.Popen[bytes]:
    """Start a program, and wait for a line of its log."""
    folder.mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", UNLIMITED, *command], cwd=folder, stderr=log)  # noqa: S603  # ours
    deadline = time.monotonic() + TIMEOUT
    while ready not in (message := (folder / "log").read_text(encoding="utf-8")):
        assert process.poll() is None, message
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


def crash_dumps_core(process: subprocess.Popen[bytes], how: signal.Signals) -> bool:
    """Crash a process, and return whether the system dumped its memory."""
    os.kill(process.pid, how)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = -how
    assert os.WTERMSIG(status) == how
    return os.WCOREDUMP(status)


async def run_once(folder: Path) -> list[Process]:
    """Run a federation once and stop it. Return its processes."""
    async with daemons(folder, f"127.0.0.1:{free_port()}", permissive_policy(), ROWS) as running:
        assert isinstance(running, Daemons)
        return running.everybody


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize(
    "how", [each if each is signal.SIGSEGV else pytest.param(each, marks=pytest.mark.nightly) for each in CRASHES]
)
def test_a_crashed_daemon_leaves_no_core_file(how: signal.Signals, tmp_path: Path) -> None:
    other = start_program([sys.executable, "-c", IDLE], tmp_path / "other", "up")
    dumps_elsewhere = crash_dumps_core(other, how)
    for each in asyncio.run(run_once(tmp_path / "town")):
        folder = tmp_path / each.name
        process = start_program(each._command, folder, each._ready)
        try:
            limits = Path(f"/proc/{process.pid}/limits").read_text(encoding="ascii")
            assert any(line.split()[4:6] == ["0", "0"] for line in limits.splitlines() if "Max core file" in line)
            assert not crash_dumps_core(process, how)
            assert not [name for name in os.listdir(folder) if "core" in name]  # noqa: PTH208
        finally:
            with suppress(ProcessLookupError):
                process.kill()
    if not dumps_elsewhere:
        pytest.skip("this machine dumps no program's memory, so that a daemon's was not shows nothing")


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize("words", [["--version"], ["methods"], ["provider", "start", "--config", "none.toml"]])
def test_no_command_can_be_dumped_or_traced(words: list[str], tmp_path: Path) -> None:
    """If a process cannot be dumped, Linux gives its folder in /proc to root."""
    command = [sys.executable, "-c", TOLD, *words]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)  # noqa: S603  # ours
    assert output.stdout.endswith(b"dumpable 0\n")
