"""Terms have one form in bytes, and what no policy can state is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.errors import DpspcaError
from dpspca.common.job import Accounting, Bounds, Centering, Conditions, Schema, StatedCap, Terms, columns_digest
from dpspca.common.privacy import Price, PrivacyUnit

CONDITIONS = Conditions(
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    rows_per_person=1,
    methods=("dps-pca", "analyze-gauss"),
    accounting=(Accounting.EXACT,),
    centering=(Centering.NONE, Centering.PRIVATE),
    explained_variance=True,
    columns=100,
    norm_bound=Bounds(1.0, 20.0),
    mean_bound=Bounds(0.5, 2.0),
    minimum_providers=2,
    unproven=False,
    approvals_needed=0,
    per_job=StatedCap(1.0, 1e-6),
    per_analyst=StatedCap(4.0, 1e-6),
    quotas={"open_jobs": 10, "jobs_a_day": 5, "queries_a_day": 7, "answer_mebibytes": 1, "answer_mebibytes_in_all": 2},
)
TERMS = Terms(
    provider="dpspca://town/provider/north",
    data_set="cohort",
    analyst="dpspca://town/analyst/ada",
    stated_at=1_700_000_000,
    dimension=30,
    columns_digest=columns_digest(Schema(2, ("a", "b"))),
    dictionary_digest=None,
    software="0.2.0",
    conditions=CONDITIONS,
    left=StatedCap(4.0, 1e-6).price,
    refused=None,
)


@pytest.mark.parametrize(
    "terms",
    [
        TERMS,
        replace(TERMS, refused="quarantined", left=Price()),
        replace(TERMS, dictionary_digest="ab" * 32),
        replace(TERMS, dictionary_digest="ab" * 32, conditions=replace(CONDITIONS, dictionary_required=True)),
        replace(TERMS, columns_digest=None, conditions=replace(CONDITIONS, columns=("a", "b"), mean_bound=None)),
        replace(TERMS, conditions=replace(CONDITIONS, per_analyst=None, per_job=StatedCap(1.0, 1e-6, 1e-7))),
    ],
)
def test_terms_read_back_are_the_same(terms: Terms) -> None:
    assert Terms.from_bytes(terms.to_bytes()) == terms


def altered(path: str, value: Any) -> bytes:
    raw = json.loads(TERMS.to_bytes())
    *parents, last = path.split("/")
    place = raw
    for each in parents:
        place = place[each]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "dpspca-terms-2"),
        ("provider", "dpspca://town/analyst/north"),
        ("analyst", "ada"),
        ("data_set", 3),
        ("dimension", 0),
        ("dimension", True),
        ("stated_at", -1),
        ("left", {"units": -1, "slack_units": 0}),
        ("left", {"units": 1}),
        ("conditions/unit", "row"),
        ("conditions/methods", []),
        ("conditions/methods", "dps-pca"),
        ("conditions/centering", ["median"]),
        ("conditions/explained_variance", 1),
        ("conditions/dictionary_required", False),
        ("conditions/dictionary_required", 1),
        ("conditions/columns", 0),
        ("conditions/columns", []),
        ("conditions/norm_bound", {"least": 2.0, "most": 1.0}),
        ("conditions/norm_bound", None),
        ("conditions/per_job", {"epsilon": 0.0, "delta": 1e-6, "approximate_delta": 0.0}),
        ("conditions/minimum_providers", 0),
        ("conditions/quotas", {"open_jobs": "many"}),
        ("lifetime", {"epsilon": 8.0}),
        ("refused", ...),
        ("conditions/per_analyst", ...),
    ],
)
def test_t36_terms_that_no_policy_states_are_refused(path: str, value: Any) -> None:
    with pytest.raises(DpspcaError):
        Terms.from_bytes(altered(path, value))


@given(st.integers(0, len(TERMS.to_bytes()) - 1), st.binary(max_size=3))
def test_t36_damaged_terms_are_refused_or_another_canonical_form(at: int, put: bytes) -> None:
    whole = TERMS.to_bytes()
    damaged = whole[:at] + put + whole[at + 1 :]
    try:
        read = Terms.from_bytes(damaged)
    except DpspcaError:
        return
    assert read.to_bytes() == damaged


def test_terms_in_another_order_or_with_a_key_twice_are_refused() -> None:
    raw = json.loads(TERMS.to_bytes())
    spaced = json.dumps(raw, sort_keys=True).encode()
    backwards = json.dumps(dict(reversed(raw.items())), separators=(",", ":")).encode()
    twice = TERMS.to_bytes()[:-1] + b',"stated_at":1700000000}'
    for content in (spaced, backwards, twice):
        with pytest.raises(DpspcaError):
            Terms.from_bytes(content)


def test_the_next_job_is_within_what_is_left_and_what_one_job_may_cost() -> None:
    assert TERMS.most_for_next_job.units == CONDITIONS.per_job.price.units
    few = replace(TERMS, left=Price(7, 5))
    assert few.most_for_next_job == Price(7, 5)
    assert (TERMS.further_jobs(), few.further_jobs()) == (12, 0)
    assert replace(TERMS, refused="quarantined").further_jobs() == 0


def test_what_is_left_is_an_epsilon_at_the_delta_of_all_jobs() -> None:
    assert (TERMS.left_epsilon, TERMS.left_delta) == (4.0, 1e-6)
    spent = replace(TERMS, left=TERMS.left - CONDITIONS.per_job.price)
    assert 3.0 < spent.left_epsilon < 4.0, "epsilons do not add up"
    assert StatedCap(spent.left_epsilon, 1e-6).price.units <= spent.left.units
    alone = replace(TERMS, conditions=replace(CONDITIONS, per_analyst=None, per_job=StatedCap(1.0, 1e-8)))
    assert alone.left_delta == 1e-8
    assert replace(TERMS, left=Price()).left_epsilon == 0.0


def test_the_digest_of_columns_depends_on_names_and_order() -> None:
    digests = {columns_digest(Schema(2, names)) for names in (("a", "b"), ("b", "a"), ("a", "c"), None)}
    assert len(digests) == 4
    assert columns_digest(Schema(2)) is None
