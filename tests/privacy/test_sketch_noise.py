"""The noise on a sketch, which never leaves its provider, and on its projection is as planned and hides a replaced row.

The audit of what leaves a provider cannot test these: a sketch stays with its provider, and the queries of each job
depend on what was drawn for it. So these tests call the provider's own code, job after job, and read its state.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from dpspca.common.algorithms import catalogue
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.privacy import audit as audits
from dpspca.common.privacy.directions import directions, directions_key
from dpspca.common.privacy.events import GaussianEvent
from dpspca.common.privacy.keystream import KeyStream, repeatable_entropy
from dpspca.common.privacy.noise import lattice_std
from dpspca.common.queries.sketch import Commit, Peaks, Projection, Reveal, Sketch
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_rows
from dpspca.provider.evaluate.moments import DenseRows
from dpspca.provider.evaluate.shard import Shard
from dpspca.provider.evaluate.sketches import SketchAnswers, project, round_sketch
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.responder import Responder

LEVEL = 1e-7
"""False alarm of each test of an honest provider."""
DIMENSION, COUNT, COLUMNS, JOBS = 30, 300, 6, 60


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(DIMENSION),
        "unit": "row-replace-one",
        "budget": Budget(20.0, 1e-2),
        "norm_bound": 1.0,
        "components": 2,
        "method": "range-projection",
        "explained_variance": False,
        "options": {"oversampling": COLUMNS - 2},
    }
    return JobSpec(**good | changes)


def event() -> GaussianEvent:
    found = next(step.event for step in catalogue.plan(spec()) if step.query is Sketch)
    assert isinstance(found, GaussianEvent)
    return found


def rows(first: float) -> np.ndarray:
    """Rows along the axes; the first one is as long as a row may be, forward or backward."""
    made = np.eye(DIMENSION)[np.arange(COUNT) % DIMENSION]
    made[0] = 0.0
    made[0, 0] = first
    return made


def sketched(data: np.ndarray, number: int, planned: GaussianEvent) -> tuple[np.ndarray, np.ndarray]:
    """Have a provider make a sketch; give it, and its directions, in units of the lattice."""
    answering = SketchAnswers(lambda: DenseRows(integer_rows(data, 1.0)), "a job", 0)
    words = KeyStream.repeatable(number, "sketch noise")
    commitments = answering.release(Commit(), None, words).astype(np.uint32)
    nonces = answering.release(Reveal(commitments), None, words).astype(np.uint32)
    answering.release(Sketch(nonces, DIMENSION, COLUMNS), planned, words)
    kept = answering._sketch
    assert kept is not None
    return kept * grid(planned), directions(directions_key("a job", nonces), DIMENSION, COLUMNS)


def grid(planned: GaussianEvent) -> float:
    """Find what one step of the grid is in units of the lattice."""
    return 2.0**28 / float(round_sketch(np.array([1 << 28]), planned.std)[0])


def residuals(first: float, planned: GaussianEvent, start: int = 0) -> np.ndarray:
    """What noise is in sketches, in planned standard deviations: a row for each job."""
    found = []
    for number in range(start, start + JOBS):
        sketch, omega = sketched(rows(first), number, planned)
        exact = integer_rows(rows(first), 1.0) @ omega
        found.append(((sketch - exact) / lattice_std(event().std)).ravel())
    return np.stack(found)


def test_sketch_noise_is_as_planned_and_new_in_every_entry_and_job() -> None:
    """False alarm: four tests, 4e-7."""
    noise = residuals(1.0, event())
    assert audits.width("", noise, LEVEL).passed
    assert audits.shape("", noise.ravel(), LEVEL).passed
    assert audits.correlation("", noise[:, 1:].ravel(), noise[:, :-1].ravel(), LEVEL).passed
    assert audits.correlation("", noise[1:].ravel(), noise[:-1].ravel(), LEVEL).passed


def test_noise_three_percent_narrow_on_a_sketch_would_be_found() -> None:
    narrow = replace(event(), std=0.97 * event().std)
    assert not audits.width("", residuals(1.0, narrow), LEVEL).passed


def test_a_sketch_distinguishes_a_row_from_its_opposite_within_its_price() -> None:
    """On the line along which the two differ most, known to whoever knows all nonces. False alarm: 1e-7."""
    apart = []
    for first, start in ((1.0, 0), (-1.0, JOBS)):
        along = []
        for number in range(start, start + JOBS):
            sketch, omega = sketched(rows(first), number, event())
            line = omega[0] / np.linalg.norm(omega[0])
            along.append(float(sketch[0] @ line) / lattice_std(event().std))
        apart.append(np.array(along))
    found = audits.distance("", *apart, event().mu, LEVEL)
    assert found.passed
    assert found.measured > 0.1 * found.planned  # there is something to be seen


def test_the_noise_on_a_projection_is_as_wide_as_its_reach_asks_for() -> None:
    """False alarm: 1e-7 for each of two. The provider's own loop adds it."""
    step, what = catalogue.plan(spec())[5], spec()
    for reach in (0.25, 1.0):
        noise = []
        for number in range(JOBS):
            shard = Shard(check_rows(rows(1.0)), 1.0)
            responder = Responder(catalogue.plan(what), shard, MemoryLedger(), repeatable_entropy(number))
            commitments = responder.respond(0, Commit()).astype(np.uint32)
            nonces = responder.respond(1, Reveal(commitments)).astype(np.uint32)
            responder.respond(2, Sketch(nonces, DIMENSION, COLUMNS))
            asked = Projection(np.eye(COLUMNS) / 2**17, DIMENSION, reach)
            for position in (3, 4):
                responder.respond(position, Peaks(asked.map))
            remembered: Any = responder._sketch
            exact = project(DenseRows(integer_rows(rows(1.0), 1.0)), remembered._sketch, asked)
            noise.append((responder.respond(5, asked) - exact).ravel() / step.fit_to(asked, what.unit).noise_std)
        assert audits.width("", np.stack(noise), LEVEL).passed
