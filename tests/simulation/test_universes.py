"""What holds in every universe, however ill its weather: the invariants of the fault matrix, over many seeds."""

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
import virtual
from errands import Errand, errands
from homes import LedgerInMemory
from inhabitants import SITES, Inhabitants
from laws import require_laws
from ledgers import quick_folder
from lives import Life
from town import Town, now
from universe import Universe, lived
from weather import FAIR, ILL, WORST, Weather

from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.ledger.ledger import BaseLedger, MemoryLedger
from dpspca.server.jobs.job_runner import JobRunner
from dpspca.server.journal.sql import SqlJournal

ACCIDENTS = {"death", "power cut", "fault", "meddling", "hung up", "partition"}
WITH_AND_WITHOUT_DISKS = [replace(WORST, disks=share) for share in (0.0, 1.0)]


@pytest.fixture(scope="module")
def inhabitants(tmp_path_factory: pytest.TempPathFactory) -> Inhabitants:
    return Inhabitants.of(Town.found(tmp_path_factory.mktemp("town")), now())


@dataclass
class Story:
    """A universe that is over."""

    universe: Universe
    errands: list[Errand]
    ended: list[pb.Job]


def run(town: Inhabitants, seed: int, weather: Weather, lying: frozenset[str] = frozenset()) -> Story:
    """Run a universe to its end, and hold it against the laws."""
    wanted, pauses = errands(town, seed, weather), Random(seed)
    with quick_folder() as folder, patch("dpspca.provider.connection.daemon.randbelow", pauses.randrange):
        universe = Universe(town, seed, weather, folder, lying)
        story = Story(universe, wanted, virtual.run(lived(universe, wanted), universe.chance))
        require_laws(universe, wanted, story.ended)
    return story


def require_all(town: Inhabitants, weather: Weather, seeds: range) -> Counter[str]:
    """Run a universe of each seed, and say how many jobs ended how; a failure names its seed."""
    found: Counter[str] = Counter()
    for seed in seeds:
        try:
            story = run(town, seed, weather)
        except Exception as problem:
            raise AssertionError(f"Universe {seed} of {weather} is impossible.") from problem
        found.update([*(each.state for each in story.ended), *["disks"] * bool(story.universe.homes)])
        found.update(story.universe.accidents)
    return found


def test_in_fair_weather_every_job_is_done_by_everybody(inhabitants: Inhabitants) -> None:
    for seed in range(3):
        for ended in run(inhabitants, seed, FAIR).ended:
            assert ended.state == "done"
            assert {each.name for each in ended.participants if each.answered == ended.queries} == set(SITES)


@pytest.mark.parametrize("weather", [ILL, WORST], ids=["ill", "worst"])
def test_the_invariants_hold_in_every_weather(inhabitants: Inhabitants, weather: Weather) -> None:
    found = require_all(inhabitants, weather, range(30))
    assert found.keys() >= {*ACCIDENTS, "disks", "cancelled"}
    assert found["death"] > 10
    assert found["done"] > 10


def test_partitions_that_last_break_no_law_and_jobs_that_can_wait_are_done(inhabitants: Inhabitants) -> None:
    """Nothing else goes wrong here: what fails, fails for somebody was away for too long."""
    found = require_all(inhabitants, replace(FAIR, partition=0.5), range(20))
    assert found["partition"] > 100
    assert found["done"] > found["failed"] > 0


@pytest.fixture
def quiet() -> Iterator[None]:
    """Write no log of parties whose lot it is to be warned: that takes as long as much of what they do."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.nightly
@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("part", range(12))
def test_the_invariants_hold_in_a_thousand_universes(inhabitants: Inhabitants, part: int) -> None:
    """1,200 seeds, which take turns in the two weathers by the hundred."""
    require_all(inhabitants, (ILL, WORST)[part % 2], range(100 * part, 100 * part + 100))


@pytest.mark.parametrize("weather", WITH_AND_WITHOUT_DISKS, ids=["in memory", "on disks"])
def test_a_universe_is_its_seed(inhabitants: Inhabitants, weather: Weather) -> None:
    for seed in range(5):
        stories = [run(inhabitants, seed, weather) for _ in range(2)]
        assert len({trace(story) for story in stories}) == 1
        assert len({tuple(each.state for each in story.ended) for story in stories}) == 1


def test_a_universe_is_its_seed_in_every_process() -> None:
    """Whatever keys, certificates, hashes of strings and moment of its birth it has."""
    code = "import test_universes as here; here.print_traces()"
    folders = [str(Path(__file__).parents[1] / folder) for folder in ("support", "simulation")]
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
    """Say what happened in a few universes; a test has it said by several processes."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        town = Inhabitants.of(Town.found(Path(folder)), now())
        for weather in WITH_AND_WITHOUT_DISKS:
            for seed in range(4):
                print(trace(run(town, seed, weather)))  # noqa: T201


def trace(story: Story) -> str:
    return story.universe.trace.hexdigest()


# --- Faults that are planted, and have to be found --------------------------------------------------------------------


def is_found_out(town: Inhabitants, weather: Weather, **planted: Any) -> bool:
    """Tell whether one of a few universes breaks a law."""
    for seed in range(12):
        try:
            run(town, seed, weather, **planted)
        except AssertionError:
            return True
    return False


@pytest.mark.parametrize("liar", ["north", "hub"])
def test_a_disk_that_only_says_that_it_syncs_is_found_out(inhabitants: Inhabitants, liar: str) -> None:
    """A provider's, with its ledger and its head file; and the coordinator's, with its journal."""
    weather = replace(ILL, disks=1.0)
    assert not is_found_out(inhabitants, weather)
    assert is_found_out(inhabitants, weather, lying=frozenset({liar}))


def test_a_ledger_that_is_gone_with_its_process_is_found_out(inhabitants: Inhabitants) -> None:
    class Passing(LedgerInMemory):
        def used(self, life: Life, clock: Callable[[], float]) -> AbstractContextManager[MemoryLedger]:
            self.__init__()  # type: ignore[misc]  # begin anew
            return super().used(life, clock)

    with patch("universe.LedgerInMemory", Passing):
        assert is_found_out(inhabitants, replace(ILL, disks=0.0))


def test_an_answer_that_leaves_and_is_not_kept_is_found_out(inhabitants: Inhabitants) -> None:
    with patch.object(BaseLedger, "store", lambda *_: None):
        assert is_found_out(inhabitants, ILL)


def test_a_journal_that_does_not_record_how_jobs_end_is_found_out(inhabitants: Inhabitants) -> None:
    with patch.object(SqlJournal, "_update_job", lambda *_: None):
        assert is_found_out(inhabitants, ILL)


def test_a_coordinator_that_calls_a_job_of_one_provider_done_is_found_out(inhabitants: Inhabitants) -> None:
    enough = JobRunner._require_enough
    with patch.object(JobRunner, "_require_enough", lambda runner, left: enough(runner, left and len(SITES))):
        assert is_found_out(inhabitants, WORST)


def soak() -> None:
    """Run as many universes as are asked for, in both weathers; ``make soak`` does."""
    parser = argparse.ArgumentParser(description="Run universes, and see that the invariants hold in each.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    told = parser.parse_args()
    logging.disable(logging.CRITICAL)  # of parties whose lot it is to be warned, and whose disks fail
    last = told.first + told.seeds
    with tempfile.TemporaryDirectory() as folder:
        town = Inhabitants.of(Town.found(Path(folder)), now())
        for first in range(told.first, last, 100):
            seeds = range(first, min(first + 100, last))
            for weather in (ILL, WORST):
                found = require_all(town, weather, seeds)
                print(f"seeds {seeds[0]} to {seeds[-1]}: {dict(found)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    soak()
