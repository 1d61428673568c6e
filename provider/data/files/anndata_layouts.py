"""Layouts of AnnData, in HDF5 and in Zarr alike: names of genes in the newer form, and older forms that are refused.

Groups and arrays are of h5py or of zarr. An array is known by its shape, which a group lacks.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import scipy.sparse

from dpspca.common.errors import InvalidDataError

RENAMING: Final = "Make the names of genes unique with var_names_make_unique() of AnnData, and write the file again."
_TEXTS_WITH_MASK: Final = "nullable-string-array"
"""How newer versions of AnnData write texts if some of them may be missing."""
_SPARSE: Final = {"csr_matrix": scipy.sparse.csr_array, "csc_matrix": scipy.sparse.csc_array}
_OLD_SPARSE: Final = "h5sparse_format"
OLD_REMEDY: Final = (
    "Write it again with a current AnnData: python -c 'import anndata, sys; "
    "anndata.read_h5ad(sys.argv[1]).write_h5ad(sys.argv[2])' FILE OTHER.h5ad (of a folder: read_zarr, "
    "write_zarr and OTHER.zarr)"
)


MAIN_LAYER: Final = "X"
_NULL: Final = "null"


def layer_of(stored: Any, wanted: str | None, own: Callable[[str], Any]) -> tuple[str | None, str]:  # noqa: ANN401
    """Return the group and the name of the layer that is read: the main matrix, or the one that is declared.

    ``own`` returns a part by its name, and may refuse it. The main matrix may be stored as nothing.
    """
    wanted = wanted and wanted.lstrip("/").removeprefix("layers/")
    layers = [*([MAIN_LAYER] if MAIN_LAYER in stored else []), *(own("layers") if "layers" in stored else ())]
    if (wanted or MAIN_LAYER) not in layers:
        missing = f"There is no layer {wanted or MAIN_LAYER!r:.60}"
    elif wanted not in {None, MAIN_LAYER}:
        return "layers", wanted or ""
    elif str(own(MAIN_LAYER).attrs.get("encoding-type")) == _NULL:
        missing = f"The main matrix, {MAIN_LAYER}, is empty"
        layers.remove(MAIN_LAYER)
    else:
        return None, MAIN_LAYER
    if not layers and "var" not in stored:
        raise InvalidDataError("It is not AnnData.", "If it holds an array of numbers, end its name in .h5.")
    raise InvalidDataError(
        f"{missing}. These layers are: {', '.join(filter(str.isprintable, layers)) or 'none'}.",
        "Name one of them as array under [reading] in the provider's settings.",
    )


def sparse_kind(layer: Any) -> Any:  # noqa: ANN401  # of h5py or zarr
    """Return the class of a sparse layer, or None if it is an array. Refuse any other layer."""
    kind = str(layer.attrs.get("encoding-type"))
    if kind in _SPARSE:
        return _SPARSE[kind]
    if not hasattr(layer, "shape"):
        if _OLD_SPARSE in layer.attrs:
            raise InvalidDataError(
                f"The layer is a sparse matrix as old versions of AnnData wrote it ({_OLD_SPARSE}).", OLD_REMEDY
            )
        raise InvalidDataError(
            f"The layer is stored as {kind!r:.60}, and not as an array or a sparse matrix.",
            f"Choose another layer, or write it as an array or as one of: {', '.join(_SPARSE)}.",
        )
    return None


def index_name(frame: Any) -> str:  # noqa: ANN401  # of h5py or zarr
    """Return which column of ``var`` holds the names of genes, or which of ``obs`` those of cells."""
    if hasattr(frame, "shape"):
        name = str(getattr(frame, "name", "")).strip("/") or "A table"
        raise InvalidDataError(f"{name!r} is one array of records, as old versions of AnnData wrote it.", OLD_REMEDY)
    return str(frame.attrs["_index"])


def is_masked_text(stored: Any) -> bool:  # noqa: ANN401  # of h5py or zarr
    """Tell whether names of genes are a group of values and a mask. Refuse names that are coded as a category."""
    kind = str(stored.attrs.get("encoding-type"))
    if kind == "categorical" or "categories" in stored.attrs:
        raise InvalidDataError(
            "The names of genes are stored as a category, and not as text.",
            "Turn them into text: set adata.var_names = adata.var_names.astype(str), and write the file again.",
        )
    return kind == _TEXTS_WITH_MASK


def require_all_named(mask: Any) -> None:  # noqa: ANN401  # an array of numpy
    """Refuse a gene without a name."""
    if mask.any():
        raise InvalidDataError("A gene has no name.", "Give it one, and write the file again.")


def require_column_each(genes: Sequence[str], shape: Sequence[int]) -> None:
    """Refuse a layer that has not one column for each gene."""
    if tuple(shape[1:]) == (len(genes),):
        return
    is_turned = len(shape) > 1 and shape[0] == len(genes)
    raise InvalidDataError(
        f"There are {len(genes)} genes in var, but the layer has shape {tuple(shape)}"
        f"{', with rows and columns exchanged' if is_turned else ''}.",
        "Write it again, with a row for each cell and a column for each gene.",
    )
