"""Linear algebra that all algorithms use: thin QR, row threshold, distances between subspaces, coherences.

All functions are pure:

- They check their input (shape, finite entries, orthonormal columns). `InvalidParameterError` says what is wrong and
  quotes no value.
- Choices that mathematics leaves open (signs of a QR, ties of a threshold, order of angles) are fixed and documented.
  Equal inputs give equal outputs, whatever their memory layout. They are equal to the last bit for one build of BLAS,
  one number of threads and one kind of processor.
- Results are accurate to rounding. Squares are never formed where they could overflow or lose half the digits.

Papers: Hardt & Roth 2012 (Beating Randomized Response on Incoherent Matrices), Hardt & Roth 2013 (Beyond Worst-Case
Analysis in Private Singular Vector Computation), Hardt & Price (The Noisy Power Method), Ge, Wang, Wang & Liu 2018
(Minimax-Optimal Privacy-Preserving Sparse PCA in Distributed Systems).
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cholesky
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dtrtri

from .errors import InvalidParameterError

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.intp]
SparseMatrix = (
    sparse.csr_array | sparse.csc_array | sparse.coo_array | sparse.csr_matrix | sparse.csc_matrix | sparse.coo_matrix
)

MATRIX_DIMENSIONS = 2
UNIT_ROUNDOFF = float(np.finfo(np.float64).eps) / 2
BLOCK_ROWS = 1024  # with ten columns, a block fits into the second-level cache
LARGEST_NORM = 1e304  # above this, Householder QR could overflow unnoticed when it subtracts a norm from an entry
SAFE_SQUARES = (1e-200, 1e200)  # squared norms in this range do not over- or underflow, and neither do relevant parts
WELL_CONDITIONED = 4  # largest accepted ||R|| ||R^-1|| per column; it is never below 1
ORTHONORMAL_WITHIN = 1e-6  # accepts a basis stored in single precision, refuses one that was never normalised

_FACTORED = "The matrix to factor"

# Thin QR


def thin_qr(matrix: FloatArray, *, overwrite: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return (Q, R) with matrix = Q R. Q has orthonormal columns; R is upper triangular with a nonnegative diagonal.

    This sign convention makes the factors of a full-rank matrix unique. Q^T Q = I to rounding for every finite input
    whose column norms are below 1e304, at any scale, condition number and rank. If column j lies in the span of the
    columns before it, R[j, j] is 0 up to rounding (exactly 0 for a column of zeros), and column j of Q is an arbitrary
    but deterministic unit vector orthogonal to the others.

    Tall matrices that are well enough conditioned (`_cholesky_suffices`) are factored by Cholesky QR applied twice,
    which is several times faster. All others are factored by Householder reflections. With `overwrite`, Q may reuse
    the memory of the matrix, which saves as much memory again. The factors are the same.
    """
    values = np.asarray(matrix, dtype=np.float64, order="C")
    _refuse_shape(values.shape, _FACTORED)
    if values.shape[0] < values.shape[1]:
        raise InvalidParameterError(
            "The matrix to factor has fewer rows than columns.", "Pass a matrix at least as tall as it is wide."
        )
    q, r = _factors(values, values if overwrite and values.flags.writeable else None)
    if not (np.abs(r) < LARGEST_NORM).all():
        raise InvalidParameterError(
            f"The norm of a column exceeds {LARGEST_NORM:.0e}.", "Rescale the matrix before factoring it."
        )
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    return (q, r) if (signs > 0).all() else (q * signs, r * signs[:, np.newaxis])


def _factors(matrix: FloatArray, place: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Factor by the faster method that is accurate enough. The signs are not fixed yet.

    An entry that is not finite shows in the Gram matrix. Q is written to ``place``, which may be the matrix itself.
    """
    if len(_row_blocks(matrix)) == 1:
        return _householder(matrix)
    gram = _gram(matrix)
    if not _cholesky_suffices(gram, _longest_sum(matrix)):
        return _householder(matrix)
    q = np.empty_like(matrix) if place is None else place
    first = _cholesky_qr(matrix, gram, q)
    second = _cholesky_qr(q, _gram(q), q)
    return q, second @ first


def _cholesky_suffices(gram: FloatArray, longest_sum: int) -> bool:
    """Return whether Cholesky QR, applied twice to a matrix with this Gram matrix, is orthonormal to rounding.

    Yamamoto, Nakatsukasa, Yanagisawa & Fukaya (2015, ETNA 44) prove it for m x n matrices of condition number kappa
    with 8 kappa sqrt(m n u + n (n + 1) u) <= 1, where u is the unit roundoff. Their m counts the sequential additions
    behind an entry of the Gram matrix, here `longest_sum`. The columns are scaled to unit norm first, because the
    accuracy of Cholesky QR does not depend on their scale. kappa^2 comes from the eigenvalues of the scaled Gram
    matrix, whose rounding error is at most a sixty-fourth of the smallest eigenvalue accepted. For a million rows of
    ten columns, kappa may reach about 7e4. The often quoted 1e7 usually works too, but is not proved.
    """
    squares = np.diag(gram)
    smallest, largest = SAFE_SQUARES
    if not (np.isfinite(gram).all() and (squares > smallest).all() and (squares < largest).all()):
        return False
    n = gram.shape[0]
    eigenvalues = np.linalg.eigvalsh(_unit_diagonal(gram))
    return bool(eigenvalues[0] >= 64 * n * (longest_sum + n + 1) * UNIT_ROUNDOFF * eigenvalues[-1])


def _cholesky_qr(matrix: FloatArray, gram: FloatArray, place: FloatArray) -> FloatArray:
    """Do one step: take R from the Gram matrix, write Q = matrix R^-1 to ``place``, and return R.

    Solving row by row is backward stable for every R. Multiplying by R^-1 takes half the time, but adds an error of a
    few roundings times |R| |R^-1| to each row. It is used only if that factor is of the order of one, which it always
    is in the second step. The scale of the columns affects neither method, so it does not affect the choice.
    """
    norms = np.sqrt(np.diag(gram))
    unit = cholesky(_unit_diagonal(gram))
    inverse = dtrtri(unit)[0]
    if np.linalg.norm(unit) * np.linalg.norm(inverse) <= WELL_CONDITIONED * len(unit):
        _multiply(matrix, inverse / norms[:, np.newaxis], place)
    else:
        if place is not matrix:
            place[...] = matrix
        dtrsm(1.0, unit * norms, place.T, trans_a=1, overwrite_b=True)
    factor: FloatArray = unit * norms
    return factor


def _multiply(matrix: FloatArray, small: FloatArray, place: FloatArray) -> None:
    """Multiply block by block, so that matrix and place may be the same. np.dot releases the interpreter lock."""
    for block, target in zip(_row_blocks(matrix), _row_blocks(place), strict=True):
        target[...] = np.dot(block, small)


def _householder(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    _refuse_not_finite(matrix, _FACTORED)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller finds an overflow in R
        q, r = np.linalg.qr(matrix)
    return q, r


def _gram(matrix: FloatArray) -> FloatArray:
    """Return matrix^T matrix, summed in blocks of rows. Shorter sums have smaller rounding errors."""
    n = matrix.shape[1]
    total = np.zeros((n, n))
    with np.errstate(over="ignore", invalid="ignore"):
        for block in _row_blocks(matrix):
            total += block.T @ block
    return total


def _longest_sum(matrix: FloatArray) -> int:
    """Return the number of sequential additions behind one entry of `_gram`: within a block, then over the blocks."""
    blocks = _row_blocks(matrix)
    return len(blocks[-1]) + len(blocks)


def _row_blocks(matrix: FloatArray) -> list[FloatArray]:
    """Divide into blocks of consecutive rows, much taller than wide. The last also takes the remainder."""
    rows, columns = matrix.shape
    height = max(BLOCK_ROWS, 8 * columns)
    return np.split(matrix, range(height, rows - height + 1, height))


def _unit_diagonal(gram: FloatArray) -> FloatArray:
    norms = np.sqrt(np.diag(gram))
    return gram / norms / norms[:, np.newaxis]


# Hard threshold


def hard_threshold(matrix: FloatArray, kept_rows: int) -> FloatArray:
    """Return a copy in which all rows are zero except the `kept_rows` of largest Euclidean norm (see `largest_rows`).

    If `kept_rows` is at least the number of rows, the copy is unchanged. This is Threshold of Ge et al. 2018.
    """
    values = _finite_matrix(matrix, "The matrix to threshold")
    kept = largest_rows(values, kept_rows)
    result = np.zeros_like(values)
    result[kept] = values[kept]
    return result


def largest_rows(matrix: FloatArray, count: int) -> IndexArray:
    """Return, ascending, the indices of the `count` rows of largest Euclidean norm. Of equal rows the first wins.

    Rows are equal if their computed norms are. Scaling is by powers of two, so norms of exact squares stay exact: rows
    (3, 4) and (5, 0) tie. If there are no more than `count` rows, all indices are returned. The time is linear in the
    size of the matrix.
    """
    values = _finite_matrix(matrix, "The matrix to rank by rows")
    if count < 1:
        raise InvalidParameterError(f"The number of rows to keep is {count}.", "Keep at least 1 row.")
    rows = len(values)
    if count >= rows:
        return np.arange(rows, dtype=np.intp)
    norms = _plain_row_norms(values)
    boundary = _nth_largest(norms, count)
    smallest, largest = np.sqrt(SAFE_SQUARES)
    if not (boundary > smallest and norms.max() < largest):
        norms = _relative_row_norms(values)
        boundary = _nth_largest(norms, count)
    above = np.flatnonzero(norms > boundary)
    tied = np.flatnonzero(norms == boundary)[: count - above.size]
    return np.sort(np.concatenate([above, tied]))


def _nth_largest(norms: FloatArray, count: int) -> float:
    return float(np.partition(norms, norms.size - count)[norms.size - count])


def _plain_row_norms(matrix: FloatArray) -> FloatArray:
    """Return row norms without scaling. The caller checks that no relevant square leaves the range of doubles.

    In that range they order and tie the rows as `_relative_row_norms` does, because scaling by powers of two is exact.
    Squares that underflow are too small to change a norm in range, and no row out of range looks like one in range.
    """
    with np.errstate(over="ignore"):
        norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", matrix, matrix))
    return norms


def _relative_row_norms(matrix: FloatArray) -> FloatArray:
    """Return row norms, all divided by one power of two near the largest, so that nothing overflows.

    Each row is scaled by its own power of two before it is squared. So the order of two rows is right unless they are
    more than 300 orders of magnitude apart.
    """
    _, exponents = np.frexp(np.abs(matrix).max(axis=1))
    scales = np.ldexp(1.0, exponents - 1)
    scaled = matrix / scales[:, np.newaxis]
    norms: FloatArray = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    relative: FloatArray = norms * (scales / scales.max())
    return relative


# Distances between subspaces


def subspace_distance(U: FloatArray, V: FloatArray) -> float:
    """Return ||U^T V_perp||_F = ||sin Theta||_F, the error measure D[U, V] of Ge et al. 2018.

    U and V are d x k with orthonormal columns; V_perp completes V to a basis. The distance is symmetric in U and V, is
    not changed by rotating either basis, and lies between 0 and sqrt(min(k, d - k)). It is computed as
    ||(I - U U^T) V||_F, which is accurate for tiny angles; sqrt(k - ||U^T V||^2) is not below 1e-8.
    """
    u, v = _two_bases(U, V)
    return float(np.linalg.norm(v - u @ (u.T @ v)))


def principal_angles(U: FloatArray, V: FloatArray) -> FloatArray:
    """Return the k principal angles between the column spaces of U and V (both d x k, orthonormal), ascending.

    The cosines are the singular values of U^T V, the sines those of (I - U U^T) V. Each angle is
    arctan2(sine, cosine). Small angles follow from the sine and angles near pi/2 from the cosine, so the absolute error
    is of the order of rounding over all of [0, pi/2].
    """
    u, v = _two_bases(U, V)
    overlap = u.T @ v
    cosines = np.linalg.svd(overlap, compute_uv=False)
    sines = np.linalg.svd(v - u @ overlap, compute_uv=False)
    angles: FloatArray = np.arctan2(sines[::-1], cosines)
    return angles


def _two_bases(U: FloatArray, V: FloatArray) -> tuple[FloatArray, FloatArray]:
    u, v = _orthonormal(U, "U"), _orthonormal(V, "V")
    if u.shape != v.shape:
        raise InvalidParameterError(
            f"U has the shape {u.shape}, and V {v.shape}.",
            "Compare subspaces of equal dimension in the same space, as d x k bases.",
        )
    return u, v


def _orthonormal(basis: FloatArray, name: str) -> FloatArray:
    """Refuse a basis that is not orthonormal. Otherwise orthonormalise it again, to remove its rounding error."""
    values = _finite_matrix(basis, name)
    if values.shape[0] < values.shape[1] or not _is_orthonormal(values):
        raise InvalidParameterError(
            f"The columns of {name} are not orthonormal.", "Orthonormalise them first, for example with thin_qr."
        )
    return thin_qr(values)[0]


def _is_orthonormal(values: FloatArray) -> bool:
    deviation = np.abs(_gram(values) - np.eye(values.shape[1])).max()
    return bool(deviation <= ORTHONORMAL_WITHIN)


# Coherence


def row_coherence(matrix: FloatArray | SparseMatrix) -> float:
    """Return the C-coherence of Hardt & Roth 2012, Definition 5.1: sqrt(m) max_i ||A_(i)|| / ||A||_F for m rows.

    It is the smallest C such that no row is longer than C times the typical row norm, ||A||_F / sqrt(m). It lies
    between 1 (all rows equally long) and sqrt(m) (only one row is not zero). By their Lemma 5.13, C <= sqrt(r mu_0) for
    rank r, where mu_0 is the `basis_coherence` of the left singular vectors. Sparse input stays sparse.
    """
    norms = (
        _relative_sparse_row_norms(matrix)
        if isinstance(matrix, SparseMatrix)
        else _relative_row_norms(_finite_matrix(matrix, "The matrix"))
    )
    largest = float(norms.max())
    if largest == 0:
        raise InvalidParameterError("The row coherence of a zero matrix is not defined.", "Pass a nonzero matrix.")
    return sqrt(norms.size) / float(np.linalg.norm(norms / largest))


def basis_coherence(U: FloatArray) -> float:
    """Return mu_0(U) = (m / r) max_j ||U_(j)||^2 of an m x r matrix with orthonormal columns.

    Hardt & Roth 2012, Definition 5.5; Hardt & Roth 2013, Definition 5.2. It depends on the subspace only: ||U_(j)|| is
    the length of the projection of the j-th coordinate axis. It lies between 1 and m / r, and is m / r if the subspace
    contains a coordinate axis.
    """
    basis = _orthonormal(U, "U")
    rows, rank = basis.shape
    return float(rows / rank * np.square(basis).sum(axis=1).max())


def entry_coherence(matrix: FloatArray) -> float:
    """Return mu(A) = max(m ||U||_inf^2, n ||V||_inf^2) of an m x n matrix, with ||.||_inf the largest absolute entry.

    Hardt & Price, Definition 4.8; Hardt & Roth 2013, Definition 2.7. U and V are the singular vectors whose singular
    values are not zero up to rounding. The result lies between 1 (all their entries are equal in size) and max(m, n)
    (one of them is a coordinate axis), and is at least the mu_0 of either basis. If singular values repeat, singular
    vectors are not unique, and the result depends on the decomposition that LAPACK finds: for the identity it is n,
    from the coordinate axes, although a Hadamard basis would give 1.
    """
    values = _finite_matrix(matrix, "The matrix")
    m, n = values.shape
    peak = np.abs(values).max()
    if peak == 0:
        raise InvalidParameterError("The entry coherence of a zero matrix is not defined.", "Pass a nonzero matrix.")
    left, singular_values, right = np.linalg.svd(values / peak, full_matrices=False)
    rank = int(np.count_nonzero(singular_values > singular_values[0] * max(m, n) * 2 * UNIT_ROUNDOFF))
    return float(max(m * np.square(left[:, :rank]).max(), n * np.square(right[:rank]).max()))


def _relative_sparse_row_norms(matrix: SparseMatrix) -> FloatArray:
    """Return row norms divided by the largest absolute entry."""
    rows = sparse.csr_array(matrix.astype(np.float64), copy=True)
    rows.sum_duplicates()
    _refuse_unusable(matrix.shape, rows.data, "The matrix")
    rows.data /= np.abs(rows.data).max(initial=0.0) or 1.0
    norms: FloatArray = np.sqrt(rows.multiply(rows).sum(axis=1))
    return norms


def _finite_matrix(matrix: FloatArray, what: str) -> FloatArray:
    """Return the matrix in row-major float64, so that equal values are always summed in the same order."""
    values = np.asarray(matrix, dtype=np.float64, order="C")
    _refuse_unusable(values.shape, values, what)
    return values


def _refuse_unusable(shape: tuple[int, ...], values: FloatArray, what: str) -> None:
    _refuse_shape(shape, what)
    _refuse_not_finite(values, what)


def _refuse_shape(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != MATRIX_DIMENSIONS or 0 in shape:
        raise InvalidParameterError(f"{what} is not a two-dimensional array with entries.", "Pass rows by columns.")


def _refuse_not_finite(values: FloatArray, what: str) -> None:
    if not np.isfinite(values).all():
        raise InvalidParameterError(f"{what} has entries that are NaN or infinite.", "Replace or drop them beforehand.")
