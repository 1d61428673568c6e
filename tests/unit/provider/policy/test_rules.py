"""What a steward did not allow is refused, in words that depend on the policy and the job alone."""

import json
import math
import re
import tomllib
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from facts import facts, names_facts
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.common.decoding import decode
from dpspca.common.errors import BudgetExceededError, DpspcaError, InvalidParameterError, RefusedError
from dpspca.common.job import PRIVATE_BOUND, Accounting, Budget, Centering, Conditions, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.plan import Plan, Step
from dpspca.common.privacy import Price
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.costs import cost_units, slack_units
from dpspca.common.privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent
from dpspca.common.privacy.lattice import MAX_PROVIDERS, MAX_ROWS
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import Count, Extent
from dpspca.provider.ledger.quotas import Quotas
from dpspca.provider.policy.approval import AUTOMATIC, HUMAN, ApprovalRule
from dpspca.provider.policy.caps import Cap, Range, covers_as_signed, filter_of
from dpspca.provider.policy.job_request import JobRequest
from dpspca.provider.policy.rules import AskedBudget, Policy, Rules, faults
from dpspca.provider.policy.suggestion import MOST_FEATURES, suggest
from dpspca.provider.policy.terms import conditions_of
from dpspca.server.jobs.roster import MAX_REASON_LENGTH

SAMPLE = (Path(__file__).parents[4] / "deploy" / "samples" / "policy.toml").read_text(encoding="utf-8")
PAGE = Path(__file__).parents[4] / "docs" / "policy.md"
COLUMNS = ("age", "weight", "height", "pulse")
BOTH = ("north", "south")

RULES = Rules(
    data_set="cohort",
    analysts=("ada", "grace"),
    unit=PrivacyUnit.ROW_ADD_REMOVE,
    rows_per_person=1,
    methods=("dps-pca",),
    centering=(Centering.NONE, Centering.PRIVATE),
    explained_variance=True,
    columns=COLUMNS,
    norm_bound=Range(4, 12),
    mean_bound=Range(2, 6),
    minimum_providers=2,
    lifetime=Budget(8, 1e-5),
    per_analyst=Budget(4, 1e-5),
    per_job=Budget(1, 1e-6),
)

JOB: dict[str, Any] = {
    "schema": Schema.of(COLUMNS),
    "unit": PrivacyUnit.ROW_ADD_REMOVE,
    "budget": Budget(1, 1e-6),
    "norm_bound": 12.0,
    "components": 2,
    "minimum_providers": 2,
    "method": "dps-pca",
    "options": {"sparsity": 2},
}


def spec(**changes: Any) -> JobSpec:
    return JobSpec(**JOB | changes)


def analyst(name: str = "ada", role: Role = Role.ANALYST) -> PartyName:
    return PartyName("town", role, name)


def refused(
    job: JobSpec, *, rules: Rules = RULES, who: PartyName | None = None, audience: tuple[str, ...] = BOTH
) -> str:
    """Give the one reason for which a job is refused."""
    with pytest.raises(RefusedError) as caught:
        rules.check(JobRequest(job, who or analyst(), audience))
    assert [str(each) for each in rules.refusals(JobRequest(job, who or analyst(), audience))] == [str(caught.value)]
    return caught.value.what


# --- What is asked for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "job",
    [
        spec(),
        spec(explained_variance=False),
        spec(schema=Schema.of(COLUMNS[2:])),
        spec(schema=Schema.of(COLUMNS[::-1])),
        spec(norm_bound=4),
        spec(centering="private", mean_bound=2),
        spec(centering="private", mean_bound=6),
        spec(minimum_providers=3),
        spec(budget=Budget(0.1, 1e-9)),
    ],
)
def test_a_job_within_every_rule_is_allowed(job: JobSpec) -> None:
    for name in RULES.analysts:
        RULES.check(JobRequest(job, analyst(name), ("north", "south", "west")))


@pytest.mark.parametrize(
    ("job", "rule", "asked", "allowed"),
    [
        (spec(unit="row-replace-one"), "unit", "row-replace-one", "row-add-remove"),
        (spec(accounting="published", budget=Budget(1, 1e-6)), "accounting", "'published'", "exact"),
        (spec(centering="public", public_mean=(1, 2, 3, 4)), "centering", "'public'", "none, private"),
        (spec(schema=Schema(4)), "columns", "4 columns without their names", "the 4 columns that the policy names"),
        (
            spec(schema=Schema.of(["age", "name", "wage"])),
            "columns",
            "2 other columns, for example 'name'",
            "the 4",
        ),
        (spec(schema=Schema.of(["age", "wage"])), "columns", "1 other column, for example 'wage'", "the 4"),
        (spec(norm_bound=3.999), "norm_bound", "3.999", "between 4.0 and 12.0"),
        (spec(norm_bound=12.000000001), "norm_bound", "12.000000001", "between 4.0 and 12.0"),
        (spec(centering="private", mean_bound=6.5), "mean_bound", "6.5", "between 2.0 and 6.0"),
        (spec(centering="private", mean_bound=1.5), "mean_bound", "1.5", "between 2.0 and 6.0"),
        (spec(minimum_providers=1), "minimum_providers", "a job that goes on with 1 provider", "2 or more"),
    ],
)
def test_a_refusal_names_the_rule_what_was_asked_and_what_is_allowed(
    job: JobSpec, rule: str, asked: str, allowed: str
) -> None:
    assert f"'{rule}'. Asked: {asked}. Allowed: {allowed}" in refused(job)


@pytest.mark.parametrize(
    ("job", "do"),
    [
        (spec(minimum_providers=1), "Write minimum_providers = 2 (--minimum-providers 2)"),
        (spec(unit="row-replace-one"), 'Write unit = "row-add-remove" (--unit row-add-remove)'),
        (spec(method="analyze-gauss", options={}), 'Write method = "dps-pca" (--method dps-pca)'),
        (spec(accounting="published"), 'Write accounting = "exact" (--accounting exact)'),
        (spec(norm_bound=13), "Change the job"),
    ],
)
def test_a_refusal_says_what_to_write_where_that_is_one_thing(job: JobSpec, do: str) -> None:
    (refusal,) = RULES.refusals(JobRequest(job, analyst(), BOTH))
    assert do in refusal.remedy
    assert "cost nothing" in refusal.remedy


def test_a_refusal_of_too_few_providers_reaches_the_analyst_whole() -> None:
    """A coordinator passes on so many letters of a reason."""
    (refusal,) = RULES.refusals(JobRequest(spec(minimum_providers=1), analyst(), BOTH))
    assert len(str(refusal)) <= MAX_REASON_LENGTH


def test_rules_that_make_every_listed_method_unusable_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("row-replace-one", "row-add-remove")):
        replace(RULES, methods=("streaming-power",))
    one_of_two = replace(RULES, methods=("streaming-power", "dps-pca"))
    assert list(one_of_two.unusable()) == ["streaming-power"]


def test_data_are_compared_with_the_least_bound_of_any_job() -> None:
    assert RULES.least_bound == 4
    assert "between 4.0 and" in refused(spec(norm_bound=math.nextafter(RULES.least_bound, 0)))


def test_an_algorithm_that_is_not_listed_is_refused() -> None:
    listed = replace(RULES, methods=("sulq",))
    assert names_facts(refused(spec(), rules=listed), "'methods'", "'dps-pca'", "sulq")


def test_explained_variances_are_given_only_where_allowed() -> None:
    silent = replace(RULES, explained_variance=False)
    silent.check(JobRequest(spec(explained_variance=False), analyst(), BOTH))
    assert "'explained_variance'. Asked:" in refused(spec(), rules=silent)


def test_columns_may_be_limited_in_number_instead_of_by_name() -> None:
    counted = replace(RULES, columns=3)
    for few in (Schema(3), Schema.of(["any", "name"])):
        counted.check(JobRequest(spec(schema=few), analyst(), BOTH))
    assert names_facts(refused(spec(), rules=counted), "'columns'", 4, 3)


def test_where_no_private_mean_is_allowed_the_rule_on_centring_says_so() -> None:
    plain = replace(RULES, centering=(Centering.NONE,), mean_bound=None)
    assert "rule 'centering'" in refused(spec(centering="private", mean_bound=3), rules=plain)


@pytest.mark.parametrize("audience", [(), ("north",), ("north", "north")])
def test_a_job_that_names_too_few_providers_is_refused(audience: tuple[str, ...]) -> None:
    parties = len(set(audience))
    assert f"'minimum_providers'. Asked: a job for {parties} provider" in refused(spec(), audience=audience)


def test_all_rules_that_a_job_breaks_are_listed_on_request() -> None:
    job = spec(unit="row-replace-one", norm_bound=1, minimum_providers=1, budget=Budget(2, 1e-6))
    told = [str(each) for each in RULES.refusals(JobRequest(job, analyst("eve"), ("north",)))]
    rules = ("analysts", "unit", "norm_bound", "minimum_providers", "minimum_providers", "per_job")
    assert [next(rule for rule in rules if f"'{rule}'" in each) for each in told] == list(rules)


# --- Who asks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "who", [analyst("eve"), analyst("ada", Role.PROVIDER), analyst("ada", Role.COORDINATOR), analyst("ada.b")]
)
def test_a_stranger_is_refused_and_learns_of_no_other_rule(who: PartyName) -> None:
    for job in (spec(), spec(norm_bound=99, budget=Budget(40, 0.1))):
        with pytest.raises(RefusedError, match=facts("'cohort'", "'analysts'")) as caught:
            RULES.check(JobRequest(job, who, BOTH))
        assert not any(name in str(caught.value) for name in ("ada,", "grace", "12.0"))
    with pytest.raises(RefusedError, match=facts("'cohort'", "'analysts'")):
        RULES.limits(who)


def test_limits_are_whole_budgets_of_the_data_set_and_of_the_analyst() -> None:
    assert RULES.limits(analyst()) == (Filter.for_budget(8, 1e-5), Filter.for_budget(4, 1e-5))
    assert replace(RULES, per_analyst=None).limits(analyst("grace")) == (Filter.for_budget(8, 1e-5), None)


@pytest.mark.parametrize("policy", [Policy(), Policy.parse("data_sets = {}"), Policy((RULES,))])
def test_a_data_set_without_rules_is_refused_to_everybody(policy: Policy) -> None:
    with pytest.raises(RefusedError, match=facts("'trial'")):
        policy.rules("trial")


# --- What it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "fits"),
    [
        (Budget(1, 1e-6), True),
        (Budget(1.001, 1e-6), False),
        (Budget(1, 1.01e-6), False),
        (Budget(0.5, 1e-2), False),  # a smaller epsilon, and dearer
        (Budget(1.2, 1e-9), True),  # a larger epsilon, and cheaper
    ],
)
def test_a_cap_compares_prices_and_not_epsilons(budget: Budget, fits: bool) -> None:
    if fits:
        RULES.check(JobRequest(spec(budget=budget), analyst(), BOTH))
    else:
        assert names_facts(refused(spec(budget=budget)), "'per_job'", "mu")


def test_a_job_beyond_its_cap_is_refused_with_what_fits() -> None:
    with pytest.raises(BudgetExceededError, match=facts("'per_job'", "mu = 0.236704", "(epsilon = 1, delta = 1e-06)")):
        RULES.check(JobRequest(spec(budget=Budget(3, 1e-6)), analyst(), BOTH))


def test_published_accounting_is_priced_by_what_its_noise_is_worth() -> None:
    both = replace(RULES, accounting=(Accounting.EXACT, Accounting.PUBLISHED))
    both.check(JobRequest(spec(accounting="published", budget=Budget(2, 1e-6)), analyst(), BOTH))
    assert "'per_job'" in refused(spec(budget=Budget(2, 1e-6)), rules=both)


def test_a_job_without_a_plan_is_refused_and_not_an_error() -> None:
    assert names_facts(refused(spec(options={})), "sparsity")


def test_t18_a_job_must_protect_all_rows_that_a_person_may_have() -> None:
    rules = replace(RULES, rows_per_person=3)
    told = refused(spec(rows_per_person=2), rules=rules)
    assert names_facts(told, "'rows_per_person'", 2, 3)
    for enough in (3, 4):
        rules.check(JobRequest(spec(rows_per_person=enough), analyst(), BOTH))


def planned(budget: Budget, listed: tuple[Event, ...]) -> Plan:
    """A plan that costs just these events."""
    steps = tuple(Step(str(at), Count, Extent(1), event) for at, event in enumerate(listed))
    return Plan(spec(budget=budget), steps)


def test_a_job_with_other_noise_is_compared_with_epsilon_and_delta() -> None:
    """In mu it costs far more than a Gaussian job of that budget; the lifetime is charged with that."""
    listed = (LaplaceEvent(1.0, 1.0),)
    rules = replace(RULES, per_job=Budget(1.0, 1e-6), lifetime=Budget(8.0, 1e-5), per_analyst=None)
    assert covers_as_signed(rules.per_job, planned(Budget(1.0, 1e-9), listed))
    assert not covers_as_signed(rules.per_job, planned(Budget(1.01, 1e-9), listed))
    assert not covers_as_signed(rules.per_job, planned(Budget(1.0, 1e-5), listed))
    assert not covers_as_signed(rules.per_job, planned(Budget(1.0, 1e-9), (GaussianEvent(1.0, 1.0),)))


def test_an_unproven_mechanism_is_refused_unless_the_policy_allows_it() -> None:
    rules = replace(RULES, methods=("ppca",), per_job=Budget(1.0, 1e-6), lifetime=Budget(8.0, 1e-5), per_analyst=None)
    exact, chain = (spec(method="ppca", options={"sampler": sampler}) for sampler in ("exact", "gibbs"))
    rules.check(JobRequest(exact, analyst(), BOTH))
    assert "its rule 'unproven'" in refused(chain, rules=rules)
    replace(rules, unproven=True).check(JobRequest(chain, analyst(), BOTH))


def test_approximate_mechanisms_need_a_part_of_the_cap_s_delta_as_well() -> None:
    listed = (ApproximateEvent(0.5, 1e-8),)
    rules = replace(RULES, per_job=Budget(1.0, 1e-6), lifetime=Budget(8.0, 1e-5), per_analyst=None)
    assert not covers_as_signed(rules.per_job, planned(Budget(1.0, 1e-7), listed))
    larger = replace(rules, per_job=Cap(1.0, 1e-6, 1e-8))
    assert covers_as_signed(larger.per_job, planned(Budget(1.0, 1e-7), listed))


def test_a_part_of_delta_may_be_set_aside_for_approximate_mechanisms() -> None:
    read = decode(AskedBudget, {"epsilon": 8.0, "delta": 1e-5, "approximate_delta": 1e-6})
    assert filter_of(read) == Filter.for_budget(8.0, 1e-5, 1e-6)
    for wrong in (1e-5, -1e-9, "much"):
        with pytest.raises(DpspcaError, match=facts("approximate_delta")):
            decode(AskedBudget, {"epsilon": 8.0, "delta": 1e-5, "approximate_delta": wrong})


# --- Reading ---------------------------------------------------------------------------------------------------------

_TABLE: dict[str, Any] = {
    "analysts": ["ada"],
    "unit": "row-add-remove",
    "rows_per_person": 1,
    "methods": ["dps-pca"],
    "centering": ["none"],
    "explained_variance": True,
    "columns": 40,
    "norm_bound": {"least": 4, "most": 12},
    "minimum_providers": 2,
    "lifetime": {"epsilon": 8, "delta": 1e-5},
    "per_job": {"epsilon": 1, "delta": 1e-6},
}


def toml(value: Any) -> str:
    """Write a value as TOML."""
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
        case Budget() | Range() | Quotas():
            return toml({each.name: getattr(value, each.name) for each in fields(value)})
        case str():
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
        case _:
            return repr(value)


def table(name: str = "cohort", /, **changes: Any) -> str:
    """Write a data set's table; what is changed to None is left out."""
    values = {key: value for key, value in (_TABLE | changes).items() if value is not None}
    return "\n".join([f"[data_sets.{toml(name)}]", *(f"{key} = {toml(value)}" for key, value in values.items()), ""])


def render(policy: Policy) -> str:
    def values(rules: Rules) -> dict[str, Any]:
        found = {each.name: getattr(rules, each.name) for each in fields(rules) if each.name != "data_set"}
        return found | {"approvers": rules.approvers or None}

    tables = [table(rules.data_set, **values(rules)) for rules in policy.data_sets]
    return "\n".join(tables) or "data_sets = {}"


def test_the_sample_is_a_policy_and_leaves_no_key_unexplained() -> None:
    rules = Policy.parse(SAMPLE).rules("cohort")
    assert rules.analysts == ("ada", "grace")
    for each in fields(Rules):
        assert each.name == "data_set" or f"\n{each.name} = " in SAMPLE or f"\n# {each.name} = " in SAMPLE


def test_every_key_has_a_row_on_the_page_and_the_sample_lists_all_centrings() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {each.name for each in fields(Rules)} - {"data_set"} <= set(rows)
    (listed,) = re.findall(r"^centering = .*# [^:]*: (.*)$", SAMPLE, re.MULTILINE)
    assert listed.split(", ") == [*Centering]


def test_terms_state_all_rules_but_those_that_analysts_must_not_see() -> None:
    hidden = {"data_set", "analysts", "approvers", "lifetime", "answer_interval"}
    other_names = {"dictionary": "dictionary_required", "approval": "approvals_needed"}
    stated = {other_names.get(each.name, each.name) for each in fields(Rules) if each.name not in hidden}
    assert stated == {each.name for each in fields(Conditions)}
    for required in (True, False):
        assert conditions_of(Policy.parse(table(dictionary=required)).rules("cohort")).dictionary_required is required


def test_a_page_names_the_limit_on_features_of_a_draft() -> None:
    assert f"at most {MOST_FEATURES} features" in " ".join(PAGE.read_text(encoding="utf-8").split())


def test_the_persons_who_have_to_approve_follow_from_three_keys() -> None:
    assert Policy.parse(table()).rules("cohort").approval_rule is None
    human = {"approval": "human", "approvers": ["maria", "ben"], "approvals_needed": 2}
    assert Policy.parse(table(**human)).rules("cohort").approval_rule == ApprovalRule(("maria", "ben"), 2)


def test_what_may_be_left_out_is_then_the_strictest() -> None:
    rules = Policy.parse(table()).rules("cohort")
    assert (rules.accounting, rules.mean_bound, rules.per_analyst) == ((Accounting.EXACT,), None, None)


@pytest.mark.parametrize("key", _TABLE)
def test_everything_else_has_to_be_said(key: str) -> None:
    with pytest.raises(InvalidParameterError, match=facts(key, "`dpspca config sample policy`")):
        Policy.parse(table(**{key: None}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"analysts": []}, "analysts is []. Give a list"),
        ({"analysts": "ada"}, "analysts is 'ada'. Give a list"),
        ({"analysts": ["Ada"]}, "analysts[0]: It is 'Ada'. Use"),
        ({"analysts": ["*"]}, "analysts[0]: It is '*'. Use"),
        ({"analysts": [3]}, "analysts[0]: It is 3, not text"),
        ({"analysts": ["ada", "ada"]}, "analysts is ['ada', 'ada']. Give a list of different"),
        (
            {"unit": "edge"},
            "unit is 'edge'. Available: row-replace-one, row-add-remove, person-replace-one, ",
        ),
        ({"unit": ["row-add-remove"]}, "unit is ['row-add-remove']."),
        ({"rows_per_person": 0}, "rows_per_person is 0. Give a whole number from 1 to"),
        ({"rows_per_person": True}, "rows_per_person is True. Give a whole number"),
        ({"rows_per_person": MAX_ROWS + 1}, "rows_per_person is"),
        ({"methods": ["pca"]}, "methods[0] is 'pca'. Did you mean 'ppca'? Available: auto, dps-pca, "),
        ({"accounting": ["loose"]}, "accounting[0] is 'loose'. Available: exact, published."),
        ({"accounting": []}, "accounting is []"),
        ({"centering": ["none", 3]}, "centering[1] is 3. Available: none, public, private, pairs."),
        ({"explained_variance": 1}, "explained_variance is 1. Give true or false"),
        ({"columns": 0}, "columns is 0. Give the largest number of columns, from 1 to"),
        ({"columns": 2.5}, "columns is 2.5. Give the largest number"),
        ({"columns": True}, "columns is True. Give the largest number"),
        ({"columns": []}, "columns is []. Give the largest number"),
        ({"columns": ["age", 3]}, "columns[1] is 3. Give text"),
        ({"columns": ["age", "age"]}, "columns is ['age', 'age']. Give"),
        ({"norm_bound": 12}, "norm_bound is 12. Give a table with the keys least, most"),
        ({"norm_bound": {"least": 1}}, "norm_bound lacks most"),
        ({"norm_bound": {"least": 1, "most": 2, "usual": 1}}, "norm_bound has an unknown key 'usual'"),
        ({"norm_bound": {"least": 2, "most": 1}}, "norm_bound: least is 2.0, which is above most, 1.0"),
        ({"norm_bound": {"least": 0, "most": 1}}, "norm_bound: least is 0.0; it must be a positive"),
        ({"norm_bound": {"least": 1, "most": float("inf")}}, "norm_bound.most is inf"),
        ({"norm_bound": {"least": float("nan"), "most": 1}}, "norm_bound.least is nan"),
        ({"minimum_providers": 0}, "minimum_providers is 0"),
        ({"minimum_providers": MAX_PROVIDERS + 1}, f"minimum_providers is {MAX_PROVIDERS + 1}"),
        ({"lifetime": {"epsilon": 8}}, "lifetime lacks delta"),
        ({"lifetime": {"epsilon": 0, "delta": 1e-5}}, "lifetime: epsilon is 0"),
        ({"lifetime": {"epsilon": 49, "delta": 1e-5}}, "lifetime: epsilon is 49"),
        ({"lifetime": {"epsilon": 8, "delta": 0}}, "lifetime: delta is 0"),
        ({"lifetime": {"epsilon": float("nan"), "delta": 0.1}}, "lifetime.epsilon is nan"),
        ({"lifetime": {"epsilon": "8", "delta": 0.1}}, "lifetime.epsilon is '8'"),
        ({"per_job": {"epsilon": 1, "delta": 1.0000001e-200}}, "per_job: delta = "),
        ({"per_job": {"epsilon": 1e-20, "delta": 1e-30}}, "per_job: It is too small to pay for any job"),
        ({"per_analyst": 4}, "per_analyst is 4. Give a table"),
        ({"per_job": {"epsilon": 9, "delta": 1e-5}}, "per_job (mu = 1.83"),
        ({"per_job": {"epsilon": 7, "delta": 1e-2}}, "allows more than lifetime (mu = 1.66"),
        ({"per_analyst": {"epsilon": 0.9, "delta": 1e-6}}, "allows more than per_analyst"),
        ({"per_analyst": {"epsilon": 9, "delta": 1e-5}}, "per_analyst (mu = 1.83"),
        ({"mean_bound": {"least": 1, "most": 2}}, "mean_bound"),
        ({"centering": ["private"]}, "mean_bound"),
        ({"approval": "steward"}, "approval is 'steward'. Available: automatic, human."),
        ({"approval": "human"}, "approvers names nobody who could approve"),
        ({"approvers": ["maria"]}, 'approval is "automatic", so nobody would be asked'),
        ({"approvals_needed": 2}, 'approval is "automatic", so nobody would be asked'),
        ({"approval": "human", "approvers": ["Maria"]}, "approvers[0]: It is 'Maria'. Use"),
        ({"approval": "human", "approvers": ["maria"], "approvals_needed": 2}, "approvers names only 1"),
        (
            {"approval": "human", "approvers": ["maria"], "approvals_needed": 3},
            "approvals_needed is 3. Give a whole number from 1 to 2",
        ),
    ],
)
def test_an_invalid_rule_is_refused_by_the_name_of_its_key(changes: dict[str, Any], said: str) -> None:
    told = [str(fault) for fault in faults(table(**changes))]
    assert len(told) == 1
    assert told[0].startswith("The policy for 'cohort'")
    assert said in told[0]
    with pytest.raises(InvalidParameterError) as caught:
        Policy.parse(table(**changes))
    assert str(caught.value) == told[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "The policy lacks data_sets"),
        ("[data_sets", "not valid TOML"),
        ("[data_sets.a]\n[data_sets.a]\n", "not valid TOML"),
        ("data_sets = 3", "data_sets is 3. Give a table"),
        ("version = 1\ndata_sets = {}", "unknown key 'version'"),
        ("[data_sets]\ncohort = 3\n", "The policy for 'cohort' is 3. Give a table"),
        (table("Cohort"), "the data set is 'Cohort'"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_text_that_is_not_a_policy_is_refused(text: str, said: str) -> None:
    told = [str(fault) for fault in faults(text)]
    assert len(told) == 1
    assert said in told[0]
    with pytest.raises(InvalidParameterError):
        Policy.parse(text)


def test_all_faults_are_listed_and_not_only_the_first() -> None:
    text = "x = 1\n" + table(unit="edge", analysts=[], colour="red") + table("trial", columns=0)
    told = "\n".join(str(fault) for fault in faults(text))
    for part in (
        "key 'x'",
        "'cohort' has an unknown key 'colour'",
        "'edge'",
        "analysts is []",
        "'trial': columns is 0",
    ):
        assert part in told
    assert len(told.splitlines()) == 5


def test_rules_that_contradict_each_other_are_reported_together() -> None:
    with pytest.raises(
        InvalidParameterError,
        match=facts("mean_bound", "per_job (mu = 3.44778)", "per_analyst (mu = 2.00045)", "lifetime (mu = 1.66603)"),
    ):
        replace(RULES, mean_bound=None, per_job=Budget(20, 1e-5), per_analyst=Budget(10, 1e-5))


# --- For every policy and every job ----------------------------------------------------------------------------------

_NAMES = st.from_regex(r"[a-z0-9][a-z0-9.-]{0,9}", fullmatch=True)
_COLUMN = st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(str.strip)
_BOUND = st.floats(2.0**-100, 2.0**100)
_BUDGET = st.builds(Budget, st.floats(1e-3, 48), st.floats(1e-30, 0.5))
_ROW_UNIT = st.sampled_from([unit for unit in PrivacyUnit if unit.is_row])


def some(of: Any) -> "st.SearchStrategy[tuple[Any, ...]]":
    return st.lists(of, min_size=1, max_size=4, unique=True).map(tuple)


def units_of(budget: Budget) -> int:
    return Filter.for_budget(budget.epsilon, budget.delta).whole.units


@st.composite
def rules_of(draw: Callable[..., Any], data_set: str = "cohort") -> Rules:
    ranges = st.tuples(_BOUND, _BOUND).map(lambda ends: Range(min(ends), max(ends)))
    caps = sorted(draw(st.tuples(_BUDGET, _BUDGET, _BUDGET)), key=units_of)
    approvers = draw(st.just(()) | some(_NAMES))
    usable = [each for each in Centering if each is not Centering.PAIRS]  # it goes with one unit alone
    centering = draw(some(st.sampled_from(usable)))
    return Rules(
        data_set=data_set,
        analysts=draw(some(_NAMES)),
        unit=draw(_ROW_UNIT),
        rows_per_person=draw(st.sampled_from([1, 1, 1, 2, MAX_ROWS])),
        methods=("dps-pca",),
        accounting=draw(some(st.sampled_from(Accounting))),
        centering=centering,
        explained_variance=draw(st.booleans()),
        columns=draw(st.integers(1, 50) | some(_COLUMN)),
        norm_bound=draw(ranges),
        mean_bound=draw(ranges) if Centering.PRIVATE in centering else None,
        minimum_providers=draw(st.integers(1, MAX_PROVIDERS)),
        lifetime=caps[2],
        per_analyst=draw(st.sampled_from([caps[1], None])),
        per_job=caps[0],
        quotas=Quotas(*(draw(st.integers(1, 2**40)) for _ in fields(Quotas))),
        approval=HUMAN if approvers else AUTOMATIC,
        approvers=approvers,
        approvals_needed=draw(st.integers(1, min(2, len(approvers)))) if approvers else 1,
    )


@st.composite
def specs(draw: Callable[..., Any]) -> JobSpec:
    columns = draw(some(_COLUMN))
    centering = draw(st.sampled_from(Centering))
    finite = st.floats(allow_nan=False, allow_infinity=False)  # no job holds others
    scalar = st.none() | st.booleans() | st.integers(-3, 2000) | finite | st.text(max_size=5)
    return JobSpec(
        schema=draw(st.sampled_from([Schema.of(columns), Schema(len(columns)), Schema(2**24)]))
        if centering is not Centering.PUBLIC
        else Schema.of(columns),
        unit=draw(st.sampled_from(PrivacyUnit)),
        budget=draw(st.builds(Budget, st.floats(5e-324, 48), st.floats(2e-200, 1, exclude_max=True))),
        norm_bound=draw(_BOUND),
        components=draw(st.integers(1, len(columns))),
        method=draw(st.sampled_from(["dps-pca", "dps-pca", "another", ""])),
        accounting=draw(st.sampled_from(Accounting)),
        centering=centering,
        mean_bound=draw(_BOUND) if centering is Centering.PRIVATE else None,
        public_mean=(0.5,) * len(columns) if centering is Centering.PUBLIC else None,
        explained_variance=draw(st.booleans()),
        minimum_providers=draw(st.integers(1, MAX_PROVIDERS)),
        options=draw(
            st.fixed_dictionaries({"sparsity": st.integers(4, 9)}, optional={"rounds": st.integers(1, 1000)})
            | st.dictionaries(st.sampled_from(["sparsity", "rounds", "start", "x"]), scalar)
        ),
    )


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(_NAMES, max_size=3, unique=True))
def test_a_policy_that_is_written_down_reads_back_as_it_was(data: st.DataObject, names: list[str]) -> None:
    policy = Policy(tuple(data.draw(rules_of(name)) for name in names))
    assert Policy.parse(render(policy)) == policy


@settings(max_examples=80, deadline=None)
@given(rules_of(), specs(), _NAMES, st.sampled_from(Role), st.lists(_NAMES, max_size=4).map(tuple))
def test_every_valid_job_is_either_allowed_or_refused(
    rules: Rules, job: JobSpec, name: str, role: Role, audience: tuple[str, ...]
) -> None:
    for who in (PartyName("town", role, name), analyst(rules.analysts[0])):
        refusals = list(rules.refusals(JobRequest(job, who, audience)))
        assert all(type(each) in {RefusedError, BudgetExceededError} and each.remedy for each in refusals)
        assert all(len(str(each)) < 1000 for each in refusals)
        with pytest.raises(RefusedError) if refusals else nullcontext():
            rules.check(JobRequest(job, who, audience))


@settings(max_examples=60, deadline=None)
@given(rules_of(), st.none() | _BUDGET, st.none() | st.integers(1, 30), st.booleans())
def test_an_allowed_job_fits_its_caps_when_its_events_are_charged(
    rules: Rules, budget: Budget | None, rounds: int | None, explained: bool
) -> None:
    """The job keeps all rules but, perhaps, the one on its price: its budget is the cap's own, or any other."""
    near = replace(rules, centering=(Centering.NONE,), mean_bound=None)
    job = JobSpec(
        schema=Schema.of(rules.columns) if isinstance(rules.columns, tuple) else Schema(rules.columns),
        components=1,
        unit=rules.unit,
        accounting=rules.accounting[0],
        explained_variance=explained and rules.explained_variance,
        norm_bound=rules.norm_bound.most,
        rows_per_person=rules.rows_per_person,
        minimum_providers=rules.minimum_providers,
        budget=budget or rules.per_job,
        method="dps-pca",
        options={"sparsity": 4, "rounds": rounds},
    )
    who, audience = analyst(rules.analysts[-1]), tuple(f"p{number}" for number in range(rules.minimum_providers))
    refusals = list(near.refusals(JobRequest(job, who, audience)))
    assert all("'per_job'" in str(each) or "no plan" in str(each) for each in refusals)
    if not refusals:
        listed = catalogue.plan(job).events
        for cap in (Filter.for_budget(rules.per_job.epsilon, rules.per_job.delta), *near.limits(who)):
            if cap:
                cap.charge(Price(cost_units(listed)))
        Filter.for_budget(rules.per_job.epsilon, rules.per_job.delta).charge(Price(0, slack_units(listed)))


@settings(max_examples=60, deadline=None)
@given(_BUDGET, _BUDGET)
def test_a_job_is_within_a_cap_exactly_if_its_mu_is(cap: Budget, budget: Budget) -> None:
    job = spec(budget=budget)
    try:
        listed = catalogue.plan(job).events
    except InvalidParameterError:
        assume(False)
    rules = replace(RULES, per_job=cap, per_analyst=None, lifetime=Budget(48, 0.9))
    room = Filter.for_budget(cap.epsilon, cap.delta)
    fits = cost_units(listed) <= room.whole.units and slack_units(listed) <= room.whole.slack_units
    assert fits == (not list(rules.refusals(JobRequest(job, analyst(), BOTH))))


def test_the_order_of_names_in_policy_and_audience_does_not_matter() -> None:
    for analysts, audience in product((("ada", "grace"), ("grace", "ada")), (BOTH, BOTH[::-1])):
        replace(RULES, analysts=analysts, columns=COLUMNS[::-1]).check(JobRequest(spec(), analyst(), audience))


def test_a_job_about_rows_may_find_its_own_bound() -> None:
    job = spec(norm_bound=PRIVATE_BOUND, method="auto", options={})
    rules = replace(RULES, methods=("auto",))
    assert not [each for each in rules.refusals(JobRequest(job, analyst(), BOTH)) if "norm_bound" in str(each)]
    text = suggest(catalogue.plan(job), "cohort", ["ada"])
    assert tomllib.loads(text)["data_sets"]["cohort"]["norm_bound"] == {"least": 1e-18, "most": 1e18}


def test_bounds_of_a_job_with_scales_are_not_compared_with_raw_units() -> None:
    """A policy's range is in units of the rows, and the job's bounds are in multiples of each column's size."""
    rules = replace(RULES, methods=("auto",), centering=(Centering.NONE, Centering.PRIVATE), mean_bound=Range(1e6, 1e7))
    rules = replace(rules, norm_bound=Range(1e6, 1e7))
    scaled: dict[str, Any] = {"method": "auto", "options": {}, "scaling": "private"}

    def about_bounds(**changes: Any) -> list[str]:
        refused = rules.refusals(JobRequest(spec(**scaled | changes), analyst(), BOTH))
        return [str(each) for each in refused if "_bound" in str(each)]

    assert about_bounds(norm_bound=4.0) == []
    assert about_bounds(norm_bound=PRIVATE_BOUND, centering=Centering.PRIVATE, mean_bound=None) == []
    assert "norm_bound" in about_bounds(norm_bound=1e-6)[0]
    assert "norm_bound" in about_bounds(norm_bound=1e7)[0]
    assert "norm_bound" in about_bounds(norm_bound=4.0, scaling="none")[0]
    text = suggest(catalogue.plan(spec(**scaled)), "cohort", ["ada"])
    assert tomllib.loads(text)["data_sets"]["cohort"]["norm_bound"] == {"least": 1e-18, "most": 1e18}
