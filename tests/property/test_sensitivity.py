"""No neighbour may beat a declared sensitivity; where a constant is called tight, one is shown that reaches it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from row_queries import BOUND, KINDS, contribution, make_query

from dpspca.common.linalg import thin_qr
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.queries.base import RowQuery, SecondMomentQuery
from dpspca.common.queries.ranges import ColumnSizes
from dpspca.common.queries.rows import (
    ColumnSums,
    CompressedCovariance,
    Covariance,
    CovarianceProduct,
    CovarianceTriangle,
)
from dpspca.common.queries.views import NormHistogram, ScoreHistogram, View, ViewCovariance, ViewProduct, ViewSquares
from dpspca.provider.data.checked.preparation import check_rows
from dpspca.provider.evaluate.integer_rows import integer_rows
from dpspca.provider.evaluate.shard import Shard

ADD_REMOVE, REPLACE = PrivacyUnit.ROW_ADD_REMOVE, PrivacyUnit.ROW_REPLACE_ONE


def rows_to_try(rng: np.random.Generator, query: RowQuery, dimension: int) -> list[np.ndarray]:
    """Random directions, corners, and directions inside the span of the basis, all of full length."""
    basis = getattr(query, "basis", np.eye(dimension))
    candidates = [rng.standard_normal(dimension) for _ in range(8)]
    candidates += list(np.eye(dimension)[: min(dimension, 3)]) + list(-np.eye(dimension)[:1])
    candidates += list(basis.T) + [basis @ rng.standard_normal(basis.shape[1]) for _ in range(4)]
    return [row / np.linalg.norm(row) for row in candidates]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 8))
def test_no_neighbour_beats_the_declared_sensitivity(kind: str, seed: int, dimension: int) -> None:
    rng = np.random.default_rng(seed)
    query = make_query(kind, rng, dimension)
    answers = [contribution(query, row) for row in rows_to_try(rng, query, dimension)]
    removed = max(np.linalg.norm(answer) for answer in answers)
    replaced = max(np.linalg.norm(a - b) for a in answers for b in answers)
    slack = 1 + 1e-12
    assert removed <= query.sensitivity(ADD_REMOVE) * slack
    assert replaced <= query.sensitivity(REPLACE) * slack


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 8))
def test_no_neighbour_beats_the_lattice_sensitivity_of_the_real_evaluation(
    kind: str, seed: int, dimension: int
) -> None:
    """Neighbouring data sets go through the provider's own code; rows longer than the bound are among them."""
    rng = np.random.default_rng(seed)
    query = make_query(kind, rng, dimension)
    candidates = [row * BOUND * scale for row in rows_to_try(rng, query, dimension)[:6] for scale in (1.0, 7.0, 0.99)]
    others = rng.standard_normal((3, dimension))

    def answer(*rows: np.ndarray) -> np.ndarray:
        shard = Shard(check_rows(np.vstack([*others, *rows])), BOUND, mean_bound=BOUND, threads=1)
        return shard.evaluate(query).astype(float)

    without = answer()
    answers = [answer(row) for row in candidates]
    assert max(np.linalg.norm(a - without) for a in answers) <= query.lattice_sensitivity(ADD_REMOVE, query.extent)
    replaced = max(np.linalg.norm(a - b) for a in answers for b in answers)
    # Under replace-one the number of rows is public, so a count has nothing to hide.
    assert replaced <= query.lattice_sensitivity(REPLACE, query.extent)


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_two_orthonormal_rows_in_the_span_reach_the_replace_one_constant(columns: int) -> None:
    basis, _ = thin_qr(np.random.default_rng(1).standard_normal((12, columns)))
    query = CovarianceProduct(basis)
    moved = np.linalg.norm(contribution(query, basis[:, 0]) - contribution(query, basis[:, 1]))
    assert moved >= 0.999 * query.sensitivity(REPLACE)
    assert query.sensitivity(REPLACE) == pytest.approx(math.sqrt(2), rel=1e-12)


@pytest.mark.parametrize(
    ("query", "first", "second"),
    [
        (CovarianceProduct([[1.0], [0.0]]), [1.0, 0.0], [0.0, 1.0]),
        (CompressedCovariance([[1.0, 0.0], [0.0, 1.0]]), [1.0, 0.0], [0.0, 1.0]),
        (CompressedCovariance([[1.0], [0.0]]), [1.0, 0.0], [0.0, 1.0]),
        (Covariance(2), [1.0, 0.0], [0.0, 1.0]),
        (CovarianceTriangle(2), [1.0, 0.0], [0.0, 1.0]),
        (ColumnSums(2), [1.0, 0.0], [-1.0, 0.0]),
        (ViewCovariance(View.whole(2, 5.0)), [1.0, 0.0], [0.0, 0.3]),
        (ViewProduct(View(2, [0, 1], 0.5, np.eye(2), 5.0)), [1.0, 0.0], [0.0, 0.3]),
        (ViewProduct(View(2, [0, 1], axes=np.eye(2)[:, :1])), [1.0, 0.0], [0.0, 0.3]),
        (ViewSquares(View.whole(2, 5.0)), [1.0, 0.0], [0.0, 0.3]),
        (NormHistogram(View.whole(2)), [1.0, 0.0], [0.0, 0.3]),
        (ColumnSizes(2), [0.5, 0.5], [0.01, 0.0]),
        (ViewCovariance(View.whole(2), None, [0.1, 1.0]), [0.1, 0.0], [0.0, 1.0]),
        (ScoreHistogram(View(2, [0, 1], axes=np.eye(2), along=1.0)), [1.0, 0.0], [0.0, 0.3]),
    ],
)
def test_every_replace_one_constant_is_reached(query: RowQuery, first: list[float], second: list[float]) -> None:
    moved = np.linalg.norm(contribution(query, np.array(first)) - contribution(query, np.array(second)))
    assert moved >= 0.999 * query.sensitivity(REPLACE)


@pytest.mark.parametrize("kind", KINDS)
def test_every_add_remove_constant_is_reached(kind: str) -> None:
    query = make_query(kind, np.random.default_rng(5), 6)
    row = getattr(query, "basis", np.eye(6))[:, 0]
    assert np.linalg.norm(contribution(query, row)) >= 0.999 * query.sensitivity(ADD_REMOVE)


@given(seed=st.integers(0, 2**32 - 1), blocks=st.integers(1, 5), rows=st.integers(2, 12))
def test_a_replaced_row_moves_one_block_and_no_further_than_declared(seed: int, blocks: int, rows: int) -> None:
    """What makes blocks of rows compose in parallel: all other answers stay as they are, to the last bit."""
    rng = np.random.default_rng(seed)
    basis, _ = thin_qr(rng.standard_normal((6, 2)))
    asked = [CovarianceProduct(basis, None, block, blocks) for block in range(1, blocks + 1)]
    table, at = 7 * rng.standard_normal((rows, 6)), int(rng.integers(rows))
    changed = table.copy()
    changed[at] = basis @ rng.standard_normal(2) * 100
    answers = [[Shard(check_rows(each), BOUND).evaluate(query) for query in asked] for each in (table, changed)]
    moved = [np.linalg.norm((one - other).astype(float)) for one, other in zip(*answers, strict=True)]
    assert np.count_nonzero(moved) <= 1
    assert max(moved) <= asked[0].lattice_sensitivity(REPLACE, asked[0].extent)


def test_a_removed_row_moves_other_rows_between_blocks() -> None:
    rows, basis = np.vstack([np.eye(4)] * 2), np.eye(4)[:, :2]
    asked = [CovarianceProduct(basis, None, block, 4) for block in range(1, 5)]
    with_row, without = (
        [Shard(check_rows(each), 1.0).evaluate(query).astype(float) for query in asked] for each in (rows, rows[:-1])
    )
    moved = [np.linalg.norm(one - other) for one, other in zip(with_row, without, strict=True)]
    assert math.hypot(*moved) > 1.9 * asked[0].lattice_sensitivity(ADD_REMOVE, asked[0].extent)


def test_the_lattice_costs_almost_nothing_beyond_the_exact_sensitivity() -> None:
    basis, _ = thin_qr(np.random.default_rng(2).standard_normal((1000, 5)))
    query = CovarianceProduct(basis)
    for unit in (ADD_REMOVE, REPLACE):
        exact = query.sensitivity(unit) * 2.0**30
        assert exact < query.lattice_sensitivity(unit, query.extent) < exact * 1.0001


@pytest.mark.parametrize("query", [CovarianceProduct, CompressedCovariance])
def test_a_basis_that_rounding_made_longer_moves_no_further_than_declared(query: type[RowQuery]) -> None:
    """Each of its entries is rounded up by half a unit, and a row lies along it."""
    entries = np.array([2.0**19 + 0.5, 2.0**19 + 0.5, 2.0**19 - 0.5, 2.0**19 - 0.5]) + 2.0**-20
    asked = query(entries[:, None] / 2**20)  # type: ignore[call-arg]  # both are made of a basis
    along = np.full((1, 4), BOUND / 2)
    moved = Shard(check_rows(along, least=1), BOUND).evaluate(asked).astype(float)
    for unit in (ADD_REMOVE, REPLACE):
        assert np.linalg.norm(moved) <= asked.lattice_sensitivity(unit, asked.extent)
    assert np.linalg.norm(moved) > 2.0**30 + 1000


@pytest.mark.parametrize("kind", ["product-1", "compressed-1", "covariance", "triangle"])
def test_the_roundings_of_an_answer_are_all_paid_for(kind: str) -> None:
    """How far the floors move the answer beyond what the integer rows move it; removing one row of 400 data sets."""
    rng = np.random.default_rng(8)
    paid, largest = 0.0, 0.0
    for _ in range(400):
        basis = np.eye(2, 1)  # exact on the lattice, so that nothing but floors is rounded
        asked: RowQuery = {
            "product-1": lambda basis=basis: CovarianceProduct(basis),
            "compressed-1": lambda basis=basis: CompressedCovariance(basis),
            "covariance": lambda: Covariance(2),
            "triangle": lambda: CovarianceTriangle(2),
        }[kind]()
        rows = rng.standard_normal((3, 2))
        with_row, without = [
            Shard(check_rows(part), BOUND, threads=1).evaluate(asked).astype(float) for part in (rows, rows[:2])
        ]
        row = integer_rows(rows[2:], BOUND)[0] * 2.0**-17
        moved = with_row - without - contribution(asked, row).reshape(with_row.shape) * 2.0**30
        largest = max(largest, float(np.linalg.norm(moved)))
        stretched = asked.gain(asked.extent) if isinstance(asked, SecondMomentQuery) else 1.0
        paid = asked.lattice_sensitivity(ADD_REMOVE, asked.extent) - asked.sensitivity(ADD_REMOVE) * stretched * 2.0**30
    assert 0.5 * paid < largest <= paid + 1e-6


def test_a_basis_that_is_not_orthonormal_would_move_further() -> None:
    """Why it must be refused: k equal unit columns pass a test of column norms and give sqrt(k) more."""
    row = np.eye(4)[0]
    equal_columns = np.repeat(row[:, None], 4, axis=1)
    assert np.linalg.norm(np.outer(row, row @ equal_columns)) == pytest.approx(2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_row_against_none_moves_no_further_around_a_centre(kind: str) -> None:
    """Of no rows there is nothing to take a centre off: an empty provider answers with zeros."""
    rng = np.random.default_rng(4)
    query = make_query(kind, rng, 4)
    if not hasattr(query, "center"):
        return
    given = {"given": query.kept} if hasattr(query, "kept") else {}
    query = replace(query, center=np.array([9.0, -9.0, 9.0, 9.0]), **given)
    empty, one = (
        Shard(check_rows(rows, least=0), BOUND, mean_bound=BOUND) for rows in (np.zeros((0, 4)), np.ones((1, 4)))
    )
    assert not empty.evaluate(query).any()
    moved = np.linalg.norm((one.evaluate(query) - empty.evaluate(query)).astype(float))
    assert moved <= query.lattice_sensitivity(PrivacyUnit.ROW_ADD_REMOVE, query.extent)
