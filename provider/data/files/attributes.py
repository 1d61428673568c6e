"""Attributes of arrays that change what their numbers mean: those of netCDF and xarray, and the mark of R's rhdf5.

They are not applied here: the array is refused by name, and the error says how to convert it. Attributes belong to the
form of a file, as names and types do.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpspca.common.errors import InvalidDataError

_SCALE: Final = "scale_factor"
_OFFSET: Final = "add_offset"
_MISSING: Final = ("_FillValue", "missing_value")
_BYTES_OF_DOUBLE: Final = 8


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """How an array is written again as plain numbers."""

    module: str
    """What reads it."""
    array: str
    """The array, in Python."""
    out: str
    """The name of the new file, in Python."""
    arguments: str


OF_HDF5: Final = PlainCopy(
    "h5py", "h5py.File(sys.argv[1])[sys.argv[2]][()]", "sys.argv[3]", "FILE NAME-OF-THE-ARRAY OTHER.npy"
)
OF_ZARR: Final = PlainCopy(
    "zarr", 'zarr.open_array(sys.argv[1], mode="r")[:]', "sys.argv[2]", "FOLDER-OF-THE-ARRAY OTHER.npy"
)


def require_plain(attributes: Mapping[str, Any], conversion: PlainCopy, own: Sequence[float] = ()) -> None:
    """Refuse an array whose numbers have to be scaled, or in which a number stands for a missing value.

    ``own`` are such numbers that the array states in another way. NaN is a missing value everywhere, so it may be
    declared. Attributes that change nothing are accepted.
    """
    scale, offset = (_number(attributes, name, usual) for name, usual in ((_SCALE, 1.0), (_OFFSET, 0.0)))
    there = [name for name in _MISSING if name in attributes]
    missing = sorted({*own, *(each for name in there for each in _numbers(attributes, name) if each == each)})  # noqa: PLR0124
    changing = [name for name, value, usual in ((_SCALE, scale, 1.0), (_OFFSET, offset, 0.0)) if value != usual]
    changing += [name for name in there if not np.isnan(_numbers(attributes, name)).all()]
    if not changing and not own:
        return
    formula = "x" + (f" * {scale!r}" if scale != 1.0 else "") + (f" + {offset!r}" if offset else "")
    whole = f"numpy.where(numpy.isin(x, {missing!r}), numpy.nan, {formula})" if missing else formula
    named = ", ".join(changing) or f"the fill value {own[0]:g}"
    raise InvalidDataError(
        f"Its attributes say that stored numbers are not the values: {named}, as netCDF and xarray write it.",
        f"Convert it: python -c 'import numpy, sys, {conversion.module}; x = {conversion.array}; "
        f"numpy.save({conversion.out}, {whole})' {conversion.arguments}",
    )


def _number(attributes: Mapping[str, Any], name: str, usual: float) -> float:
    return _numbers(attributes, name)[0] if name in attributes else usual


def _numbers(attributes: Mapping[str, Any], name: str) -> list[float]:
    """Read the numbers of an attribute. In Zarr 3, xarray writes a floating-point one as the text of its bytes."""
    value = attributes[name]
    try:
        if isinstance(value, str):
            content = base64.b64decode(value, validate=True)
            value = np.frombuffer(content, dtype="<f8" if len(content) == _BYTES_OF_DOUBLE else "<f4")
        found: list[float] = np.ravel(np.asarray(value, dtype=np.float64)).tolist()
        if found:
            return found
    except (TypeError, ValueError, binascii.Error):
        pass
    raise InvalidDataError(
        f"Its attribute {name} is not a number, and may change what the array's numbers mean.",
        "Write the array again as plain numbers, without that attribute.",
    )
