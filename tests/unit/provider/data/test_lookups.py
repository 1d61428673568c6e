"""Tables of two bits a cell are turned, looked up and added up as tables of a byte a cell would be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpspca.provider.data.checked import fingerprints
from dpspca.provider.data.memory import lookups
from dpspca.provider.data.memory.genotypes import Genotypes
from dpspca.provider.data.memory.lookups import Lookup, PackedWords
from dpspca.provider.data.memory.two_bits import codes_of, from_bed, of_codes, swapped, write_rows

pytestmark = pytest.mark.usefixtures("compiled_or_not")
SHAPES = {"rows": st.integers(0, 40), "columns": st.integers(1, 300), "seed": st.integers(0, 2**32 - 1)}


@given(**SHAPES)
def test_bytes_hold_codes_and_are_turned(rows: int, columns: int, seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 4, (rows, columns)).astype(np.uint8)
    packed = of_codes(codes)
    assert packed.shape == (rows, -(-columns // 4))
    assert (codes_of(packed, columns) == codes).all()
    turned = np.full((columns, 2 + packed.shape[0]), 255, dtype=np.uint8)
    write_rows(packed, turned, 1)
    stop = 1 + -(-rows // 4)
    assert (codes_of(turned[:, 1:stop], rows) == codes.T).all()
    assert (turned[:, :1] == 255).all()  # nothing is written beside them
    assert (turned[:, stop:] == 255).all()


def test_codes_of_a_bed_file_and_of_the_other_allele() -> None:
    written, ours = np.array([[0, 1, 2, 3]], dtype=np.uint8), np.array([[2, 3, 1, 0]])
    made = from_bed(of_codes(written))
    assert (codes_of(made, 4) == ours).all()
    both = swapped(np.vstack([made, made]), np.array([False, True]))
    assert (codes_of(both, 4) == [[2, 3, 1, 0], [0, 3, 1, 2]]).all()


@given(**SHAPES)
def test_numbers_and_sums_of_words_are_those_of_a_widened_table(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, (rows, columns)).astype(np.uint8)
    packed, blank = of_codes(codes), rng.random(rows) < 0.3
    words = rng.integers(0, 2**64, (4, columns), dtype=np.uint64)
    widened = np.take_along_axis(words, codes.astype(np.intp), axis=0)
    assert (Lookup(packed, words, rows)(slice(0, rows)) == widened).all()
    held = np.where(blank[:, None], np.uint64(0), widened)
    labels = rng.integers(0, 2**64, (columns, 2), dtype=np.uint64)
    weights = rng.integers(0, 2**64, rows, dtype=np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookups, "_TILE_BYTES", int(rng.integers(1, 9)))
        patch.setattr(lookups, "_TILE_ROWS", 8 * int(rng.integers(1, 4)))
        table = PackedWords(packed, blank, words)
        assert (table @ labels == held @ labels).all()
        assert (table @ labels[:, 0] == held @ labels[:, 0]).all()
        assert (table.T @ weights == held.T @ weights).all()


@pytest.mark.parametrize("shape", [(1, 1025), (513, 513), (1100, 1300)])
def test_large_tables_are_worked_on_in_parts(shape: tuple[int, int]) -> None:
    """Kernels take some rows and some columns at a time, and more of each than the tests above have."""
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 4, shape).astype(np.uint8)
    columns = [of_codes(np.ascontiguousarray(codes[:, at : at + 500].T)) for at in range(0, shape[1], 500)]
    table = Genotypes.of_columns(columns, shape).blanked(rng.random(shape[0]) < 0.3)
    table = table.mapped(lambda values: rng.standard_normal(values.shape))
    assert (codes_of(table.packed, shape[1]) == codes).all()
    numbers = np.take_along_axis(table.values, codes.astype(np.intp), axis=0)
    assert (Lookup(table.packed, table.values, shape[0])(slice(0, shape[0])) == numbers).all()
    assert fingerprints.of_table(table) == fingerprints.of_table(table.toarray())


@given(**SHAPES)
def test_packed_genotypes_have_the_fingerprints_of_a_dense_table(rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = Genotypes.of_codes(rng.integers(0, 4, (rows, columns)).astype(np.uint8)).as_counted()
    table = table.blanked(rng.random(rows) < 0.3)
    assert fingerprints.of_table(table) == fingerprints.of_table(table.toarray())


def test_chosen_columns_of_genotypes_are_searched() -> None:
    codes = np.array([[0, 1, 3], [2, 0, 1], [3, 0, 0]], dtype=np.uint8)
    chosen = Genotypes.of_codes(codes).select(np.array([2, 0, 1]))
    assert (chosen.has(np.isnan) == [True, False, True]).all()
    assert (Genotypes.of_codes(codes).select(np.array([1, 1])).has(np.isnan) == [False, False, False]).all()
