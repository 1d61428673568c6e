"""A job of a kilobyte costs whoever plans it little, whatever it asks for (T35)."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from itertools import product
from typing import Any, Final

import pytest
from facts import facts

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.algorithms.steps.options import Option, OptionKind
from dpspca.common.algorithms.steps.row_steps import MOST_ROUNDS
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import MAX_COMPONENT_ENTRIES, MAX_DIMENSION, MAX_QUERIES, Accounting, JobSpec
from dpspca.common.plan import prices
from dpspca.common.privacy.calibration import MAX_EPSILON, MIN_EPSILON
from dpspca.common.privacy.lattice import MAX_PROVIDERS, MAX_ROWS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.sketch import MAX_COLUMNS

MEMORY: Final = 2 << 30
SECONDS: Final = 5.0
"""Of the processor's time, for one plan and what follows from it at a provider."""
SHAPES: Final = ((MAX_DIMENSION, MAX_COMPONENT_ENTRIES // MAX_DIMENSION), (2**13, 2**13), (30, 29))
USUAL: Final = (1.0, 1e-6)
NUMBERS: Final = {OptionKind.WHOLE, OptionKind.NUMBER, OptionKind.WHOLE_OR_AUTO}


def form(name: str, shape: tuple[int, int] = (30, 2), **changes: Any) -> dict[str, Any]:
    """Write a job as its sender would, with all that does not matter here as large as it can be."""
    epsilon, delta = changes.pop("budget", USUAL)
    return {
        "algorithm": name,
        "schema": {"dimension": shape[0]},
        "components": shape[1],
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": {"epsilon": epsilon, "delta": delta},
        "norm_bound": 2.0**100,
        "minimum_parties": MAX_PROVIDERS,
        "answer_seconds": 86_400,
        "seed": 2**64 - 1,
    } | changes


def largest(option: str, shape: tuple[int, int]) -> int:
    """Give the largest number that an option takes in a job of so many columns and components."""
    dimension, components = shape
    return {
        "rounds": MOST_ROUNDS,
        "columns": min(dimension, MAX_COMPONENT_ENTRIES // dimension),
        "sparsity": dimension,
        "coherence": dimension,
        "block_rows": MAX_ROWS // MOST_ROUNDS,
        "oversampling": max(0, min(dimension, MAX_COLUMNS) - components),
        "cut": 1,
    }[option]


def numbers(name: str) -> list[Option]:
    return [each for each in CATALOGUE[name].options if each.kind in NUMBERS]


def options(name: str, shape: tuple[int, int]) -> list[dict[str, Any]]:
    """Give every number at its largest, then each of them left out; and either end of this with every other choice.

    A name of a dictionary's category is left out: these jobs have no dictionary.
    """
    given = {each.name: largest(each.name, shape) for each in numbers(name)}
    fewer = [{key: given[key] for key in given if key != left} for left in given if len(given) > 1]
    others = [each for each in CATALOGUE[name].options if each.kind is OptionKind.SWITCH or each.choices]
    chosen = product(*(each.choices or (False, True) for each in others))
    named = [dict(zip((each.name for each in others), values, strict=True)) for values in chosen]
    return [*fewer, *(rest | ends for rest in named for ends in (given, {}))]


def jobs(name: str) -> Iterator[dict[str, Any]]:
    """Give the largest jobs of a method, and jobs of the strangest budgets."""
    entry = CATALOGUE[name]
    for unit, accounting in product(entry.units, entry.accounting):
        about = {"unit": unit, "accounting": accounting}
        for shape in SHAPES:
            yield from (form(name, shape, options=each, **about) for each in options(name, shape))
        for budget in ((MAX_EPSILON, 1 - 2.0**-53), (MIN_EPSILON, 0.5), (math.ulp(0.0), 0.5)):
            yield form(name, options=options(name, (30, 2))[-2], budget=budget, **about)


def planned(text: str) -> dict[str, Any]:
    """Plan a job and price its queries one by one; say how many there are, or with which words it was refused."""
    begun = time.process_time()
    outcome: dict[str, Any]
    try:
        outcome = {"queries": len([*prices(catalogue.plan(JobSpec.from_json(text)))])}
    except DpspcaError as problem:
        outcome = {"words": str(problem)}
    except Exception as problem:  # noqa: BLE001  # whatever else comes of a job is what the test is about
        outcome = {"fault": repr(problem)}
    return outcome | {"seconds": time.process_time() - begun}


def plan_all_that_comes() -> None:
    """Answer each line with what became of its job, within so much memory, and without end for none of them."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, 4 * SECONDS)
        sys.stdout.write(json.dumps(planned(line)) + "\n")
        sys.stdout.flush()


def outcomes() -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Plan all of these jobs in one process, and say of each method what became of its own."""
    asked = [(name, json.dumps(each)) for name in CATALOGUE for each in jobs(name)]
    ended = subprocess.run(  # noqa: S603  # this very file
        [sys.executable, __file__],
        input="\n".join(text for _, text in asked),
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    answered = ended.stdout.splitlines()
    assert len(answered) == len(asked), f"{asked[len(answered)]} ended it: {ended.stderr[-500:]}"
    became: dict[str, list[tuple[str, dict[str, Any]]]] = {name: [] for name in CATALOGUE}
    for (name, text), line in zip(asked, answered, strict=True):
        became[name].append((text, json.loads(line)))
    return became


@pytest.mark.nightly
def test_t35_the_largest_jobs_are_planned_in_bounded_memory_or_refused() -> None:
    for name, planned_jobs in outcomes().items():
        for job, outcome in planned_jobs:
            assert "fault" not in outcome, (job, outcome)
            assert outcome["seconds"] < SECONDS, job
            assert outcome.get("queries", 1) <= MAX_QUERIES, job
        assert any("queries" in outcome for _, outcome in planned_jobs), name


@pytest.mark.parametrize(("name", "option"), [(name, each.name) for name in CATALOGUE for each in numbers(name)])
def test_t35_a_number_beyond_what_is_called_the_largest_here_is_refused(name: str, option: str) -> None:
    shape = (30, 2)
    unit = PrivacyUnit.ENTRY if CATALOGUE[name].option("coherence") else PrivacyUnit.ROW_REPLACE_ONE
    given = {each.name: largest(each.name, shape) for each in numbers(name)}
    assert catalogue.plan(JobSpec.from_json(json.dumps(form(name, shape, unit=unit, options=given))))
    given[option] += 1
    with pytest.raises(InvalidParameterError, match=facts(option)):
        catalogue.plan(JobSpec.from_json(json.dumps(form(name, shape, unit=unit, options=given))))


@pytest.mark.parametrize(
    ("shape", "given", "asked"),
    [
        ((30, 29), {}, 29 * 1000 * 6 + 29),
        ((2048, 2000), {}, 2000 * 1000 * 12 + 2000),
        ((2048, 11), {"coherence": 30}, 11_011),
    ],
)
def test_t35_a_job_with_too_many_queries_is_refused_at_once(
    shape: tuple[int, int], given: dict[str, Any], asked: int
) -> None:
    text = json.dumps(
        form(
            "power-iteration",
            shape,
            unit=PrivacyUnit.ENTRY,
            accounting=Accounting.PUBLISHED,
            options={"rounds": 1000} | given,
        )
    )
    tracemalloc.start()
    try:
        with pytest.raises(InvalidParameterError) as refused:
            catalogue.plan(JobSpec.from_json(text))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
    assert f"{asked} queries" in refused.value.what
    assert str(MAX_QUERIES) in refused.value.what
    for lower in (f"components ({shape[1]})", "rounds (1000", *([] if given else ["coherence"])):
        assert lower in refused.value.remedy


def test_t35_a_plan_may_have_as_many_queries_as_are_allowed_and_not_one_more() -> None:
    """Here 73 components have 136 rounds each and, but for the last, an eigenvalue; then the last has one too."""
    most = form("power-iteration", (80, 73), unit=PrivacyUnit.ENTRY, options={"rounds": 136}, explained_variance=False)
    steps = catalogue.plan(JobSpec.from_json(json.dumps(most)))
    assert len(steps) == MAX_QUERIES
    assert [steps[0].name, steps[136].name, steps[137].name, steps[-1].name] == [
        "component 1, round 1 of 136",
        "component 1, eigenvalue",
        "component 2, round 1 of 136",
        "component 73, round 136 of 136",
    ]
    with pytest.raises(InvalidParameterError, match=facts(MAX_QUERIES + 1, MAX_QUERIES)):
        catalogue.plan(JobSpec.from_json(json.dumps(most | {"explained_variance": True})))


if __name__ == "__main__":
    plan_all_that_comes()
