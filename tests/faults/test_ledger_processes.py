"""The provider's ledger with real processes: killed at any moment, and several processes on the same ledger."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest
from facts import facts
from ledgers import BUDGET, PRICE
from timeouts import TIMEOUT

from dpspca.provider.ledger.ledger import LedgerError
from dpspca.provider.ledger.sqlite import SqliteLedger, read_ledger_state, verify

WORKER = Path(__file__).parents[1] / "support" / "data" / "ledger_worker.py"


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "kept" / "ledger.sqlite", tmp_path / "second" / "head"


@contextmanager
def worker(task: str, paths: tuple[Path, Path], name: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(WORKER), task, *map(str, paths), name]
    pipes = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipes, stdout=pipes, text=True) as process:  # noqa: S603  # our own program
        try:
            yield process
        finally:
            process.kill()


def killed(paths: tuple[Path, Path], name: str, delay: float) -> list[list[str]]:
    """Run a provider and kill it this long after its first answer. Return the answers that it reported as sent."""
    with worker("answer", paths, name) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        timer = Timer(delay, process.kill)
        timer.start()
        lines += process.stdout.readlines()
        timer.join()
    return [line.split() for line in lines if line.startswith("sent") and line.endswith("\n")]


def kills(paths: tuple[Path, Path], times: int) -> None:
    draw, entries = random.Random(times), 0
    sent: list[list[list[str]]] = []
    for number in range(times):
        sent.append(killed(paths, f"run{number}", draw.uniform(0, 0.4)))
        with SqliteLedger(*paths) as ledger:
            assert ledger.quarantine is None
            assert ledger.head().entries > entries
            entries = ledger.head().entries
            jobs = read_ledger_state(paths[0]).jobs
            for _, job, position, begins in sent[0] + sent[-1]:
                again = ledger.stored(job, int(position))
                if again is None:
                    assert jobs[job].state is not None
                else:
                    assert again.tobytes().hex()[:64] == begins
        assert verify(*paths) == []
    told = {(job, position) for run in sent for _, job, position, _ in run}
    released = {(each.job, str(each.position)) for each in read_ledger_state(paths[0]).outbox()}
    assert len(told) >= times
    assert released >= told
    assert len(released) <= len(told) + times  # at most one of each run was stored and not yet told of


@pytest.mark.slow
def test_i1_i2_a_provider_that_is_killed_has_every_answer_that_it_sent(paths: tuple[Path, Path]) -> None:
    kills(paths, 4)


@pytest.mark.nightly
def test_i1_i2_a_provider_killed_many_times_has_every_answer_that_it_sent(paths: tuple[Path, Path]) -> None:
    kills(paths, 40)


def test_t13_a_second_daemon_is_refused_with_the_holder_of_the_ledger(paths: tuple[Path, Path]) -> None:
    with worker("hold", paths, "first") as first:
        assert first.stdout is not None
        instance = first.stdout.readline().split()[2]
        with pytest.raises(LedgerError, match=facts(f"process {first.pid}", instance)):
            SqliteLedger(*paths)
        first.kill()
        first.wait()
        with SqliteLedger(*paths) as second:
            assert second.quarantine is None


@pytest.mark.slow
def test_t11_processes_that_race_for_one_budget_take_it_exactly_once(paths: tuple[Path, Path]) -> None:
    workers = [worker("race", paths, f"racer{number}") for number in range(3)]
    with workers[0] as first, workers[1] as second, workers[2] as third:
        said = [process.communicate(timeout=TIMEOUT)[0].splitlines() for process in (first, second, third)]
    assert sum(line.startswith("admitted") for lines in said for line in lines) == 10
    assert all(lines[-1] == "nothing left" for lines in said)
    state = read_ledger_state(paths[0])
    assert state.data_sets["cohort"].spent.units == 10 * PRICE <= BUDGET.whole.units
    assert verify(*paths) == []
