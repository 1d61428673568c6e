"""Passes over packed genotypes have the bits of passes over a dense table of the same numbers, in any division."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.arrays import FloatArray
from dpspca.common.queries.rows import CovarianceProduct
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.memory.two_bits import MISSING
from dpspca.provider.evaluate import genotype_rows
from dpspca.provider.evaluate.genotype_rows import FactoredGenotypes, GenotypeRows
from dpspca.provider.evaluate.integer_rows import integer_rows, row_factors
from dpspca.provider.evaluate.moments import DenseRows, StreamedMoments
from dpspca.provider.evaluate.products import Division
from dpspca.provider.evaluate.shard import Shard

pytestmark = pytest.mark.usefixtures("compiled_or_not")


def drawn(rng: np.random.Generator, rows: int, columns: int) -> Genotypes:
    """Draw genotypes of uneven columns. Some rows are blank, and in some columns no number stands for missing ones."""
    codes = rng.integers(0, 4, (rows, columns)).astype(np.uint8)
    values = rng.standard_normal((MISSING + 1, columns)) ** rng.choice([1, 3, 7])
    values[MISSING, rng.random(columns) < 0.1] = np.nan
    return Genotypes(Genotypes.of_codes(codes).packed, values, rng.random(rows) < 0.2)


def lattice_basis(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    return np.rint(rng.standard_normal((rows, columns)) / rows**0.5 * 2**20)


@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 60),
    columns=st.integers(1, 70),
    width=st.integers(1, 7),
    threads=st.sampled_from([1, 3]),
    is_centred=st.booleans(),
    bound=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_passes_have_the_bits_of_a_dense_table(
    seed: int, rows: int, columns: int, width: int, threads: int, is_centred: bool, bound: float
) -> None:
    rng = np.random.default_rng(seed)
    table, asked = drawn(rng, rows, columns), lattice_basis(rng, columns, width)
    center = rng.standard_normal(columns) if is_centred else None
    scales = rng.uniform(0.1, 3, columns) if is_centred else None
    dense = DenseRows(integer_rows(table.toarray(), bound, center, scales))
    with pytest.MonkeyPatch.context() as patch:
        division = Division(int(rng.integers(1, 40)), 4 * int(rng.integers(1, 9)), int(rng.integers(1, 12)))
        patch.setattr(genotype_rows, "DIVISION", division)
        patch.setattr(genotype_rows, "PREPARED_AT_ONCE", 3 * columns)
        packed = GenotypeRows(table, bound, center, scales).kept(threads)
        answers = [StreamedMoments(each, threads).product(asked) for each in (packed, dense)]
    assert (answers[0] == answers[1]).all()
    assert (packed.block(0, rows) == dense.rows).all()


@given(seed=st.integers(0, 2**32 - 1), bound=st.sampled_from([0.5, 2.0, 40.0]))
def test_integers_are_numbers_times_a_factor(seed: int, bound: float) -> None:
    """This is all that a pass keeps of a row's length. Many of these rows are at the bound."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((30, int(rng.integers(1, 50))))
    assert (np.rint(rows * row_factors(rows, bound)) == integer_rows(rows, bound)).all()


def test_some_rows_are_shortened_twice_and_few_are_much_shorter() -> None:
    """Rounded to nearest, about half of the rows at the bound would exceed it. The others keep their whole length."""
    rows = np.random.default_rng(0).standard_normal((400, 1000))
    norms = np.sqrt((integer_rows(rows, 1.0).astype(float) ** 2).sum(axis=1))
    assert norms.max() <= 2**17
    assert norms.min() > 2**17 - 1.5 * 1000**0.5
    assert 0.2 < (norms < 2**17 - 5).mean() < 0.8


def test_a_job_with_several_passes_computes_factors_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    original = genotype_rows.row_factors
    monkeypatch.setattr(genotype_rows, "row_factors", lambda *given: calls.append(None) or original(*given))
    rng = np.random.default_rng(0)
    table = drawn(rng, 50, 20)
    shard = Shard(CheckedRows(table), 2.0, keeps=True)
    query = CovarianceProduct(np.linalg.qr(rng.standard_normal((20, 3)))[0])
    answers = [shard.evaluate(query) for _ in range(3)]
    dense = Shard(CheckedRows(table.toarray()), 2.0).evaluate(query)
    assert all((answer == dense).all() for answer in answers)
    assert len(calls) <= shard._evaluator.threads


def test_a_pass_holds_a_few_tiles_and_no_widened_rows() -> None:
    table = drawn(np.random.default_rng(0), 5000, 1200)
    packed = GenotypeRows(table, 2.0).kept(1)
    assert isinstance(packed, FactoredGenotypes)
    assert packed.kept(1) is packed
    assert packed._factors.nbytes + packed._values.nbytes <= 8 * 5000 + 5 * 8 * 1200
    assert packed._genotypes.packed is table.packed


def test_all_threads_of_a_pass_share_its_sums() -> None:
    """For few samples and many variants, a sum for each thread would take more memory than the genotypes."""
    rng = np.random.default_rng(0)
    table = drawn(rng, 64, 50_000)
    rows = GenotypeRows(table.mapped(np.nan_to_num), 200.0).kept(1)
    asked = lattice_basis(rng, 50_000, 20)
    alone = StreamedMoments(rows, 1).halves(asked)
    tracemalloc.start()
    try:
        together = StreamedMoments(rows, 2).halves(asked)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert together.narrow().any()
    assert (together.narrow() == alone.narrow()).all()
    assert peak < 1.6 * together.low.nbytes
