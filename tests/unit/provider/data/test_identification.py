"""Fingerprints are spared only for rows of which the ledger has all fingerprints already."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dpspca.common.storage.reading import Reading
from dpspca.provider.data import identification
from dpspca.provider.data.checked import fingerprints
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.identification import identify, whole_name
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered

pytestmark = pytest.mark.usefixtures("compiled_or_not")

ROWS = np.random.default_rng(3).standard_normal((50, 4))


def stored(folder: Path, rows: np.ndarray, reading: Reading | None = None) -> CheckedRows:
    np.save(folder / "rows.npy", rows)
    return read_offered(folder / "rows.npy", reading or Reading(), scratch=Scratch(folder / "scratch"))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Get an item for each table over which all passes are made."""
    made: list[int] = []
    canonical = fingerprints._canonical
    monkeypatch.setattr(fingerprints, "_canonical", lambda *given: made.append(1) or canonical(*given))  # type: ignore[func-returns-value]
    return made


def test_rows_whose_fingerprints_are_all_known_are_not_read_for_them(tmp_path: Path, passes: list[int]) -> None:
    digest, names = identify(stored(tmp_path, ROWS))
    assert len(passes) == 1
    again = stored(tmp_path, ROWS)
    found = identify(again, names.__contains__)
    assert len(passes) == 1
    assert found[0] == digest
    assert found[1] < names
    assert again.fingerprints_in_order()[0].names < found[1]


def test_rows_that_differ_in_one_bit_get_all_their_fingerprints(tmp_path: Path, passes: list[int]) -> None:
    """Rounded to 32 bits they are the same rows, so the ledger knows what was found while they were read."""
    _, names = identify(stored(tmp_path, ROWS))
    changed = ROWS.copy()
    changed[7, 1] = np.nextafter(changed[7, 1], 2.0)
    digest, found = identify(stored(tmp_path, changed), names.__contains__)
    assert len(passes) == 2
    assert found == names - {whole_name(identify(stored(tmp_path, ROWS))[0])} | {whole_name(digest)}


def test_rows_known_in_their_order_alone_get_all_their_fingerprints(tmp_path: Path, passes: list[int]) -> None:
    """Of rows that arrived, the ledger has no other fingerprint."""
    in_order = stored(tmp_path, ROWS).fingerprints_in_order()[0].names
    _, found = identify(stored(tmp_path, ROWS), in_order.__contains__)
    assert passes
    assert len(found) == 3


@pytest.mark.parametrize("reading", [Reading(missing=7.0), Reading(missing_codes=(-9.0,))], ids=["filled", "coded"])
def test_rows_that_settings_change_get_all_their_fingerprints(tmp_path: Path, reading: Reading) -> None:
    """The digest says nothing about the rows before the change."""
    rows = stored(tmp_path, ROWS, reading)
    names = identify(rows)[1]
    assert names == rows.fingerprints() == identify(rows, names.__contains__)[1]


def test_rows_that_are_not_in_scratch_get_all_their_fingerprints(tmp_path: Path) -> None:
    rows = CheckedRows(ROWS)
    _, names = identify(rows)
    assert names == identify(stored(tmp_path, ROWS))[1] - {whole_name(stored(tmp_path, ROWS).digest())}


def test_rows_of_zeros_are_spared_passes_as_other_rows_are(tmp_path: Path, passes: list[int]) -> None:
    """Else the time of a restart would tell a table of zeros from one with a single other row."""
    took, counts = [], []
    for rows in (np.zeros((5, 2)), np.vstack([np.zeros((4, 2)), np.ones(2)])):
        passes.clear()
        _, names = identify(stored(tmp_path, rows), data_set="cohort")
        first = len(passes)
        asked: list[str] = []

        def is_known(name: str, names: frozenset[str] = names, asked: list[str] = asked) -> bool:
            asked.append(name)
            return name in names

        _, found = identify(stored(tmp_path, rows), is_known, "cohort")
        took.append((first, len(passes), len(asked)))
        counts.append(len(found))
    assert took[0] == took[1] == (1, 1, 2)
    assert counts == [2, 2]


def test_tables_of_zeros_may_have_several_names(tmp_path: Path) -> None:
    zeros = stored(tmp_path, np.zeros((5, 2)))
    one, other = identify(zeros, data_set="one")[1], identify(zeros, data_set="other")[1]
    assert not one & other
    assert identify(zeros, one.__contains__, "other")[1] == other


def test_a_choice_of_columns_gets_all_its_fingerprints(tmp_path: Path) -> None:
    """What was found while rows were stored is not about a part of them."""
    rows = stored(tmp_path, ROWS)
    part = replace(rows, matrix=rows.part(slice(10)))
    assert identify(part, lambda _: True)[1] == part.fingerprints()
    assert identification.whole_name(part.digest()) not in part.fingerprints()
