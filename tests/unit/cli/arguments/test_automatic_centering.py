"""Files and flags choose the same centring from the same public facts, whatever command reads them."""

import json
from pathlib import Path
from typing import Any

import pytest
from facts import facts

from dpspca.cli.arguments import job_files, job_flags
from dpspca.cli.arguments.job_flags import Flags
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Centering, CenteringChoice, CenteringReason, JobSpec
from dpspca.common.privacy import PrivacyUnit

JOB: dict[str, Any] = {
    "schema": {"dimension": 4},
    "unit": "row-replace-one",
    "budget": {"epsilon": 1.0, "delta": 1e-6},
    "norm_bound": 5.0,
    "components": 2,
    "centering": "auto",
}


def read(folder: Path, **changes: Any) -> job_files.JobFile:
    content = {name: value for name, value in (JOB | changes).items() if value is not None}
    (folder / "job.json").write_text(json.dumps(content), encoding="utf-8")
    return job_files.from_file(folder / "job.json", Flags())


def flags(**changes: Any) -> Flags:
    plain = {"dimension": 4, "components": "2", "norm_bound": "5", "unit": PrivacyUnit.ROW_REPLACE_ONE}
    return Flags(**plain | {"epsilon": 1.0, "delta": 1e-6, "centering": CenteringChoice.AUTO} | changes)


def chosen(spec: JobSpec) -> tuple[Centering, CenteringReason | None, float | None]:
    return spec.centering, spec.centering_reason, spec.mean_bound


@pytest.mark.parametrize("providers", [None, 1, 3])
@pytest.mark.parametrize("mean_bound", [None, 9.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("wish", [CenteringChoice.AUTO, CenteringChoice.AUTO_OR_PAIRS])
def test_a_file_and_flags_choose_alike(
    tmp_path: Path, wish: CenteringChoice, providers: int | None, mean_bound: float | None, epsilon: float
) -> None:
    by_file = read(tmp_path, mean_bound=mean_bound, budget={"epsilon": epsilon, "delta": 1e-6}, centering=wish)
    by_flags = job_flags.from_flags(flags(mean_bound=mean_bound, epsilon=epsilon, centering=wish), providers=providers)
    assert by_file.for_providers(providers) == by_flags
    assert by_flags.centering_reason is not None
    if epsilon < 1:
        is_paired = providers == 1 or wish is CenteringChoice.AUTO_OR_PAIRS
        assert by_flags.centering is (Centering.PAIRS if is_paired else Centering.NONE)


def test_the_providers_that_a_file_names_count(tmp_path: Path) -> None:
    assert read(tmp_path).spec.centering is Centering.PRIVATE
    assert read(tmp_path, providers=["north"], data_set="cohort").spec.centering is Centering.PAIRS
    assert read(tmp_path, providers=["north", "south"], data_set="cohort").spec.centering is Centering.PRIVATE
    assert read(tmp_path).for_providers(1).centering is Centering.PAIRS


def test_a_private_mean_needs_no_bound_where_the_method_finds_one(tmp_path: Path) -> None:
    by_file = read(tmp_path, centering="private").spec
    by_flags = job_flags.from_flags(flags(centering=CenteringChoice.PRIVATE))
    assert by_file == by_flags == read(tmp_path, centering="private", mean_bound="private").spec
    assert by_flags == job_flags.from_flags(flags(centering=CenteringChoice.PRIVATE, mean_bound="private"))
    assert by_flags.finds_mean_bound
    with pytest.raises(DpspcaError, match=facts("mean_bound")):
        read(tmp_path, centering="private", method="analyze-gauss")
    with pytest.raises(DpspcaError, match=facts("--mean-bound", "--centering private")):
        job_flags.from_flags(flags(centering=CenteringChoice.PRIVATE, method="analyze-gauss"))
    with pytest.raises(DpspcaError, match=facts("--mean-bound", "long", "private")):
        job_flags.from_flags(flags(centering=CenteringChoice.PRIVATE, mean_bound="long"))


def test_a_public_mean_is_taken_if_there_is_one(tmp_path: Path) -> None:
    mean = [1.0, 2.0, 3.0, 4.0]
    (tmp_path / "mean.json").write_text(json.dumps(mean), encoding="utf-8")
    by_file, by_flags = (
        read(tmp_path, public_mean=mean),
        job_flags.from_flags(flags(public_mean=tmp_path / "mean.json")),
    )
    assert by_file.spec == by_flags
    assert by_flags.public_mean == tuple(mean)
    assert by_flags.centering_reason is CenteringReason.PUBLIC_MEAN


def test_a_job_that_was_written_is_read_as_it_is_for_any_number_of_providers(tmp_path: Path) -> None:
    made = read(tmp_path, mean_bound=9.0).spec
    (tmp_path / "made.json").write_text(json.dumps(made.to_dict()), encoding="utf-8")
    again = job_files.from_file(tmp_path / "made.json", Flags())
    assert again.spec == again.for_providers(1) == made
    assert chosen(made) == (Centering.PRIVATE, CenteringReason.AFFORDABLE, 9.0)


@pytest.mark.parametrize("changes", [{"mean_bound": "long"}, {"mean_bound": -1.0}, {"public_mean": [1.0]}])
def test_a_mean_that_is_none_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DpspcaError, match=facts(*changes)):
        read(tmp_path, **changes)
