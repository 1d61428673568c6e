"""`dpspca audit` passes honest daemons over mutual TLS, and finds faulty ones.

False alarms: an audit of an honest provider fails with probability at most 1e-6, by the union bound.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from examples import quickly_audited as job
from facts import a_line_names
from timeouts import TIMEOUT

from dpspca.client.audit.answers import audit
from dpspca.client.audit.daemons import daemons
from dpspca.client.demo import loopback
from dpspca.common.job import PRIVATE_BOUND, Budget, Schema

PLANTED = """
import sys
from dpspca.cli import main
{fault}
sys.argv[0] = "dpspca"
main.main()
"""
SMALL_FILES_PROGRAM = """
from dpspca.provider.release import responder
honest = responder.DiscreteGaussian
class Narrow:
    with_std_at_least = staticmethod(lambda std: honest.with_std_at_least(0.9 * std))
responder.DiscreteGaussian = Narrow
"""
LONG = """
from dpspca.provider.evaluate.shard import Shard
honest = Shard._evaluated
Shard._evaluated = lambda self, query, **how: 4 * honest(self, query, **how)
"""
LATE = """
import time
from dpspca.provider.evaluate.shard import Shard
Shard._evaluated = lambda self, query, **how: time.sleep(6)
"""
SLOW_FOR_A_ROW = """
import time
from dpspca.provider.evaluate.shard import Shard
honest = Shard._evaluated
def evaluate(self, query, **how):
    last = self._rows.part(slice(self._rows.count - 1, self._rows.count))
    time.sleep(0.15 if last.toarray()[0, 0] else 0)  # seconds
    return honest(self, query, **how)
Shard._evaluated = evaluate
"""
"""A time that depends on a row, far longer than the moments are apart at which answers leave."""
SLOW_BY_COUNT = SLOW_FOR_A_ROW.replace("last.toarray()[0, 0]", "self._rows.count % 2")
"""A path chosen by the number of rows."""
LAST_WORDS = "There is no such thing here."
DEAD = f"raise SystemExit({LAST_WORDS!r})"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "job.json").write_text(json.dumps(job().to_dict()), encoding="utf-8")
    return commands_in(tmp_path, monkeypatch, capfd)


def plant_fault(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Give a fault to every daemon that is started from now on."""
    monkeypatch.setattr(loopback, "PROGRAM", (sys.executable, "-c", PLANTED.format(fault=fault)))


@pytest.mark.slow
def test_audit_prints_what_was_tested_and_what_would_be_noticed(run: Callable[..., Ended], tmp_path: Path) -> None:
    output = run("audit", "--job", "job.json", "--runs", 30)
    assert output.code == 0
    assert a_line_names(output.out, "30 jobs", "one row")
    assert a_line_names(output.out, "13 tests")
    assert "FAILED" not in output.out
    assert "would notice 0.9" in output.out
    assert "jobs answered 6 of 60\n" in output.err
    assert "jobs answered 60 of 60\n" in output.err
    assert not list((tmp_path / "temporary").iterdir())


def test_audit_json_is_one_object(run: Callable[..., Ended]) -> None:
    output = run("audit", "--job", "job.json", "--runs", 5, "--json")
    assert output.err == ""
    assert output.facts["passed"] is True
    assert output.facts["job"] == job().digest()
    assert {each["kind"] for each in output.facts["findings"]} == {"width", "shape", "relation", "distance", "time"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "found"), [(SMALL_FILES_PROGRAM, "width of all noise: 0."), (LONG, "distance of the neighbours in")]
)
def test_audit_finds_a_faulty_daemon_and_says_what_to_do(
    fault: str, found: str, run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The faults, noise a tenth too narrow or rows of twice the length, exist only in the daemon's process."""
    plant_fault(monkeypatch, fault)
    output = run("audit", "--job", "job.json", "--runs", 30)
    assert output.code == 1
    assert any(line.startswith(f"FAILED  {found}") for line in output.failed_checks)
    assert a_line_names(output.out, f"{len(output.failed_checks)} of 13", "Stop")


@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "unit"), [(SLOW_FOR_A_ROW, "row-replace-one"), (SLOW_BY_COUNT, "row-add-remove")])
def test_audit_finds_a_daemon_whose_timing_depends_on_rows(
    fault: str, unit: str, run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A busy machine that delays one in twenty answers as much as the fault does would hide it."""
    plant_fault(monkeypatch, fault)
    (tmp_path / "job.json").write_text(json.dumps(job(unit=unit).to_dict()), encoding="utf-8")
    output = run("audit", "--job", "job.json", "--runs", 60)
    assert output.code == 1
    assert any(line.startswith("FAILED  time of the answer to") for line in output.failed_checks)


def test_audit_ends_with_the_log_of_a_daemon_that_does_not_run(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant_fault(monkeypatch, DEAD)
    output = run("audit", "--job", "job.json")
    assert f"{LAST_WORDS}\n" in output.err
    assert a_line_names(output.err, "audited-1", "exit code 1")
    assert output.code == 2
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.slow
def test_audit_ends_with_an_error_if_a_daemon_does_not_answer(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plant_fault(monkeypatch, LATE)
    (tmp_path / "job.json").write_text(json.dumps(job(answer_seconds=3).to_dict()), encoding="utf-8")
    output = run("audit", "--job", "job.json")
    assert a_line_names(output.err, "audited-1", "3 seconds")
    assert "Opened job" in output.err
    assert output.code == 2


@pytest.mark.slow
def test_audit_ignores_the_current_folder_and_proxies(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dpspca").mkdir()
    for name in ("dpspca/__init__.py", "secrets.py"):
        (tmp_path / name).write_text("raise SystemExit('This is no program of ours.')")
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert run("audit", "--job", "job.json", "--runs", 2).code == 0


FOUNDER = """
import time
from dpspca.client.demo.loopback import COORDINATOR, LISTEN, new_federation
from dpspca.common.names import Role
with new_federation() as parties:
    parties.enrol(Role.COORDINATOR, COORDINATOR)
    print(parties.start(Role.COORDINATOR, COORDINATOR, f'listen = "{LISTEN}"').process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_a_daemon_ends_with_its_parent_process(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", FOUNDER], stdout=subprocess.PIPE, env=environment) as founder:  # noqa: S603
        assert founder.stdout
        daemon = Path("/proc", founder.stdout.readline().decode().strip())
        log = next(tmp_path.glob("*/hub.log"))
        until = time.monotonic() + TIMEOUT
        while "listening" not in log.read_text():
            assert time.monotonic() < until
            time.sleep(0.05)
        founder.kill()
    while daemon.exists() and "Z" not in (daemon / "stat").read_text().split()[2]:
        assert time.monotonic() < until, "It goes on without its founder."
        time.sleep(0.1)
    assert "stopped" in log.read_text()


KINDS: dict[str, dict[str, Any]] = {
    "names": {
        "schema": Schema(3, ("age", "height", "weight")),
        "components": 2,
        "options": {"sparsity": 3, "rounds": 2},
    },
    "parties": {"unit": "row-add-remove", "minimum_providers": 3, "explained_variance": True},
    "entry": {"unit": "entry", "method": "noisy-power", "options": {"rounds": 2}},
    "spectral": {"unit": "spectral", "method": "noisy-power", "options": {"rounds": 2}, "budget": Budget(1.0, 1e-6)},
    "blocks": {"method": "streaming-power", "options": {"block_rows": 100, "rounds": 3}},
    "mechanism": {"method": "ppca", "components": 2, "schema": Schema(4), "options": {}, "budget": Budget(1.0, 1e-20)},
    "picture": {"method": "auto", "components": 2, "options": {"picture": True}, "norm_bound": PRIVATE_BOUND},
    "scales": {"method": "auto", "options": {}, "scaling": "private"},
    "pairs": {"method": "auto", "options": {}, "centering": "pairs", "mean_bound": None},
    "stages": {"method": "auto", "options": {}, "schema": Schema(101)},
    "loop": {"options": {"sparsity": 6, "loop": "improved"}},
}
NIGHTLY = {"parties", "entry", "mechanism", "pairs", "picture", "scales", "spectral", "stages", "loop"}
"""These are asked like others. What differs is what is computed, and `tests/privacy` audits that every time."""


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param(changes, id=kind, marks=pytest.mark.nightly if kind in NIGHTLY else pytest.mark.slow)
        for kind, changes in KINDS.items()
    ],
)
def test_audit_passes_for_jobs_of_every_kind(changes: dict[str, Any]) -> None:
    what = job(**changes)
    with daemons(what) as opening:
        found = audit(what, runs=10, opening=opening)
    assert found.passed, [each for each in found.findings if not each.passed]


@pytest.mark.slow
def test_audit_replaces_a_daemon_whose_budget_is_used_up() -> None:
    """Even the largest budget pays for only a few such jobs."""
    what = job(budget=Budget(48.0, 0.1))
    with daemons(what) as opening:
        assert audit(what, runs=4, opening=opening).passed
        harness: Any = opening.__self__  # type: ignore[attr-defined]  # a method's
    assert harness._room < 4
    assert harness._started == -(-5 // harness._room)  # five jobs over the first, with the rehearsal
