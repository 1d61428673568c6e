"""Programs of Windows write a mark before UTF-8. It is no part of the first line of a list."""

from pathlib import Path

import pytest

from dpspca.client.files.score_files import RowNames
from dpspca.common.storage import read_settings
from dpspca.common.storage.settings import DataSettings
from dpspca.provider.data.files import TemporarilyUnreadableError
from dpspca.provider.data.offered_rows import read_offered

MARK = "\ufeff"
SETTINGS = """[data_sets]
x = "long.csv"
[reading.x]
columns = "columns.list"
triplets = { row = "person", column = "concept", rows = "persons.list" }
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_mark_before_lists_of_rows_and_columns_is_no_part_of_a_name(tmp_path: Path) -> None:
    written(tmp_path / "columns.list", f"{MARK}7\n8\n")
    written(tmp_path / "persons.list", f"{MARK}p1\np2\n")
    written(tmp_path / "long.csv", "person,concept\np1,7\np2,8\n")
    settings = read_settings(DataSettings, written(tmp_path / "north.toml", SETTINGS))
    rows = read_offered(tmp_path / "long.csv", settings.reading_of("x"))
    assert rows.names == ("7", "8")
    assert rows.matrix.toarray().tolist() == [[1, 0], [0, 1]]  # type: ignore[union-attr]


def test_a_mark_before_the_names_of_all_columns_is_no_part_of_a_name(tmp_path: Path) -> None:
    written(tmp_path / "names.list", f"{MARK}a\nb\n")
    text = '[data_sets]\nx = "rows.csv"\n[reading.x]\nnames = "names.list"\n'
    settings = read_settings(DataSettings, written(tmp_path / "north.toml", text))
    assert settings.reading_of("x").names == ("a", "b")


def test_a_mark_before_the_names_of_projected_rows_is_no_part_of_a_name(tmp_path: Path) -> None:
    assert RowNames.read(written(tmp_path / "ids.txt", f"{MARK}ann\nbob\n"), 2).names == ("ann", "bob")


def test_a_mark_before_a_connection_string_is_no_part_of_it(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    path = written(tmp_path / "db.postgresql", f"{MARK}host=127.0.0.1 port=1 dbname=x user=y")
    path.chmod(0o600)
    with pytest.raises(TemporarilyUnreadableError):
        read_offered(path)
