"""Varimax turns components within their subspace until each has few large loadings."""

import numpy as np
import pytest

from dpspca.client.simulation import simulate
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.results import Model, varimax


def sharpness(components: np.ndarray) -> float:
    return float(np.var(np.square(components), axis=1).sum())


@pytest.mark.parametrize("count", [1, 2, 4])
def test_turned_components_span_the_same_and_none_is_sharper(count: int) -> None:
    rng = np.random.default_rng(1)
    components = thin_qr(rng.standard_normal((12, count)))[0].T
    rotation = varimax(components)
    assert rotation.T @ rotation == pytest.approx(np.eye(count))
    best = sharpness(rotation.T @ components)
    assert best >= sharpness(components) - 1e-12
    for _ in range(200):
        other = thin_qr(np.eye(count) + 0.05 * rng.standard_normal((count, count)))[0]
        assert sharpness(other.T @ rotation.T @ components) <= best + 1e-9


def test_components_of_separate_columns_are_found_again() -> None:
    truth = np.kron(np.eye(3), np.full(4, 0.5))
    mixed = thin_qr(np.random.default_rng(2).standard_normal((3, 3)))[0] @ truth
    turned = varimax(mixed).T @ mixed
    assert np.sort(np.abs(turned @ truth.T).ravel())[-3:] == pytest.approx(1)


def test_a_turned_model_explains_together_what_it_explained() -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 6)) @ np.kron(np.diag([3.0, 2.9]), np.ones((3, 3)))
    unit = PrivacyUnit.ROW_REPLACE_ONE
    spec = JobSpec(schema=Schema(6), unit=unit, budget=Budget(4.0, 1e-6), norm_bound=40.0, components=2)
    model = simulate([rows], spec, noise_seed=1)
    turned = model.varimax()
    assert subspace_distance(model.components.T, turned.components.T) < 1e-7
    assert turned.explained_variance is not None
    assert model.explained_variance is not None
    assert turned.explained_variance.sum() == pytest.approx(model.explained_variance.sum())
    assert (np.diff(turned.explained_variance) <= 0).all()
    assert (turned.loading_std, turned.statement) == (None, model.statement)
    assert sharpness(turned.components) >= sharpness(model.components) - 1e-12
    assert Model.from_bytes(turned.to_bytes()).components.tobytes() == turned.components.tobytes()
