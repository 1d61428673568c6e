"""A federation of real processes for tests of commands: a folder of settings and rows, and running daemons."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from local_federation import Enrolment, permissive_policy
from timeouts import TIMEOUT

from dpspca.common.names import Role

COMMAND = [sys.executable, "-m", "dpspca"]
ROWS = np.random.default_rng(0).standard_normal((4000, 20)) * np.r_[5, 4, np.ones(18)]
NAMES = [f"gene {number}" for number in range(20)]


@contextmanager
def started(folder: Path, *words: str, until: str) -> Iterator[str]:
    """Start a daemon, wait for a line of its log and yield it. Stop the daemon at the end."""
    process = subprocess.Popen([*COMMAND, *words], cwd=folder, stderr=subprocess.PIPE, text=True)  # noqa: S603  # our own program
    assert process.stderr is not None
    try:
        yield next(line for line in process.stderr if until in line)
    finally:
        process.terminate()
        rest = process.communicate(timeout=TIMEOUT)[1]
        assert process.returncode == 0, rest
        assert "stopped" in rest


def write_rows(folder: Path) -> None:
    for name, rows in zip(("north", "south"), np.array_split(ROWS, 2), strict=True):
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=",".join(NAMES), comments="")


def write_settings(folder: Path, address: str) -> None:
    common = f'coordinator = "{address}"\n'
    (folder / "policy.toml").write_text(permissive_policy("row-replace-one"))
    (folder / "ada.toml").write_text(f'{common}identity = "analyst-ada"\n')
    for name in ("north", "south", "west"):
        rows = "north" if name == "west" else name
        (folder / f"{name}.toml").write_text(
            f'{common}identity = "provider-{name}"\nrevocations = "revoked.pem"\npolicy = "policy.toml"\n'
            f'ledger = "{name}-ledger/ledger.db"\n[data_sets]\ncohort = "{rows}.csv"\n'
        )


@contextmanager
def live_parties(folder: Path) -> Iterator[None]:
    """Run a federation in a folder. The provider west has an identity but does not run."""
    found = Enrolment.create(folder)
    for role, name in ((Role.COORDINATOR, "hub"), (Role.ANALYST, "ada")):
        found.identity(role, name)
    for name in ("north", "south", "west"):
        found.identity(Role.PROVIDER, name)
    (folder / "revoked.pem").write_bytes(found.authority.revocation_list())
    hub = 'listen = "127.0.0.1:0"\nidentity = "coordinator-hub"\nrevocations = "revoked.pem"\n'
    (folder / "hub.toml").write_text(hub)
    write_rows(folder)
    logged = ("--log-format", "json")
    with ExitStack() as stack:
        line = stack.enter_context(
            started(folder, "coordinator", "start", "--config", "hub.toml", *logged, until="listening")
        )
        address = json.loads(line)["message"].split()[-1]
        (folder / "hub-up.toml").write_text(hub.replace("127.0.0.1:0", address))
        write_settings(folder, address)
        for name in ("north", "south"):
            words = ("provider", "start", "--config", f"{name}.toml")
            stack.enter_context(started(folder, *words, until="Connected"))
        yield
