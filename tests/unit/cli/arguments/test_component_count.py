"""Estimator, flags and job files ask for the same components if the method is to decide how many to keep."""

import json
from pathlib import Path
from typing import Any

import pytest
from facts import facts

from dpspca import DPSPCA
from dpspca.cli.arguments import job_files, job_flags
from dpspca.cli.arguments.job_flags import Flags
from dpspca.common.errors import DpspcaError
from dpspca.common.job import Schema
from dpspca.common.privacy import PrivacyUnit

JOB: dict[str, Any] = {"unit": "row-replace-one", "budget": {"epsilon": 1.0, "delta": 1e-6}, "components": "auto"}
FLAGS: dict[str, Any] = {"unit": PrivacyUnit.ROW_REPLACE_ONE, "epsilon": 1.0, "delta": 1e-6, "components": "auto"}


def by_file(folder: Path, **changes: Any) -> job_files.JobFile:
    (folder / "job.json").write_text(json.dumps(JOB | {"norm_bound": 5.0} | changes), encoding="utf-8")
    return job_files.from_file(folder / "job.json", Flags())


@pytest.mark.parametrize(("columns", "sparsity", "expected"), [(4, "auto", 4), (40, "auto", 10), (40, 6, 6)])
def test_all_three_ask_alike(tmp_path: Path, columns: int, sparsity: Any, expected: int) -> None:
    file = by_file(tmp_path, schema={"dimension": columns}, options={"sparsity": sparsity}).spec
    flags = job_flags.from_flags(Flags(**FLAGS, dimension=columns, norm_bound="5", sparsity=str(sparsity)))
    made = DPSPCA("auto", sparsity=sparsity, norm_bound=5.0, unit="row-replace-one")._spec(Schema(columns), 0)
    assert file == flags == made
    assert (made.components, made.options["fewer"]) == (expected, True)


def test_a_method_that_cannot_decide_needs_a_number(tmp_path: Path) -> None:
    with pytest.raises(DpspcaError, match=facts("components", "analyze-gauss", "auto")):
        by_file(tmp_path, schema={"dimension": 9}, method="analyze-gauss")
    with pytest.raises(DpspcaError, match=facts("--components", "analyze-gauss", "auto")):
        job_flags.from_flags(Flags(**FLAGS, dimension=9, norm_bound="5", method="analyze-gauss"))
    made = DPSPCA("auto", method="analyze-gauss", norm_bound=5.0, unit="row-replace-one")._spec(Schema(9), 0)
    assert (made.components, "fewer" in made.options) == (5, False)
