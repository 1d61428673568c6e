"""Multiplies integer rows with a basis and back, X^T (X Q), in one call for many rows. Pure.

The numbers and their widths are those of ``provider/evaluate/products.py``: every product and every sum is an integer
below 2^53, where float64 is exact. So the order of additions and the size of tiles change no bit.
"""

# Numba reads this module: a loop over entries is a loop in machine code here.
# ruff: noqa: PLR0913, PLR0917  # a kernel takes its arrays and sizes one by one

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import FloatArray

from .compiling import compiled, part

_LOW = 2.0**19
"""An image is 2^19 high + low."""


@part
def _tile(rows: NDArray[np.int32], start: int, stop: int, left: int, right: int, memory: FloatArray) -> FloatArray:
    """Widen some columns of some rows to float64."""
    tile: FloatArray = memory[: (stop - start) * (right - left)].reshape(stop - start, right - left)
    for row in range(stop - start):
        for column in range(right - left):
            tile[row, column] = rows[start + row, left + column]
    return tile


@part
def _add_image(tile: FloatArray, basis: FloatArray, left: int, image: FloatArray, memory: FloatArray) -> None:
    """Multiply a tile, whose first column is number ``left``, with its part of the basis. Add that to the image."""
    basis = basis[left : left + tile.shape[1]]
    if left == 0:
        np.dot(tile, basis, image)
        return
    more = memory[: image.size].reshape(image.shape)
    np.dot(tile, basis, more)
    for row in range(image.shape[0]):
        for column in range(image.shape[1]):
            image[row, column] += more[row, column]


@part
def _split(image: FloatArray, halves: FloatArray) -> None:
    """Write the high and the low part of an image side by side."""
    rows, columns = image.shape
    for row in range(rows):
        for column in range(columns):
            high = np.rint(image[row, column] * (1 / _LOW))
            halves[row, column] = high
            halves[row, columns + column] = image[row, column] - high * _LOW


@compiled("(int32[:, ::1], float64[:, ::1], float64[:, ::1], int64, int64, int64)")
def add_products(
    rows: NDArray[np.int32], basis: FloatArray, sums: FloatArray, block: int, height: int, width: int
) -> None:
    """Add X^T high beside X^T low to sums, for X basis = 2^19 high + low.

    Rows are taken ``block`` at a time, and widened to float64 in tiles of at most ``height`` rows and ``width``
    columns. If a block is one tile, it is widened once, and otherwise twice.
    """
    count, dimension, columns = len(rows), basis.shape[0], basis.shape[1]
    width = min(width, dimension)
    is_one_tile = width == dimension and block <= height  # whatever the number of rows
    memory, products = np.empty(height * width), np.empty(width * 2 * columns)
    images, more, halves = np.empty((block, columns)), np.empty(height * columns), np.empty((block, 2 * columns))
    for first in range(0, count, block):
        last = min(first + block, count)
        tile = memory.reshape(height, width)
        for start in range(first, last, height):
            stop = min(start + height, last)
            image = images[start - first : stop - first]
            for left in range(0, dimension, width):
                right = min(left + width, dimension)
                tile = _tile(rows, start, stop, left, right, memory)
                _add_image(tile, basis, left, image, more)
            _split(image, halves[start - first : stop - first])
        for left in range(0, dimension, width):
            right = min(left + width, dimension)
            product = products[: (right - left) * 2 * columns].reshape(right - left, 2 * columns)
            total = sums[left:right].reshape(product.size)
            for start in range(first, last, height):
                stop = min(start + height, last)
                if not is_one_tile:
                    tile = _tile(rows, start, stop, left, right, memory)
                np.dot(tile.T, halves[start - first : stop - first], product)
                for entry in range(product.size):
                    total[entry] += products[entry]


@compiled("(int32[:, ::1], float64[::1], float64[::1], float64[::1])", any_order=True)
def add_vector_products(rows: NDArray[np.int32], vector: FloatArray, high: FloatArray, low: FloatArray) -> None:
    """Do the same for a basis of one column, whose sums are contiguous. Rows are read once, four at a time.

    The last one to three rows are read one by one, with the same steps for each number.
    """
    dimension, whole = len(vector), len(rows) - len(rows) % 4
    for place in range(0, whole, 4):
        row_0, row_1, row_2, row_3 = rows[place], rows[place + 1], rows[place + 2], rows[place + 3]
        image_0 = image_1 = image_2 = image_3 = 0.0
        for column in range(dimension):
            image_0 += row_0[column] * vector[column]
            image_1 += row_1[column] * vector[column]
            image_2 += row_2[column] * vector[column]
            image_3 += row_3[column] * vector[column]
        high_0, high_1 = np.rint(image_0 * (1 / _LOW)), np.rint(image_1 * (1 / _LOW))
        high_2, high_3 = np.rint(image_2 * (1 / _LOW)), np.rint(image_3 * (1 / _LOW))
        low_0, low_1 = image_0 - high_0 * _LOW, image_1 - high_1 * _LOW
        low_2, low_3 = image_2 - high_2 * _LOW, image_3 - high_3 * _LOW
        for column in range(dimension):
            high[column] += (
                row_0[column] * high_0 + row_1[column] * high_1 + row_2[column] * high_2 + row_3[column] * high_3
            )
            low[column] += row_0[column] * low_0 + row_1[column] * low_1 + row_2[column] * low_2 + row_3[column] * low_3
    for place in range(whole, len(rows)):
        row = rows[place]
        image = 0.0
        for column in range(dimension):
            image += row[column] * vector[column]
        high_part = np.rint(image * (1 / _LOW))
        low_part = image - high_part * _LOW
        for column in range(dimension):
            high[column] += row[column] * high_part
            low[column] += row[column] * low_part
