"""The package loads on systems without POSIX modules, and the parts for daemons say what they need."""

import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = """
import asyncio, os, signal, sys
for module in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[module] = None
for name in (
    "geteuid", "getuid", "getgid", "fchmod", "fork", "killpg", "setsid", "sysconf", "pread", "sched_getaffinity",
    "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC",
):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGPIPE", "pthread_sigmask"):
    delattr(signal, name)
del asyncio.SelectorEventLoop.add_signal_handler
"""
ANALYST = """
import warnings
import numpy as np
from dpspca import DPSPCA, AsyncFederation, Federation, Budget, load_model, save_model
import dpspca.cli.app
warnings.simplefilter("ignore")
rows = np.random.default_rng(1).normal(size=(500, 6))
pca = DPSPCA(n_components=2, epsilon=4, delta=1e-6, norm_bound=4.0, unit="row-replace-one", random_state=1)
model = pca.fit(rows).model_
save_model(model, "a.dpspca")
assert (load_model("a.dpspca").components == model.components).all()
"""
LOCKED = """
from pathlib import Path
from dpspca.common.storage import files, forbid_core_dumps
forbid_core_dumps()
files.create(Path("lock"), b"")
files.replace(Path("lock"), b"again")
assert files.read(Path("lock"), private=True) == b"again"
with files.exclusive_lock(Path("lock")):
    pass
"""


def ended(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", ELSEWHERE + code],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_the_client_works_without_posix_modules(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    done = ended(ANALYST, tmp_path)
    assert done.returncode == 0, done.stderr


def test_parts_that_need_file_locks_say_so(tmp_path: Path) -> None:
    done = ended(LOCKED, tmp_path)
    assert "UnsupportedSystemError" in done.stderr
    assert "POSIX" in done.stderr


COMMANDS = """
from dpspca.cli.app import run
for words in ("demo", "audit --runs 2", "coordinator start --config none.toml", "provider start --config none.toml"):
    sys.argv = ["dpspca", *words.split()]
    try:
        run()
    except SystemExit as ended:
        assert ended.code == 2, words
"""


@pytest.mark.slow
def test_commands_that_need_posix_say_so(tmp_path: Path) -> None:
    done = ended(COMMANDS, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("POSIX") == 4
