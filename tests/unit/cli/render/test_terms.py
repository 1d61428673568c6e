"""The terms of a data set are printed as one table, with a row for each rule that some provider states."""

from dataclasses import replace

import pytest

from dpspca.cli.render.terms import print_terms
from dpspca.common.job import Accounting, Bounds, Centering, Conditions, StatedCap, Terms
from dpspca.common.privacy import PrivacyUnit

CONDITIONS = Conditions(
    unit=PrivacyUnit.ROW_REPLACE_ONE,
    rows_per_person=1,
    methods=("dps-pca",),
    accounting=(Accounting.EXACT,),
    centering=(Centering.NONE,),
    explained_variance=True,
    columns=100,
    norm_bound=Bounds(1.0, 20.0),
    mean_bound=None,
    minimum_providers=1,
    unproven=False,
    approvals_needed=0,
    per_job=StatedCap(1.0, 1e-6),
    per_analyst=None,
    quotas={},
)
NORTH = Terms(
    provider="dpspca://town/provider/north",
    data_set="cohort",
    analyst="dpspca://town/analyst/ada",
    stated_at=0,
    dimension=30,
    columns_digest=None,
    dictionary_digest=None,
    software="0.2.0",
    conditions=CONDITIONS,
    left=StatedCap(1.0, 1e-6).price,
    refused=None,
)


def test_rules_that_only_some_providers_state_stay_with_them(capsys: pytest.CaptureFixture[str]) -> None:
    strict = replace(CONDITIONS, dictionary_required=True)
    name = "dpspca://town/provider/south"
    south = replace(NORTH, provider=name, conditions=strict, dictionary_digest="ab" * 32, refused="ledger")
    for terms in ([NORTH, south], [south, NORTH]):
        print_terms(terms)
        records = [
            dict(line.split(": ", 1) for line in each.splitlines() if ": " in line)
            for each in capsys.readouterr().out.split("\n\n")
        ]
        found = {each["rule"]: (each["north"].strip(), each["south"].strip()) for each in records if "rule" in each}
        assert found["dictionary"] == ("not required", "required")
        assert found["digest of the dictionary"] == ("", "ab" * 32)
        assert found["NO JOB IS ADMITTED"] == ("", "ledger")
        assert found["jobs of the largest size"] == ("1", "0")


@pytest.mark.parametrize("unit", [PrivacyUnit.PERSON_ADD_REMOVE, PrivacyUnit.ROW_ADD_REMOVE])
def test_terms_for_persons_say_that_a_job_uses_some_of_their_rows(
    unit: PrivacyUnit, capsys: pytest.CaptureFixture[str]
) -> None:
    print_terms([replace(NORTH, conditions=replace(CONDITIONS, unit=unit, rows_per_person=2))])
    assert ("of each person" in capsys.readouterr().out) == unit.is_person
