"""Two organisations enrol, set up and run their first job: the commands of docs/operations.md, as they stand there."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_processes import free_port
from live import COMMAND, started
from machines import blocks_of, section
from timeouts import TIMEOUT

pytestmark = pytest.mark.slow
"""It starts several processes."""

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
STUDY = """
federation = "town"
coordinator = "hub"
address = "127.0.0.1:{address}"
mailbox = "127.0.0.1:{mailbox}"
providers = ["north"]
analysts = ["ada"]
"""
READY = {"coordinator": "listening", "provider": "Connected"}


def steps() -> dict[int, str]:
    """Return the page's steps by their numbers."""
    parts = re.split(r"^(\d+)\. ", section(PAGE, "A first federation of two organisations"), flags=re.MULTILINE)
    return {int(number): text for number, text in zip(parts[1::2], parts[2::2], strict=True)}


def sentence_command(step: str) -> list[str]:
    """Return the words of the one command in the sentences of a step, without `dpspca`."""
    (command,) = re.findall(r"`dpspca ([^`]+)`", step)
    return shlex.split(command)


def block(step: str) -> str:
    (lines,) = blocks_of(step)
    return lines


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a shell find this `dpspca`."""
    program = tmp_path / "bin" / "dpspca"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-m", "dpspca"])} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def script(folder: Path, lines: str) -> str:
    """Type lines into a shell, until one fails."""
    done = subprocess.run(["sh", "-ec", lines], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603, S607  # lines of our own page
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def join(university: Path, north: Path, page: dict[int, str]) -> None:
    """Have all parties join, and sign their requests when they are in the coordinator's mailbox."""
    asked = [(university, sentence_command(page[2])), (north, sentence_command(page[3]))]
    asked.append((university, sentence_command(page[4])))
    for folder, (_, invitation, *_) in asked:  # each party gets its own
        shutil.copy(university / "authority" / "invitations" / invitation, folder)
    joining = [subprocess.Popen([*COMMAND, *words], cwd=folder) for folder, words in asked]  # noqa: S603  # our own program
    try:
        deadline = time.monotonic() + TIMEOUT
        while len([*(university / "hub" / "mailbox").glob("*.request")]) < len(joining):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        script(university, shlex.join(["dpspca", *sentence_command(page[5]), "--yes"]))
        assert [each.wait(TIMEOUT) for each in joining] == [0, 0, 0]
    finally:
        for each in joining:
            each.kill()


@pytest.mark.usefixtures("shell")
def test_two_organisations_run_their_first_job(tmp_path: Path) -> None:
    page = steps()
    assert [*page] == [*range(1, 10)]
    university, north = tmp_path / "university", tmp_path / "north-hospital"
    for folder in (university, north):
        folder.mkdir()
    rows, names = np.random.default_rng(0).standard_normal((500, 30)), [f"c{number}" for number in range(30)]
    np.savetxt(north / "rows.csv", rows, delimiter=",", header=",".join(names), comments="")
    (university / "study.toml").write_text(STUDY.format(address=free_port(), mailbox=free_port()))
    script(university, shlex.join(["dpspca", *sentence_command(page[1])]))
    join(university, north, page)
    script(university, block(page[6]))
    shutil.copy(university / "job.json", north)
    script(north, block(page[7]))
    with ExitStack() as running:
        for line in block(page[8]).splitlines():
            _, program, *words = shlex.split(line)
            at = university if program == "coordinator" else north
            if words[0] == "start":
                running.enter_context(started(at, program, *words, until=READY[program]))
            else:
                script(at, line)
        script(university, block(page[9]))
    shown: dict[str, Any] = json.loads(script(university, "dpspca model show model.dpspca --json"))
    assert shown["statement"]["parties"] == 1
