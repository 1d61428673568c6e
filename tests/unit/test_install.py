"""The package loads on systems without POSIX modules, and the parts for daemons say what they need."""

import subprocess
import sys

import pytest

ELSEWHERE = """
import os, sys
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("geteuid", "getuid", "fchmod", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY"):
    delattr(os, name)
"""
ANALYST = """
import warnings
import numpy as np
from dpspca import DPSPCA, AsyncFederation, Federation, Budget, load_model, save_model
import dpspca.cli.app
warnings.simplefilter("ignore")
rows = np.random.default_rng(1).normal(size=(500, 6))
pca = DPSPCA(n_components=2, epsilon=4, delta=1e-6, norm_bound=4.0, unit="replace-one", random_state=1)
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


def ended(code: str, folder: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", ELSEWHERE + code],
        cwd=str(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_the_client_works_without_posix_modules(tmp_path: object) -> None:
    pytest.importorskip("sklearn")
    done = ended(ANALYST, tmp_path)
    assert done.returncode == 0, done.stderr


def test_parts_that_need_file_locks_say_so(tmp_path: object) -> None:
    done = ended(LOCKED, tmp_path)
    assert "UnsupportedSystemError" in done.stderr
    assert "POSIX" in done.stderr
