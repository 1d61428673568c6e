"""How a cell of text is read follows from its column and its content, never from other cells of its line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpspca.client.steward.feature_remarks import feature_remarks
from dpspca.common.dictionary import Preparation
from dpspca.common.storage import read_dictionary
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.offered_rows import read_arriving, read_offered
from dpspca.provider.data.sources import read_as_stored, read_rows

DICTIONARY = """
format = "dpspca-dictionary-1"
[features.kind]
kind = "category"
levels = ["a", "b", "nan"]
[features.size]
kind = "number"
unit = "cm"
range = [0, 10]
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("code", ["-9,9", "-9,90"])
def test_a_code_with_a_decimal_comma_counts_in_every_line(code: str, tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "a;b\n-9,9;1,5\n-9,9;\n2;1\n")
    how = Reading(decimal=",", missing_codes=(code,), missing=7.0)
    made = [[7, 1.5], [7, 7], [2, 1]]
    for rows in (read_offered(path, how), read_arriving(path, how)[0], read_rows(path, how)):
        assert np.asarray(rows.matrix).tolist() == made


def test_a_code_for_infinity_counts_in_every_line(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "a,b\nInf,1.5\nInf,\n2,1\n")
    how = Reading(missing_codes=("Inf",), missing=7.0)
    for rows in (read_offered(path, how), read_rows(path, how)):
        assert np.asarray(rows.matrix).tolist() == [[7, 1.5], [7, 7], [2, 1]]


@pytest.mark.parametrize(
    ("cells", "levels"),
    [(("1,0", "1", "1,5"), {"1": "a", "1,5": "b"}), (("nan", "NaN", "b"), {"x": "a", "nan": "a"})],
)
def test_levels_do_not_depend_on_other_cells(cells: tuple[str, ...], levels: dict[str, str], tmp_path: Path) -> None:
    known = read_dictionary(written(tmp_path / "study.toml", DICTIONARY))
    how = Reading(decimal=",").prepared(Preparation.parse(known, {"kind": {"levels": levels}}, None))
    lines = "".join(f"{cell};2\n" for cell in cells) + "".join(f"{cell};\n" for cell in cells)
    path = written(tmp_path / "rows.csv", f"kind;size\n{lines}")
    rows = read_offered(path, how)
    by_kind = np.asarray(rows.part(slice(None)))[:, [name.startswith("kind") for name in rows.names or ()]]
    assert (by_kind[: len(cells)] == by_kind[len(cells) :]).all()
    assert not (by_kind[0] == by_kind[2]).all()


def test_cells_in_another_encoding_than_utf8_are_reported(tmp_path: Path) -> None:
    known = read_dictionary(written(tmp_path / "study.toml", DICTIONARY))
    how = Reading().prepared(Preparation.parse(known, {"kind": {"levels": {"m\u00e4nnlich": "a", "w": "b"}}}, None))
    path = tmp_path / "rows.csv"
    path.write_bytes("kind,size\nw,1\nm\u00e4nnlich,2\nw,3\nw,4\n".encode("cp1252"))
    found = examine_rows(path, how)
    assert found.undecoded == ("kind",)
    assert any("'kind'" in each and 'encoding = "cp1252"' in each for each in feature_remarks(found))
    declared = examine_rows(path, replace(how, encoding="cp1252"))
    assert (declared.undecoded, [each.unknown for each in declared.features]) == ((), [0, 0])


def test_levels_that_are_numbers_are_read_as_from_files_with_types(tmp_path: Path) -> None:
    """Then the same rows have the same fingerprints, and so one budget."""
    known = read_dictionary(written(tmp_path / "study.toml", DICTIONARY))
    levels = {"1": "a", "2": "b"}
    how = Reading().prepared(Preparation.parse(known, {"kind": {"levels": levels}}, None))
    rows = read_as_stored(written(tmp_path / "rows.csv", "kind,size\n1,5\n2,\n1.0,x\n"), how)
    assert np.asarray(rows.matrix)[:, 0].tolist() == [1, 2, 1]
