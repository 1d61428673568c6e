"""A provider that is copied while it runs: no two copies use the same noise for different queries.

The copies are real processes. Where the system's own generator is copied with them, both read the same "fresh" bytes.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import forked_provider
import numpy as np
import pytest
from examples import EXAMPLES
from timeouts import TIMEOUT

from dpspca import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.arrays import Integers
from dpspca.common.job import JobSpec
from dpspca.common.privacy.keystream import Draw, Purpose, keyed_stream
from dpspca.common.privacy.noise import DiscreteGaussian

DEVIATIONS = 6.0
"""A correlation of n independent pairs is nearly normal with deviation 1/sqrt(n): false alarm 2e-9."""


def copied(folder: Path, *how: str) -> tuple[Integers, Integers]:
    """Return the noise of both copies' answers to the query at the same position."""
    program = (sys.executable, forked_provider.__file__, str(folder), *how)
    subprocess.run(program, check=True, timeout=TIMEOUT)  # noqa: S603 - our own program
    first, second = (np.load(folder / f"{name}.npy").ravel() for name in ("first", "second"))
    return first, second


def require_unrelated(first: Integers, second: Integers) -> None:
    """Find no relation: entries are nowhere near each other, and sums and differences are equally wide."""
    assert abs(np.corrcoef(first, second)[0, 1]) * np.sqrt(first.size) < DEVIATIONS
    assert np.mean(first == second) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("system", ["own", "copied"])
def test_copies_of_a_provider_use_independent_noise_for_different_queries(system: str, tmp_path: Path) -> None:
    """Equal noise would cancel in the difference of the answers, and show the rows exactly."""
    require_unrelated(*copied(tmp_path, system, "different"))


@pytest.mark.slow
def test_copies_that_read_the_same_system_bytes_answer_one_query_alike(tmp_path: Path) -> None:
    """They release one answer, twice: less than two copies with unrelated noise do."""
    first, second = copied(tmp_path, "copied", "same")
    assert (first == second).all()


@pytest.mark.slow
def test_copies_with_their_own_system_bytes_use_independent_noise(tmp_path: Path) -> None:
    require_unrelated(*copied(tmp_path, "own", "same"))


NAMED = Draw("a job", 1, 23, "a query", Purpose.NOISE)
OTHERS = [
    replace(NAMED, job="another job"),
    replace(NAMED, seat=2),
    replace(NAMED, position=3),
    replace(NAMED, query="another query"),
    replace(NAMED, purpose=Purpose.MECHANISM),
    replace(NAMED, seat=23, position=1),
    replace(NAMED, seat=12, position=3),
    replace(NAMED, job="a job1", seat=2, position=3),
]


@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_draws_with_different_names_are_independent_if_the_system_repeats(other: Draw) -> None:
    law = DiscreteGaussian(1000.0)
    first, second, again = (law.sample(10_000, keyed_stream(bytes(32), draw)) for draw in (NAMED, other, NAMED))
    require_unrelated(first, second)
    assert (first == again).all()


def test_draws_with_one_name_are_independent_if_system_bytes_differ() -> None:
    law = DiscreteGaussian(1000.0)
    first, second = (law.sample(10_000, keyed_stream(bytes([number] * 32), NAMED)) for number in (0, 1))
    require_unrelated(first, second)


@pytest.mark.parametrize("what", [each.jobs["plain"] for each in EXAMPLES.values()], ids=EXAMPLES.keys())
def test_the_system_is_read_again_for_every_random_answer(what: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more and no less often: nothing is drawn ahead, and no answer goes on with what another one left."""
    reads: list[int] = []

    def urandom(size: int) -> bytes:
        reads.append(size)
        return bytes([len(reads)]) * size

    monkeypatch.setattr(os, "urandom", urandom)
    random = sum(step.event is not None or step.query.is_private for step in catalogue.plan(what))
    table = np.random.default_rng(3).standard_normal((40, what.schema.dimension))
    simulate([table if what.unit.is_row else table[:30].T @ table[:30]] * 2, what)
    assert reads == [32] * (2 * random)
    assert random
