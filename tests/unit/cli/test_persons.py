"""The settings of a provider and its policy have to agree on whether persons are protected."""

from pathlib import Path

import pytest
from facts import facts
from steward import POLICY

from dpspca.client.checks import _policy
from dpspca.common.errors import InvalidParameterError
from dpspca.common.storage.settings import Address, ProviderSettings


def settings(folder: Path, unit: str, *, persons: bool) -> ProviderSettings:
    file = folder / "policy.toml"
    file.write_text(POLICY.replace('unit = "row-add-remove"', f'unit = "{unit}"'), encoding="utf-8")
    return ProviderSettings(
        coordinator=Address.parse("127.0.0.1:1"),
        identity=folder,
        revocations=folder,
        policy=file,
        data_sets={"cohort": folder / "rows.npy"},
        persons={"cohort": folder / "whose.txt"} if persons else {},
    )


@pytest.mark.parametrize("unit", ["row-add-remove", "row-replace-one", "person-add-remove", "person-replace-one"])
@pytest.mark.parametrize("persons", [True, False])
def test_doctor_reports_a_policy_that_lets_no_job_be_answered(tmp_path: Path, unit: str, *, persons: bool) -> None:
    output = settings(tmp_path, unit, persons=persons)
    if unit.startswith("person") == persons:
        assert "policy.toml is valid" in _policy(output)
        return
    with pytest.raises(InvalidParameterError, match=facts(unit, "'cohort'", "[persons]")):
        _policy(output)
