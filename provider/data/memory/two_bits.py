"""Tables of two bits a cell: how PLINK writes them, column by column, and how they are held here, row by row. Pure.

Everything is done to whole bytes, of four cells, or to words of sixteen, so that no cell is ever widened.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.provider.kernels import kernels

Bytes = NDArray[np.uint8]
"""Four cells in each byte, the first in the lowest bits."""
Codes = NDArray[np.uint8]
"""One number for each cell: how many copies of an allele, or ``MISSING``."""

MISSING: Final = 3
CELLS_A_BYTE: Final = 4
BITS: Final = 2
_LOW_BITS: Final = np.uint8(0b01010101)
_HIGH_BITS: Final = np.uint8(0b10101010)
_ONE: Final = np.uint8(1)


def from_bed(written: Bytes) -> Bytes:
    """Turn the codes of a .bed file into ours. It writes 2 copies as 00, 1 as 10, 0 as 11 and a missing one as 01."""
    return (~written & _HIGH_BITS) | ((written ^ (written >> _ONE)) & _LOW_BITS)


def swapped(packed: Bytes, which: NDArray[np.bool_]) -> Bytes:
    """Count the other allele in the rows that are marked: 0 becomes 2 and 2 becomes 0."""
    if not which.any():
        return packed
    turned = (~packed & _LOW_BITS) << _ONE  # the high bit, where the low one is 0
    return packed ^ np.where(which, turned.T, np.uint8(0)).T


def of_codes(codes: Codes) -> Bytes:
    """Put four columns of codes into one column of bytes."""
    rows, columns = codes.shape
    whole = np.zeros((rows, -(-columns // CELLS_A_BYTE) * CELLS_A_BYTE), dtype=np.uint8)
    whole[:, :columns] = codes
    packed = whole[:, 0::CELLS_A_BYTE].copy()
    for place in range(1, CELLS_A_BYTE):
        packed |= whole[:, place::CELLS_A_BYTE] << np.uint8(BITS * place)
    return packed


def codes_of(packed: Bytes, columns: int) -> Codes:
    """Widen rows to one byte a cell."""
    codes = np.empty((*packed.shape, CELLS_A_BYTE), dtype=np.uint8)
    for place in range(CELLS_A_BYTE):
        np.bitwise_and(packed >> np.uint8(BITS * place), MISSING, out=codes[:, :, place])
    return codes.reshape(len(packed), CELLS_A_BYTE * packed.shape[1])[:, :columns]


def write_rows(columns: Bytes, rows: Bytes, first: int) -> None:
    """Write columns of cells, four rows in each byte, as rows with four columns in each, from the first byte on."""
    assert columns.shape[1] == -(-len(rows) // CELLS_A_BYTE)  # a kernel checks no bounds
    assert first + -(-len(columns) // CELLS_A_BYTE) <= rows.shape[1]
    if compiled := kernels("genotypes"):
        compiled.write_rows(columns, rows, first)
        return
    quads = transposed(columns, len(rows))
    rows[:, first : first + quads.shape[1]] = quads


def transposed(packed: Bytes, columns: int) -> Bytes:
    """Return the columns of a table as rows.

    Four rows of a byte are a word of 4 x 4 cells, in which two exchanges of equally distant cells make rows of columns.
    """
    rows, width = packed.shape
    quarter = -(-rows // CELLS_A_BYTE)
    whole = np.zeros((quarter, CELLS_A_BYTE, width), dtype=np.uint8)
    whole.reshape(CELLS_A_BYTE * quarter, width)[:rows] = packed
    quads = np.ascontiguousarray(whole.transpose(2, 0, 1))
    words = quads.view("<u4")
    for distance, mask in ((6, 0x00CC00CC), (12, 0x0000F0F0)):
        differing = (words ^ (words >> distance)) & mask
        words ^= differing ^ (differing << distance)
    return quads.transpose(0, 2, 1).reshape(CELLS_A_BYTE * width, quarter)[:columns]
