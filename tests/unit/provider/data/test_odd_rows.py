"""Whether a provider starts, what it offers and what it refuses is the same for neighbours, however odd a row is.

Neighbours differ in one row, whatever stands there. Nothing here is statistical.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from examples import EXAMPLES
from facts import facts
from hypothesis import given
from hypothesis import strategies as st

from dpspca.common.algorithms import catalogue
from dpspca.common.errors import DpspcaError, InvalidDataError, RefusedError
from dpspca.common.job import JobSpec, pairing_of
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.protocol import Aggregate, drive
from dpspca.common.queries.base import RowQuery
from dpspca.provider.data.checked.persons import require_unit
from dpspca.provider.data.checked.preparation import CheckedRows
from dpspca.provider.data.offered_rows import read_offered
from dpspca.provider.data.sources import read_rows
from dpspca.provider.evaluate.matrix_shard import MatrixShard, SpectralCheck
from dpspca.provider.evaluate.shard import Shard, Strategy
from dpspca.provider.ledger.ledger import MemoryLedger
from dpspca.provider.release.entropy import system_entropy
from dpspca.provider.release.responder import Responder
from dpspca.server.jobs.sums import combine

ROWS = np.random.default_rng(0).standard_normal((6, 3))
HEAD = "a,b,c\n"
LINES = [",".join(map(repr, row)) for row in ROWS.tolist()]


def dense(rows: CheckedRows) -> Any:
    matrix: Any = rows.matrix
    return matrix.toarray() if rows.is_sparse else matrix


def text(folder: Path, lines: list[str]) -> CheckedRows:
    (folder / "rows.csv").write_bytes(
        (HEAD + "".join(f"{line}\n" for line in lines)).encode("utf-8", "surrogateescape")
    )
    return read_offered(folder / "rows.csv")


ODD = {
    "empty cell": "1,,3",
    "text": "1,tall,3",
    "NaN": "nan,2,3",
    "infinity": "1,-inf,3",
    "beyond the range": "1,1e400,3",
    "too large": "1,1e200,3",
    "too few cells": "1,2",
    "too many cells": "1,2,3,4",
    "decimal comma": '1,"2,5",3',
    "an open quote": '1,"2,3',
    "another encoding": "1,gro\udcdf,3",
    "a cell without end": "1," + "9" * 200_000 + ",3",
    "a quoted cell without end": '1,"' + "9" * 200_000 + ",3",
    "a NUL": "1,\0,3",
    "blank": "",
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("place", [0, 3])
def test_an_odd_line_counts_as_a_row_of_zeros_and_changes_no_other(odd: str, place: int, tmp_path: Path) -> None:
    usual = text(tmp_path, LINES)
    spoilt = text(tmp_path, [*LINES[:place], odd, *LINES[place + 1 :]])
    expected = ROWS.copy()
    expected[place] = 0
    assert (usual.matrix == ROWS).all()
    assert (spoilt.matrix == expected).all()
    assert (spoilt.names, spoilt.count) == (usual.names, usual.count)
    assert spoilt.unusable is not None
    assert spoilt.unusable.count == 1


_LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)


@given(odd=_LINES, place=st.integers(0, 4))
def test_neighbouring_texts_are_neighbouring_tables(
    odd: str, place: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever is on one line of several. A blank last line is no row, so the last line is always a row here."""
    folder = tmp_path_factory.mktemp("rows")
    usual, other = text(folder, LINES), text(folder, [*LINES[:place], odd, *LINES[place + 1 :]])
    assert other.count == usual.count
    assert np.flatnonzero((dense(other) != dense(usual)).any(axis=1)).tolist() in ([], [place])


def save_npy(path: Path, rows: np.ndarray) -> Path:
    np.save(path.with_suffix(".npy"), rows)
    return path.with_suffix(".npy")


def save_npz(path: Path, rows: np.ndarray) -> Path:
    scipy.sparse.save_npz(path.with_suffix(".npz"), scipy.sparse.csr_array(rows))
    return path.with_suffix(".npz")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("save", [save_npy, save_npz])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.longdouble])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, "most"])
def test_an_odd_number_counts_as_a_row_of_zeros(
    odd: Any, kind: type, save: Callable[[Path, np.ndarray], Path], tmp_path: Path
) -> None:
    if save is save_npz and kind in {np.float16, np.longdouble}:
        return  # scipy writes none
    rows = np.round(ROWS * 8).astype(kind)
    rows[2, 1] = np.finfo(kind).max if odd == "most" else odd
    expected = rows.astype(np.float64, copy=True) if odd != "most" else np.round(ROWS * 8)
    if not (odd == "most" and kind == np.float16):  # whose largest number is usable
        expected[2] = 0
    else:
        expected[2, 1] = 65504
    read = read_offered(save(tmp_path / "rows", rows))
    assert (dense(read) == expected).all()


def test_a_number_in_no_column_counts_as_a_row_of_zeros(tmp_path: Path) -> None:
    """Multiplied with, it would read beside a basis, or write beside the answer."""
    for stray in (3, 2**31 - 1, -1):
        matrix = scipy.sparse.csr_array(ROWS)
        matrix.indices[4] = stray
        np.savez(
            tmp_path / "rows.npz",
            indices=matrix.indices,
            indptr=matrix.indptr,
            format=np.array(b"csr"),
            shape=np.array(matrix.shape),
            data=matrix.data,
            _is_array=np.array(True),  # how scipy says that it is no matrix
        )
        expected = ROWS.copy()
        expected[1] = 0
        assert (dense(read_offered(tmp_path / "rows.npz")) == expected).all()


@pytest.mark.parametrize("stray", [3, 2**31 - 1, -1])
def test_a_number_in_no_column_is_the_same_by_coordinates(stray: int, tmp_path: Path) -> None:
    matrix = scipy.sparse.coo_array(ROWS)
    matrix.col[4] = stray
    parts = {"row": matrix.row, "col": matrix.col, "data": matrix.data, "shape": np.array(matrix.shape)}
    np.savez(tmp_path / "rows.npz", format=np.array(b"coo"), _is_array=np.array(True), **parts)
    expected = ROWS.copy()
    expected[matrix.row[4]] = 0
    assert (dense(read_offered(tmp_path / "rows.npz")) == expected).all()
    with pytest.raises(DpspcaError, match=facts("rows.npz", f"{ROWS.shape[1]} columns")):
        read_rows(tmp_path / "rows.npz")


def test_rows_of_several_files_are_dealt_with_one_by_one(tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    rows = ROWS.copy()
    rows[4, 0] = np.nan
    for start in (0, 3):
        save_npz(folder / str(start), rows[start : start + 3])
    expected = np.where(np.isnan(rows).any(axis=1)[:, None], 0, rows)
    assert (dense(read_offered(folder)) == expected).all()


@pytest.mark.parametrize("save", [save_npy, save_npz])
@pytest.mark.parametrize("count", [0, 1])
def test_so_few_rows_keep_no_provider_from_starting(
    count: int, save: Callable[[Path, np.ndarray], Path], tmp_path: Path
) -> None:
    """Else one row more or less would show where the unit is whether a row is there."""
    read = read_offered(save(tmp_path / "rows", ROWS[:count]))
    assert (read.count, read.dimension) == (count, 3)
    assert text(tmp_path, LINES[:count]).count == count


OVER_ROWS = [
    pytest.param(job, id=f"{name} {kind}")
    for name, examples in EXAMPLES.items()
    for kind, job in examples.jobs.items()
    if job.unit.is_row
]


@pytest.mark.parametrize("job", OVER_ROWS)
@pytest.mark.parametrize("count", [0, 1])
def test_a_provider_with_so_few_rows_answers_whatever_it_is_asked(job: JobSpec, count: int) -> None:
    plan = catalogue.plan(job)
    tables = [np.zeros((count, job.schema.dimension)), np.eye(20, job.schema.dimension)]
    held = [CheckedRows(table).first(None) for table in tables]
    if catalogue.rows_of(job) is not None:
        return  # is about the first rows of each provider, whose number is public there
    providers = [
        Responder(
            catalogue.plan(job),
            Shard(
                rows,
                job.norm_bound,
                mean_bound=job.mean_bound,
                strategy=Strategy.STREAM,
                pairing=pairing_of(job),
            ),
            MemoryLedger(),
            system_entropy,
            seat=seat,
        )
        for seat, rows in enumerate(held)
    ]
    asked = 0

    def ask(query: RowQuery) -> Aggregate:
        nonlocal asked
        step = plan[asked].fit_to(query, job.unit)
        answers = [each.respond(asked, query) for each in providers]
        asked += 1
        return combine(job, step, answers)

    assert np.isfinite(drive(catalogue.run(catalogue.plan(job)), ask).components).all()


# --- Shares of a matrix -----------------------------------------------------------------------------------------------

SHARE = ROWS[:3] + ROWS[:3].T


@pytest.mark.parametrize("save", [save_npy, save_npz])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -(2.0**101)])
def test_an_odd_entry_of_a_matrix_is_zero_and_its_share_stays_symmetric(
    odd: float, save: Callable[[Path, np.ndarray], Path], tmp_path: Path
) -> None:
    """A row of zeros beside a column that is none would be refused, and one entry would show."""
    values = SHARE.copy()
    values[0, 2] = values[2, 0] = odd
    read = read_offered(save(tmp_path / "share", values))
    assert (dense(read) == np.where([[True], [False], [True]], 0, values)).all()
    expected = SHARE.copy()
    expected[0, 2] = expected[2, 0] = 0
    assert (dense(read.as_matrix()) == expected).all()
    MatrixShard(read, 1.0, PrivacyUnit.ENTRY)


def test_a_spectral_share_is_checked_once_for_all_bounds() -> None:
    small, large = (CheckedRows(np.diag([size, 1.0])) for size in (1.0, 2.0**30))
    SpectralCheck.of(small, 2.0).require(2.0)
    SpectralCheck.of(small, 2.0).require(4.0)
    told = set()
    for bound in (2.0, 2.0**20, 2.0**40):
        with pytest.raises(RefusedError, match=facts("spectral", "norm_bound")) as caught:
            SpectralCheck.of(large, 2.0).require(bound)
        told.add(str(caught.value))
    assert len(told) == 1
    for share in (small, large):
        with pytest.raises(RefusedError, match=facts("norm_bound")):
            SpectralCheck.of(share, 2.0).require(1.0)


# --- Faults of form, which are public ---------------------------------------------------------------------------------


def test_what_is_wrong_with_the_form_of_a_table_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"1,2\n3,4\n", b"1;2\n3;4\n", b'a,"' + b"x" * 200_000, b"a,a\n1,2\n", b"gr\xf6\xdfe,b\n1,2\n"):
        (tmp_path / "rows.csv").write_bytes(content)
        with pytest.raises(InvalidDataError):
            read_offered(tmp_path / "rows.csv")
    np.save(tmp_path / "rows.npy", np.array([["x"]]))
    with pytest.raises(InvalidDataError):
        read_offered(tmp_path / "rows.npy")
    matrix = scipy.sparse.csc_array(ROWS)
    matrix.indices[0] = 2**31 - 1
    scipy.sparse.save_npz(tmp_path / "rows.npz", matrix)
    with pytest.raises(InvalidDataError):
        read_offered(tmp_path / "rows.npz")


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \n"])
def test_the_last_line_is_a_row_whatever_it_holds(end: str, tmp_path: Path) -> None:
    """Were blank lines at the end no rows, the content of the last row would decide how many there are."""
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n3,4" + end)
    assert read_offered(path).count == 2 + max(0, end.count("\n") - 1)


def test_a_matrix_with_row_entries_is_refused() -> None:
    """Otherwise one entry would decide whether what is left is symmetric."""
    with pytest.raises(RefusedError, match=facts("row_entries", "entry")):
        require_unit(PrivacyUnit.ENTRY, persons=False, cut=True)
    require_unit(PrivacyUnit.ROW_REPLACE_ONE, persons=False, cut=True)


def test_a_matrix_of_persons_rows_is_refused_for_the_persons(tmp_path: Path) -> None:
    """With a file of persons rows may be left out, and nobody has set row_entries."""
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "persons.txt").write_text("ann\nbob\n")
    rows = read_offered(tmp_path / "rows.csv", persons=tmp_path / "persons.txt")
    with pytest.raises(RefusedError, match=facts("entry", "person-replace-one")):
        require_unit(PrivacyUnit.ENTRY, persons=rows.persons is not None, cut=rows.uncut is not None)
