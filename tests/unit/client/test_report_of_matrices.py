"""Reports of matrices: they show eigenvalues, also negative ones, and mention neither variances nor clipped rows."""

from pathlib import Path

import numpy as np
import pytest
from facts import names_facts

from dpspca.client.reports import report
from dpspca.client.simulation import simulate
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.results import Model


def model(*eigenvalues: float) -> Model:
    spec = JobSpec(
        schema=Schema(8),
        unit="entry",  # type: ignore[arg-type]  # by value
        budget=Budget(4.0, 1e-6),
        norm_bound=1.0,
        components=len(eigenvalues),
        method="noisy-power",
        options={"rounds": 5},
    )
    whole = np.diag([*eigenvalues, *[0.0] * (8 - len(eigenvalues))])
    return simulate([whole], spec, noise_seed=1)


def test_an_eigenvalue_far_below_zero_is_not_within_the_noise() -> None:
    text = report.summary(model(-9000.0, 4000.0))
    assert "Component 1: eigenvalue -90" in text or "Component 1: eigenvalue -89" in text
    assert report.WITHIN_NOISE not in text
    assert "variance" not in text
    assert "shortened" not in text


def test_an_eigenvalue_hidden_by_noise_is_marked() -> None:
    text = report.summary(model(9000.0, 0.0))
    (told,) = [each for each in text.split("\n\n") if each.startswith(report.WITHIN_NOISE.capitalize())]
    assert names_facts(told, "eigenvalue", "component")
    assert "variance" not in told


def test_the_scree_plot_of_eigenvalues_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.scree(model(-9000.0, 4000.0), tmp_path / "scree.png")
    assert (tmp_path / "scree.png").stat().st_size > 1000
