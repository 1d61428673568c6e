"""Encoding and decoding of a basis, a centre and scales, which several queries share.

Numbers are little-endian. Each query has one encoding, so that it cannot carry a hidden message. Only the signs of
zeros in a centre, in scales and in a view are free, and change no answer.
"""

from typing import Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray

from .base import Announcement, Content, Extent, RowSparse

INDEX: Final = np.dtype("<u4")
REAL: Final = np.dtype("<f8")


def basis_size(extent: Extent) -> int:
    """Count the bytes of a basis, which comes first: the indices of its nonzero rows, then the rows."""
    return (INDEX.itemsize + REAL.itemsize * extent.columns) * extent.nonzero_rows if extent.columns else 0


def place_size(announced: Announcement) -> int:
    """Count the bytes of a centre and of scales, which come last."""
    return REAL.itemsize * announced.extent.dimension * (announced.centred + announced.scaled)


def write_content(
    basis: RowSparse | None, center: FloatArray | None = None, scales: FloatArray | None = None
) -> Content:
    """Encode the indices of a basis's nonzero rows, then these rows, then a centre, then scales."""
    parts: list[Any] = []
    if basis is not None:
        parts += [basis.support.astype(INDEX), np.ascontiguousarray(basis.rows, dtype=REAL)]
    parts += [each.astype(REAL, copy=False) for each in (center, scales) if each is not None]
    # In an array, because the system allocates its memory at once, and that of bytes page by page.
    whole = np.empty(sum(part.nbytes for part in parts), dtype=np.uint8)
    start = 0
    for part in parts:
        whole[start : start + part.nbytes] = part.reshape(-1).view(np.uint8)
        start += part.nbytes
    return whole.data


def read_basis(announced: Announcement, content: Content, basis_hash: str) -> RowSparse:
    """Read a basis from the content without a copy; its hash was computed while it arrived."""
    extent = announced.extent
    rows = np.frombuffer(content, dtype=INDEX, count=extent.nonzero_rows).astype(np.intp)
    start = rows.size * INDEX.itemsize
    values = np.frombuffer(content, dtype=REAL, count=rows.size * extent.columns, offset=start)
    basis = np.require(values.reshape(rows.size, extent.columns), np.float64, "A")
    return RowSparse(extent.dimension, rows, basis, basis_hash)


def read_center(announced: Announcement, content: Content) -> FloatArray | None:
    """Read a centre, if one was announced."""
    return _place(announced, content)[: announced.extent.dimension] if announced.centred else None


def read_scales(announced: Announcement, content: Content) -> FloatArray | None:
    """Read what columns are divided by, if it was announced."""
    return _place(announced, content)[-announced.extent.dimension :] if announced.scaled else None


def _place(announced: Announcement, content: Content) -> FloatArray:
    return np.frombuffer(content[len(content) - place_size(announced) :], dtype=REAL).astype(np.float64)
