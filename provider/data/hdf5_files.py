"""Reads HDF5 files and AnnData files (.h5ad) through h5py. What is read follows from names, types and shapes alone."""

from contextlib import ExitStack
from typing import Any, Final

import scipy.sparse

from dpspca.common.arrays import MATRIX
from dpspca.common.errors import InvalidDataError

from .array_files import array_name, rows_of_sparse
from .extras import import_extra
from .preparation import numbers_of
from .tables import Columns, RawTable, RowBatches, Source, as_numbers, columns_used

_MAIN_LAYER: Final = "X"
_SPARSE: Final = {"csr_matrix": scipy.sparse.csr_array, "csc_matrix": scipy.sparse.csc_array}


def read_hdf5(source: Source) -> RawTable:
    """Read a two-dimensional array of numbers: the one that is declared, or the only one. It has no column names."""
    with ExitStack() as opened:
        found = _matrices(opened.enter_context(_opened(source)))
        return _dense(found[array_name(source, list(found))], columns_used(None, source.reading), source, opened)


def read_h5ad(source: Source) -> RawTable:
    """Read ``X`` of an AnnData file, or the layer that is declared: cells are rows, and genes are columns."""
    with ExitStack() as opened:
        file = opened.enter_context(_opened(source))
        stored, genes = _layer(file, source), _genes(file)
        columns = columns_used(genes, source.reading)
        kind = _SPARSE.get(str(stored.attrs.get("encoding-type")))
        shape = tuple(map(int, stored.shape if kind is None else stored.attrs["shape"]))
        if shape[1:] != (len(genes),):
            raise InvalidDataError(f"There are {len(genes)} genes, but the layer has shape {shape}.", "Write it again.")
        if kind is None:
            return _dense(stored, columns, source, opened)
        matrix = kind(tuple(stored[part][()] for part in ("data", "indices", "indptr")), shape=shape)
    return RawTable(rows_of_sparse(matrix), columns, to_select=columns.places)


def columns_of_h5ad(source: Source) -> Columns:
    """Read which genes are used."""
    with _opened(source) as file:
        return columns_used(_genes(file), source.reading)


def _opened(source: Source) -> Any:  # noqa: ANN401  # of h5py
    return import_extra("h5py").File(source.path, "r")


def _matrices(file: Any) -> dict[str, Any]:  # noqa: ANN401  # of h5py
    """Find the two-dimensional arrays of numbers in a file, without following links."""
    found: dict[str, Any] = {}

    def add(name: str, each: Any) -> None:  # noqa: ANN401  # of h5py
        if len(getattr(each, "shape", None) or ()) == MATRIX and each.dtype.kind in "fiub":
            found[name] = each

    file.visititems(add)
    return found


def _layer(file: Any, source: Source) -> Any:  # noqa: ANN401  # of h5py
    """Return the main matrix, or the layer that is declared."""
    layers = [_MAIN_LAYER, *file.get("layers", ())]
    wanted = source.reading.array or _MAIN_LAYER
    if wanted not in layers:
        raise InvalidDataError(
            f"There is no layer {wanted!r:.60}. The file has {', '.join(filter(str.isprintable, layers))}.",
            "Name one of them as array under [reading] in the provider's settings.",
        )
    return file[wanted] if wanted == _MAIN_LAYER else file["layers"][wanted]


def _genes(file: Any) -> list[str]:  # noqa: ANN401  # of h5py
    variables = file["var"]
    names: list[str] = variables[variables.attrs["_index"]].asstr()[()].tolist()
    return names


def _dense(stored: Any, columns: Columns, source: Source, opened: ExitStack) -> RawTable:  # noqa: ANN401  # of h5py
    """Read the columns that are used, in blocks of rows."""
    numbers_of(stored[:0])  # checks the type and the dimensions
    places = list(range(stored.shape[1])) if columns.places is None else list(columns.places)
    step = source.rows_at_a_time(stored.shape[1])
    starts = range(0, stored.shape[0], step)
    blocks = (as_numbers(stored[start : start + step][:, places]) for start in starts)
    return RawTable(RowBatches.reading(len(places), stored.dtype, blocks, opened), columns)
