"""Turns numbers of Arrow into floating-point numbers."""

from typing import Any

from dpspca.common.arrays import FloatArray

from .extras import loaded


def floats(values: Any) -> FloatArray:  # noqa: ANN401  # of pyarrow
    """Convert an array of numbers of any type. A missing value is NaN.

    Decimal numbers go through text: pyarrow's own conversion is wrong in the last bit for one number in seven, so that
    24.9 would be another number than in a text file, and would not be found among codes for missing values.
    """
    arrow, types = loaded("pyarrow"), loaded("pyarrow.types")
    plain = values.cast(arrow.string()) if types.is_decimal(values.type) else values
    wide = plain if types.is_float64(plain.type) else plain.cast(arrow.float64(), safe=False)
    numbers: FloatArray = wide.to_numpy(zero_copy_only=False)
    return numbers
