"""What holds in every universe, however ill its weather: the invariants of the fault matrix, over many seeds."""

import argparse
import logging
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
import virtual
from town import Town, now
from universe import DIMENSION, SITES, Inhabitants, Universe, Weather, lived

from dpspca.common.algorithms import catalogue
from dpspca.common.plan import events
from dpspca.common.privacy.accountant import cost_units
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.question import RowQuery
from dpspca.common.spec import Budget, JobSpec, Schema
from dpspca.common.transport import wire
from dpspca.common.transport.signing import JobEnvelope, SignedJob, sign
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.server.rounds import combine

SPEC = JobSpec(
    schema=Schema(DIMENSION),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=4.0,
    components=1,
    minimum_parties=2,
    answer_seconds=60,
    options={"sparsity": 3, "rounds": 3},
)
FAIR = Weather()
ILL = Weather(loss=0.01, half_open=0.3, twice=0.1, death=0.02, slowest=2.0, skew=100.0)
WORST = Weather(loss=0.04, half_open=0.5, twice=0.3, death=0.04, slowest=10.0, skew=250.0)


@pytest.fixture(scope="module")
def inhabitants(tmp_path_factory: pytest.TempPathFactory) -> Inhabitants:
    return Inhabitants.of(Town.found(tmp_path_factory.mktemp("town")), now())


def job(town: Inhabitants, seed: int) -> SignedJob:
    """Sign the same job for the same seed: its name is part of what happens."""
    envelope = JobEnvelope(
        spec=SPEC.to_json().encode(),
        federation="town",
        audience=tuple(sorted(SITES)),
        dataset="cohort",
        issued_at=int(town.born.timestamp()),
        expires_at=int((town.born + timedelta(hours=12)).timestamp()),
        nonce=f"{seed:032x}",
    )
    return sign(envelope, town.ada)


def run(town: Inhabitants, seed: int, weather: Weather) -> tuple[Universe, pb.Job]:
    universe = Universe(town, seed, weather)
    pauses = Random(seed)
    with patch("dpspca.provider.daemon.randbelow", pauses.randrange):
        return universe, virtual.run(lived(universe, job(town, seed)), universe.chance)


def require_invariants(universe: Universe, signed: SignedJob, ended: pb.Job) -> None:
    """I1 to I5 of the fault matrix."""
    job, plan = signed.job_id, catalogue.plan(SPEC)
    for (site, name, position), answers in universe.answers.items():
        ledger = universe.ledgers[site]
        stored = ledger.stored(name, position)
        assert name == job
        assert stored is not None  # I1: nothing left that was not paid for and kept
        assert answers == {bytes(wire.answer_content(stored))}  # I2
    for ledger in universe.ledgers.values():
        standing = ledger.standing(job)
        if standing:
            asked = range(standing.reached)
            kept = [plan[position] for position in asked if ledger.stored(job, position) is not None]
            spent = standing.spent.units
            assert (
                cost_units(events(kept)) <= spent <= cost_units(events(plan[: standing.reached]))
            )  # I1: paid, and once
    assert ended.state == "done" or ended.reason  # I3
    whole = [each.name for each in ended.participants if each.answered == len(plan)]
    if ended.state == "done":  # I4
        assert len(whole) >= SPEC.minimum_parties
        assert all((site, job, position) in universe.answers for site in whole for position in range(len(plan)))
    if len(whole) == len(SITES):
        assert universe.model(job) == model_of_everybody(universe, job)


def model_of_everybody(universe: Universe, job: str) -> bytes:
    """Make the model again, from the answers in all ledgers."""
    steps = iter(enumerate(catalogue.plan(SPEC)))

    def ask(_: RowQuery) -> Aggregate:
        position, step = next(steps)
        answers = [universe.ledgers[site].stored(job, position) for site in SITES]
        return combine(SPEC, step, [answer for answer in answers if answer is not None])

    return drive(catalogue.find(SPEC.algorithm).run(SPEC), ask).to_bytes()


def test_in_fair_weather_every_job_is_done_by_everybody(inhabitants: Inhabitants) -> None:
    for seed in range(3):
        universe, ended = run(inhabitants, seed, FAIR)
        require_invariants(universe, job(inhabitants, seed), ended)
        assert ended.state == "done"
        assert {each.name for each in ended.participants if each.answered == ended.questions} == set(SITES)


def require_all(town: Inhabitants, weather: Weather, seeds: range) -> Counter[str]:
    """Run a universe of each seed, and say how many jobs ended how; a failure names its seed."""
    ends: Counter[str] = Counter()
    for seed in seeds:
        universe, ended = run(town, seed, weather)
        try:
            require_invariants(universe, job(town, seed), ended)
        except AssertionError as problem:
            raise AssertionError(f"Universe {seed} of {weather} is impossible.") from problem
        ends.update([ended.state, *["death"] * universe.deaths])
    return ends


@pytest.mark.parametrize("weather", [ILL, WORST], ids=["ill", "worst"])
def test_the_invariants_hold_in_every_weather(inhabitants: Inhabitants, weather: Weather) -> None:
    ends = require_all(inhabitants, weather, range(20))
    assert ends["death"] > 10
    assert ends["done"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("weather", [ILL, WORST], ids=["ill", "worst"])
def test_the_invariants_hold_in_a_thousand_universes(inhabitants: Inhabitants, weather: Weather, part: int) -> None:
    require_all(inhabitants, weather, range(100 * part, 100 * part + 100))


def test_a_universe_is_its_seed(inhabitants: Inhabitants) -> None:
    for seed in range(5):
        runs = [run(inhabitants, seed, WORST) for _ in range(2)]
        traces = {universe.trace.hexdigest() for universe, _ in runs}
        assert len(traces) == 1
        assert runs[0][1].state == runs[1][1].state


def soak() -> None:
    """Run as many universes as are asked for, in both weathers; ``make soak`` does."""
    parser = argparse.ArgumentParser(description="Run universes, and see that the invariants hold in each.")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    told = parser.parse_args()
    logging.disable(logging.WARNING)  # of parties whose lot it is to be warned
    last = told.first + told.seeds
    with tempfile.TemporaryDirectory() as folder:
        town = Inhabitants.of(Town.found(Path(folder)), now())
        for first in range(told.first, last, 100):
            seeds = range(first, min(first + 100, last))
            for weather in (ILL, WORST):
                ends = require_all(town, weather, seeds)
                print(f"seeds {seeds[0]} to {seeds[-1]}: {dict(ends)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    soak()
