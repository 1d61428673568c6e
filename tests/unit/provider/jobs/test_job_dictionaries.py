"""A job with a dictionary is answered about the columns that it names, and only where the same dictionary is held."""

import logging
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from facts import facts
from local_federation import AllowEverything, Enrolment, now

from dpspca.common.algorithms import catalogue
from dpspca.common.dictionary import Dictionary, Preparation
from dpspca.common.errors import DpspcaError, MissingFeatureError, OtherDictionaryError, RefusedError
from dpspca.common.job import Budget, Centering, JobSpec, Schema
from dpspca.common.names import Role
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.queries import Count, CovarianceProduct
from dpspca.common.storage import Reading
from dpspca.common.trust import Identity
from dpspca.provider.data import Arrivals, read_arriving, read_offered
from dpspca.provider.evaluate import Shard
from dpspca.provider.jobs import ProviderSetup
from dpspca.provider.jobs.registry import JobRegistry
from dpspca.provider.ledger import MemoryLedger
from dpspca.provider.policy import Policy

STUDY = """
format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.sex]
kind = "category"
levels = ["female", "male"]
[features.bmi]
kind = "number"
unit = "kg/m²"
range = [10, 60]
[features.height]
kind = "number"
unit = "cm"
range = [100, 220]
"""
KNOWN = Dictionary.parse(tomllib.loads(STUDY))
FRAME = pd.DataFrame({"bmi": [20.0, 30.0, 40.0, 50.0], "sex": ["female", "male"] * 2, "age": [10.0, 20.0, 60.0, 110.0]})
LATER = FRAME.assign(age=FRAME["age"] - 5)
POLICY = """
[data_sets.cohort]
analysts = ["ada"]
unit = "row-replace-one"
rows_per_person = 1
methods = ["dps-pca"]
centering = ["none"]
explained_variance = true
dictionary = true
columns = ["age", "sex", "bmi"]
norm_bound = { least = 3.0, most = 4.0 }
minimum_providers = 1
lifetime = { epsilon = 8, delta = 1e-5 }
per_job = { epsilon = 1, delta = 1e-6 }
"""


def spec(*features: str, **changes: Any) -> JobSpec:
    chosen = KNOWN.subset(features)
    usual: dict[str, Any] = {
        "schema": Schema.of(chosen.columns),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": chosen.norm_bound(),
        "components": 1,
        "method": "dps-pca",
        "options": {"sparsity": 2, "rounds": 2},
        "dictionary": KNOWN.digest(),
    }
    return JobSpec(**usual | changes)


@pytest.fixture
def enrolment(tmp_path: Path) -> Enrolment:
    return Enrolment.create(tmp_path)


@pytest.fixture
def setup(enrolment: Enrolment, tmp_path: Path) -> ProviderSetup:
    me = enrolment.identity(Role.PROVIDER, "north")
    held = Preparation.parse(KNOWN, None, ["height"])
    reading = Reading().prepared(held)
    (tmp_path / "visits").mkdir()
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    LATER.to_csv(tmp_path / "visits" / "1.csv", index=False)
    rows = {
        "cohort": read_offered(tmp_path / "rows.csv", reading),
        "visits": Arrivals("visits", tmp_path / "visits", read=partial(read_arriving, reading=reading), pause=0.01),
    }
    dictionaries = {"cohort": held, "visits": held}
    return ProviderSetup("", lambda: me, enrolment.revocations, now, rows, AllowEverything, dictionaries=dictionaries)


@pytest.fixture
def ada(enrolment: Enrolment) -> Identity:
    return enrolment.identity(Role.ANALYST, "ada")


def opened(setup: ProviderSetup, enrolment: Enrolment, ada: Identity, job: JobSpec) -> Any:
    return JobRegistry(setup).open(enrolment.job(job, ada, ["north"]))


def entries(setup: ProviderSetup) -> list[str]:
    assert isinstance(setup.ledger, MemoryLedger)
    return [type(entry.fact).__name__ for entry in setup.ledger.entries]


@pytest.mark.parametrize("features", [("age", "sex", "bmi"), ("bmi", "age"), ("sex",)])
@pytest.mark.parametrize("data_set", ["cohort", "visits"])
def test_a_job_takes_any_features_in_any_order(setup: ProviderSetup, features: tuple[str, ...], data_set: str) -> None:
    rows = {} if data_set == "cohort" else {"method": "streaming-power", "options": {"rounds": 2, "block_rows": 2}}
    job = spec(*features, **rows)
    registry = JobRegistry(setup)
    shard = registry.rows.of(registry.offer, data_set, catalogue.plan(job))
    assert isinstance(shard, Shard)
    shard.check(job)
    frame = FRAME if data_set == "cohort" else LATER
    raw = {"age": frame["age"].to_numpy(), "bmi": frame["bmi"].to_numpy(), "sex": np.array([0.0, 1.0, 0.0, 1.0])}
    prepared = KNOWN.subset(features).encode(raw)
    np.testing.assert_array_equal(shard._rows.part(slice(None)), prepared)
    assert shard.evaluate(Count()).tolist() == [4]


def test_jobs_about_other_columns_do_not_share_what_was_prepared(setup: ProviderSetup) -> None:
    registry, basis = JobRegistry(setup), np.eye(2)[:, :1]
    answers = [
        registry.rows.of(registry.offer, "cohort", catalogue.plan(spec(*features, norm_bound=2.0))).evaluate(
            CovarianceProduct(basis)
        )
        for features in (("age", "bmi"), ("bmi", "age"), ("age", "bmi"))
    ]
    np.testing.assert_array_equal(answers[0], answers[2])
    assert not np.array_equal(answers[0], answers[1])


def test_another_dictionary_is_refused_before_anything_is_reserved(
    setup: ProviderSetup, enrolment: Enrolment, ada: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """What leaves is the same for every held dictionary. The steward's log names both digests."""
    other = "0" * 64
    refusals = set()
    for held in (setup.dictionaries, {}):
        before = entries(setup)
        with caplog.at_level(logging.WARNING), pytest.raises(OtherDictionaryError) as refused:
            opened(replace(setup, dictionaries=held), enrolment, ada, spec("age", "bmi", dictionary=other))
        assert entries(setup) == before
        refusals.add((refused.value.code, str(refused.value)))
    (refusal,) = refusals
    assert refusal[0] == "other-dictionary"
    assert KNOWN.digest() not in refusal[1]
    assert other in caplog.text
    assert KNOWN.digest() in caplog.text


def test_features_that_a_provider_lacks_are_named_before_it_reserves(
    setup: ProviderSetup, enrolment: Enrolment, ada: Identity
) -> None:
    before = entries(setup)
    with pytest.raises(MissingFeatureError, match=facts("'height'")):
        opened(setup, enrolment, ada, spec("age", "height"))
    assert entries(setup) == before


@pytest.mark.parametrize(
    "schema",
    [
        Schema(2),
        Schema.of(["sex=female", "age"]),
        Schema.of(["sex=male", "sex=female"]),
        Schema.of(["age", "sex=other"]),
    ],
)
def test_columns_that_are_not_whole_features_are_refused(
    setup: ProviderSetup, enrolment: Enrolment, ada: Identity, schema: Schema
) -> None:
    with pytest.raises(RefusedError):
        opened(setup, enrolment, ada, spec("age", "sex", schema=schema))


def test_a_policy_may_demand_a_dictionary_and_allows_the_bound_that_follows(
    setup: ProviderSetup, enrolment: Enrolment, ada: Identity
) -> None:
    strict = replace(setup, policy=lambda: Policy.parse(POLICY))
    assert opened(strict, enrolment, ada, spec("age", "sex")).plan.spec.norm_bound == np.sqrt(1.5)
    assert opened(strict, enrolment, ada, spec("age", "sex", norm_bound=3.5)).plan.spec.norm_bound == 3.5
    for wrong, rule in (
        (spec("age", "sex", norm_bound=2.0), "norm_bound"),
        (spec("age", "sex", dictionary=None, norm_bound=3.5), "dictionary"),
        (spec("age", "sex", dictionary="0" * 64), "norm_bound"),
        (spec("age", "height", norm_bound=3.5), "columns"),
    ):
        with pytest.raises(DpspcaError, match=facts("'cohort'", f"'{rule}'")):
            opened(strict, enrolment, ada, wrong)


def test_a_private_mean_is_about_prepared_rows(setup: ProviderSetup, enrolment: Enrolment, ada: Identity) -> None:
    job = spec("age", "bmi", centering=Centering.PRIVATE, mean_bound=KNOWN.subset(["age", "bmi"]).norm_bound())
    assert opened(setup, enrolment, ada, job).plan.spec.centering is Centering.PRIVATE
