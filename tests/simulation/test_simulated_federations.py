"""The invariants of the fault matrix hold in simulated federations with any faults, over many seeds."""

import argparse
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
import virtual_time
from crashing_processes import CrashingProcess
from fault_rates import MANY_FAULTS, NO_FAULTS, SOME_FAULTS, FaultRates
from invariants import require_invariants
from ledgers import quick_folder
from local_federation import Enrolment, now
from party_identities import SITES, PartyIdentities
from party_state import LedgerInMemory
from planned_jobs import PlannedJob, planned_jobs
from simulated_federation import SimulatedFederation, run_to_end

from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.ledger import BaseLedger, MemoryLedger
from dpspca.server.jobs.job_runner import JobRunner
from dpspca.server.journal.sql import SqlJournal

ACCIDENTS = {"death", "power cut", "fault", "meddling", "hung up", "partition"}
WITH_AND_WITHOUT_DISKS = [replace(MANY_FAULTS, disks=share) for share in (0.0, 1.0)]


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> PartyIdentities:
    return PartyIdentities.of(Enrolment.create(tmp_path_factory.mktemp("town")), now())


@dataclass
class FinishedRun:
    """A finished run."""

    simulated: SimulatedFederation
    planned_jobs: list[PlannedJob]
    ended: list[pb.Job]


def run(identities: PartyIdentities, seed: int, rates: FaultRates, lying: frozenset[str] = frozenset()) -> FinishedRun:
    """Run a simulated federation to its end, and check the invariants."""
    wanted, pauses = planned_jobs(identities, seed, rates), Random(seed)
    with quick_folder() as folder, patch("dpspca.provider.connection.daemon.randbelow", pauses.randrange):
        simulated = SimulatedFederation(identities, seed, rates, folder, lying)
        finished = FinishedRun(simulated, wanted, virtual_time.run(run_to_end(simulated, wanted), simulated.chance))
        require_invariants(simulated, wanted, finished.ended)
    return finished


def require_all(identities: PartyIdentities, rates: FaultRates, seeds: range) -> Counter[str]:
    """Run each seed, and count final states of jobs and faults. A failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            finished = run(identities, seed, rates)
        except Exception as problem:
            raise AssertionError(f"Seed {seed} with {rates} violates an invariant.") from problem
        found.update([*(each.state for each in finished.ended), *["disks"] * bool(finished.simulated.disks)])
        found.update(finished.simulated.faults)
    return found


def test_without_faults_all_providers_answer_every_job(identities: PartyIdentities) -> None:
    for seed in range(3):
        for ended in run(identities, seed, NO_FAULTS).ended:
            assert ended.state == "done"
            assert {each.name for each in ended.participants if each.answered == ended.queries} == set(SITES)


@pytest.mark.slow
@pytest.mark.parametrize("rates", [SOME_FAULTS, MANY_FAULTS], ids=["some faults", "many faults"])
def test_the_invariants_hold_with_any_faults(identities: PartyIdentities, rates: FaultRates) -> None:
    found = require_all(identities, rates, range(30))
    assert found.keys() >= {*ACCIDENTS, "disks", "cancelled"}
    assert found["death"] > 10
    assert found["done"] > 10


@pytest.mark.slow
def test_partitions_violate_no_invariant_and_jobs_that_can_wait_are_done(
    identities: PartyIdentities,
) -> None:
    """There are no other faults here: a job fails only because a party was cut off for too long."""
    found = require_all(identities, replace(NO_FAULTS, partition=0.5), range(20))
    assert found["partition"] > 100
    assert found["done"] > found["failed"] > 0


@pytest.fixture
def quiet() -> Iterator[None]:
    """Write no log. The parties issue many warnings, which takes long."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("part", range(12))
def test_the_invariants_hold_for_a_thousand_seeds(identities: PartyIdentities, part: int) -> None:
    """1,200 seeds: a hundred with some faults, the next hundred with many, and so on."""
    require_all(identities, (SOME_FAULTS, MANY_FAULTS)[part % 2], range(100 * part, 100 * part + 100))


@pytest.mark.slow
@pytest.mark.parametrize("rates", WITH_AND_WITHOUT_DISKS, ids=["in memory", "on disks"])
def test_equal_seeds_give_equal_runs(identities: PartyIdentities, rates: FaultRates) -> None:
    for seed in range(5):
        runs = [run(identities, seed, rates) for _ in range(2)]
        assert len({trace(finished) for finished in runs}) == 1
        assert len({tuple(each.state for each in finished.ended) for finished in runs}) == 1


@pytest.mark.nightly
def test_equal_seeds_give_equal_runs_in_every_process() -> None:
    """Keys, certificates, string hashes and start times differ between processes."""
    code = "import test_simulated_federations as here; here.print_traces()"
    here = Path(__file__).parent
    folders = [str(here), *(str(each) for each in [here.parent / "support", *(here.parent / "support").iterdir()])]
    path = os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
    told = {
        subprocess.run(  # noqa: S603  # ours
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(told) == 1
    assert len(set(told.pop().split())) == 2 * len(range(4))


def print_traces() -> None:
    """Print the traces of a few runs, for a test that compares several processes."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        identities = PartyIdentities.of(Enrolment.create(Path(folder)), now())
        for rates in WITH_AND_WITHOUT_DISKS:
            for seed in range(4):
                print(trace(run(identities, seed, rates)))  # noqa: T201


def trace(finished: FinishedRun) -> str:
    return finished.simulated.trace.hexdigest()


# --- Planted bugs must be found ---------------------------------------------------------------------------------------


def finds_bug(identities: PartyIdentities, rates: FaultRates, seeds: int = 12, **planted: Any) -> bool:
    """Return whether one of a few runs violates an invariant."""
    for seed in range(seeds):
        try:
            run(identities, seed, rates, **planted)
        except AssertionError:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("liar", ["north", "hub"])
def test_a_disk_that_does_not_sync_is_found(identities: PartyIdentities, liar: str) -> None:
    """A provider's, with its ledger and its head file; and the coordinator's, with its journal."""
    rates = replace(SOME_FAULTS, disks=1.0)
    assert not finds_bug(identities, rates)
    assert finds_bug(identities, rates, lying=frozenset({liar}))


def test_a_ledger_lost_with_its_process_is_found(identities: PartyIdentities) -> None:
    class ForgettingLedger(LedgerInMemory):
        def opened(self, process: CrashingProcess, clock: Callable[[], float]) -> AbstractContextManager[MemoryLedger]:
            self.__init__()  # type: ignore[misc]  # begin anew
            return super().opened(process, clock)

    with patch("simulated_federation.LedgerInMemory", ForgettingLedger):
        assert finds_bug(identities, replace(SOME_FAULTS, disks=0.0))


def test_an_answer_sent_but_not_stored_is_found(identities: PartyIdentities) -> None:
    with patch.object(BaseLedger, "store", lambda *_: None):
        assert finds_bug(identities, SOME_FAULTS)


def test_a_journal_that_does_not_record_how_jobs_end_is_found(identities: PartyIdentities) -> None:
    with patch.object(SqlJournal, "_update_job", lambda *_: None):
        assert finds_bug(identities, SOME_FAULTS)


def test_a_coordinator_that_calls_a_job_of_one_provider_done_is_found(
    identities: PartyIdentities,
) -> None:
    """One run in eight shows it."""
    enough = JobRunner._require_enough
    with patch.object(JobRunner, "_require_enough", lambda runner, left: enough(runner, left and len(SITES))):
        assert finds_bug(identities, MANY_FAULTS, seeds=60)


def soak() -> None:
    """Run many seeds with some and with many faults (``make soak``)."""
    parser = argparse.ArgumentParser(description="Check the invariants over many seeds.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="number of seeds")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # the parties issue many warnings
    last = arguments.first + arguments.seeds
    with tempfile.TemporaryDirectory() as folder:
        identities = PartyIdentities.of(Enrolment.create(Path(folder)), now())
        for first in range(arguments.first, last, 100):
            seeds = range(first, min(first + 100, last))
            for rates in (SOME_FAULTS, MANY_FAULTS):
                found = require_all(identities, rates, seeds)
                print(f"seeds {seeds[0]} to {seeds[-1]}: {dict(found)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    soak()
