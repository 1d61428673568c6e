"""A rectangular table becomes shares of a symmetric matrix, whose eigenvectors are the table's singular vectors."""

import numpy as np
import pytest
import scipy.sparse

from dpspca.client.matrices import Singular, dilation
from dpspca.client.simulation import simulate
from dpspca.common.errors import DpspcaError
from dpspca.common.linalg import subspace_distance, thin_qr
from dpspca.common.spec import Budget, JobSpec, Schema


def job(dimension: int, components: int = 4) -> JobSpec:
    return JobSpec(
        schema=Schema(dimension),
        unit="entry",  # type: ignore[arg-type]  # by value
        budget=Budget(40.0, 1e-3),
        norm_bound=1.0,
        components=components,
        algorithm="noisy-power",
        options={"rounds": 8},
    )


def test_the_shares_of_all_rows_add_up_to_the_whole() -> None:
    table = np.random.default_rng(0).standard_normal((7, 4))
    table[2, 1] = 0.0
    whole = np.block([[np.zeros((7, 7)), table], [table.T, np.zeros((4, 4))]])
    for form in (np.array, scipy.sparse.csr_array, scipy.sparse.coo_array):
        shares = [dilation(form(table[start:stop]), start, 7) for start, stop in ((0, 1), (1, 5), (5, 7))]
        assert (sum(share.toarray() for share in shares) == whole).all()
        assert sum(share.nnz for share in shares) == 2 * np.count_nonzero(table)


def test_the_table_s_singular_vectors_and_values_are_found() -> None:
    left, right = (
        thin_qr(np.random.default_rng(seed).standard_normal((size, 2)))[0] for seed, size in ((1, 50), (2, 30))
    )
    table = left @ np.diag([4000.0, 2000.0]) @ right.T
    shares = [dilation(table[:20], 0, 50), dilation(table[20:], 20, 50)]
    found = Singular.of(simulate(shares, job(80), noise_seed=1), 50)
    assert found.values == pytest.approx([4000.0, 2000.0], abs=5)
    assert subspace_distance(thin_qr(found.left.T)[0], left) < 0.05
    assert subspace_distance(thin_qr(found.right.T)[0], right) < 0.05
    assert np.allclose(np.linalg.norm(found.left, axis=1), 1, atol=0.01)
    again = found.left.T * found.values @ found.right
    assert np.linalg.norm(again - table) < 0.05 * np.linalg.norm(table)


@pytest.mark.parametrize(("start", "total"), [(-1, 9), (3, 5), (0, 2), (0, 2**24), (0.5, 9)])
def test_rows_that_have_no_place_are_refused(start: int, total: int) -> None:
    with pytest.raises(DpspcaError, match=r"place|rows in all"):
        dilation(np.ones((3, 4)), start, total)


def test_a_model_without_eigenvalues_has_no_singular_vectors() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 6))
    spec = JobSpec(
        schema=Schema(6),
        unit="row-replace-one",  # type: ignore[arg-type]
        budget=Budget(1.0, 1e-6),
        norm_bound=3.0,
        components=1,
        options={"sparsity": 3},
    )
    with pytest.raises(DpspcaError, match="no eigenvalues"):
        Singular.of(simulate([rows], spec, noise_seed=1), 3)


def test_a_model_all_of_whose_eigenvalues_are_below_zero_is_refused() -> None:
    with pytest.raises(DpspcaError, match="above zero"):
        Singular.of(simulate([-1000 * np.eye(4)], job(4, 2), noise_seed=1), 2)
