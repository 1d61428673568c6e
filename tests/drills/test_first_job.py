"""Two organisations enrol, set up and run their first job, with the commands of docs/operations.md in its order."""

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_processes import free_port
from live import COMMAND, started
from timeouts import TIMEOUT

pytestmark = pytest.mark.slow
"""It starts several processes."""

STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:{address}"
mailbox = "127.0.0.1:{mailbox}"
providers = ["north"]
analysts = ["ada"]
"""
JOB = ("--components", "2", "--sparsity", "3", "--norm-bound", "4", "--unit", "add-remove")
PRICE = ("--epsilon", "2", "--delta", "1e-6")


def run(folder: Path, *words: str) -> str:
    done = subprocess.run([*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603  # our own program
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def join(university: Path, north: Path) -> None:
    """Have all parties join, and sign their requests when they are in the coordinator's mailbox."""
    invitations = university / "authority" / "invitations"
    asked = [
        (university, "coordinator-hub", ()),
        (north, "provider-north", ("--data-set", "cohort=rows.csv")),
        (university, "analyst-ada", ()),
    ]
    commands = [([*COMMAND, "join", str(invitations / f"{name}.invitation"), *more], at) for at, name, more in asked]
    joining = [subprocess.Popen(words, cwd=folder) for words, folder in commands]  # noqa: S603  # our own program
    try:
        deadline = time.monotonic() + TIMEOUT
        while len([*(university / "hub" / "mailbox").glob("*.request")]) < len(joining):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run(university, "study", "sign", "--yes")
        assert [each.wait(TIMEOUT) for each in joining] == [0, 0, 0]
    finally:
        for each in joining:
            each.kill()


def test_two_organisations_run_their_first_job(tmp_path: Path) -> None:
    university, north = tmp_path / "university", tmp_path / "north-hospital"
    for folder in (university, north):
        folder.mkdir()
    rows = np.random.default_rng(0).standard_normal((500, 6))
    np.savetxt(north / "rows.csv", rows, delimiter=",", header="a,b,c,d,e,f", comments="")
    (university / "study.toml").write_text(STUDY.format(address=free_port(), mailbox=free_port()))
    run(university, "study", "init", "study.toml")
    join(university, north)
    run(university, "plan", "--dimension", "6", *JOB, *PRICE, "--write", "job.json")
    policy = run(north, "policy", "suggest", str(university / "job.json"), "--analyst", "ada", "--data-set", "cohort")
    (north / "north" / "policy.toml").write_text(policy)
    run(north, "data", "check", "--config", "north/provider.toml")
    with ExitStack() as daemons:
        words = ("start", "--config")
        daemons.enter_context(started(university, "coordinator", *words, "hub/coordinator.toml", until="listening"))
        daemons.enter_context(started(north, "provider", *words, "north/provider.toml", until="Connected"))
        run(north, "doctor", "--config", "north/provider.toml")
        run(university, "terms", "--config", "ada/analyst.toml")
        run(university, "run", "job.json", "--config", "ada/analyst.toml", "--data-set", "cohort")
    (model,) = university.glob("*.dpspca")
    shown: dict[str, Any] = json.loads(run(university, "model", "show", model.name, "--json"))
    assert shown["statement"]["parties"] == 1
