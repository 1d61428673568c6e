"""Declared names of triplets are found in columns of any type, as a column of texts would find them."""

import numpy as np
import pyarrow as pa
import pytest

from dpspca.provider.data.tables.triplet_names import KnownNames

NAMES = [
    "7", "-7", "0", "007", "-0", "+5", " 5", "1.0", "\N{SUPERSCRIPT TWO}", "12\n", "",
    "123456789012345678", "-123456789012345678", "1234567890123456789", "-1234567890123456789",
    "9223372036854775807", "-9223372036854775807", "9223372036854775808", "99999999999999999999",
]  # fmt: skip
NUMBERS = [7, -7, 0, 5, 1, 2, 12, *map(int, NAMES[11:])]
"""Those of names that are whole numbers as they stand, and others."""


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.int8(), pa.uint32(), pa.uint64()])
def test_whole_numbers_are_found_as_their_texts_are(kind: pa.DataType) -> None:
    known, numbers = KnownNames(NAMES), [each for each in NUMBERS if fits(each, kind)]
    as_texts = known.find([str(each) for each in numbers])
    assert np.array_equal(known.find(pa.array(numbers, type=kind)), as_texts)
    assert (as_texts >= 0).any()


def test_a_missing_number_names_no_person() -> None:
    assert KnownNames(NAMES).find(pa.array([None, 7], type=pa.int64())).tolist() == [-1, 0]


def test_only_names_that_are_whole_numbers_need_no_numbers() -> None:
    assert KnownNames(["a", "b"]).find(pa.array([0, 1], type=pa.int64())).tolist() == [-1, -1]


def fits(number: int, kind: pa.DataType) -> bool:
    try:
        pa.array([number], type=kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def test_dense_numbers_are_found_and_no_others() -> None:
    numbers = np.random.default_rng(0).permutation(np.arange(-30, 90, 3))
    known = KnownNames([str(each) for each in numbers])
    limits = np.iinfo(np.int64)
    far = [limits.min, limits.min + 59, limits.max - 30, limits.max]  # a difference of these overflows
    asked = [*range(-40, 100), *far]
    expected = [numbers.tolist().index(each) if each in numbers else -1 for each in asked]
    assert known.find(pa.array(asked, type=pa.int64())).tolist() == expected
    assert known.find(pa.array([None, *asked], type=pa.int64())).tolist() == [-1, *expected]
