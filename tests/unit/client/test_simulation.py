"""Simulation of a whole federation in one process. Shards, order and strategy change only who adds which noise."""

from dataclasses import replace
from typing import Any

import examples
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from facts import facts, names_facts

from dpspca.client.simulation import Progress, simulate
from dpspca.common.algorithms import catalogue, dps_pca
from dpspca.common.arrays import FloatArray
from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidParameterError, InvalidTypeError
from dpspca.common.job import Budget, JobSpec, Schema
from dpspca.common.linalg import largest_rows, subspace_distance, thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.common.queries.rows import CompressedCovariance, CovarianceProduct
from dpspca.provider.data import check_rows, with_persons
from dpspca.provider.evaluate.shard import Strategy

DIMENSION, SUPPORT, COMPONENTS = 60, 6, 2


def spiked(rows: int = 4000, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    truth = np.zeros((DIMENSION, COMPONENTS))
    truth[:SUPPORT], _ = thin_qr(rng.standard_normal((SUPPORT, COMPONENTS)))
    scales = np.array([6.0, 4.0])
    return rng.standard_normal((rows, COMPONENTS)) * scales @ truth.T + rng.standard_normal((rows, DIMENSION)), truth


ROWS, TRUTH = spiked()


def spec(**changes: Any) -> JobSpec:
    good: dict[str, Any] = {
        "schema": Schema(DIMENSION),
        "unit": PrivacyUnit.ROW_REPLACE_ONE,
        "budget": Budget(8.0, 1e-5),
        "norm_bound": 15.0,
        "components": COMPONENTS,
        "options": {"sparsity": SUPPORT, "rounds": 6},
        "method": "dps-pca",
    }
    return JobSpec(**good | changes)


def test_the_components_are_found_and_explained() -> None:
    model = simulate([ROWS], spec(), noise_seed=1)
    assert subspace_distance(model.components.T, TRUTH) < 0.1
    assert model.support.tolist() == list(range(SUPPORT))
    assert model.explained_variance == pytest.approx([37, 17], rel=0.15)
    assert model.explained_variance_ratio == pytest.approx(np.array([37, 17]) / (36 + 16 + DIMENSION), rel=0.15)
    assert model.explained_variance_std is not None
    assert 0 < model.explained_variance_std < 5


def test_a_seeded_run_repeats_exactly_and_says_not_for_release() -> None:
    first, second, other = [simulate([ROWS], spec(), noise_seed=seed) for seed in (1, 1, 2)]
    assert first.to_bytes() == second.to_bytes()
    assert first.to_bytes() != other.to_bytes()
    assert not first.statement.releasable
    assert first.statement.text.startswith("NOT FOR RELEASE")


def test_without_a_seed_runs_differ_and_may_be_released() -> None:
    first, second = [simulate([ROWS], spec()) for _ in range(2)]
    assert first.statement.releasable
    assert (first.components != second.components).any()


def test_the_strategy_does_not_change_a_bit() -> None:
    stored = {simulate([ROWS], spec(), noise_seed=3, strategy=strategy).to_bytes() for strategy in Strategy}
    assert len(stored) == 1


def test_the_order_of_rows_within_a_shard_does_not_change_a_bit() -> None:
    shuffled = np.random.default_rng(5).permutation(ROWS)
    assert simulate([ROWS], spec(), noise_seed=3).to_bytes() == simulate([shuffled], spec(), noise_seed=3).to_bytes()


def test_every_provider_draws_its_own_noise() -> None:
    """The noise on a sum of N answers has sqrt(N) times the deviation. With equal noise for all it would be N times."""
    stds: dict[int, float] = {}
    for parties in (1, 4):
        seen: list[Progress] = []
        simulate(np.array_split(ROWS, parties), spec(), noise_seed=4, watch=seen.append)
        exact = ROWS.T @ (ROWS @ dps_start())
        stds[parties] = float(np.std(seen[1].aggregate.values - exact))  # noqa: PD011  # no frame
        assert seen[1].aggregate.noise_std == pytest.approx(stds[parties], rel=0.3)
    assert stds[4] / stds[1] == pytest.approx(2, rel=0.3)


def dps_start() -> FloatArray:
    run = dps_pca.run(catalogue.plan(spec()))
    next(run)
    query = run.send(Aggregate(np.array([4000.0]), 0.0, 1))
    assert isinstance(query, CovarianceProduct)
    return query.basis


def test_progress_is_reported_after_every_answer() -> None:
    seen: list[Progress] = []
    simulate([ROWS], spec(), noise_seed=0, watch=seen.append)
    assert [(each.done, each.total) for each in seen] == [(number, 8) for number in range(1, 9)]
    assert [each.step.name for each in seen][1] == "round 1 of 6"


def test_sparse_shards_give_the_result_of_dense_ones() -> None:
    sparse = [scipy.sparse.csr_array(np.where(np.abs(part) > 1.5, part, 0)) for part in np.array_split(ROWS, 2)]
    model = simulate(sparse, spec(), noise_seed=0)
    assert subspace_distance(model.components.T, TRUTH) < 0.5


@pytest.mark.parametrize("unit", ["row-replace-one", "row-add-remove"])
def test_a_private_mean_is_estimated_and_subtracted(unit: str) -> None:
    shifted = ROWS + np.linspace(-20, 20, DIMENSION)
    job = spec(unit=unit, centering="private", mean_bound=120.0)
    model = simulate([shifted], job, noise_seed=2)
    assert model.mean is not None
    assert model.mean == pytest.approx(shifted.mean(axis=0), abs=1.5)
    assert subspace_distance(model.components.T, TRUTH) < 0.3
    assert subspace_distance(simulate([shifted], spec(), noise_seed=2).components.T, TRUTH) > 0.5


def test_a_public_mean_costs_nothing() -> None:
    mean = tuple(np.linspace(-20, 20, DIMENSION))
    model = simulate([ROWS + np.array(mean)], spec(centering="public", public_mean=mean), noise_seed=2)
    assert subspace_distance(model.components.T, TRUTH) < 0.2
    assert model.statement.answers == simulate([ROWS], spec(), noise_seed=2).statement.answers


def truncated_power_method(gram: FloatArray, basis: FloatArray, rounds: int) -> FloatArray:
    """A second implementation of the published loop, without noise."""
    for _ in range(rounds):
        direction, _ = np.linalg.qr(gram @ basis)
        kept = largest_rows(direction, SUPPORT)
        cut = np.zeros_like(direction)
        cut[kept] = direction[kept]
        basis, _ = np.linalg.qr(cut)
    return basis


@pytest.mark.parametrize("seed", range(10))
def test_without_noise_it_is_the_truncated_power_method(seed: int) -> None:
    gram = ROWS.T @ ROWS
    job = spec(seed=seed, explained_variance=False)

    def ask(query: RowQuery) -> Aggregate:
        assert isinstance(query, CovarianceProduct)
        return Aggregate(gram @ query.basis, 0.0, 1)

    start = next(dps_pca.run(catalogue.plan(job)))
    assert isinstance(start, CovarianceProduct)
    expected = truncated_power_method(gram, start.basis, 6)
    assert subspace_distance(drive(dps_pca.run(catalogue.plan(job)), ask).components.T, expected) < 1e-9


def first_two_bases(sparsity: int, product: FloatArray) -> list[CovarianceProduct]:
    run = dps_pca.run(catalogue.plan(spec(explained_variance=False, options={"sparsity": sparsity, "rounds": 6})))
    queries = [next(run), run.send(Aggregate(product, 0.0, 1))]
    assert all(isinstance(query, CovarianceProduct) for query in queries)
    return queries  # type: ignore[return-value]


def test_without_truncation_the_next_basis_is_the_orthonormal_answer() -> None:
    product = np.random.default_rng(0).standard_normal((DIMENSION, 2))
    _, after = first_two_bases(DIMENSION, product)
    assert after.basis.tobytes() == thin_qr(product)[0].tobytes()


@pytest.mark.parametrize("sparsity", [DIMENSION, DIMENSION // 2])
def test_a_zero_row_of_the_answer_leaves_the_next_basis(sparsity: int) -> None:
    product = np.zeros((DIMENSION, 2))
    product[[0, 1, 8]] = [[1.0, 2.0], [-1.0, 0.5], [3.0, 1.0]]
    _, after = first_two_bases(sparsity, product)
    assert after.kept.support.tolist() == [0, 1, 8]


@pytest.mark.parametrize("seed", range(10))
def test_larger_budgets_come_closer_to_the_non_private_method(seed: int) -> None:
    short = np.minimum(1, 15 / np.linalg.norm(ROWS, axis=1))[:, None] * ROWS
    start = next(dps_pca.run(catalogue.plan(spec(seed=seed, explained_variance=False))))
    assert isinstance(start, CovarianceProduct)
    limit = truncated_power_method(short.T @ short, start.basis, 6)
    distances = []
    for epsilon in (1.0, 48.0):
        job = spec(budget=Budget(epsilon, 1e-5), seed=seed, explained_variance=False)
        distances.append(subspace_distance(simulate([ROWS], job, noise_seed=seed).components.T, limit))
    assert distances[1] < 0.03
    assert distances[1] < distances[0]


def test_components_are_the_principal_axes_of_the_last_answer() -> None:
    """After the last answer the basis is rotated so that V^T A V is diagonal, and sorted by variance."""
    seen: list[Progress] = []
    model = simulate([ROWS], spec(), noise_seed=6, watch=seen.append)
    assert seen[-1].step.query is CompressedCovariance
    covariance = np.cov(ROWS.T, bias=True)
    turned = model.components @ covariance @ model.components.T
    assert abs(turned[0, 1]) < 1.0
    assert turned[0, 0] > turned[1, 1]


def test_no_shards_or_too_many_are_refused() -> None:
    for shards in ([], [ROWS] * 129):
        with pytest.raises(InvalidParameterError, match=facts(f"{len(shards)} shards", 128)):
            simulate(shards, spec())


@pytest.mark.parametrize("shards", [ROWS, pd.DataFrame(ROWS), scipy.sparse.csr_array(ROWS)])
def test_a_single_table_instead_of_a_list_is_refused(shards: Any) -> None:
    with pytest.raises(InvalidTypeError):
        simulate(shards, spec())


def test_shards_may_come_by_name_and_swapped_arguments_are_refused() -> None:
    by_name = simulate({"north": ROWS[:2000], "south": ROWS[2000:]}, spec(), noise_seed=1)
    assert by_name.to_bytes() == simulate(iter([ROWS[:2000], ROWS[2000:]]), spec(), noise_seed=1).to_bytes()
    with pytest.raises(InvalidTypeError, match=facts("JobSpec")):
        simulate(spec(), [ROWS])  # type: ignore[arg-type]


def test_data_frames_have_to_agree_on_their_columns() -> None:
    names = [f"f{number}" for number in range(DIMENSION)]
    frame = pd.DataFrame(ROWS, columns=names)
    backwards = frame[frame.columns[::-1]]
    with pytest.raises(InvalidParameterError, match=facts("column 1", "'f0'", "'f59'", "shard 1")):
        simulate([backwards], spec(schema=Schema.of(names)))
    for form in (pd.DataFrame, pl.from_pandas, pa.Table.from_pandas, pa.RecordBatch.from_pandas):
        with pytest.raises(InvalidParameterError, match=facts("column 1", "'f0'", "shard 1", "'f59'", "shard 3")):
            simulate([form(frame), ROWS, form(backwards)], spec())


def test_a_model_has_the_column_names_of_its_data_frames() -> None:
    names = [f"f{number}" for number in range(DIMENSION)]
    frame = pd.DataFrame(ROWS, columns=names)
    model = simulate([frame, ROWS], spec(schema=Schema(DIMENSION)), noise_seed=1)
    assert model.feature_names == tuple(names)
    assert np.array_equal(model.transform(frame[frame.columns[::-1]]), model.transform(ROWS))


@pytest.mark.parametrize("change", [{"noise_seed": -1}, {"noise_seed": True}, {"noise_seed": "a"}, {"strategy": "x"}])
def test_odd_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DpspcaError):
        simulate([ROWS], spec(), **change)


def test_an_error_names_the_shard() -> None:
    with pytest.raises(InvalidDataError, match=facts("Shard 2 of 3")):
        simulate([ROWS, ROWS[:1], ROWS], spec())


def test_a_bad_shard_is_refused_before_the_first_query() -> None:
    seen: list[Progress] = []
    with pytest.raises(DpspcaError, match=facts("Shard 2 of 2", "NaN")):
        simulate([ROWS, np.full((3, DIMENSION), np.nan)], spec(), watch=seen.append)
    assert not seen


def test_every_method_runs_as_many_queries_as_it_plans() -> None:
    for name, entry in catalogue.CATALOGUE.items():
        seen: list[Progress] = []
        what = next(iter(examples.EXAMPLES[name].jobs.values()))
        dimension = what.schema.dimension
        rows = np.random.default_rng(0).standard_normal((40 if what.unit.is_row else dimension, dimension))
        simulate([rows if what.unit.is_row else rows + rows.T], what, noise_seed=0, watch=seen.append)
        assert len(seen) == len(entry.steps_of(what))
        assert entry.summary


# --- Persons ----------------------------------------------------------------------------------------------------------

WHOSE = ["eve", "ada", "eve", "eve", "bob"]
PERSONS = {"unit": PrivacyUnit.PERSON_ADD_REMOVE, "rows_per_person": 2}


def test_no_more_rows_of_a_person_are_used_than_the_job_allows() -> None:
    """The fourth row is eve's third row, so its content must not change anything."""
    rows = np.random.default_rng(0).standard_normal((5, DIMENSION))
    changed = rows.copy()
    changed[3] = 9.0
    models = [simulate([each], spec(**PERSONS), noise_seed=1, persons=[WHOSE]) for each in (rows, changed)]
    assert models[0].to_bytes() == models[1].to_bytes()
    other = simulate([changed], spec(**PERSONS | {"rows_per_person": 3}), noise_seed=1, persons=[WHOSE])
    assert other.to_bytes() != models[0].to_bytes()


def test_the_privacy_statement_names_persons_as_the_unit() -> None:
    rows = {name: np.random.default_rng(0).standard_normal((5, DIMENSION)) for name in ("north", "south")}
    told = simulate(rows, spec(**PERSONS), persons=dict.fromkeys(rows, WHOSE)).statement
    assert (told.unit, told.rows_per_person) == (PrivacyUnit.PERSON_ADD_REMOVE, 2)
    assert names_facts(told.text, "left out", "2 rows", "several names")
    replaced = spec(**PERSONS | {"unit": PrivacyUnit.PERSON_REPLACE_ONE})
    text = simulate(rows, replaced, persons=dict.fromkeys(rows, WHOSE)).statement.text
    (promise,) = [each for each in text.split("\n\n") if "-differentially private" in each]
    assert names_facts(promise, "one person", "different")
    assert ["provider's number" in each for each in (told.text, text)] == [False, True]


@pytest.mark.parametrize(
    ("unit", "persons", "kind", "why"),
    [
        ("row-add-remove", [WHOSE], InvalidParameterError, ("row-add-remove", "person-add-remove")),
        ("row-replace-one", [WHOSE], InvalidParameterError, ("row-replace-one", "person-add-remove")),
        ("person-add-remove", None, InvalidParameterError, "person-add-remove"),
        ("person-add-remove", [], InvalidParameterError, ("1 shards", 0)),
        ("person-add-remove", [None], InvalidParameterError, ("1 shards", 0)),
        ("person-add-remove", [WHOSE, WHOSE], InvalidParameterError, ("1 shards", 2)),
        ("person-add-remove", {"north": WHOSE}, InvalidParameterError, ("(north)", "(none)")),
        ("person-add-remove", 7, InvalidTypeError, "int"),
        ("person-add-remove", [WHOSE[:4]], InvalidDataError, ("4 persons", "5 rows")),
        ("person-add-remove", [[*WHOSE[:4], None]], InvalidDataError, "row 5"),
        ("person-add-remove", [[1.0, 2.0, 3.0, 4.0, float("nan")]], InvalidDataError, "row 5"),
        ("person-add-remove", [[*WHOSE[:4], 5]], InvalidTypeError, "persons"),
        ("person-add-remove", [[[1], [2], [3], [4], [5]]], InvalidTypeError, "persons"),
        ("person-add-remove", [np.ones((5, 1))], InvalidTypeError, "persons"),
    ],
)
def test_persons_need_a_person_unit_and_one_name_per_row(unit: str, persons: Any, kind: Any, why: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((5, DIMENSION))
    with pytest.raises(kind, match=facts(why)):
        simulate([rows], spec(unit=PrivacyUnit(unit)), persons=persons)


def test_rows_as_a_provider_reads_them_are_shards() -> None:
    """They bring their names and persons, and give the same bits as the table itself."""
    names = tuple(f"c{place}" for place in range(DIMENSION))
    frame, read = pd.DataFrame(ROWS, columns=list(names)), replace(check_rows(ROWS), names=names)
    job = spec(unit=PrivacyUnit.ROW_REPLACE_ONE)
    one, other = (simulate([each], job, noise_seed=1) for each in (read, frame))
    assert (one.components == other.components).all()
    assert one.feature_names == names
    whose = np.arange(len(ROWS)) // 2
    of_persons = spec(unit=PrivacyUnit.PERSON_REPLACE_ONE)
    both = simulate([with_persons(read, whose)], of_persons, noise_seed=1)
    assert (both.components == simulate([frame], of_persons, noise_seed=1, persons=[whose]).components).all()
    with pytest.raises(DpspcaError, match=facts("row-replace-one", "person-add-remove")):
        simulate([with_persons(read, whose)], job)
    with pytest.raises(DpspcaError, match=facts("person-replace-one", "[persons]")):
        simulate([read], of_persons)
