"""`linalg` does what its docstrings say, at every scale, rank and condition number."""

from math import pi, sqrt

import numpy as np
import pytest
from facts import facts
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.linalg import hadamard, subspace_angles

from dpspca.common import linalg
from dpspca.common.errors import InvalidParameterError
from dpspca.common.linalg import (
    FloatArray,
    basis_coherence,
    entry_coherence,
    hard_threshold,
    largest_rows,
    principal_angles,
    row_coherence,
    subspace_distance,
    thin_qr,
)

TALL = 6000  # enough rows to be cut into blocks, where Cholesky QR competes with Householder

seeds = st.integers(0, 2**32 - 1)


def gaussian(rows: int, columns: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).standard_normal((rows, columns))


def frame(rows: int, columns: int, seed: int = 0) -> FloatArray:
    return np.linalg.qr(gaussian(rows, columns, seed))[0]


def with_condition(rows: int, columns: int, condition: float, seed: int = 0) -> FloatArray:
    spectrum = np.geomspace(1, 1 / condition, columns)
    return frame(rows, columns, seed) * spectrum @ frame(columns, columns, seed + 1)


def departure_from_orthonormal(q: FloatArray) -> float:
    """Summed in extended precision: the product in doubles would show its own rounding, not that of q."""
    wide = q.astype(np.longdouble)
    pairs = [(wide[:, i] * wide[:, j]).sum() - (i == j) for i in range(q.shape[1]) for j in range(i + 1)]
    return float(np.abs(pairs).max())


def assert_is_thin_qr(matrix: FloatArray, q: FloatArray, r: FloatArray) -> None:
    assert q.shape == matrix.shape
    assert departure_from_orthonormal(q) < 1e-13
    assert np.array_equal(r, np.triu(r))
    assert (np.diag(r) >= 0).all()
    # Each column is reproduced to the rounding of its own norm, however small beside the others.
    peak = np.abs(matrix).max(axis=0)
    safe = np.where(peak > 0, peak, 1)
    error = np.linalg.norm(q @ (r / safe) - matrix / safe, axis=0)
    assert (error <= 1e-13 * np.linalg.norm(matrix / safe, axis=0)).all()


@st.composite
def tall_matrices(draw: st.DrawFn) -> FloatArray:
    columns = draw(st.integers(1, 6))
    rows = draw(st.integers(columns, 12))
    entries = st.floats(-1, 1).map(lambda x: 0.0 if abs(x) < 1e-150 else x)
    scale = 10.0 ** draw(st.integers(-150, 150))
    return scale * draw(arrays(np.float64, (rows, columns), elements=entries))


class TestThinQR:
    @given(tall_matrices())
    def test_a_small_matrix_is_reproduced_by_its_two_factors(self, matrix: FloatArray) -> None:
        assert_is_thin_qr(matrix, *thin_qr(matrix))

    @pytest.mark.parametrize("scale", [1e-300, 1e-150, 1.0, 1e150, 1e300])
    @pytest.mark.parametrize("condition", [1.0, 1e2, 3e4, 1e5, 1e7, 1e9, 1e12, 1e16, 1e30])
    @pytest.mark.parametrize("rows", [40, TALL])
    def test_neither_condition_number_nor_scale_costs_orthonormality(
        self, rows: int, condition: float, scale: float
    ) -> None:
        matrix = scale * with_condition(rows, 6, condition)
        assert_is_thin_qr(matrix, *thin_qr(matrix))

    @pytest.mark.parametrize("rows", [40, TALL])
    def test_columns_of_very_different_scales_are_each_accurate(self, rows: int) -> None:
        matrix = gaussian(rows, 5) * np.array([1e-150, 1e150, 1.0, 1e-80, 1e80])
        assert_is_thin_qr(matrix, *thin_qr(matrix))

    @pytest.mark.parametrize("rows", [5, 40, TALL])
    def test_a_rank_deficient_input_gives_orthonormal_columns_and_a_zero(self, rows: int) -> None:
        matrix = gaussian(rows, 5)
        matrix[:, 2] = matrix[:, 0] - 3 * matrix[:, 1]
        q, r = thin_qr(matrix)
        assert_is_thin_qr(matrix, q, r)
        assert r[2, 2] < 1e-13 * np.linalg.norm(matrix[:, 2])

    @pytest.mark.parametrize("rows", [4, 40, TALL])
    def test_a_column_of_zeros_gives_an_exact_zero_on_the_diagonal(self, rows: int) -> None:
        matrix = gaussian(rows, 4)
        matrix[:, 1] = 0
        q, r = thin_qr(matrix)
        assert_is_thin_qr(matrix, q, r)
        assert r[1, 1] == 0

    @pytest.mark.parametrize("rows", [3, 40, TALL])
    def test_a_zero_matrix_gives_a_zero_triangle_and_orthonormal_columns(self, rows: int) -> None:
        q, r = thin_qr(np.zeros((rows, 3)))
        assert departure_from_orthonormal(q) == 0
        assert not r.any()

    @pytest.mark.parametrize("rows", [1000, TALL])
    def test_equal_entries_do_not_pile_up_rounding_errors(self, rows: int) -> None:
        matrix = np.column_stack([np.full(rows, 0.1), np.arange(rows) / 3, gaussian(rows, 1)])
        assert_is_thin_qr(matrix, *thin_qr(matrix))

    def test_full_rank_factors_with_a_positive_diagonal_are_recovered(self) -> None:
        for rows in (30, TALL):
            basis, triangle = frame(rows, 4), np.triu(gaussian(4, 4, seed=2))
            np.fill_diagonal(triangle, [1.0, 2.0, 0.5, 3.0])
            q, r = thin_qr(basis @ triangle)
            np.testing.assert_allclose(q, basis, rtol=0, atol=1e-13)
            np.testing.assert_allclose(r, triangle, rtol=0, atol=1e-13)

    @pytest.mark.parametrize("condition", [1.0, 1e12])
    def test_cholesky_and_householder_agree(self, condition: float) -> None:
        matrix = with_condition(TALL, 5, condition)
        expected_q, expected_r = np.linalg.qr(matrix)
        signs = np.sign(np.diag(expected_r))
        q, r = thin_qr(matrix)
        np.testing.assert_allclose(r, expected_r * signs[:, np.newaxis], rtol=0, atol=1e-13)
        np.testing.assert_allclose(q, expected_q * signs, rtol=0, atol=1e-14 * condition)

    @pytest.mark.parametrize("condition", [1.0, 1e12])
    @pytest.mark.parametrize("rows", [40, TALL])
    def test_equal_values_give_equal_bits_whatever_their_layout_in_memory(self, rows: int, condition: float) -> None:
        matrix = with_condition(rows, 5, condition)
        spread = np.zeros((2 * rows, 5))
        spread[::2] = matrix
        first = [factor.tobytes() for factor in thin_qr(matrix)]
        assert first == [factor.tobytes() for factor in thin_qr(np.asfortranarray(matrix))]
        assert first == [factor.tobytes() for factor in thin_qr(spread[::2])]

    @pytest.mark.parametrize("rows", [40, TALL])
    def test_the_input_is_left_alone(self, rows: int) -> None:
        matrix = gaussian(rows, 3)
        before = matrix.copy()
        matrix.setflags(write=False)
        thin_qr(matrix)
        assert np.array_equal(matrix, before)

    def test_integers_are_taken_as_numbers(self) -> None:
        q, r = thin_qr(np.array([[3], [4]]))
        np.testing.assert_allclose(q, [[0.6], [0.8]])
        np.testing.assert_allclose(r, [[5.0]])

    @pytest.mark.parametrize(
        "matrix", [np.ones(3), np.ones((2, 2, 2)), np.ones((2, 3)), np.ones((3, 0)), np.float64(1)]
    )
    def test_anything_but_a_tall_matrix_is_refused(self, matrix: FloatArray) -> None:
        with pytest.raises(InvalidParameterError):
            thin_qr(matrix)

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("rows", [40, TALL])
    def test_missing_and_infinite_entries_are_refused(self, rows: int, value: float) -> None:
        matrix = gaussian(rows, 3)
        matrix[7, 1] = value
        with pytest.raises(InvalidParameterError, match=facts("NaN")):
            thin_qr(matrix)

    @pytest.mark.parametrize("rows", [2, 5, TALL])
    @pytest.mark.parametrize("entry", [1e305, 1.2e308, -1.7e308])
    def test_a_column_norm_that_could_overflow_on_the_way_is_refused(self, rows: int, entry: float) -> None:
        with pytest.raises(InvalidParameterError, match=facts("1e+304")):
            thin_qr(np.full((rows, 2), entry))


class TestTheChoiceOfMethod:
    def test_well_conditioned_columns_are_left_to_cholesky_whatever_their_scales(self) -> None:
        matrix = gaussian(TALL, 5) * np.array([1e-90, 1e90, 1.0, 1e-30, 1e30])
        assert linalg._cholesky_suffices(linalg._gram(matrix), linalg._longest_sum(matrix))

    @pytest.mark.parametrize("longest_sum", [1000, 5000, 100_000])
    @pytest.mark.parametrize("columns", [2, 10, 40])
    def test_the_published_bound_on_the_condition_number_is_the_border(self, columns: int, longest_sum: int) -> None:
        """An n x n matrix of equal correlations c has eigenvalues 1 - c and 1 - c + n c."""
        u = 2.0**-53
        bound = 1 / (64 * (longest_sum * columns + columns * (columns + 1)) * u)  # of the squared condition number
        for squared_condition, expected in ((0.99 * bound, True), (1.01 * bound, False)):
            slack = columns / (squared_condition - 1 + columns)
            gram = np.full((columns, columns), 1 - slack) + slack * np.eye(columns)
            assert linalg._cholesky_suffices(gram, longest_sum) == expected

    @pytest.mark.parametrize(
        "matrix", [np.zeros((9, 2)), np.full((9, 2), 1e-160), np.full((9, 2), 1e160), np.ones((9, 2))]
    )
    def test_squares_out_of_range_and_dependent_columns_are_left_to_householder(self, matrix: FloatArray) -> None:
        assert not linalg._cholesky_suffices(linalg._gram(matrix), 9)

    def test_the_longest_sum_counts_the_rows_of_a_block_and_the_blocks(self) -> None:
        assert linalg._longest_sum(np.zeros((100, 3))) == 100 + 1
        assert linalg._longest_sum(np.zeros((3 * linalg.BLOCK_ROWS + 5, 3))) == linalg.BLOCK_ROWS + 5 + 3

    @given(rows=st.integers(1, 20_000), columns=st.integers(1, 600))
    def test_blocks_cover_all_rows_in_order_and_stay_tall(self, rows: int, columns: int) -> None:
        matrix = np.lib.stride_tricks.as_strided(np.arange(rows, dtype=np.float64), (rows, columns), (8, 0))
        blocks = linalg._row_blocks(matrix)
        assert np.array_equal(np.concatenate([block[:, 0] for block in blocks]), np.arange(rows))
        assert len(blocks) == 1 or min(map(len, blocks)) >= 8 * columns
        assert len(blocks[-1]) == max(map(len, blocks))


@st.composite
def matrices_with_ties(draw: st.DrawFn) -> FloatArray:
    shape = draw(st.tuples(st.integers(1, 30), st.integers(1, 4)))
    return draw(arrays(np.float64, shape, elements=st.integers(-2, 2).map(float)))


class TestHardThreshold:
    @given(matrix=matrices_with_ties(), count=st.integers(1, 40))
    def test_the_rows_kept_are_the_first_in_a_stable_sort_by_falling_norm(self, matrix: FloatArray, count: int) -> None:
        squares = np.square(matrix).sum(axis=1)
        expected = sorted(sorted(range(len(matrix)), key=lambda row: -squares[row])[:count])
        assert largest_rows(matrix, count).tolist() == expected

    @given(matrix=matrices_with_ties(), kept=st.integers(1, 40))
    def test_thresholding_twice_is_thresholding_once(self, matrix: FloatArray, kept: int) -> None:
        once = hard_threshold(matrix, kept)
        assert np.array_equal(hard_threshold(once, kept), once)

    @given(matrix=matrices_with_ties(), kept=st.integers(1, 40))
    def test_kept_rows_are_untouched_and_all_others_zero(self, matrix: FloatArray, kept: int) -> None:
        result = hard_threshold(matrix, kept)
        rows = largest_rows(matrix, kept)
        assert np.array_equal(result[rows], matrix[rows])
        assert not np.delete(result, rows, axis=0).any()

    @given(matrix=matrices_with_ties(), count=st.integers(1, 40), exponent=st.integers(-900, 900))
    def test_scaling_by_a_power_of_two_changes_no_choice(self, matrix: FloatArray, count: int, exponent: int) -> None:
        assert np.array_equal(largest_rows(matrix * 2.0**exponent, count), largest_rows(matrix, count))

    @pytest.mark.parametrize("columns", [1, 3, 7, 10, 33])
    def test_equal_rows_tie_exactly_and_the_lower_index_wins(self, columns: int) -> None:
        matrix = np.tile(gaussian(1, columns), (101, 1))
        matrix[50] *= 2
        assert largest_rows(matrix, 4).tolist() == [0, 1, 2, 50]

    def test_rows_of_equal_norm_and_different_entries_tie(self) -> None:
        assert largest_rows(np.array([[1.0, 0.0], [3.0, 4.0], [5.0, 0.0], [0.0, -5.0]]), 2).tolist() == [1, 2]

    def test_rows_whose_squares_under_or_overflow_are_still_ranked(self) -> None:
        matrix = np.array([[0.0], [1e-200], [1e-180], [1.0]])
        assert largest_rows(matrix, 2).tolist() == [2, 3]
        assert largest_rows(np.array([[1e200], [1e300], [1.7e308], [1e250]]), 2).tolist() == [1, 2]
        assert largest_rows(np.array([[0.0], [5e-324]]), 1).tolist() == [1]

    def test_keeping_at_least_all_rows_returns_a_copy(self) -> None:
        matrix = gaussian(4, 2)
        for kept in (4, 5):
            result = hard_threshold(matrix, kept)
            assert np.array_equal(result, matrix)
            assert not np.shares_memory(result, matrix)

    @pytest.mark.parametrize("kept", [0, -1])
    def test_keeping_no_row_is_refused(self, kept: int) -> None:
        with pytest.raises(InvalidParameterError, match=facts(kept, 1)):
            hard_threshold(np.ones((3, 2)), kept)

    def test_a_missing_value_is_refused(self) -> None:
        with pytest.raises(InvalidParameterError):
            largest_rows(np.array([[1.0], [np.nan]]), 1)


@st.composite
def pairs_of_subspaces(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    k = draw(st.integers(1, 5))
    d = draw(st.integers(k, 12))
    return frame(d, k, draw(seeds)), frame(d, k, draw(seeds))


def turned(angles: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two subspaces with the given principal angles, in a basis that shows none of them."""
    k = len(angles)
    plain = np.vstack([np.eye(k), np.zeros((k + 2, k))])
    tilted = np.vstack([np.diag(np.cos(angles)), np.diag(np.sin(angles)), np.zeros((2, k))])
    room = frame(2 * k + 2, 2 * k + 2, seed=5)
    return room @ plain @ frame(k, k, seed=6), room @ tilted @ frame(k, k, seed=7)


class TestSubspaces:
    @given(pairs_of_subspaces())
    def test_the_distance_is_symmetric(self, pair: tuple[FloatArray, FloatArray]) -> None:
        u, v = pair
        assert subspace_distance(u, v) == pytest.approx(subspace_distance(v, u), abs=1e-14)

    @given(pair=pairs_of_subspaces(), seed=seeds)
    def test_rotating_a_basis_changes_no_distance(self, pair: tuple[FloatArray, FloatArray], seed: int) -> None:
        u, v = pair
        rotation = frame(u.shape[1], u.shape[1], seed)
        assert subspace_distance(u @ rotation, v) == pytest.approx(subspace_distance(u, v), abs=1e-13)
        assert subspace_distance(u, u @ rotation) < 1e-14

    @given(pairs_of_subspaces())
    def test_the_distance_is_the_root_of_the_summed_squared_sines_of_the_angles(
        self, pair: tuple[FloatArray, FloatArray]
    ) -> None:
        sines = np.sin(principal_angles(*pair))
        assert subspace_distance(*pair) == pytest.approx(float(np.linalg.norm(sines)), abs=1e-14)

    @given(pairs_of_subspaces())
    def test_the_distance_is_the_overlap_with_the_orthogonal_complement(
        self, pair: tuple[FloatArray, FloatArray]
    ) -> None:
        u, v = pair
        complement = np.linalg.qr(v, mode="complete")[0][:, v.shape[1] :]
        assert subspace_distance(u, v) == pytest.approx(float(np.linalg.norm(u.T @ complement)), abs=1e-14)

    @given(pairs_of_subspaces())
    def test_the_distance_stays_within_its_range(self, pair: tuple[FloatArray, FloatArray]) -> None:
        d, k = pair[0].shape
        assert 0 <= subspace_distance(*pair) <= sqrt(min(k, d - k)) + 1e-14

    @pytest.mark.parametrize("angle", [1e-6, 1e-8, 1e-10, 1e-12])
    def test_a_tiny_angle_is_neither_lost_nor_blown_up(self, angle: float) -> None:
        u, v = turned(np.array([angle]))
        assert subspace_distance(u, v) == pytest.approx(angle, abs=1e-15)
        assert principal_angles(u, v)[0] == pytest.approx(angle, abs=1e-15)

    def test_bases_of_single_precision_are_compared_as_subspaces(self) -> None:
        single = frame(50, 3).astype(np.float32).astype(np.float64)
        assert subspace_distance(single, single @ frame(3, 3, seed=1)) < 1e-14

    def test_orthogonal_subspaces_are_the_root_of_k_apart(self) -> None:
        identity = np.eye(6)
        assert subspace_distance(identity[:, :3], identity[:, 3:]) == pytest.approx(sqrt(3))
        np.testing.assert_allclose(principal_angles(identity[:, :3], identity[:, 3:]), pi / 2)

    def test_angles_come_ascending_and_accurate_at_both_ends(self) -> None:
        angles = np.array([0.0, 1e-12, 1e-9, 1e-4, 0.7, pi / 4, pi / 2 - 1e-4, pi / 2 - 1e-9, pi / 2 - 1e-12, pi / 2])
        np.testing.assert_allclose(principal_angles(*turned(angles)), np.sort(angles), rtol=0, atol=3e-15)

    @given(pairs_of_subspaces())
    def test_angles_agree_with_an_independent_implementation(self, pair: tuple[FloatArray, FloatArray]) -> None:
        """To half the digits only: where subspaces share directions, scipy's angles can be 3e-8 in place of zero."""
        np.testing.assert_allclose(principal_angles(*pair), subspace_angles(*pair)[::-1], rtol=0, atol=1e-7)

    @given(d=st.integers(2, 8), seed=seeds)
    def test_two_hyperplanes_share_all_directions_but_one(self, d: int, seed: int) -> None:
        angles = principal_angles(frame(d, d - 1, seed), frame(d, d - 1, seed + 1))
        assert (angles[:-1] < 1e-14).all()

    @pytest.mark.parametrize("measure", [subspace_distance, principal_angles])
    @pytest.mark.parametrize(
        "basis",
        [2 * np.eye(4)[:, :2], np.ones((4, 2)) / 2, np.zeros((4, 2)), np.full((4, 2), 1e300), np.full((4, 2), np.nan)],
    )
    def test_a_basis_that_is_not_orthonormal_is_refused_on_either_side(self, measure, basis: FloatArray) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        good = np.eye(4)[:, :2]
        with pytest.raises(InvalidParameterError, match=facts("U")):
            measure(basis, good)
        with pytest.raises(InvalidParameterError, match=facts("V")):
            measure(good, basis)

    @pytest.mark.parametrize("other", [np.eye(4)[:, :1], np.eye(5)[:, :2]])
    def test_subspaces_of_different_shapes_are_refused(self, other: FloatArray) -> None:
        with pytest.raises(InvalidParameterError, match=facts("(4, 2)", str(other.shape))):
            subspace_distance(np.eye(4)[:, :2], other)


nonzero_matrices = arrays(
    np.float64, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.integers(-3, 3).map(float)
).filter(np.any)


class TestCoherence:
    @given(nonzero_matrices)
    def test_row_coherence_stays_between_one_and_the_root_of_the_number_of_rows(self, matrix: FloatArray) -> None:
        assert 1 - 1e-14 <= row_coherence(matrix) <= sqrt(len(matrix)) + 1e-14

    @given(nonzero_matrices)
    def test_the_longest_row_is_the_coherence_times_the_typical_row(self, matrix: FloatArray) -> None:
        longest = np.linalg.norm(matrix, axis=1).max()
        typical = np.linalg.norm(matrix) / sqrt(len(matrix))
        assert longest == pytest.approx(row_coherence(matrix) * typical)

    def test_row_coherence_is_one_for_equal_rows_and_largest_for_a_single_one(self) -> None:
        single = np.zeros((16, 3))
        single[4] = 2.0
        for even in (np.eye(16), np.ones((16, 3)), hadamard(16).astype(float)):
            assert row_coherence(even) == pytest.approx(1)
        assert row_coherence(single) == pytest.approx(4)

    @given(matrix=nonzero_matrices, exponent=st.integers(-300, 300))
    def test_row_coherence_feels_no_scale(self, matrix: FloatArray, exponent: int) -> None:
        assert row_coherence(matrix * 10.0**exponent) == pytest.approx(row_coherence(matrix))

    @given(matrix=nonzero_matrices, seed=seeds)
    def test_a_sparse_direction_picks_up_little_as_lemma_5_2_says(self, matrix: FloatArray, seed: int) -> None:
        """An s-sparse unit w has ||w^T A|| <= C sqrt(s / m) ||A||_F (Hardt & Roth 2012)."""
        rows = len(matrix)
        kept = 1 + seed % rows
        w = hard_threshold(gaussian(rows, 1, seed), kept)
        reached = np.linalg.norm(w.T @ matrix) / np.linalg.norm(w)
        assert reached <= row_coherence(matrix) * sqrt(kept / rows) * np.linalg.norm(matrix) * (1 + 1e-12)

    @pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
    def test_sparse_input_has_the_coherence_of_its_dense_form(self, form) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        matrix = gaussian(30, 8) * (gaussian(30, 8, seed=1) > 1)
        matrix[3] = 0
        for scale in (1e-200, 1.0, 1e200):
            assert row_coherence(form(matrix * scale)) == pytest.approx(row_coherence(matrix))

    def test_duplicate_sparse_entries_are_added_before_they_are_squared(self) -> None:
        parts = sparse.csr_array((np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(2, 2))
        assert row_coherence(parts) == pytest.approx(1)
        assert parts.nnz == 3
        assert parts.data.tolist() == [1.0, 2.0, 3.0]

    def test_sparse_parts_that_cancel_do_not_drown_the_rest(self) -> None:
        data, columns = np.array([1e200, -1e200, 1.0, 1.0]), np.array([0, 0, 1, 0])
        assert row_coherence(sparse.csr_array((data, columns, np.array([0, 3, 4])), shape=(2, 2))) == pytest.approx(1)

    @pytest.mark.parametrize("seed", range(20))
    def test_row_coherence_has_the_same_bits_whatever_the_layout_in_memory(self, seed: int) -> None:
        matrix = gaussian(7, 33, seed)
        assert row_coherence(np.asfortranarray(matrix)) == row_coherence(matrix)

    def test_sparse_input_of_integers_is_taken_as_numbers(self) -> None:
        assert row_coherence(sparse.csr_array(np.array([[3, 4], [0, 5]]))) == pytest.approx(1)

    @given(pairs_of_subspaces())
    def test_basis_coherence_stays_between_one_and_rows_over_rank(self, pair: tuple[FloatArray, FloatArray]) -> None:
        rows, rank = pair[0].shape
        assert 1 - 1e-13 <= basis_coherence(pair[0]) <= rows / rank * (1 + 1e-13)

    @given(pair=pairs_of_subspaces(), seed=seeds)
    def test_basis_coherence_belongs_to_the_subspace(self, pair: tuple[FloatArray, FloatArray], seed: int) -> None:
        basis = pair[0]
        rotation = frame(basis.shape[1], basis.shape[1], seed)
        assert basis_coherence(basis @ rotation) == pytest.approx(basis_coherence(basis))

    def test_basis_coherence_is_smallest_for_spread_vectors_and_largest_for_axes(self) -> None:
        assert basis_coherence(hadamard(16)[:, :3] / 4) == pytest.approx(1)
        assert basis_coherence(np.eye(16)) == pytest.approx(1)
        assert basis_coherence(np.eye(16)[:, :3]) == pytest.approx(16 / 3)

    def test_basis_coherence_of_anything_but_an_orthonormal_basis_is_refused(self) -> None:
        with pytest.raises(InvalidParameterError, match=facts("U", "thin_qr")):
            basis_coherence(np.ones((4, 2)))

    @given(nonzero_matrices)
    def test_entry_coherence_stays_between_one_and_the_larger_dimension(self, matrix: FloatArray) -> None:
        assert 1 - 1e-13 <= entry_coherence(matrix) <= max(matrix.shape) * (1 + 1e-13)

    def test_entry_coherence_is_one_for_spread_vectors_and_largest_for_axes(self) -> None:
        spread = hadamard(8) / sqrt(8)
        assert entry_coherence(np.ones((5, 7))) == pytest.approx(1)
        assert entry_coherence(spread * np.arange(8, 0, -1) @ spread.T) == pytest.approx(1)
        assert entry_coherence(np.diag(np.arange(8.0, 0, -1))) == pytest.approx(8)

    def test_entry_coherence_of_the_identity_is_that_of_the_decomposition_found(self) -> None:
        """Its singular values all repeat: a nudge towards the Hadamard basis makes the other answer the right one."""
        spread = hadamard(8) / sqrt(8)
        nudge = 1e-6 * spread * np.arange(8, 0, -1) @ spread.T
        assert entry_coherence(np.eye(8)) == pytest.approx(8)
        assert entry_coherence(np.eye(8) + nudge) == pytest.approx(1)

    def test_entry_coherence_ignores_the_singular_vectors_of_zero(self) -> None:
        """A rank-one matrix of equal entries but for rounding: what LAPACK completes it with says nothing."""
        assert entry_coherence(np.full((6, 6), 0.1)) == pytest.approx(1)

    @given(nonzero_matrices)
    def test_the_three_coherences_are_ordered_as_the_papers_say(self, matrix: FloatArray) -> None:
        """mu_0 <= mu (Hardt & Roth 2013, after Definition 5.2), C <= sqrt(r mu_0) (2012, Lemma 5.13)."""
        left, singular_values, _ = np.linalg.svd(matrix, full_matrices=False)
        rank = int((singular_values > 1e-12 * singular_values[0]).sum())
        mu_0 = basis_coherence(left[:, :rank])
        assert mu_0 <= entry_coherence(matrix) * (1 + 1e-12)
        assert row_coherence(matrix) <= sqrt(rank * mu_0) * (1 + 1e-12)

    def test_the_bound_of_lemma_5_13_is_reached_at_rank_one(self) -> None:
        u = np.array([[0.8], [0.6], [0.0]])
        assert row_coherence(u @ np.ones((1, 4))) == pytest.approx(sqrt(basis_coherence(u)))

    @pytest.mark.parametrize("matrix", [np.zeros((3, 2)), np.zeros(3), np.zeros((0, 3)), np.full((2, 2), np.nan)])
    @pytest.mark.parametrize("measure", [row_coherence, entry_coherence])
    def test_zero_empty_and_unfinished_matrices_have_no_coherence(self, measure, matrix: FloatArray) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        with pytest.raises(InvalidParameterError):
            measure(matrix)

    def test_zero_and_unfinished_sparse_matrices_have_no_coherence(self) -> None:
        for matrix in (sparse.csr_array((3, 3)), sparse.csr_array(np.array([[1.0, np.inf]]))):
            with pytest.raises(InvalidParameterError):
                row_coherence(matrix)


@pytest.mark.parametrize("condition", [1.0, 30.0, 1e3, 1e12])
def test_a_qr_in_the_matrixs_own_memory_has_the_same_factors(condition: float) -> None:
    """Of well conditioned columns, middling ones and those that only reflections can factor, unevenly scaled."""
    rng = np.random.default_rng(3)
    small = np.linalg.qr(rng.standard_normal((6, 6)))[0] * np.geomspace(1, 1 / condition, 6)
    matrix = rng.standard_normal((5000, 6)) @ small * np.geomspace(1e-20, 1e20, 6)
    q, r = thin_qr(matrix)
    again = thin_qr(matrix.copy(), overwrite=True)
    assert [factor.tobytes() for factor in again] == [q.tobytes(), r.tobytes()]
    assert np.abs(q.T @ q - np.eye(6)).max() < 1e-14
    assert np.abs((q @ r - matrix) / np.linalg.norm(matrix, axis=0)).max() < 1e-15


def test_a_matrix_that_must_not_be_written_to_is_factored_all_the_same() -> None:
    matrix = np.random.default_rng(3).standard_normal((5000, 6))
    matrix.setflags(write=False)
    kept = matrix.copy()
    assert thin_qr(matrix, overwrite=True)[0].tobytes() == thin_qr(kept)[0].tobytes()
    assert (matrix == kept).all()
