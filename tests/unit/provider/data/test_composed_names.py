"""Names and levels with accents match, whether a program writes an accent as a character of its own or not."""

import sqlite3
import unicodedata
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from facts import facts

from dpspca.common.dictionary import Dictionary, Preparation, prepare_table
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading, Triplets
from dpspca.provider.data import names_in, read_offered, read_rows

KNOWN = Dictionary.parse(
    {
        "format": "dpspca-dictionary-1",
        "features": {
            "Größe": {"kind": "number", "unit": "cm", "range": [100, 200]},
            "sex": {"kind": "category", "levels": ["männlich", "weiblich"], "missing_codes": ["ungeklärt"]},
        },
    }
)
PREPARED = np.array([[0.4, 0.5, -0.5], [-0.2, -0.5, 0.5], [0, 0, 0]])


def apart(text: str) -> str:
    """Write accents as characters of their own, as macOS does."""
    return unicodedata.normalize("NFD", text)


FRAME = pd.DataFrame({apart("Größe"): [170.0, 140, 150], "sex": [*map(apart, ("männlich", "weiblich", "ungeklärt"))]})


def _sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        FRAME.to_sql("rows", database, index=False)


def _duckdb(path: Path) -> None:
    with closing(duckdb.connect(str(path))) as database:
        database.register("frame", FRAME)
        database.execute("CREATE TABLE rows AS SELECT * FROM frame")


WRITERS: dict[str, Callable[[Path], Any]] = {
    "rows.csv": lambda path: FRAME.to_csv(path, index=False),
    "rows.parquet": lambda path: pq.write_table(pa.Table.from_pandas(FRAME), path),
    "rows.feather": lambda path: pyarrow.feather.write_feather(FRAME, path),
    "rows.orc": lambda path: pyarrow.orc.write_table(pa.Table.from_pandas(FRAME), path),
    "rows.sqlite": _sqlite,
    "rows.duckdb": _duckdb,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_dictionary_s_names_and_levels_match_either_form(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    preparation = Preparation.parse(KNOWN, None, None)
    found = read_offered(tmp_path / name, Reading().prepared(preparation))
    np.testing.assert_allclose(np.asarray(found.part(slice(None))), PREPARED)


def test_settings_match_either_form(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    for written in ("Größe", apart("Größe")):
        for reading in (
            Reading(columns=(written,), missing_codes={written: (140,)}, missing={written: 5.0}),
            Reading(leave_out=("sex",), missing_codes={written: (140,)}, missing={written: 5.0}),
        ):
            assert names_in(tmp_path / "rows.csv", reading) == ("Größe",)
            assert np.asarray(read_rows(tmp_path / "rows.csv", reading).matrix).tolist() == [[170], [5], [150]]
        columns = {"Größe": written, "sex": {"levels": {apart("männlich"): apart("männlich")}}}
        reading = Reading().prepared(Preparation.parse(KNOWN, columns, None))
        np.testing.assert_allclose(np.asarray(read_rows(tmp_path / "rows.csv", reading).matrix), PREPARED)


def test_frames_match_either_form() -> None:
    for frame in (FRAME, pa.Table.from_pandas(FRAME), FRAME.rename(columns={apart("Größe"): "Größe"})):
        np.testing.assert_allclose(prepare_table(KNOWN, frame), PREPARED)


def test_names_that_become_equal_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"Größe,{apart('Größe')}\n1,2\n3,4\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("'Größe'", "1", "2")):
        read_rows(tmp_path / "rows.csv", Reading())
    with pytest.raises(InvalidDataError, match=facts("'Größe'")):
        read_rows(tmp_path / "rows.csv", Reading(columns=("Größe",)))
    with pytest.raises(InvalidDataError, match=facts("'Größe'")):
        prepare_table(KNOWN, FRAME.assign(Größe=1.0))


def test_names_in_triplets_match_either_form(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("p\nq\n", encoding="utf-8")
    (tmp_path / "rows.csv").write_text(f"row,column,value\np,Größe,1\nq,{apart('Größe')},2\n", encoding="utf-8")
    for written in ("Größe", apart("Größe")):
        triplets = Triplets(row="row", column="column", value="value", rows=tmp_path / "names.txt")
        found = read_rows(tmp_path / "rows.csv", Reading(columns=(written,), triplets=triplets))
        assert found.matrix.toarray().tolist() == [[1], [2]]  # type: ignore[union-attr]
