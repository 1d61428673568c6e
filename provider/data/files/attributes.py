"""Attributes of arrays that change what their numbers mean: those of netCDF and xarray, and the mark of R's rhdf5.

They are not applied here: the array is refused by name, and the error says how to convert it. Attributes belong to the
form of a file, as names and types do.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpspca.common.errors import InvalidDataError

_SCALE: Final = "scale_factor"
_OFFSET: Final = "add_offset"
_MISSING: Final = ("_FillValue", "missing_value")
_UNSIGNED: Final = "_Unsigned"
_VALID: Final = ("valid_min", "valid_max", "valid_range")
_BYTES_OF_DOUBLE: Final = 8


@dataclass(frozen=True, slots=True)
class PlainCopy:
    """How an array is written again as plain numbers."""

    module: str
    """The module that reads it."""
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


def require_plain(stored: Any, conversion: PlainCopy, own: Sequence[float] = ()) -> None:  # noqa: ANN401  # of h5py or zarr
    """Refuse an array whose numbers are not its values: scaled, of another sign, dates, or missing.

    ``own`` are numbers for missing values that the array states in another way. NaN is a missing value everywhere, so
    it may be declared. Attributes that change nothing are accepted.
    """
    attributes: Mapping[str, Any] = stored.attrs
    _require_no_dates(attributes)
    scale, offset = (_number(attributes, name, usual) for name, usual in ((_SCALE, 1.0), (_OFFSET, 0.0)))
    there = [name for name in _MISSING if name in attributes]
    missing = sorted({*own, *(each for name in there for each in _numbers(attributes, name) if each == each)})  # noqa: PLR0124
    changing = [name for name, value, usual in ((_SCALE, scale, 1.0), (_OFFSET, offset, 0.0)) if value != usual]
    changing += [name for name in there if not np.isnan(_numbers(attributes, name)).all()]
    sign = _other_sign(attributes, stored.dtype)
    outside = _outside(attributes, stored.dtype)
    changing += [_UNSIGNED] if sign else []
    changing += [name for name in _VALID if name in attributes] if outside else []
    if not changing and not own:
        return
    taken = "x" if sign is None else f'x.view("{sign}")'
    formula = taken + (f" * {scale!r}" if scale != 1.0 else "") + (f" + {offset!r}" if offset else "")
    masks = [f"numpy.isin({each}, {missing!r})" for each in dict.fromkeys(["x", taken])] if missing else []
    masks += outside
    whole = f"numpy.where({' | '.join(masks)}, numpy.nan, {formula})" if masks else formula
    named = ", ".join(changing) or f"the fill value {own[0]:g}"
    raise InvalidDataError(
        f"Its attributes say that stored numbers are not the values: {named}, as netCDF and xarray write it.",
        "Write the array again as plain numbers, without these attributes."
        if sign and outside  # programs disagree whether the limits have a sign
        else f"Convert it: python -c 'import numpy, sys, {conversion.module}; x = {conversion.array}; "
        f"numpy.save({conversion.out}, {whole})' {conversion.arguments}",
    )


def _require_no_dates(attributes: Mapping[str, Any]) -> None:
    """Refuse numbers that count time from a day: xarray reads them as dates."""
    units = _text(attributes, "units")
    if re.match(r"\s*[A-Za-z]+\s+since\s", units):
        raise InvalidDataError(
            f"Its attribute units says that the numbers are dates: {units!r:.60}.",
            "Use other arrays, or write numbers in place of dates, such as ages on a public day, without that "
            "attribute.",
        )


def _other_sign(attributes: Mapping[str, Any], kind: "np.dtype[Any]") -> str | None:
    """Return the type that whole numbers have to be taken as, if an attribute says that it is not their own."""
    stated = _text(attributes, _UNSIGNED).lower()
    if kind.kind == "i" and stated in {"true", "1"}:
        return kind.str.replace("i", "u")
    if kind.kind == "u" and stated in {"false", "0"}:
        return kind.str.replace("u", "i")
    return None


def _outside(attributes: Mapping[str, Any], kind: "np.dtype[Any]") -> list[str]:
    """Return the conditions, in Python, for numbers that are outside the valid range and so count as missing."""
    lows, highs = ([_number(attributes, name, usual)] for name, usual in ((_VALID[0], -np.inf), (_VALID[1], np.inf)))
    if _VALID[2] in attributes:
        limits = _numbers(attributes, _VALID[2])
        lows, highs = [*lows, limits[0]], [*highs, limits[-1]]
    low, high = max(lows), min(highs)
    least, most = (np.iinfo(kind).min, np.iinfo(kind).max) if kind.kind in "iu" else (-np.inf, np.inf)
    return [f"(x < {low!r})"] * (low > least) + [f"(x > {high!r})"] * (high < most)


def _text(attributes: Mapping[str, Any], name: str) -> str:
    """Return an attribute as text, or nothing if there is none."""
    value = np.ravel(np.asarray(attributes[name])).tolist() if name in attributes else []
    first = value[0] if value else ""
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)


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
