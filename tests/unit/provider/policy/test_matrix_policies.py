"""A policy, a suggestion and a statement about a matrix speak of entries, and not of rows and the people in them."""

from typing import Any

import pytest
from facts import facts, names_facts

from dpspca.client.steward import explanation
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.names import PartyName, Role
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import PrivacyStatement
from dpspca.common.results.statement import FURTHER_JOBS, SHARES_ONE_PROCESS, SHARES_TRUST
from dpspca.provider.policy.job_request import JobRequest
from dpspca.provider.policy.rules import Policy, Rules
from dpspca.provider.policy.suggestion import suggest

ADA = PartyName("town", Role.ANALYST, "ada")
MATRICES = [PrivacyUnit.ENTRY, PrivacyUnit.SPECTRAL]


def job(unit: PrivacyUnit = PrivacyUnit.ENTRY, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(30),
        "unit": unit,
        "budget": Budget(1.0, 1e-6),
        "norm_bound": 2.5,
        "components": 2,
        "method": "noisy-power",
    }
    return JobSpec(**good | changes)


def suggested(spec: JobSpec) -> str:
    return suggest(catalogue.plan(spec), "cohort", ["ada"])


def rules(text: str) -> Rules:
    return Policy.parse(text).rules("cohort")


@pytest.mark.parametrize("unit", MATRICES)
def test_what_is_suggested_allows_the_job_and_does_not_speak_of_persons(unit: PrivacyUnit) -> None:
    text = suggested(job(unit))
    assert "rows_per_person" not in text
    rules(text).check(JobRequest(job(unit), ADA, ("north",)))


@pytest.mark.parametrize("unit", MATRICES)
def test_a_job_that_protects_smaller_changes_or_another_unit_is_refused(unit: PrivacyUnit) -> None:
    held = rules(suggested(job(unit)))
    (other,) = set(MATRICES) - {unit}
    for changed, rule in ((job(unit, norm_bound=2.4), "norm_bound"), (job(other), "unit")):
        with pytest.raises(RefusedError, match=facts("'cohort'", f"'{rule}'")):
            held.check(JobRequest(changed, ADA, ("north",)))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('centering = ["none"]', 'centering = ["none", "public"]', ("entry", "centering", '["none"]')),
        ("columns = 30", "columns = 30\nrows_per_person = 2", ("entry", "rows_per_person")),
        ('unit = "entry"', 'unit = "row-replace-one"', ("rows_per_person", "`dpspca config sample policy`")),
    ],
)
def test_rules_that_have_no_meaning_for_the_unit_are_refused(old: str, new: str, said: object) -> None:
    text = suggested(job())
    assert old in text
    with pytest.raises(InvalidParameterError, match=facts(said)):
        Policy.parse(text.replace(old, new))


@pytest.mark.parametrize("unit", MATRICES)
def test_the_words_say_what_is_protected_and_up_to_which_change(unit: PrivacyUnit) -> None:
    told = "\n".join(explanation(rules(suggested(job(unit)))))
    assert unit.neighbours in told
    assert any(names_facts(line, "Norm bound", 2.5) for line in told.splitlines())
    assert names_facts(told, "symmetric matrix")
    for wrong in ("One person has", "one row", "rows are clipped"):
        assert wrong not in told


@pytest.mark.parametrize("federated", [False, True])
@pytest.mark.parametrize("unit", MATRICES)
def test_a_statement_promises_what_the_unit_is_and_no_row(unit: PrivacyUnit, federated: bool) -> None:
    spec = job(unit)
    text = PrivacyStatement.of(catalogue.plan(spec), parties=2, fresh_noise=True, federated=federated).text
    trust, other = (SHARES_TRUST, SHARES_ONE_PROCESS) if federated else (SHARES_ONE_PROCESS, SHARES_TRUST)
    for part in (unit.neighbours, FURTHER_JOBS, trust):
        assert part in text
    assert other not in text
    of_the_change = [each for each in text.split("\n\n") if names_facts(each, 2.5)]
    assert len(of_the_change) == 2, "the promise, and what it covers"
    assert names_facts(of_the_change[0], "entry" if unit is PrivacyUnit.ENTRY else "spectral norm")
    assert "row" not in text.replace("A whole row is not protected", "")


def test_a_statement_about_rows_names_the_row_its_length_and_the_unit() -> None:
    spec = job(PrivacyUnit.ROW_REPLACE_ONE)
    text = PrivacyStatement.of(catalogue.plan(spec), parties=2).text
    for part in ("one row had been different", "The unit is one row.", "clipped to Euclidean length 2.5"):
        assert part in text
