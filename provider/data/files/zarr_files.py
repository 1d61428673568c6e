"""Reads Zarr folders, of version 2 or 3, and AnnData in Zarr. What is read follows from names, types and shapes alone.

A folder whose name ends in .zarr is one array or one group. Chunks are decompressed a few rows at a time.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

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
    columns_used,
    import_extra,
    require_no_names,
    require_room,
)

from .anndata_layouts import (
    MAIN_LAYER,
    index_name,
    is_masked_text,
    layer_of,
    require_all_named,
    require_column_each,
    sparse_kind,
)
from .array_files import array_name, require_matrix, rows_of_sparse
from .attributes import OF_ZARR, require_plain
from .observations import Access, genes_used, persons_of

ENDING: Final = ".zarr"
_OLD: Final = 2
_OF_XARRAY: Final = "_ARRAY_DIMENSIONS"
_RELABELLING: Final = "Correct the labels in xarray, and write the file again."
_NAMED: Final = 8


def is_zarr(path: Path) -> bool:
    """Tell whether a folder is one data set by itself, and no folder of files."""
    return path.suffix.lower() == ENDING


def read_zarr(source: RowSource) -> RawTable:
    """Read a two-dimensional array of numbers, the only one or the one that is declared, or ``X`` of AnnData."""
    stored = _opened(source)
    if _is_anndata(stored):
        return _anndata(stored, source)
    if hasattr(stored, "shape"):
        return _matrix(stored, columns_by_place(source.reading, (*stored.shape, 0, 0)[1]), source)
    return _matrix(_only_array(stored, source), _columns_in_group(stored, source), source)


def _only_array(stored: Any, source: RowSource) -> Any:  # noqa: ANN401  # of zarr
    """Return the array of a group that is declared, or the only one."""
    found = dict(_arrays(stored))
    return found[array_name(source, list(found))]


def _arrays(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401  # of zarr
    """Yield the tables of numbers of a group and of groups within it."""
    for name, each in group.arrays():
        if len(each.shape) == MATRIX and each.dtype.kind in "fiub":
            yield path + name, each
    for name, each in group.groups():
        yield from _arrays(each, f"{path}{name}/")


def _columns_in_group(stored: Any, source: RowSource) -> Columns:  # noqa: ANN401  # of zarr
    """Return which columns are used: by the labels that xarray wrote for them, or by their places."""
    found = _only_array(stored, source)
    labels = _labels(stored, found)
    if labels is None:
        return columns_by_place(source.reading, (*found.shape, 0, 0)[1])
    if source.reading.names not in {None, labels}:
        raise InvalidDataError(
            f"The labels of its columns are {', '.join(map(repr, labels[:_NAMED]))}, but others are declared.",
            "Remove names under [reading]: the labels are used. To rename them, write the file again.",
        )
    return columns_used(list(labels), replace(source.reading, names=None), _RELABELLING)


def _labels(group: Any, array: Any) -> tuple[str, ...] | None:  # noqa: ANN401  # of zarr
    """Return the texts with which xarray labels the second dimension of an array, if there are any."""
    names = [*(array.attrs.get(_OF_XARRAY) or getattr(array.metadata, "dimension_names", None) or ())]
    beside = f"{array.path.rpartition('/')[0]}/{names[1]}".lstrip("/") if len(names) == MATRIX else ""
    within = beside.removeprefix(f"{group.path}/") if group.path else beside
    labels = group[within] if within and within in group else None
    if labels is None or getattr(labels, "shape", None) != (array.shape[1],) or labels.dtype.kind not in "OUT":
        return None
    return tuple(str(each) for each in labels[:].tolist())


def _matrix(stored: Any, columns: Columns, source: RowSource) -> RawTable:  # noqa: ANN401  # of zarr
    require_matrix(stored.shape)
    require_plain(stored, OF_ZARR, _fill_of_xarray(stored))
    return _dense(stored, columns, source)


def unstored_in_zarr(source: RowSource) -> str | None:
    """Say how many chunks of the array are not stored: they were never written, hold the fill value, or were lost."""
    found = _opened(source)
    if _is_anndata(found):
        layer = _layer(found, source)
        parts = [layer] if sparse_kind(layer) is None else [layer[part] for part in ("data", "indices", "indptr")]
    elif hasattr(found, "shape"):
        parts = [found]
    else:
        parts = [_only_array(found, source)]
    chunks, stored = (sum(map(int, counts)) for counts in zip(*map(_chunks, parts), strict=True))
    if chunks == stored:
        return None
    return f"{chunks - stored} of {chunks} chunks are not stored and count as the fill value, {parts[0].fill_value}"


def _chunks(array: Any) -> tuple[int, int]:  # noqa: ANN401  # of zarr
    """Return how many chunks the array has, and how many are stored. Chunks of one file, a shard, count as one.

    Zarr counts the chunks of a shard that reach beyond the array as stored, and does not count them for the array.
    """
    stored = array.shards or array.chunks
    together = math.prod(whole // part for whole, part in zip(stored, array.chunks, strict=True))
    count = math.prod(-(-size // whole) for size, whole in zip(array.shape, stored, strict=True))
    return count, array.nchunks_initialized // together


def _fill_of_xarray(stored: Any) -> list[float]:  # noqa: ANN401  # of zarr
    """Return the number that stands for a missing value: in Zarr 2, xarray writes it as the fill value.

    Zero is what zarr itself writes if nothing is said.
    """
    if stored.metadata.zarr_format != _OLD or _OF_XARRAY not in stored.attrs or not stored.fill_value:
        return []
    fill = float(stored.fill_value)
    return [] if np.isnan(fill) else [fill]


def columns_of_zarr(source: RowSource) -> Columns:
    """Read which columns are used."""
    stored = _opened(source)
    if not _is_anndata(stored):
        is_array = hasattr(stored, "shape")
        return columns_by_place(source.reading) if is_array else _columns_in_group(stored, source)
    return genes_used(_genes(stored), source.reading)


def _opened(source: RowSource) -> Any:  # noqa: ANN401  # of zarr
    """Open an array or a group. Without links: a link could lead out of the folder, which zarr would not notice."""
    zarr = import_extra("zarr")
    source.path.stat()  # an error of the system says what is wrong with a path
    if not source.path.is_dir():
        raise InvalidDataError("It is a file, not a folder.", "If it is a zip archive: unzip FILE -d OTHER.zarr")
    linked = [each for each in source.path.rglob("*") if each.is_symlink()]
    if linked:
        raise InvalidDataError(f"{linked[0].name} within it is a link.", "Copy the folder, with what links lead to.")
    return zarr.open(str(source.path), mode="r")


def _is_anndata(stored: Any) -> bool:  # noqa: ANN401  # of zarr
    return not hasattr(stored, "shape") and MAIN_LAYER in stored and "var" in stored


def _anndata(stored: Any, source: RowSource) -> RawTable:  # noqa: ANN401  # of zarr
    """Read ``X``, or the layer that is declared: cells are rows, and genes are columns."""
    require_no_names(source.reading)
    layer, genes = _layer(stored, source), _genes(stored)
    columns = genes_used(genes, source.reading)
    kind = sparse_kind(layer)
    shape = tuple(map(int, layer.shape if kind is None else layer.attrs["shape"]))
    require_column_each(genes, shape)
    persons = persons_of(stored, shape[0], source, Access(lambda group, name: group[name], _texts))
    if kind is None:
        return replace(_dense(layer, columns, source), persons=persons)
    require_room("numbers of sparse rows", layer["data"].size, SPARSE, source.room)
    matrix = kind(tuple(layer[part][:] for part in ("data", "indices", "indptr")), shape=shape)
    return RawTable(rows_of_sparse(matrix), columns, to_select=columns.places, persons=persons)


def _layer(stored: Any, source: RowSource) -> Any:  # noqa: ANN401  # of zarr
    group, name = layer_of(stored, source.reading.array, stored.__getitem__)
    return stored[name] if group is None else stored[group][name]


def _genes(stored: Any) -> list[str]:  # noqa: ANN401  # of zarr
    variables = stored["var"]
    names = variables[index_name(variables)]
    if is_masked_text(names):
        require_all_named(names["mask"][:])
        names = names["values"]
    return _texts(names)


def _texts(stored: Any) -> list[str]:  # noqa: ANN401  # of zarr
    return [text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text) for text in stored[:].tolist()]


def _dense(stored: Any, columns: Columns, source: RowSource) -> RawTable:  # noqa: ANN401  # of zarr
    """Read the columns that are used, in blocks of rows."""
    numbers_of(np.empty((0, *stored.shape[1:]), dtype=stored.dtype))  # checks the type
    places = list(range(stored.shape[1])) if columns.places is None else list(columns.places)
    step = source.rows_at_a_time(stored.shape[1])
    starts = range(0, stored.shape[0], step)
    blocks = (as_numbers(stored[start : start + step][:, places]) for start in starts)
    return RawTable(RowBatches.reading(len(places), stored.dtype, blocks), columns)
