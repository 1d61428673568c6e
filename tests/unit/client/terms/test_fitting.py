"""A job is held against terms as the providers would hold it, and changed as little as they ask for."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from facts import facts, names_facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.client.terms import admitted, differences, fit, may_be_smaller, refusals, sized
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidDataError, RefusedError
from dpspca.common.job import (
    PRIVATE_BOUND,
    Accounting,
    Bounds,
    Budget,
    Centering,
    Conditions,
    JobSpec,
    Schema,
    StatedCap,
    Terms,
    columns_digest,
)
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy import Price, PrivacyUnit
from dpspca.provider.policy import JobRequest, Policy, conditions_of

ADA = PartyName("town", Role.ANALYST, "ada")
POLICY = """
[data_sets.cohort]
analysts = ["ada"]
unit = "row-replace-one"
rows_per_person = 1
methods = ["dps-pca", "analyze-gauss"]
accounting = ["exact"]
centering = ["none"]
explained_variance = true
columns = 100
norm_bound = { least = 5.0, most = 10.0 }
minimum_providers = 2
lifetime = { epsilon = 8.0, delta = 1e-5 }
per_analyst = { epsilon = 4.0, delta = 1e-5 }
per_job = { epsilon = 1.0, delta = 1e-6 }
"""
SPEC = JobSpec(
    schema=Schema(30),
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    budget=Budget(1.0, 1e-6),
    norm_bound=8.0,
    components=2,
    minimum_providers=2,
    method="dps-pca",
    options={"sparsity": 6, "rounds": 3},
)
RULES = conditions_of(Policy.parse(POLICY).rules("cohort"))


def terms(provider: str = "north", left: Price | None = None, dimension: int = 30, **changes: Any) -> Terms:
    stated: Conditions = replace(RULES, **changes)
    return Terms(
        provider=f"dpspca://town/provider/{provider}",
        data_set="cohort",
        analyst=ADA.uri,
        stated_at=0,
        dimension=dimension,
        columns_digest=None,
        dictionary_digest=None,
        software="0.2.0",
        conditions=stated,
        left=(stated.per_analyst or stated.per_job).price if left is None else left,
        refused=None,
    )


TWO = (terms("north"), terms("south"))
WIDE: dict[str, Any] = {"methods": ("auto",), "columns": 3000}
WIDE_JOB = replace(SPEC, schema=Schema(3000), method="auto", options={})


def test_a_job_whose_matrix_a_provider_would_not_keep_does_without() -> None:
    """The matrix of 3,000 columns is asked for at least twice, with 72 MB each."""
    small = RULES.quotas | {"answer_mebibytes": 64}
    held = (terms("north", dimension=3000, **WIDE), terms("south", dimension=3000, quotas=small, **WIDE))
    made = fit(WIDE_JOB, None, held)
    assert made.fits
    assert made.spec.options == {"matrix": False}
    (change,) = made.changes
    assert (change.key, change.providers) == ("options", ("south",))
    assert catalogue.plan(made.spec).answer_bytes < 64 * 2**20 < catalogue.plan(WIDE_JOB).answer_bytes
    assert fit(WIDE_JOB, None, held[:1]).spec.options == {}


def test_a_candidate_is_admitted_or_refused_as_providers_would() -> None:
    small = RULES.quotas | {"answer_mebibytes": 64}
    held = (terms("north", dimension=3000, **WIDE), terms("south", dimension=3000, quotas=small, **WIDE))
    assert sized(WIDE_JOB, held) == admitted(WIDE_JOB, None, held) == replace(WIDE_JOB, options={"matrix": False})
    both = (*held, terms("west", dimension=3000, **WIDE))
    assert sized(WIDE_JOB, held[:1]) == admitted(WIDE_JOB, ["north", "west"], both) == WIDE_JOB
    assert sized(WIDE_JOB, ()) == admitted(WIDE_JOB, None, ()) == WIDE_JOB
    supposed = replace(WIDE_JOB, norm_bound=99.0)  # beyond the range, but nobody has to know it
    assert admitted(supposed, ["north", "west"], both) == supposed
    with pytest.raises(RefusedError, match=facts("north", "mod-sulq")):
        admitted(replace(WIDE_JOB, method="mod-sulq"), None, held)
    chosen = replace(WIDE_JOB, options={"matrix": True})
    assert not may_be_smaller(chosen)
    with pytest.raises(RefusedError, match=facts("south", "bytes")):
        admitted(chosen, None, held)


def test_a_matrix_is_left_out_whatever_else_a_provider_would_refuse() -> None:
    """A bound that follows from a dictionary is allowed outside the range, which this side may not know."""
    small = RULES.quotas | {"answer_mebibytes": 64}
    held = (terms("south", dimension=3000, quotas=small, **WIDE),)
    assert sized(replace(WIDE_JOB, norm_bound=99.0), held).options == {"matrix": False}


def test_no_matrix_is_left_out_where_that_is_not_enough() -> None:
    tiny = terms("south", dimension=3000, quotas=RULES.quotas | {"answer_mebibytes": 8}, **WIDE)
    small = terms("east", dimension=3000, quotas=RULES.quotas | {"answer_mebibytes": 64}, **WIDE)
    north = terms("north", dimension=3000, **WIDE)
    assert sized(WIDE_JOB, (north, tiny)) == WIDE_JOB
    assert sized(WIDE_JOB, (north, tiny, small)).options == {"matrix": False}


def test_a_job_that_has_to_be_too_large_does_not_fit() -> None:
    tiny = RULES.quotas | {"answer_mebibytes_in_all": 1}
    held = (terms("north", dimension=3000, quotas=tiny, **WIDE), terms("south", dimension=3000, **WIDE))
    for spec in (WIDE_JOB, replace(WIDE_JOB, options={"matrix": True})):
        found = fit(spec, None, held)
        assert not found.fits
        assert all(names_facts(each, "north", f"{2**20:,}", "matrix = false") for each in found.obstacles)


def changed(spec: JobSpec, *stated: Terms) -> Mapping[str, Any]:
    """Fit a job, and return its changes. The job that results fits, and so it needs no further change."""
    made = fit(spec, None, stated)
    assert made.fits, made.obstacles
    assert fit(made.spec, made.providers, stated).changes == ()
    return {each.key: each.becomes for each in made.changes}


def test_a_job_that_keeps_all_terms_stays_as_it_is() -> None:
    assert changed(SPEC, *TWO) == {}


@pytest.mark.parametrize(
    ("asked", "becomes"),
    [
        ({"unit": PrivacyUnit.ROW_ADD_REMOVE}, {"unit": "row-replace-one"}),
        ({"norm_bound": 12.0}, {"norm_bound": 10.0}),
        ({"norm_bound": 0.5}, {"norm_bound": 5.0}),
        ({"minimum_providers": 1}, {"minimum_providers": 2}),
        ({"accounting": Accounting.PUBLISHED}, {"accounting": "exact"}),
        ({"centering": Centering.PRIVATE, "mean_bound": 2.0}, {"centering": "none", "mean_bound": None}),
        ({"method": "sulq", "options": {}}, {"method": "analyze-gauss"}),
        ({"budget": Budget(1.0, 1e-5)}, {"budget": {"epsilon": 1.0, "delta": 1e-6}}),
        ({"budget": Budget(3.0, 1e-7)}, {"budget": {"epsilon": 1.0, "delta": 1e-7}}),
        ({"budget": Budget(1.0, 1e-8)}, {}),
    ],
)
def test_each_key_becomes_the_nearest_value_that_is_allowed(asked: dict[str, Any], becomes: dict[str, Any]) -> None:
    assert changed(replace(SPEC, **asked), *TWO) == becomes


def test_a_job_without_a_required_dictionary_does_not_fit() -> None:
    policy = Policy.parse(f"{POLICY}dictionary = true\n").rules("cohort")
    digest = "ab" * 32
    stated = [replace(terms(each), conditions=conditions_of(policy), dictionary_digest=digest) for each in ("a", "b")]
    assert not fit(SPEC, None, stated).fits
    assert all(names_facts(why, "'dictionary'") for why in fit(SPEC, None, stated).obstacles)
    with_it = replace(SPEC, dictionary=digest, schema=Schema(30, tuple(f"c{number}" for number in range(30))))
    assert changed(with_it, *stated) == {}
    asked = JobRequest(with_it, ADA, ("a", "b"))
    assert [*policy.refusals(asked)] == []
    assert [each.code for each in policy.refusals(replace(asked, spec=SPEC))] == ["refused"]


def test_values_that_all_providers_allow_are_chosen() -> None:
    north = terms("north", norm_bound=Bounds(5.0, 10.0), rows_per_person=2, methods=("analyze-gauss", "sulq"))
    south = terms("south", norm_bound=Bounds(2.0, 7.0), minimum_providers=1, methods=("sulq", "analyze-gauss", "ppca"))
    found = changed(replace(SPEC, norm_bound=20.0, explained_variance=False), north, south)
    assert found == {"norm_bound": 7.0, "rows_per_person": 2, "method": "analyze-gauss", "options": {"sparsity": 6}}


def test_changes_name_the_providers_that_ask_for_them() -> None:
    stricter = terms("south", norm_bound=Bounds(5.0, 7.0), explained_variance=False)
    made = fit(SPEC, None, [terms("north"), stricter])
    assert {each.key: each.providers for each in made.changes} == {
        "norm_bound": ("south",),
        "explained_variance": ("south",),
    }


def test_a_private_mean_or_bound_is_kept_where_it_is_allowed() -> None:
    private = terms(centering=(Centering.PRIVATE,), mean_bound=Bounds(1.0, 3.0), minimum_providers=1)
    asked = replace(SPEC, minimum_providers=1)
    assert changed(asked, private) == {"centering": "private", "mean_bound": 3.0}
    own = replace(asked, norm_bound=PRIVATE_BOUND, method="auto", options={})
    assert "norm_bound" not in changed(own, terms(methods=("auto",), minimum_providers=1))


def test_a_bound_that_follows_from_the_dictionary_stays() -> None:
    narrow = [terms(name, norm_bound=Bounds(50.0, 60.0)) for name in ("north", "south")]
    (change,) = fit(SPEC, None, narrow).changes
    assert change.key == "norm_bound"
    made = fit(SPEC, None, narrow, public_bound=SPEC.norm_bound)
    assert (made.fits, made.changes) == (True, ())


def test_the_budget_is_cut_to_what_is_left() -> None:
    few = Price(catalogue.plan(replace(SPEC, budget=Budget(0.25, 1e-6))).price.units, TWO[0].left.slack_units)
    made = fit(SPEC, None, [terms("north"), terms("south", left=few)])
    (change,) = made.changes
    assert made.fits
    assert (change.key, change.providers) == ("budget", ("south",))
    assert 0.24 < made.spec.budget.epsilon <= 0.25


def test_with_nothing_left_no_job_fits_and_the_reason_names_the_provider() -> None:
    made = fit(SPEC, None, [terms("north"), terms("south", left=Price())])
    assert not made.fits
    assert [why.split(":")[0] for why in made.obstacles] == ["south"]
    assert names_facts(made.obstacles[0], "mu = 0", "epsilon 0", f"'{TWO[0].data_set}'")
    full = replace(terms("north"), refused="quarantined")
    assert "quarantined" in fit(SPEC, None, [full, terms("south")]).obstacles[0]


def test_providers_that_allow_nothing_in_common_are_named() -> None:
    matrices = terms("south", unit=PrivacyUnit.ROW_ADD_REMOVE, norm_bound=Bounds(20.0, 30.0))
    both = [terms("north"), matrices]
    made = fit(SPEC, None, both)
    assert not made.fits
    assert {why.split(":")[0] for why in made.obstacles} == {"south"}
    found = {each.rule: dict(each.stated) if each.rule == "unit" else None for each in differences(both)}
    assert found.keys() == {"unit", "norm_bound"}
    assert found["unit"] == {"row-replace-one": ("north",), "row-add-remove": ("south",)}


def test_providers_without_terms_are_left_out_if_enough_are_left() -> None:
    made = fit(SPEC, ("north", "south", "west"), TWO)
    assert made.providers == ("north", "south")
    assert [(each.key, each.providers) for each in made.changes] == [("providers", ("west",))]
    alone = fit(SPEC, ("north", "west"), TWO)
    assert not alone.fits
    assert "minimum_providers" in alone.obstacles[0]
    assert fit(SPEC, ("west",), TWO).obstacles == ("No provider shows you terms for this data set.",)


def test_columns_on_offer_are_taken_only_if_signed_terms_confirm_them() -> None:
    offered = Schema(3, ("a", "b", "c"))
    confirmed = [replace(each, dimension=3, columns_digest=columns_digest(offered)) for each in TWO]
    narrow = replace(SPEC, options={"sparsity": 3, "rounds": 3})
    made = fit(narrow, None, confirmed, offered)
    assert (made.fits, made.spec.schema) == (True, offered)
    lie = fit(narrow, None, confirmed, Schema(3, ("a", "c", "b")))
    assert (lie.fits, lie.spec.schema) == (False, narrow.schema)
    swapped = replace(narrow, schema=Schema(3, ("b", "a", "c")))
    assert "other names" in refusals(confirmed[0], JobRequest(swapped, ADA, ("north", "south")))[0].what


def test_a_job_must_fit_its_dictionary_and_may_use_fewer_columns() -> None:
    held, other = "ab" * 32, "cd" * 32
    both = [replace(each, dimension=50, dictionary_digest=held) for each in TWO]
    few = replace(SPEC, schema=Schema(2, ("age", "bmi")), options={"sparsity": 2, "rounds": 3}, dictionary=held)
    made = fit(few, None, both, Schema(50))
    assert (made.fits, made.changes) == (True, ())
    wrong = fit(replace(few, dictionary=other), None, both)
    assert "another dictionary" in wrong.obstacles[0]
    assert held in wrong.obstacles[0]
    assert "dictionary" in fit(few, None, TWO).obstacles[0]
    mixed = [both[0], replace(both[1], dictionary_digest=other)]
    assert [each.rule for each in differences(mixed)] == ["dictionary_digest"]


def test_columns_that_a_policy_names_are_written_into_the_job() -> None:
    offered = Schema(2, ("a", "b"))
    named = [
        replace(terms(name, columns=("a", "b", "c")), dimension=2, columns_digest=columns_digest(offered))
        for name in ("north", "south")
    ]
    bare = replace(SPEC, schema=Schema(2), options={"sparsity": 2, "rounds": 3})
    made = fit(bare, None, named, offered)
    assert (made.fits, made.spec.schema.names) == (True, ("a", "b"))


budgets = st.builds(Budget, st.floats(0.01, 40), st.floats(1e-12, 0.01))
specs = st.builds(
    lambda **changes: replace(SPEC, **changes),
    unit=st.sampled_from([PrivacyUnit.ROW_REPLACE_ONE, PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.PERSON_REPLACE_ONE]),
    budget=budgets,
    norm_bound=st.floats(1e-3, 1e3),
    minimum_providers=st.integers(1, 4),
    method=st.sampled_from(["auto", "dps-pca", "analyze-gauss", "sulq", "output-perturbation", "ppca"]),
    explained_variance=st.booleans(),
    rows_per_person=st.integers(1, 3),
    options=st.sampled_from([{}, {"sparsity": 6}, {"rounds": 2}, {"privacy": "pure"}]),
)
rules = st.builds(
    lambda **changes: changes,
    rows_per_person=st.integers(1, 3),
    methods=st.lists(st.sampled_from(["dps-pca", "analyze-gauss", "sulq"]), min_size=1, unique=True).map(tuple),
    explained_variance=st.booleans(),
    norm_bound=st.tuples(st.floats(0.1, 10), st.floats(1, 10)).map(lambda ends: Bounds(ends[0], ends[0] * ends[1])),
    per_job=st.builds(StatedCap, st.floats(0.1, 4), st.floats(1e-9, 1e-3)),
)


@pytest.mark.slow
@given(specs, st.lists(rules, min_size=2, max_size=2))
def test_a_job_that_fits_is_allowed_by_every_policy_unchanged(spec: JobSpec, stated: list[dict[str, Any]]) -> None:
    """The fitted job passes the refusals that the providers' own code computes from the same rules."""
    both = [terms(name, per_analyst=None, **each) for name, each in zip(("north", "south"), stated, strict=True)]
    made = fit(spec, None, both)
    asked = JobRequest(made.spec, ADA, made.providers)
    found = [why for each in both for why in refusals(each, asked)]
    assert made.fits == (not found)
    if made.fits:
        assert fit(made.spec, None, both).changes == ()
        assert all(catalogue.plan(made.spec).price.is_within(each.left) for each in both)


def test_bounds_of_scaled_columns_are_not_changed_to_raw_units() -> None:
    asked = replace(SPEC, minimum_providers=1, method="auto", options={}, scaling="private")
    stated = terms(methods=("auto",), minimum_providers=1, norm_bound=Bounds(1e6, 1e7))
    assert "norm_bound" not in changed(asked, stated)


@pytest.mark.parametrize(
    "changes",
    [
        {"quotas": {"evil": 1}},
        {"quotas": {"jobs_a_day": -5}},
        {"per_job": StatedCap(2.0, 1e-6), "per_analyst": StatedCap(1.0, 1e-6)},
        {"methods": ("no method",)},
        {"norm_bound": Bounds(5e-324, 1.0)},
        {"centering": (Centering.PRIVATE,), "mean_bound": None},
    ],
)
def test_t39_terms_that_no_policy_states_are_refused_by_provider(changes: dict[str, Any]) -> None:
    """A malicious provider may sign anything."""
    for hold in (
        lambda bad: refusals(bad, JobRequest(SPEC, ADA, ("north", "south"))),
        lambda bad: fit(SPEC, None, (terms("north"), bad)),
    ):
        with pytest.raises(InvalidDataError, match=facts("south")):
            hold(terms("south", **changes))


@pytest.mark.parametrize("epsilon", [5e-324, 1e-320, 1e-300])
def test_t39_a_budget_next_to_nothing_is_an_obstacle_and_no_crash(epsilon: float) -> None:
    assert not fit(SPEC, None, (terms("south", per_job=StatedCap(epsilon, 1e-6)),)).fits
