"""`dpspca budget` reports exact balances, rounded so that none looks better than it is."""

import json
import math
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, commands_in
from facts import a_line_names, facts, names_facts
from hypothesis import given
from hypothesis import strategies as st
from steward import ADA, GRACE, LIFETIME, QUERIES, Site, job, opening

from dpspca.common.errors import BudgetExceededError
from dpspca.common.privacy.accountant import Filter
from dpspca.common.privacy.calibration import format_down, gaussian_delta
from dpspca.common.privacy.costs import UNIT, Price, mu_of
from dpspca.provider.ledger.accounts import Account
from dpspca.provider.ledger.balance import Balance
from dpspca.provider.ledger.ledger import Limits

PRICE = opening("any", job()).units
WHOLE = LIFETIME.whole.units
OWN = Filter.for_budget(2.0, 1e-5).whole.units
LARGEST = Filter.for_budget(1.0, 1e-6).whole.units


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site.made(tmp_path)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], site: Site) -> Callable[..., Ended]:
    return commands_in(site.folder, monkeypatch, capfd)


def output(here: Callable[..., Ended], *words: object) -> dict[str, Any]:
    """Return what the command reports about the only data set."""
    (data_set,) = here("budget", "--config", "provider.toml", "--json", *words).facts["data_sets"]
    return dict(data_set)


amounts = st.integers(0, 2 * WHOLE)


@given(spent=amounts, reserved=amounts)
def test_spent_is_rounded_up_and_left_is_rounded_down(spent: int, reserved: int) -> None:
    facts = Balance.of(LIFETIME, [Account(Price(spent), Price(reserved))]).facts()
    left = max(0, WHOLE - spent - reserved)
    assert Fraction(facts["spent"]["mu"]) ** 2 >= spent * UNIT
    assert Fraction(facts["spent"]["share"]) >= Fraction(spent, WHOLE)
    assert gaussian_delta(facts["spent"]["epsilon"], mu_of(spent)) <= 1e-5
    assert Fraction(facts["reserved"]["share"]) >= Fraction(reserved, WHOLE)
    assert Fraction(facts["left"]["mu"]) ** 2 <= left * UNIT
    assert Fraction(facts["left"]["share"]) <= Fraction(left, WHOLE)
    assert facts["left"]["units"] == left


@given(value=st.floats(0, 1e6), digits=st.integers(1, 8))
def test_what_is_left_is_printed_format_down(value: float, digits: int) -> None:
    written = format_down(value, digits)
    assert not written.startswith("-")
    assert float(written) <= value
    assert float(written) == pytest.approx(value, rel=10.0 ** (1 - digits))


def test_the_share_counts_the_part_of_delta_for_noise_if_scarcer() -> None:
    slack = LIFETIME.whole.slack_units
    facts = Balance.of(LIFETIME, [Account(Price(0, slack))]).facts()
    assert (facts["spent"]["share"], facts["left"]["share"]) == (1.0, 0.0)
    assert Balance.of(LIFETIME, [Account(Price(0, slack))]).jobs(Price(1, 1)) == 0


def test_a_price_without_a_finite_epsilon_reports_none() -> None:
    facts = Balance.of(LIFETIME, [Account(Price(10**7 * WHOLE))]).facts()
    assert facts["spent"]["epsilon"] is None


def test_spent_reserved_and_left_follow_from_the_answers(here: Callable[..., Ended], site: Site) -> None:
    with site.running() as ledger:
        site.answer(ledger, "first")
        ledger.close("first", "done")
        site.answer(ledger, "second", 1, analyst=GRACE)
    facts = output(here)
    part = PRICE // QUERIES
    assert facts["spent"]["units"] == pytest.approx(PRICE + part, rel=1e-6)
    assert facts["spent"]["units"] + facts["reserved"]["units"] == 2 * PRICE
    assert facts["left"]["units"] == WHOLE - 2 * PRICE
    assert facts["further_jobs"] == (WHOLE - 2 * PRICE) // LARGEST == 13
    assert facts["per_job"] == {"epsilon": 1.0, "delta": 1e-6}
    assert facts["refused"] is None
    assert facts["budget"] == {
        "epsilon": 4.0,
        "delta": 1e-5,
        "mu": mu_of(WHOLE),
        "units": WHOLE,
        "slack_units": LIFETIME.whole.slack_units,
    }


def test_each_analyst_has_an_own_budget_within_the_lifetime(here: Callable[..., Ended], site: Site) -> None:
    with site.running() as ledger:
        site.answer(ledger, "first")
        site.answer(ledger, "hers", analyst="dpspca://town/analyst/gone")
    facts = output(here)
    analysts = {each["analyst"]: each for each in facts["analysts"]}
    assert analysts[ADA]["left"]["units"] == OWN - PRICE
    assert analysts[ADA]["further_jobs"] == (OWN - PRICE) // LARGEST == 3
    assert (facts["newcomers"]["left"]["units"], facts["newcomers"]["further_jobs"]) == (OWN, OWN // LARGEST)
    gone = analysts["dpspca://town/analyst/gone"]
    assert (gone["named"], gone["further_jobs"]) == (False, 0)


def test_without_per_analyst_the_lifetime_limits_each_analyst(here: Callable[..., Ended], site: Site) -> None:
    policy = site.folder / "policy.toml"
    capped = policy.read_text()
    policy.write_text(capped.replace("per_analyst = ", "# per_analyst = "))
    with site.running() as ledger:
        site.answer(ledger, "first")
    facts = output(here)
    assert facts["newcomers"] is None
    assert facts["analysts"][0]["further_jobs"] == facts["further_jobs"]
    assert "left mu" not in here("budget", "--config", "provider.toml").out
    policy.write_text(capped)
    assert a_line_names(here("budget", "--config", "provider.toml").out, ADA, "left mu")


def test_budget_reports_as_many_fits_as_the_ledger_admits(here: Callable[..., Ended], site: Site) -> None:
    limits = Limits(LIFETIME, Filter.for_budget(2.0, 1e-5))
    asking = ("budget", "--config", "provider.toml", "--job", "job.json", "--data-set", "cohort", "--json")
    for number in range(4):
        with site.running() as ledger:
            before = here(*asking, "--analyst", "ada")
            assert (before.code, before.facts["job"]["fits"]) == (0, True)
            site.answer(ledger, f"job {number}", 1)
    refused = here(*asking, "--analyst", "ada")
    assert refused.code == 1
    with (
        site.running() as ledger,
        pytest.raises(BudgetExceededError, match=facts("dpspca://town/analyst/ada", "'cohort'")),
    ):
        ledger.open(opening("job 4", job()), limits)
    others = here(*asking).facts["job"]
    assert {each["analyst"]: each["fits"] for each in others["analysts"]} == {"ada": False, "grace": True}
    assert others["such_jobs"] == (WHOLE - 4 * PRICE) // PRICE
    assert Fraction(others["share"]) >= Fraction(PRICE, WHOLE)


def test_budget_reports_a_job_s_cost_and_for_whom_it_does_not_fit(here: Callable[..., Ended], site: Site) -> None:
    with site.running() as ledger:
        for number in range(4):
            site.answer(ledger, f"job {number}")
    asking = ("budget", "--config", "provider.toml", "--job", "job.json", "--data-set", "cohort")
    words = here(*asking).out
    assert a_line_names(words, "mu 0.2368", "epsilon 1", "delta 1e-06", "6.55 %")
    (fits,) = [line for line in words.splitlines() if names_facts(line, "fits")]
    assert names_facts(fits, "grace")
    assert not names_facts(fits, "ada")
    assert a_line_names(words, "not fit", "ada", ADA, "'cohort'")
    assert "NOT fit" in here(*asking, "--analyst", "ada").out


def test_budget_names_the_policy_rule_that_refuses_a_job(here: Callable[..., Ended], site: Site) -> None:
    with site.running():
        pass
    (site.folder / "large.json").write_text(json.dumps(job(2.0).to_dict()))
    asking = ("budget", "--config", "provider.toml", "--job", "large.json", "--data-set", "cohort")
    ended = here(*asking)
    assert ended.code == 1
    assert "REFUSES" in ended.out
    assert names_facts(ended.out, "'per_job'")


def test_expired_jobs_are_counted_and_their_reservations_freed(here: Callable[..., Ended], site: Site) -> None:
    past = int(time.time()) - 10
    with site.running(past - 10) as ledger:
        for number in range(9):
            site.answer(ledger, f"job {number}", 1, expires_at=past, analyst=GRACE)
    asking = ("--job", "job.json", "--data-set", "cohort", "--analyst", "grace")
    facts = output(here, *asking)
    assert (facts["past_expiry"], facts["further_jobs"]) == (9, 6)
    assert facts["reserved"]["units"] + facts["spent"]["units"] == 9 * PRICE
    assert a_line_names(here("budget", "--config", "provider.toml", *asking).out, 9, "expired")


def test_a_lifetime_below_what_is_spent_leaves_nothing(here: Callable[..., Ended], site: Site) -> None:
    with site.running() as ledger:
        for number in range(6):
            site.answer(ledger, f"job {number}")
    policy = site.folder / "policy.toml"
    policy.write_text(policy.read_text().replace("epsilon = 4.0", "epsilon = 2.0"))
    facts = output(here)
    assert (facts["left"]["mu"], facts["left"]["share"], facts["further_jobs"]) == (0.0, 0.0, 0)
    assert facts["spent"]["share"] > 1
    assert names_facts(facts["refused"], "'cohort'")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('unit = "row-add-remove"', 'unit = "row-replace-one"', "protect row-add-remove"),
        ("[data_sets.cohort]", "[data_sets.other]", "no table for the data set 'cohort'"),
    ],
)
def test_budget_gives_the_reason_if_no_job_is_admitted(
    old: str, new: str, why: str, here: Callable[..., Ended], site: Site
) -> None:
    with site.running() as ledger:
        site.answer(ledger, "first")
    policy = site.folder / "policy.toml"
    policy.write_text(policy.read_text().replace(old, new))
    facts = output(here, "--data-set", "cohort")
    assert why in facts["refused"]
    assert facts["further_jobs"] == 0
    words = here("budget", "--config", "provider.toml").out
    assert f"NO JOB IS ADMITTED. {facts['refused']}" in words
    assert math.isclose(facts["spent"]["mu"], mu_of(PRICE))


def test_an_older_copy_of_the_ledger_leaves_no_room_for_jobs(here: Callable[..., Ended], site: Site) -> None:
    with site.running() as ledger:
        site.answer(ledger, "first")
    site.back_up()
    with site.running() as ledger:
        site.answer(ledger, "second")
    site.restore()
    asking = ("budget", "--config", "provider.toml", "--job", "job.json", "--data-set", "cohort")
    ended = here(*asking)
    assert ended.code == 1
    assert "QUARANTINED" in ended.out
    assert json.loads(here(*asking, "--json").out)["job"]["such_jobs"] == 0
    assert output(here)["further_jobs"] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--analyst", "ada"), "--analyst is given without --job."),
        (("--data-set", "nothing"), "Unknown data set 'nothing'. Available: cohort."),
        (("--job", "none.json"), "none.json cannot be read"),
        (("--job", "job.json"), "The job names no data set."),
    ],
)
def test_invalid_arguments_exit_with_2_in_one_line(
    words: tuple[str, ...], message: str, here: Callable[..., Ended], site: Site
) -> None:
    with site.running():
        pass
    assert message in here("budget", "--config", "provider.toml", *words).error_line


def test_budget_without_a_ledger_is_an_error(here: Callable[..., Ended]) -> None:
    assert here("budget", "--config", "provider.toml").error_line.startswith("There is no ledger at ledger/ledger.db.")
