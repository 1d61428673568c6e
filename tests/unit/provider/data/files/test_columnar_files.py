"""Parquet, ORC, Feather and Arrow: their types decide what is read, and no value does."""

from base64 import b64decode, b64encode
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.orc
import pyarrow.parquet
import pytest
from facts import facts
from pyarrow.parquet import encryption

from dpspca.common.errors import DpspcaError, MissingExtraError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import names_in, read_rows
from dpspca.provider.data.tables import extras

VALUES: dict[str, tuple[Any, list[Any], list[float]]] = {
    "int8": (pa.int8(), [1, -2], [1, -2]),
    "uint64": (pa.uint64(), [2**64 - 1, 1], [2.0**64, 1]),
    "int64": (pa.int64(), [2**53 + 1, 1], [2.0**53, 1]),
    "half": (pa.float16(), [np.float16(0.5), np.float16(2)], [0.5, 2]),
    "float": (pa.float32(), [0.5, -3.25], [0.5, -3.25]),
    "double": (pa.float64(), [0.1, 1e-300], [0.1, 1e-300]),
    "decimal": (pa.decimal128(9, 2), [Decimal("1.25"), Decimal("-7.5")], [1.25, -7.5]),
    "wide decimal": (pa.decimal256(50, 2), [Decimal("1.25"), Decimal("-7.5")], [1.25, -7.5]),
    "bool": (pa.bool_(), [True, False], [1, 0]),
    "dictionary": (pa.dictionary(pa.int8(), pa.float64()), [7.5, 2.0], [7.5, 2]),
}
TABLE = pa.table({name: pa.array(values, kind) for name, (kind, values, _) in VALUES.items()})
NUMBERS = np.column_stack([numbers for _, _, numbers in VALUES.values()])

Save = Callable[[pa.Table, Path], object]


def save_arrow(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=1)


SAVE: dict[str, Save] = {
    "rows.parquet": pyarrow.parquet.write_table,
    "rows.PQ": lambda table, path: pyarrow.parquet.write_table(table, path, row_group_size=1, compression="zstd"),
    "rows.feather": pyarrow.feather.write_feather,
    "rows.arrow": save_arrow,
}


@pytest.mark.parametrize("name", SAVE)
def test_every_type_of_number_is_read(name: str, tmp_path: Path) -> None:
    SAVE[name](TABLE, tmp_path / name)
    for read in (read_rows, read_offered):
        rows = read(tmp_path / name)
        assert (rows.matrix == NUMBERS).all()
        assert rows.names == names_in(tmp_path / name) == tuple(VALUES)


@pytest.mark.parametrize("name", SAVE)
def test_a_value_that_is_not_there_is_missing(name: str, tmp_path: Path) -> None:
    table = pa.table({each: pa.array([None, values[0]], kind) for each, (kind, values, _) in VALUES.items()})
    table = table.append_column("nothing", pa.array([None, None], pa.null()))
    SAVE[name](table, tmp_path / name)
    assert (read_offered(tmp_path / name).matrix == 0).all()
    reading = Reading(missing={"nothing": 3.0, **dict.fromkeys(VALUES, 2.0)})
    filled = read_offered(tmp_path / name, reading)
    assert (filled.matrix[0] == [2] * len(VALUES) + [3]).all()
    assert (filled.matrix[1] == [*NUMBERS[0], 3]).all()


@pytest.mark.parametrize("name", SAVE)
def test_columns_are_chosen_by_name_before_they_are_read(name: str, tmp_path: Path) -> None:
    table = pa.table(
        {"id": ["x", "y"], "age": [50, 60], "on": pa.array([0, 1], pa.timestamp("ms")), "b.mi": [24.5, None]}
    )
    SAVE[name](table, tmp_path / name)
    with pytest.raises(DpspcaError) as caught:
        read_offered(tmp_path / name)
    for fact in ("'id' (string)", "'on' (timestamp[ms])", "columns"):
        assert fact in str(caught.value)
    rows = read_offered(tmp_path / name, Reading(columns=("b.mi", "age"), missing_codes=(50,), missing={"b.mi": 22.0}))
    assert (rows.matrix == [[0, 0], [22, 60]]).all()
    assert rows.names == ("b.mi", "age")
    left = read_rows(tmp_path / name, Reading(leave_out=("id", "on", "b.mi")))
    assert (left.matrix == [[50], [60]]).all()
    with pytest.raises(DpspcaError, match=facts("'bmi'", "'b.mi'")):
        read_offered(tmp_path / name, Reading(columns=("bmi",)))
    with pytest.raises(DpspcaError, match=facts("[reading]", "delimiter", Path(name).suffix.lower())):
        read_offered(tmp_path / name, Reading(columns=("age",), delimiter=";"))


@pytest.mark.parametrize("name", SAVE)
def test_tables_without_rows_are_tables(name: str, tmp_path: Path) -> None:
    SAVE[name](TABLE.slice(0, 0), tmp_path / name)
    rows = read_offered(tmp_path / name)
    assert (rows.count, rows.names) == (0, tuple(VALUES))


@pytest.mark.parametrize("name", SAVE)
def test_an_odd_value_is_one_row_of_zeros(name: str, tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, np.inf, 3.0, 4.0, 5.0], "b": [1.0, 2.0, np.nan, 1e300, None]})
    SAVE[name](table, tmp_path / name)
    assert (read_offered(tmp_path / name).matrix == [[1, 1], [0, 0], [0, 0], [0, 0], [0, 0]]).all()


def test_an_index_that_pandas_stored_without_a_name_is_not_a_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}, index=[7, 3, 5])
    frame.to_parquet(tmp_path / "rows.parquet")
    assert "__index_level_0__" in pyarrow.parquet.read_schema(tmp_path / "rows.parquet").names
    rows = read_rows(tmp_path / "rows.parquet", Reading(leave_out=("a",)))
    assert rows.names == ("b",)
    assert read_rows(tmp_path / "rows.parquet").names == ("a", "b")


def test_a_folder_as_spark_writes_it_is_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for part in range(3):
        pyarrow.parquet.write_table(pa.table({"a": [part, part], "b": [0.5, 1.5]}), folder / f"part-{part}.parquet")
    for mark in ("_SUCCESS", "_metadata", "._SUCCESS.crc"):
        (folder / mark).touch()
    assert read_rows(folder).matrix[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("name", SAVE)
def test_a_broken_file_is_named_and_not_quoted(name: str, tmp_path: Path) -> None:
    SAVE[name](TABLE, tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    for content in (
        b"",
        b"SECRET" * 99,
        whole[:-9],
        whole[: len(whole) // 2],
        whole[:-99] + b"\xff" * 60 + whole[-39:],
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DpspcaError) as caught:
            read_offered(tmp_path / name)
        assert name in str(caught.value)
        assert "SECRET" not in str(caught.value)


class LocalKeys(encryption.KmsClient):
    """Packs keys as text, and does not encrypt them."""

    def wrap_key(self, key_bytes: bytes, _master: str) -> bytes:
        return b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, _master: str) -> bytes:
        return b64decode(wrapped_key)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_an_encrypted_file_is_named_as_such(tmp_path: Path, *, plaintext_footer: bool) -> None:
    keys = encryption.CryptoFactory(lambda _: LocalKeys())
    how = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["double"]}, plaintext_footer=plaintext_footer
    )
    properties = keys.file_encryption_properties(encryption.KmsConnectionConfig(), how)
    pyarrow.parquet.write_table(TABLE, tmp_path / "rows.parquet", encryption_properties=properties)
    with pytest.raises(DpspcaError, match=facts("rows.parquet", "encrypted", "without encryption")):
        read_offered(tmp_path / "rows.parquet")


def test_a_place_that_no_dictionary_has_is_one_row_of_zeros(tmp_path: Path) -> None:
    places = pa.array([0, 7, 1, -1, None], pa.int8())
    stray = pa.DictionaryArray.from_arrays(places, pa.array([1.5, None]), safe=False)
    save_arrow(pa.table({"a": stray, "b": [1.0, 2.0, 3.0, 4.0, 5.0]}), tmp_path / "rows.arrow")
    reading = Reading(missing={"a": 9.0})
    rows = read_offered(tmp_path / "rows.arrow", reading).matrix
    assert rows.tolist() == [[1.5, 1], [0, 0], [9, 3], [0, 0], [9, 5]]  # type: ignore[union-attr]


def test_a_decimal_wider_than_its_type_does_not_refuse_a_file(tmp_path: Path) -> None:
    """Whether a value fits is said by one row."""
    wide = pa.array([Decimal("123456789.25"), Decimal("1.5")], pa.decimal128(30, 2)).view(pa.decimal128(3, 2))
    save_arrow(pa.table({"a": wide}), tmp_path / "rows.arrow")
    assert read_offered(tmp_path / "rows.arrow").matrix.tolist() == [[123456789.25], [1.5]]  # type: ignore[union-attr]


def test_a_decimal_with_too_many_digits_is_not_a_number(tmp_path: Path) -> None:
    """Pyarrow reads outside of its memory for a scale that a broken file may state."""
    kind = pa.decimal128(20, 1_811_939_330)
    values = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(16))])
    save_arrow(pa.table({"a": values}), tmp_path / "rows.arrow")
    with pytest.raises(DpspcaError, match=facts("decimal128")):
        read_offered(tmp_path / "rows.arrow")


def test_without_pyarrow_the_error_names_the_command_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(extras, "import_module", missing)
    for name in ("rows.parquet", "rows.feather", "rows.csv.zst"):
        (tmp_path / name).touch()
        with pytest.raises(MissingExtraError, match=facts("pip install '.[formats]'")):
            read_offered(tmp_path / name)


ORC_TABLE = pa.table({
    "int8": pa.array([1, -2], pa.int8()), "int64": pa.array([2**53 + 1, 1], pa.int64()),
    "float": pa.array([0.5, -3.25], pa.float32()), "double": pa.array([0.1, None], pa.float64()),
    "decimal": pa.array([Decimal("1.25"), Decimal("-7.5")], pa.decimal128(9, 2)), "bool": pa.array([True, False]),
    "text": pa.array(["x", "y"]),
})  # fmt: skip


@pytest.mark.slow
def test_orc_is_read_by_its_types(tmp_path: Path) -> None:
    pyarrow.orc.write_table(ORC_TABLE, tmp_path / "rows.orc")
    with pytest.raises(DpspcaError, match=facts("'text' (string)")):
        read_offered(tmp_path / "rows.orc")
    rows = read_offered(tmp_path / "rows.orc", Reading(leave_out=("text",), missing={"double": 7.0}))
    assert rows.names == tuple(ORC_TABLE.column_names[:-1])
    numbers = [[1, 2.0**53, 0.5, 0.1, 1.25, 1], [-2, 1, -3.25, 7.0, -7.5, 0]]
    assert np.array_equal(rows.matrix.toarray() if hasattr(rows.matrix, "toarray") else rows.matrix, numbers)


def test_orc_with_stripes_gives_rows_in_order_and_columns_as_declared(tmp_path: Path) -> None:
    many = pa.table({"a": np.arange(200_000.0), "b": np.arange(200_000) % 7})
    pyarrow.orc.write_table(many, tmp_path / "rows.orc", stripe_size=2**16)
    rows = read_rows(tmp_path / "rows.orc", Reading(columns=("b", "a")))
    assert np.array_equal(rows.matrix[:, 1], np.arange(200_000.0))
    assert np.array_equal(rows.matrix[:, 0], np.arange(200_000) % 7)


@pytest.mark.slow
def test_an_orc_file_that_was_cut_is_refused(tmp_path: Path) -> None:
    pyarrow.orc.write_table(ORC_TABLE, tmp_path / "rows.orc")
    content = (tmp_path / "rows.orc").read_bytes()
    for length in (0, 3, len(content) // 2, len(content) - 1):
        (tmp_path / "rows.orc").write_bytes(content[:length])
        with pytest.raises(DpspcaError):
            read_offered(tmp_path / "rows.orc", Reading(leave_out=("text",)))
