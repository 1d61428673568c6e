"""Reads HDF5 files and AnnData files (.h5ad) through h5py. What is read follows from names, types and shapes alone.

All numbers must be in the file itself. HDF5 can name other files: by links, for arrays that are put together, and for
raw bytes of any file of this machine. The author of such a file could make the provider read any of these as rows.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, Final

from dpspca.common.arrays import MATRIX
from dpspca.common.errors import InvalidDataError
from dpspca.provider.data.checked import numbers_of
from dpspca.provider.data.tables import (
    SPARSE,
    Columns,
    RawTable,
    RowBatches,
    RowSource,
    as_numbers,
    columns_by_place,
    import_extra,
    require_room,
)

from .anndata_layouts import index_name, is_masked_text, layer_of, require_all_named, require_column_each, sparse_kind
from .array_files import array_name, require_matrix, rows_of_sparse
from .attributes import OF_HDF5, require_plain
from .observations import Access, genes_used, persons_of

_LISTED: Final = 8
_PANDAS: Final = "pandas_type"
_MATLAB: Final = "MATLAB_class"
_R: Final = "rhdf5-NA.OK"
"""Attributes by which these programs mark what they write."""
_FRAME: Final = (
    "python -c 'import pandas, sys; pandas.read_hdf(sys.argv[1]).to_parquet(sys.argv[2])' FILE OTHER.parquet"
)
_TRANSPOSED: Final = (
    "python -c 'import h5py, numpy, sys; numpy.save(sys.argv[3], h5py.File(sys.argv[1])[sys.argv[2]][()].T)' FILE "
    "{} OTHER.npy"
)
_TRANSPOSED_FROM_R: Final = (
    "python -c 'import h5py, numpy, sys; x = h5py.File(sys.argv[1])[sys.argv[2]][()].T; numpy.save(sys.argv[3], "
    "numpy.where(x == -2**31, numpy.nan, x))' FILE NAME-OF-THE-ARRAY OTHER.npy"
)
_LOOM: Final = frozenset({"matrix", "row_attrs", "col_attrs"})
_CELL_RANGER: Final = frozenset({"data", "indices", "indptr", "shape", "barcodes"})
_OF_CELL_RANGER: Final = (
    'python -c \'import h5py, scipy, sys; m = h5py.File(sys.argv[1])["matrix"]; scipy.sparse.save_npz(sys.argv[2], '
    'scipy.sparse.csr_array((m["data"][()], m["indices"][()], m["indptr"][()]), shape=m["shape"][()][::-1]))\' '
    "FILE OTHER.npz"
)


def read_hdf5(source: RowSource) -> RawTable:
    """Read a two-dimensional array of numbers: the one that is declared, or the only one. It has no column names."""
    with ExitStack() as opened:
        file = opened.enter_context(_opened(source))
        stored = _only_array(file, source)
        _require_rows_first(stored)
        require_plain(stored, OF_HDF5)
        return _dense(stored, columns_by_place(source.reading, stored.shape[1]), source, opened)


def unstored_in_hdf5(source: RowSource) -> str | None:
    """Say how many chunks of the array were never written, and so hold the fill value."""
    with _opened(source) as file:
        return _unwritten([_only_array(file, source)])


def unstored_in_h5ad(source: RowSource) -> str | None:
    """Say how many chunks of the layer were never written, and so hold the fill value."""
    with _opened(source) as file:
        layer = _layer(file, source)
        parts = ("data", "indices", "indptr")
        return _unwritten([layer] if sparse_kind(layer) is None else [_own(layer, part) for part in parts])


def _unwritten(arrays: Sequence[Any]) -> str | None:
    chunks, stored = (sum(counts) for counts in zip(*map(_chunks, arrays), strict=True))
    if stored >= chunks:
        return None
    return f"{chunks - stored} of {chunks} chunks were never written and count as the fill value, {arrays[0].fillvalue}"


def _chunks(array: Any) -> tuple[int, int]:  # noqa: ANN401  # of h5py
    """Count the chunks of an array, and those that are stored. An array without chunks is one."""
    if array.chunks is None:
        return 1, int(not array.size or array.id.get_storage_size() > 0)
    whole = prod(-(-length // step) for length, step in zip(array.shape, array.chunks, strict=True))
    return whole, int(array.id.get_num_chunks())


def _only_array(file: Any, source: RowSource) -> Any:  # noqa: ANN401  # of h5py
    """Return the array that is declared, or the only one."""
    _require_cells_first(file)
    there = list(_matrices(file))
    if source.reading.array is None:
        _require_no_frame(file)
    return _own(file, array_name(source, there))


def _require_cells_first(file: Any) -> None:  # noqa: ANN401  # of h5py
    """Refuse files of single cells whose rows are genes. They are known by the names of their parts.

    A link is not followed: it could open any file of this machine.
    """
    if set(file) >= _LOOM:
        raise InvalidDataError(
            "It is a loom file, whose rows are genes.", f"Convert it: {_TRANSPOSED.format('matrix')}"
        )
    is_own = isinstance(file.get("matrix", getlink=True), import_extra("h5py").HardLink)
    matrix: Any = file["matrix"] if is_own else None
    if hasattr(matrix, "keys") and set(matrix) >= _CELL_RANGER:
        raise InvalidDataError(
            "It is a file of Cell Ranger, whose rows are genes.",
            f"Convert it, and list its features as names under [reading]: {_OF_CELL_RANGER}",
        )


def _require_no_frame(file: Any) -> None:  # noqa: ANN401  # of h5py
    """Refuse a file of pandas, which divides a table into arrays by type."""
    if file.visititems(lambda _, each: True if _PANDAS in each.attrs else None):
        raise InvalidDataError("It holds a table that pandas wrote in its own form.", f"Convert it: {_FRAME}")


def _require_rows_first(stored: Any) -> None:  # noqa: ANN401  # of h5py
    """Refuse an array that MATLAB or R wrote: it would be read with its rows and columns exchanged."""
    if _MATLAB in stored.attrs:
        raise InvalidDataError(
            "MATLAB wrote it, with rows and columns exchanged.",
            f"Convert it: {_TRANSPOSED.format('NAME-OF-THE-ARRAY')}",
        )
    if _R in stored.attrs:
        raise InvalidDataError(
            "R's rhdf5 wrote it, with rows and columns exchanged, and NA as the smallest whole number.",
            f"Convert it: {_TRANSPOSED_FROM_R}",
        )


def read_h5ad(source: RowSource) -> RawTable:
    """Read ``X`` of an AnnData file, or the layer that is declared: cells are rows, and genes are columns."""
    with ExitStack() as opened:
        file = opened.enter_context(_opened(source))
        stored, genes = _layer(file, source), _genes(file)
        columns = genes_used(genes, source.reading)
        kind = sparse_kind(stored)
        shape = tuple(map(int, stored.shape if kind is None else stored.attrs["shape"]))
        require_column_each(genes, shape)
        persons = persons_of(file, shape[0], source, Access(_own, _texts))
        if kind is None:
            return replace(_dense(stored, columns, source, opened), persons=persons)
        require_room("numbers of sparse rows", _own(stored, "data").size, SPARSE, source.room)
        matrix = kind(tuple(_own(stored, part)[()] for part in ("data", "indices", "indptr")), shape=shape)
    return RawTable(rows_of_sparse(matrix), columns, to_select=columns.places, persons=persons)


def columns_of_h5ad(source: RowSource) -> Columns:
    """Read which genes are used."""
    with _opened(source) as file:
        return genes_used(_genes(file), source.reading)


def _opened(source: RowSource) -> Any:  # noqa: ANN401  # of h5py
    return import_extra("h5py").File(source.path, "r")


def _matrices(file: Any) -> dict[str, Any]:  # noqa: ANN401  # of h5py
    """Find the two-dimensional arrays of numbers in a file, without following links."""
    found: dict[str, Any] = {}

    def add(name: str, each: Any) -> None:  # noqa: ANN401  # of h5py
        if len(getattr(each, "shape", None) or ()) == MATRIX and each.dtype.kind in "fiub":
            found[name] = each

    file.visititems(add)
    return found


def _layer(file: Any, source: RowSource) -> Any:  # noqa: ANN401  # of h5py
    """Return the main matrix, or the layer that is declared."""
    group, name = layer_of(file, source.reading.array, partial(_own, file))
    return _own(file if group is None else _own(file, group), name)


def _genes(file: Any) -> list[str]:  # noqa: ANN401  # of h5py
    variables = _own(file, "var")
    stored = _own(variables, index_name(variables))
    if is_masked_text(stored):
        require_all_named(_own(stored, "mask")[()])
        stored = _own(stored, "values")
    if stored.dtype.kind in "iu":
        return list(map(str, stored[()].tolist()))
    names: list[str] = stored.asstr()[()].tolist()
    return names


def _texts(stored: Any) -> list[str]:  # noqa: ANN401  # of h5py
    texts: list[str] = stored.asstr(errors="replace")[()].tolist()
    return texts


def _own(group: Any, name: str) -> Any:  # noqa: ANN401  # of h5py
    """Return a part of a group. Refuse one that is in another file, as a whole or in pieces."""
    links = import_extra("h5py")
    is_linked = isinstance(group.get(name, getlink=True), links.ExternalLink | links.SoftLink)
    found = None if is_linked else group[name]
    if is_linked or (isinstance(found, links.Dataset) and (found.is_virtual or found.external)):
        raise InvalidDataError(
            f"{name!r:.60} is a link, or its numbers are in other files.",
            "Write a file that holds all numbers itself, for example with h5repack.",
        )
    return found


def _dense(stored: Any, columns: Columns, source: RowSource, opened: ExitStack) -> RawTable:  # noqa: ANN401  # of h5py
    """Read the columns that are used, in blocks of rows."""
    require_matrix(stored.shape)
    numbers_of(stored[:0])  # checks the type
    if (words := import_extra("h5py").check_enum_dtype(stored.dtype)) is not None:
        raise InvalidDataError(
            f"Its numbers stand for words: {', '.join(map(repr, sorted(words, key=words.__getitem__)[:_LISTED]))}.",
            "Write a table with these words, such as Parquet, and declare a category. Or write numbers that measure.",
        )
    places = list(range(stored.shape[1])) if columns.places is None else list(columns.places)
    step = source.rows_at_a_time(stored.shape[1])
    starts = range(0, stored.shape[0], step)
    blocks = (as_numbers(stored[start : start + step][:, places]) for start in starts)
    return RawTable(RowBatches.reading(len(places), stored.dtype, blocks, opened), columns)
