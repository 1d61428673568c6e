"""The statement gives the right price for every kind of noise, and says if a number is exact or a bound."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import EXAMPLES
from facts import names_facts

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.ppca import Sampler
from dpspca.common.job import Accounting, Budget, JobSpec, Schema
from dpspca.common.plan import Noise, Plan, PlannedQuery, Step, events, price
from dpspca.common.privacy import format_up
from dpspca.common.privacy.accountant import compose
from dpspca.common.privacy.events import PureEvent
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import Extent
from dpspca.common.queries.rows import ColumnSums, Count
from dpspca.common.queries.subspace import WalkedSubspace
from dpspca.common.results import NOT_FOR_RELEASE, Model, PrivacyStatement
from dpspca.common.results.statement import ADDING_UP, SEVERAL_ROWS, UNPROVEN

SPEC = JobSpec(
    schema=Schema(4),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    budget=Budget(1.0, 1e-6),
    norm_bound=1.0,
    components=2,
    method="dps-pca",
)


def plan(*noises: Noise | PureEvent) -> tuple[Step, ...]:
    """Plan a query for each noise or event, of equal shares."""
    share = 1 / len(noises)
    return price(
        SPEC,
        [
            PlannedQuery("count", Count, Extent(0), share, event=each)
            if isinstance(each, PureEvent)
            else PlannedQuery("sums", ColumnSums, Extent(4), share, noise=each)
            for each in noises
        ],
    )


def statement(steps: tuple[Step, ...], spec: JobSpec = SPEC) -> PrivacyStatement:
    return PrivacyStatement.of(Plan(spec, tuple(steps)), parties=3)


def test_gaussian_noise_is_stated_with_its_exact_mu() -> None:
    stated = statement(plan(Noise.GAUSSIAN, Noise.GAUSSIAN))
    assert stated.gaussian
    assert stated.mu == compose(events(plan(Noise.GAUSSIAN, Noise.GAUSSIAN))).mu
    named = ("2 answers", "3 providers", "0.236705-Gaussian", "exact Gaussian accounting")
    assert any(names_facts(paragraph, *named) for paragraph in stated.text.split("\n\n"))


@pytest.mark.parametrize(
    "noises", [(Noise.LAPLACE,), (PureEvent(0.5),), (Noise.LAPLACE, PureEvent(0.5))], ids=["laplace", "pure", "both"]
)
def test_other_noise_is_not_called_gaussian_and_its_mu_is_a_bound(
    noises: tuple[Noise | PureEvent, ...],
) -> None:
    steps = plan(*noises)
    stated, loss = statement(steps), compose(events(steps))
    assert not stated.gaussian
    assert loss.mu is None
    assert "-Gaussian differentially private" not in stated.text
    assert "Gaussian accounting" not in stated.text
    assert f"at most mu = {format_up(loss.gdp_bound)}" in stated.text
    assert f"epsilon {format_up(loss.epsilon(1e-6))} at this delta" in stated.text
    assert loss.epsilon(1e-6) <= SPEC.budget.epsilon


def test_published_noise_is_stated_with_its_exact_epsilon() -> None:
    spec = JobSpec.from_json(SPEC.to_json().replace('"exact"', '"published"'))
    assert spec.accounting is Accounting.PUBLISHED
    gaussian = statement(plan(Noise.GAUSSIAN), spec)
    assert f"exact accounting prices it at epsilon {format_up(gaussian.exact_epsilon)}." in gaussian.text
    mixed = statement(plan(Noise.LAPLACE), spec)
    assert names_facts(mixed.text, "published formula", f"epsilon {format_up(mixed.exact_epsilon)}")
    assert not names_facts(statement(plan(Noise.LAPLACE)).text, "published formula")


def test_a_model_stores_if_its_noise_is_gaussian_and_old_models_are() -> None:
    model = Model(np.eye(4)[:2], statement(plan(Noise.LAPLACE)))
    stored = model.to_bytes()
    assert Model.from_bytes(stored).statement == model.statement
    before = Model.from_bytes(stored.replace(b', "gaussian": false', b""))
    assert before.statement.gaussian


def test_the_statement_names_the_rows_of_a_person_that_noise_covers() -> None:
    assert ADDING_UP in statement(plan(Noise.GAUSSIAN)).text
    told = statement(plan(Noise.GAUSSIAN), replace(SPEC, rows_per_person=3)).text
    assert ADDING_UP not in told
    assert all(part.format(3) in told for part in SEVERAL_ROWS.split("{1}"))


@pytest.mark.parametrize(
    ("unit", "rows", "said"),
    [
        (PrivacyUnit.ROW_ADD_REMOVE, 1, "nothing about one row."),
        (PrivacyUnit.ROW_ADD_REMOVE, 3, "nothing about 3 rows."),
        (PrivacyUnit.PERSON_ADD_REMOVE, 3, "nothing about one person, unless"),
        (PrivacyUnit.PERSON_REPLACE_ONE, 1, "nothing about one person, unless"),
        (PrivacyUnit.ROW_REPLACE_ONE, 1, None),
    ],
)
def test_the_statement_says_about_whom_times_reveal_little(unit: PrivacyUnit, rows: int, said: str | None) -> None:
    """Under replace-one of persons as well: how many rows a person has is no public number."""
    whole = catalogue.plan(replace(SPEC, unit=unit, rows_per_person=rows, options={"sparsity": 4}))
    text = PrivacyStatement.of(whole, parties=3, federated=True).text
    assert said in text if said else "Timing" not in text


def stated(sampler: str, *, fresh_noise: bool = True, **changes: Any) -> PrivacyStatement:
    spec = replace(SPEC, **({"method": "ppca", "options": {"sampler": sampler}, "components": 1} | changes))
    return PrivacyStatement.of(catalogue.plan(spec), parties=1, fresh_noise=fresh_noise)


@pytest.mark.parametrize(
    ("epsilon", "factor"), [(0.1, "1.11"), (1.0, "2.72"), (7.0, "1,097"), (25.0, "more than 485,165,195")]
)
def test_the_promise_gives_the_factor_as_a_number_rounded_up(epsilon: float, factor: str) -> None:
    promise = replace(stated("exact"), epsilon=epsilon).text
    assert f"({factor}), apart from" in promise


def test_the_conditions_of_a_price_are_stated() -> None:
    chain, exact = stated("gibbs"), stated("exact")
    assert chain.caveat == WalkedSubspace.caveat
    assert WalkedSubspace.caveat in chain.text
    assert NOT_FOR_RELEASE not in exact.text
    assert "about real numbers" in exact.text


@pytest.mark.parametrize("unit", ["row-replace-one", "row-add-remove"])
@pytest.mark.parametrize("accounting", list(Accounting))
def test_an_unproven_result_is_never_releasable(unit: str, accounting: Accounting) -> None:
    chain = stated("gibbs", unit=unit, accounting=accounting)
    assert (chain.releasable, chain.proven) == (False, False)
    assert stated("exact", unit=unit, accounting=accounting).releasable
    plain = chain.to_dict()
    assert not plain["releasable"]
    for told in (chain.text, chain.headline, plain["text"], plain["headline"]):
        assert told.startswith(NOT_FOR_RELEASE)
    assert NOT_FOR_RELEASE in repr(chain)


@pytest.mark.parametrize("sampler", list(Sampler))
@pytest.mark.parametrize("fresh_noise", [True, False])
def test_every_condition_comes_before_the_promise(sampler: str, *, fresh_noise: bool) -> None:
    told = stated(sampler, fresh_noise=fresh_noise)
    before, _, after = told.text.partition("differentially private")
    assert told.caveat
    assert told.caveat in before
    assert told.caveat not in after
    assert (WalkedSubspace.caveat in before) == (UNPROVEN in before) == (sampler == "gibbs")
    assert ("fixed seed" in before) == (not fresh_noise)
    unconditional = stated("exact").text.partition("differentially private")[0]
    opening, usual = (text.rpartition("\n\n")[2] for text in (before, unconditional))
    assert (opening == usual) == told.releasable, "a promise under conditions begins with other words"


@pytest.mark.slow
def test_a_result_is_releasable_if_and_only_if_its_price_is_proven() -> None:
    """This holds for every method, unit, accounting and option."""
    for name, examples in EXAMPLES.items():
        for spec in examples.jobs.values():
            steps = catalogue.plan(spec)
            told = PrivacyStatement.of(Plan(spec, tuple(steps)), parties=1, fresh_noise=True)
            assert told.releasable == all(step.query.is_proven for step in steps), name
            assert told.text.startswith(told.caveat or "This result is") or not told.releasable


def test_the_repr_of_a_model_says_if_it_is_not_for_release() -> None:
    chain = Model(np.eye(4)[:2], stated("gibbs"))
    assert repr(chain).startswith(f"<{NOT_FOR_RELEASE}")
    assert repr(Model(np.eye(4)[:2], stated("exact"))).startswith("<Model: ")


@pytest.mark.parametrize(("sampler", "begins"), [("gibbs", "NOT FOR RELEASE. The subspace"), ("exact", "The promise")])
def test_a_stored_model_of_version_0_1_0_is_read(sampler: str, begins: str) -> None:
    model = Model(np.eye(4)[:2], stated(sampler))
    line, body = model.to_bytes().split(b"\n", 1)
    header = json.loads(line)
    statement = {name: value for name, value in header["statement"].items() if name not in {"fresh_noise", "proven"}}
    statement |= {"releasable": True, "caveat": f"{begins} was drawn by other words."}
    stored = json.dumps(header | {"format": "dpspca-model-1", "statement": statement}).encode() + b"\n" + body
    read = Model.from_bytes(stored).statement
    assert (read.fresh_noise, read.proven) == (True, sampler == "exact")
