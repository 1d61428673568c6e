"""Differences of pairs of rows: as private as rows, and chosen by public facts where nobody says how to centre."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from facts import facts, names_facts
from hypothesis import example, given
from hypothesis import strategies as st

from dpspca.client import findings
from dpspca.client.simulation import simulate
from dpspca.common.algorithms import catalogue
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import AutoCentering, Budget, Centering, JobSpec, Schema, pairs_of
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries import Count, Covariance, CovarianceProduct
from dpspca.common.results import PrivacyStatement
from dpspca.provider.data import check_rows, differences
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.memory.stored_rows import RowWriter, StoredRows
from dpspca.provider.evaluate import Shard

REPLACE = PrivacyUnit.ROW_REPLACE_ONE


def job(dimension: int = 4, **changes: Any) -> JobSpec:
    good: dict[str, Any] = {"unit": REPLACE, "budget": Budget(4, 1e-6), "norm_bound": 5.0, "components": 1, "seed": 7}
    return JobSpec(schema=Schema(dimension), centering=Centering.PAIRS, **good | changes)


@given(rows=st.integers(0, 30), seed=st.integers(0, 2**64 - 1))
@example(rows=30, seed=2**64 - 1)
@example(rows=30, seed=2**63)
def test_each_row_is_in_at_most_one_pair_whatever_the_seed(rows: int, seed: int) -> None:
    first, second = pairs_of(rows, seed)
    assert len(first) == len(second) == rows // 2
    assert len({*first.tolist(), *second.tolist()}) == 2 * (rows // 2)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 15))
def test_a_replaced_row_moves_one_difference_no_further_than_declared(seed: int, rows: int) -> None:
    """The search for a neighbour that beats the declared sensitivity, through the provider's own code."""
    rng = np.random.default_rng(seed)
    table, place = 4 * rng.standard_normal((rows, 3)), int(rng.integers(rows))
    changed = table.copy()
    changed[place] = rng.standard_normal(3) * 10.0 ** rng.integers(-2, 4)
    taken = [differences(check_rows(each), seed).matrix for each in (table, changed)]
    assert np.count_nonzero((taken[0] != taken[1]).any(axis=1)) <= 1
    shards = [Shard(check_rows(each), 2.0, pairing=seed) for each in (table, changed)]
    for query in (Covariance(3), CovarianceProduct(np.eye(3)[:, :2]), Count()):
        moved = np.linalg.norm((shards[0].evaluate(query) - shards[1].evaluate(query)).astype(float))
        assert moved <= query.lattice_sensitivity(REPLACE, query.extent)


def test_a_row_more_moves_every_pair() -> None:
    """Why differences are refused under add/remove."""
    rows = np.random.default_rng(1).standard_normal((40, 3))
    taken = [differences(check_rows(each), 3).matrix[:19] for each in (rows, rows[:-1])]
    assert (taken[0] != taken[1]).any(axis=1).sum() > 10


@pytest.mark.parametrize("unit", [unit for unit in PrivacyUnit if unit.is_row and unit is not REPLACE])
def test_other_units_are_refused(unit: PrivacyUnit) -> None:
    with pytest.raises(InvalidParameterError, match=facts("centering", "pairs", unit, "row-replace-one")):
        catalogue.plan(job(unit=unit))


def test_rows_that_arrive_and_pictures_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match=facts("centering", "pairs", "block_rows")):
        catalogue.plan(job(method="streaming-power", options={"block_rows": 5}))
    with pytest.raises(InvalidParameterError, match=facts("picture")):
        catalogue.plan(job(components=2, options={"picture": True}))


def test_rows_prepared_for_another_pairing_do_not_fit() -> None:
    rows = check_rows(np.eye(6))
    for pairing, fits in ((7, True), (8, False), (None, False)):
        assert Shard(rows, 5.0, pairing=pairing).fits(job(6)) == fits
    assert not Shard(rows, 5.0, pairing=7).fits(replace(job(6), centering=Centering.NONE))


@pytest.mark.parametrize("sparse", [False, True])
def test_a_mean_that_all_rows_share_does_not_count(*, sparse: bool) -> None:
    rng = np.random.default_rng(2)
    rows = rng.standard_normal((4000, 4)) * [0.2, 1, 0.2, 0.2] + [30, 0, 0, 0]
    model = simulate([scipy.sparse.csr_array(rows) if sparse else rows], job(), noise_seed=1)
    assert abs(model.components[0, 1]) > 0.95
    assert model.mean is None
    assert model.explained_variance is not None
    assert math.isclose(model.explained_variance[0], 1.0, rel_tol=0.2)
    assert model.statement.centering is Centering.PAIRS
    assert names_facts(model.statement.text, "pairs")
    assert not names_facts(replace(model.statement, centering=Centering.NONE).text, "pairs")


def test_sparse_rows_have_the_differences_of_dense_ones() -> None:
    rows = np.random.default_rng(3).standard_normal((9, 4)) * (np.arange(4) % 2)
    dense, sparse = (differences(check_rows(each), 5).matrix for each in (rows, scipy.sparse.csr_array(rows)))
    np.testing.assert_array_equal(dense, sparse.toarray())


def test_rows_in_scratch_have_the_differences_of_rows_in_memory(tmp_path: Path) -> None:
    """Also a row that counts as zeros, and with some of the columns, in another order."""
    rows, blank = np.random.default_rng(3).standard_normal((501, 4)), np.arange(501) % 50 == 7
    writer = RowWriter(Scratch(tmp_path / "scratch"), 4, np.dtype(np.float64))
    writer.add(rows, blank)
    stored = writer.rows().select(np.array([2, 0]))
    in_memory = np.where(blank[:, None], 0.0, rows)[:, [2, 0]]
    taken = differences(CheckedRows(stored), 5).matrix
    assert isinstance(taken, StoredRows)
    np.testing.assert_array_equal(taken.toarray(), differences(check_rows(in_memory), 5).matrix)


PUBLIC, DIGEST = (1.0, 2.0, 3.0, 4.0), "ab" * 32
CHOICES: dict[str, tuple[float, dict[str, Any], int | None, dict[str, Any], Centering, str]] = {
    "dictionary": (1.0, {"mean_bound": 9.0}, 1, {"dictionary": DIGEST}, Centering.NONE, "public centre from the dict"),
    "public mean": (0.1, {"public_mean": PUBLIC}, 1, {}, Centering.PUBLIC, "a public mean, because one is given"),
    "bound": (1.0, {"mean_bound": 9.0}, 3, {}, Centering.PRIVATE, "a private mean, because"),
    "scales": (1.0, {}, 3, {"scaling": "private"}, Centering.PRIVATE, "a private mean, because"),
    "no bound": (1.0, {}, 1, {}, Centering.PAIRS, "differences of pairs, because no bound"),
    "found bound": (1.0, {"finds_bound": True}, 3, {}, Centering.PRIVATE, "a private mean, because"),
    "many rows": (1.0, {"finds_bound": True, "rows": 10_000}, 1, {}, Centering.PRIVATE, "a private mean, because"),
    "few rows": (1.0, {"finds_bound": True, "rows": 500}, 1, {}, Centering.PAIRS, "of so few rows"),
    "few rows of several": (1.0, {"finds_bound": True, "rows": 500}, 3, {}, Centering.PRIVATE, "a private mean"),
    "too few rows": (1.0, {"finds_bound": True, "rows": 50}, 3, {}, Centering.NONE, "of so few rows"),
    "secret number of rows": (
        *(1.0, {"finds_bound": True, "rows": 50}, 3, {"unit": PrivacyUnit.ROW_ADD_REMOVE}),
        *(Centering.PRIVATE, "a private mean"),
    ),
    "unknown rows": (1.0, {"finds_bound": True}, 1, {}, Centering.PAIRS, "how many rows there are"),
    "small budget, many rows": (
        *(0.5, {"finds_bound": True, "rows": 50_000}, 1, {}, Centering.PRIVATE),
        "a private mean",
    ),
    "many columns": (1.0, {"finds_bound": True}, 3, {"schema": Schema(1001)}, Centering.NONE, "of so many columns"),
    "sparse rows": (1.0, {"finds_bound": True, "sparse": True}, 1, {}, Centering.PAIRS, "would make sparse rows dense"),
    "small budget": (0.1, {"mean_bound": 9.0}, 1, {}, Centering.PAIRS, "pairs, because a private mean would cost too"),
    "providers": (0.1, {"mean_bound": 9.0}, 3, {}, Centering.NONE, "hide how several providers differ"),
    "unknown providers": (0.1, {"mean_bound": 9.0}, None, {}, Centering.NONE, "hide how several providers differ"),
    "pairs of several": (0.1, {"or_pairs": True}, 3, {}, Centering.PAIRS, "differences of pairs, because"),
    "pairs of unknown providers": (0.1, {"or_pairs": True}, None, {}, Centering.PAIRS, "differences of pairs, because"),
    "many rows of several": (
        *(1.0, {"finds_bound": True, "rows": 50_000, "or_pairs": True}, 3, {}, Centering.PRIVATE),
        "a private mean, because",
    ),
    "pairs of another unit": (
        *(0.1, {"or_pairs": True}, 3, {"unit": PrivacyUnit.ROW_ADD_REMOVE}, Centering.NONE),
        "need the unit row-replace-one",
    ),
    "unit": (0.1, {}, 1, {"unit": PrivacyUnit.ROW_ADD_REMOVE}, Centering.NONE, "need the unit row-replace-one"),
    "matrix": (9.0, {}, 1, {"unit": PrivacyUnit.ENTRY, "method": "noisy-power"}, Centering.NONE, "has no rows"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_public_facts_choose_and_every_statement_says_why(name: str) -> None:
    epsilon, known, providers, changes, expected, why = CHOICES[name]
    plain = replace(job(), centering=Centering.NONE, budget=Budget(epsilon, 1e-6))
    finds = known.get("finds_bound", False)
    wish = AutoCentering(**{name: value for name, value in known.items() if name != "finds_bound"})
    made = wish.chosen(replace(plain, **changes), providers=providers, finds_bound=finds)
    assert made.centering is expected
    assert JobSpec.from_json(made.to_json()) == made
    statement = PrivacyStatement.of(catalogue.plan(made), parties=1)
    assert why in statement.centering_reason
    assert f"Centring was chosen from public facts: {statement.centering_reason}." in statement.text
    (said,) = (each for each in findings.of_job(catalogue.plan(made)) if each.startswith("Centring"))
    assert statement.centering_reason in said


def test_a_choice_changes_no_query_and_no_price() -> None:
    chosen = AutoCentering(mean_bound=9.0).chosen(replace(job(), centering=Centering.NONE), providers=2)
    named = replace(chosen, centering_reason=None)
    assert "centering_reason" not in named.to_json()
    assert catalogue.plan(chosen).steps == catalogue.plan(named).steps
    assert PrivacyStatement.of(catalogue.plan(named), parties=1).centering_reason == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"centering_reason": "affordable"},
        {"centering_reason": "matrix"},
        {"centering_reason": "dictionary"},
        {"centering_reason": "public-mean"},
        {"centering": Centering.PRIVATE, "mean_bound": 1.0, "centering_reason": "small-budget"},
        {"centering_reason": "whim"},
    ],
)
def test_a_reason_that_does_not_go_with_the_job_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=facts("centering_reason")):
        replace(job(), **{"centering": Centering.NONE} | changes)


def test_a_job_with_a_centring_is_not_left_to_choose() -> None:
    with pytest.raises(InvalidParameterError, match=facts("centering", "pairs")):
        AutoCentering().chosen(job(), providers=1)
