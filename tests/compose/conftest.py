"""The container engine, and the image of dpspca.

Whoever has built the images can name one in DPSPCA_IMAGE; otherwise they are built first.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    # Asked by its own command, which the scripts need too: where nobody answers, the library leaves a socket open.
    command = shutil.which("docker")
    if not command or subprocess.run([command, "info"], capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("no container engine answers")
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def image(engine: Any) -> str:  # noqa: ARG001  # without an engine nothing is built
    """Build the images, unless an image is named."""
    if named := os.environ.get("DPSPCA_IMAGE"):
        return named
    build = DEPLOY.parent / "build"
    build.mkdir(exist_ok=True)
    with (build / "image.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([DEPLOY / "image", "dpspca"], check=True)  # noqa: S603  # our own script
    return "dpspca"
