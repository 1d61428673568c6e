"""A model says where it comes from, and says so again when it is read from a file; older files say nothing."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from facts import names_facts
from local_federation import SHARDS, Enrolment, federation, spec

from dpspca.client.reports import report
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import CorruptModelError
from dpspca.common.results import Model, Origin, Participant
from dpspca.common.version import __version__

ORIGIN = Origin(
    method="dps-pca",
    queries=4,
    software="0.2.0",
    data_set="cohort",
    job="ab" * 32,
    participants=(Participant("north", 4), Participant("west", 1, "Its connection ended.")),
)


@pytest.fixture(scope="module")
def model() -> Model:
    return simulate([np.random.default_rng(0).standard_normal((60, 30))], spec(), noise_seed=1)


def test_an_origin_is_stored_with_its_model(model: Model) -> None:
    read = Model.from_bytes(replace(model, origin=ORIGIN).to_bytes()).origin
    assert read == ORIGIN
    assert (read.took_part, [each.name for each in read.dropped_out]) == (("north",), ["west"])
    facts = report.to_dict(replace(model, origin=ORIGIN))["origin"]
    west = {"name": "west", "answered": 1, "reason": "Its connection ended."}
    assert json.loads(json.dumps(facts))["participants"][1] == west
    named = ("dps-pca", "cohort", "north; dropped out: west", "4 queries", "dpspca 0.2.0")
    assert any(names_facts(line, *named) for line in report.summary(replace(model, origin=ORIGIN)).splitlines())


def test_a_model_without_an_origin_is_read_as_before(model: Model) -> None:
    header, _, body = model.to_bytes().partition(b"\n")
    older = {name: value for name, value in json.loads(header).items() if name != "origin"}
    assert Model.from_bytes(json.dumps(older).encode() + b"\n" + body).origin is None


@pytest.mark.parametrize(
    "changes",
    [
        {"method": 3},
        {"queries": -1},
        {"queries": 1.5},
        {"participants": [{"name": "north"}]},
        {"participants": [{"name": "north", "answered": -1, "reason": ""}]},
        {"participants": "north"},
        {"unknown": 1},
        {"software": "\ud800"},
    ],
)
def test_t36_an_origin_of_another_form_is_refused(model: Model, changes: dict[str, Any]) -> None:
    header, _, body = replace(model, origin=ORIGIN).to_bytes().partition(b"\n")
    read = json.loads(header)
    read["origin"] |= changes
    with pytest.raises(CorruptModelError):
        Model.from_bytes(json.dumps(read).encode() + b"\n" + body)


def test_a_run_in_one_process_names_its_method_and_queries(model: Model) -> None:
    queries = len(catalogue.plan(spec()))
    assert model.origin == Origin(method="dps-pca", queries=queries, software=__version__)


def test_data_set_and_providers_are_named_from_the_signed_job(tmp_path: Path) -> None:
    async def scenario() -> Origin | None:
        async with federation(Enrolment.create(tmp_path)) as running:
            return (await running.analyst.fit(spec(), "cohort")).origin

    origin = asyncio.run(scenario())
    assert origin
    assert (origin.data_set, origin.method, origin.took_part) == ("cohort", "dps-pca", tuple(SHARDS))
    assert (origin.dropped_out, origin.software) == ((), __version__)
    assert origin.job
