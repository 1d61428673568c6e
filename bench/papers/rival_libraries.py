"""Runs PCA of other libraries, in an environment of their own: they need other versions of what we use.

diffprivlib and OpenDP are installed with every file pinned by its hash in ``rivals.txt`` (written by ``uv pip compile
--universal --generate-hashes rivals.in``). Each fit is a process, so that one that takes too long can be ended.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray

HERE: Final = Path(__file__).parent
ENVIRONMENT: Final = HERE.parents[1] / "build" / "rivals"
LOCK: Final = HERE / "rivals.txt"
WORKER: Final = HERE / "rival_worker.py"
LIMIT_SECONDS: Final = 600
RIVALS: Final = {"diffprivlib": "diffprivlib 0.6.6", "opendp": "OpenDP 0.16.0"}
OURS_ALONE: Final = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}


def environment() -> Path:
    """Make the environment once, and return its Python. ``OSError`` or ``SubprocessError`` if it cannot be made."""
    python = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
    ready = ENVIRONMENT / ".ready"
    if not (ready.exists() and ready.read_bytes() == LOCK.read_bytes()):
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
        _run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], LIMIT_SECONDS)
        _run([str(python), *install, "--require-hashes", "-r", str(LOCK)], LIMIT_SECONDS)
        ready.write_bytes(LOCK.read_bytes())
    return python


def fit(python: Path, rows: FloatArray, job: dict[str, Any], limit: int = LIMIT_SECONDS) -> tuple[FloatArray, float]:
    """Fit a library's PCA to rows, and return the components and the seconds that it took.

    ``job`` has the keys that ``rival_worker.py`` reads. ``TimeoutExpired`` if it takes longer than ``limit`` seconds.
    """
    with tempfile.TemporaryDirectory() as folder:
        asked, data = Path(folder) / "job.json", Path(folder) / "rows.npz"
        asked.write_text(json.dumps(job), encoding="utf-8")
        np.savez(data, rows=rows)
        answer = json.loads(_run([str(python), str(WORKER), str(asked), str(data)], limit))
    return np.array(answer["components"]), float(answer["seconds"])


def _run(command: list[str], limit: int) -> str:
    """Run one of our scripts, or pip, without this environment's paths."""
    kept = {name: value for name, value in os.environ.items() if name not in OURS_ALONE}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=limit, env=kept)  # noqa: S603
    return done.stdout
