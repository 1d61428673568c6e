"""`dpspca dictionary` drafts a dictionary without reading a row, refuses it until it is filled in, and compares two."""

import gzip
import sqlite3
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from commands import Ended, commands_in
from facts import a_line_names, names_facts

from dpspca.common.decoding import decode
from dpspca.common.dictionary import Dictionary, Genotype
from dpspca.common.storage import read_dictionary

TEXT = """format = "dpspca-dictionary-1"
[features.age]
kind = "number"
unit = "years"
range = [0, 110]
[features.sex]
kind = "category"
levels = ["f", "m"]
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    return commands_in(tmp_path, monkeypatch, capfd)


def write(folder: Path, kind: str, values: list[float]) -> Path:
    frame = pd.DataFrame(
        {"age": values, "sex": ["f"] * len(values), "born": pd.to_datetime(["2001-01-01"] * len(values))}
    )
    place = folder / f"rows.{kind}"
    if kind == "csv":
        frame.to_csv(place, index=False)
    elif kind == "parquet":
        frame.to_parquet(place)
    else:
        with closing(sqlite3.connect(place)) as database:
            frame.to_sql("rows", database, index=False)
    return place


@pytest.mark.parametrize("kind", ["csv", "parquet", "db"])
def test_a_draft_is_the_same_whatever_the_rows_hold(command: Callable[..., Ended], tmp_path: Path, kind: str) -> None:
    """Privacy: names and types alone are in the draft."""
    place = write(tmp_path, kind, [41.5, 77.25])
    first = command("dictionary", "init", place, "--json").facts["text"]
    place.unlink()
    write(tmp_path, kind, [-9.125, 1e6, 3.5])
    assert command("dictionary", "init", place, "--json").facts["text"] == first
    assert "[features.age]" in first
    assert "[features.sex]" in first


def test_a_draft_is_refused_until_it_is_filled_in(command: Callable[..., Ended], tmp_path: Path) -> None:
    place = write(tmp_path, "parquet", [41.5, 77.25])
    assert command("dictionary", "init", place, "--out", "study.toml").code == 0
    assert "exists" in command("dictionary", "init", place, "--out", "study.toml").error_line
    refused = command("dictionary", "check", "study.toml")
    assert refused.code == 1
    assert refused.out.count("not filled in") == 3
    assert "born" in (tmp_path / "study.toml").read_text(encoding="utf-8")
    filled = (tmp_path / "study.toml").read_text(encoding="utf-8")
    filled = filled.replace('["?", "?"]', "[0, 110]").replace('["?"]', '["f", "m"]').replace('"?"', '"years"')
    (tmp_path / "study.toml").write_text(filled, encoding="utf-8")
    (tmp_path / "other.toml").write_text(TEXT, encoding="utf-8")
    facts = command("dictionary", "check", "study.toml", "other.toml", "--json").facts
    assert facts["passed"]
    assert not facts["differences"]
    assert facts["dictionaries"][0]["columns"] == ["age", "sex=f", "sex=m"]


def test_a_file_without_column_names_cannot_be_drafted(command: Callable[..., Ended], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    assert "no names" in command("dictionary", "init", "rows.npy").error_line


@pytest.mark.parametrize("first", ["Smith;41;23.5;7", "Smith;41,5;<5", "41;23.5;NA"])
def test_a_row_in_place_of_names_gets_into_no_draft(command: Callable[..., Ended], tmp_path: Path, first: str) -> None:
    """Privacy: a draft is public, and a file without a line of names begins with a row."""
    (tmp_path / "rows.csv").write_text(f"{first}\n{first}\n", encoding="utf-8")
    refused = command("dictionary", "init", "rows.csv")
    assert refused.code != 0
    assert "Smith" not in refused.out + refused.error_line
    assert names_facts(refused.error_line, "names", "--config")


def test_names_of_a_file_with_types_are_names(command: Callable[..., Ended], tmp_path: Path) -> None:
    pd.DataFrame({"0.5": [1.0], "0.95": [2.0]}).to_parquet(tmp_path / "quantiles.parquet")
    assert '[features."0.95"]' in command("dictionary", "init", "quantiles.parquet").out


def test_the_column_of_a_partition_is_drafted(command: Callable[..., Ended], tmp_path: Path) -> None:
    """Its values are names of folders, so that nothing states whether they are numbers. None of them is drafted."""
    (tmp_path / "visits" / "year=1987").mkdir(parents=True)
    pd.DataFrame({"age": [41.0]}).to_parquet(tmp_path / "visits" / "year=1987" / "1.parquet")
    drafted = command("dictionary", "init", "visits").out
    assert "[features.age]" in drafted
    assert '[features.year]\nkind = "number"' in drafted
    assert "1987" not in drafted


def test_names_that_may_be_values_are_drafted_with_a_warning(command: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("id;2019;2020-01-31\na;1;2\n", encoding="utf-8")
    drafted = command("dictionary", "init", "rows.csv")
    assert drafted.code == 0
    assert names_facts(drafted.err, "Warning", 2, 3, "names")


def test_types_that_a_database_declares_make_kinds(command: Callable[..., Ended], tmp_path: Path) -> None:
    """SQLite itself, and SQLAlchemy, which has words of its own for types."""
    with closing(sqlite3.connect(tmp_path / "rows.db")) as made:
        made.execute(
            "CREATE TABLE t (id integer PRIMARY KEY, age numeric(5, 1), sex varchar(9), born date, dead boolean, x)"
        )
    (tmp_path / "rows.sqlalchemy").write_text(f"sqlite:///{tmp_path}/rows.db\n", encoding="utf-8")
    (tmp_path / "rows.sqlalchemy").chmod(0o600)
    for place in ("rows.db", "rows.sqlalchemy"):
        text = command("dictionary", "init", place, "--json").facts["text"]
        assert '[features.age]\nkind = "number"' in text
        assert '[features.sex]\nkind = "category"' in text
        assert "[features.born]" not in text
        assert "[features.dead]" in text
    assert '[features.x]\nkind = "number"' in command("dictionary", "init", "rows.db", "--json").facts["text"]


def test_what_is_rarely_meant_is_remarked_on(command: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT + "shares = [0.9, 0.5]\n", encoding="utf-8")
    ended = command("dictionary", "check", "a.toml")
    assert ended.code == 0
    assert "'sex'" in ended.out
    assert "1.4" in ended.out
    (found,) = command("dictionary", "check", "a.toml", "--json").facts["dictionaries"]
    assert len(found["remarks"]) == 1


def test_two_dictionaries_are_compared_by_what_they_mean(command: Callable[..., Ended], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.toml").write_text(TEXT.replace("years", "months").replace("110", "1320"), encoding="utf-8")
    ended = command("dictionary", "check", "a.toml", "b.toml")
    assert ended.code == 1
    assert "4 differences" in ended.out or "5 differences" in ended.out
    assert "months" in ended.out
    facts = command("dictionary", "check", "a.toml", "--json").facts
    known = Dictionary.from_json(Dictionary.parse(tomllib.loads(TEXT)).to_json())
    assert facts["dictionaries"][0]["digest"] == known.digest()
    assert command("dictionary", "check", "absent.toml").code == 1
    assert "dpspca dictionary check" in command("config", "check", "a.toml").out


def test_a_list_of_variants_is_drafted_with_alleles_and_places(command: Callable[..., Ended], tmp_path: Path) -> None:
    bim = tmp_path / "panel.bim"
    bim.write_text("chr1\trs1\t0\t77\tA\tG\nX\trs2\t0\t88\tC\tT\n", encoding="utf-8")
    assert "2 variants" in command("dictionary", "init", bim, "--out", "study.toml").out
    first, second = read_dictionary(tmp_path / "study.toml").features
    assert first == decode(Genotype, {"allele": "A", "other_allele": "G", "chromosome": 1, "position": 77}, name="rs1")
    assert second.name == "rs2"
    checked = command("dictionary", "check", "study.toml", "--json").facts
    assert checked["dictionaries"][0]["remarks"] == []


def test_variants_with_several_alleles_are_no_features(command: Callable[..., Ended], tmp_path: Path) -> None:
    """No provider can count one of them. A dictionary that names one is refused before any job."""
    (tmp_path / "panel.pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n1\t7\trs1\tA\tG\n1\t9\trs2\tC\tT,A\n")
    command("dictionary", "init", "panel.pvar", "--out", "study.toml")
    assert read_dictionary(tmp_path / "study.toml").names == ("rs1",)
    assert "rs2" in (tmp_path / "study.toml").read_text(encoding="utf-8")
    lines = '[features.rs2]\nkind = "genotype"\nallele = "T,A"\nother_allele = "C"\n'
    (tmp_path / "study.toml").write_text(f'format = "dpspca-dictionary-1"\n{lines}', encoding="utf-8")
    checked = command("dictionary", "check", "study.toml")
    assert (checked.code, a_line_names(checked.out, "'rs2'", "comma")) == (1, True)


def test_a_folder_with_files_of_another_kind_is_not_drafted(command: Callable[..., Ended], tmp_path: Path) -> None:
    """A barcode is the name of a cell. The first file alone would give a draft with barcodes as names of features."""
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "barcodes.tsv.gz").write_bytes(gzip.compress(b"AAACCTGAGAAACCAT-1\nAAACCTGAGAAACCGC-1\n"))
    (tmp_path / "cells" / "matrix.mtx.gz").write_bytes(gzip.compress(b"%%MatrixMarket\n"))
    refused = command("dictionary", "init", "cells")
    assert refused.code == 2
    assert names_facts(refused.error_line, "matrix.mtx.gz")
    alone = command("dictionary", "init", "cells/barcodes.tsv.gz")
    assert names_facts(alone.err, "Warning", "1 of 1")


def test_a_list_of_frequencies_is_named_in_the_draft(command: Callable[..., Ended], tmp_path: Path) -> None:
    """Frequencies of the reference stay in its file: the draft holds none that could be those of rows."""
    (tmp_path / "public").mkdir()
    (tmp_path / "studies").mkdir()
    panel = tmp_path / "public" / "panel.afreq"
    panel.write_text("#CHROM\tPOS\tID\tREF\tALT\tALT_FREQS\tOBS_CT\n1\t77\trs1\tG\tA\t0.25\t100\n", encoding="utf-8")
    assert command("dictionary", "init", panel, "--out", "studies/study.toml").out.endswith(" 1 variant\n")
    assert "0.25" not in (tmp_path / "studies" / "study.toml").read_text(encoding="utf-8")
    assert read_dictionary(tmp_path / "studies" / "study.toml").names == ("rs1",)
    assert '"public/panel.afreq"' in command("dictionary", "init", "public/panel.afreq").out
    (tmp_path / "panel.afreq.gz").write_bytes(gzip.compress(panel.read_bytes()))
    assert '"panel.afreq.gz"' in command("dictionary", "init", "panel.afreq.gz").out
    panel.write_text("rs1 0.25\n", encoding="utf-8")
    assert "panel.afreq" in command("dictionary", "init", panel).error_line
