"""Files that would be read as something else than they are: damaged, in another encoding, turned, or with words."""

import bz2
import lzma
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import scipy.sparse
import zarr
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError
from dpspca.common.storage import Reading
from dpspca.provider.data import read_offered
from dpspca.provider.data.files.conversions import conversion

PACKERS = {".bz2": bz2.compress, ".xz": lzma.compress}


def lines(start: int) -> bytes:
    return "".join(f"{row},{row * row}\n" for row in range(start, start + 20_000)).encode()


@pytest.fixture(params=sorted(PACKERS))
def ending(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_all_streams_of_a_packed_file_are_read(ending: str, tmp_path: Path) -> None:
    pack, path = PACKERS[ending], tmp_path / f"rows.csv{ending}"
    path.write_bytes(pack(b"a,b\n") + pack(b"") + pack(lines(0)) + bytes(8) + pack(lines(20_000)) + bytes(4))
    matrix = np.asarray(read_offered(path, Reading()).matrix)
    assert matrix[:, 0].tolist() == list(range(40_000))


@pytest.mark.parametrize("place", ["signature", "middle", "end"])
def test_no_row_behind_a_damaged_stream_is_left_out(ending: str, place: str, tmp_path: Path) -> None:
    first, second = PACKERS[ending](b"a,b\n" + lines(0)), bytearray(PACKERS[ending](lines(20_000)))
    if place == "end":
        del second[-10:]
    else:
        second[1 if place == "signature" else len(second) // 2] ^= 1
    path = tmp_path / f"rows.csv{ending}"
    path.write_bytes(first + bytes(second))
    with pytest.raises(DpspcaError, match=facts("damaged")):
        read_offered(path, Reading())


def test_what_follows_the_last_stream_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"rows.csv{ending}"
    path.write_bytes(PACKERS[ending](b"a,b\n1,2\n") + b"something else")
    with pytest.raises(DpspcaError, match=facts("damaged")):
        read_offered(path, Reading())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_rows_do_not_become_a_name_in_utf_16(encoding: str, tmp_path: Path) -> None:
    """Two bytes of text are one letter of another script, and then no line ends."""
    path = tmp_path / "rows.csv"
    path.write_bytes(b"age,sbp\n41,120\n67,141\n")
    with pytest.raises(InvalidDataError, match=facts("UTF-16", "encoding")):
        read_offered(path, Reading(encoding=encoding))


def test_names_in_another_script_are_read_in_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("年齢,血圧\n41,120\n".encode("utf-16-be"))
    assert read_offered(path, Reading(encoding="utf-16-be")).names == ("年齢", "血圧")


def test_rows_do_not_become_a_name_by_a_quote(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('pid,"diag\n17,50\n18,61",note\n19,1,2\n', encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("quotes")):
        read_offered(path, Reading())
    path.write_text('pid,"blood\npressure",note\n19,1,2\n', encoding="utf-8")
    assert read_offered(path, Reading()).names == ("pid", "blood\npressure", "note")


def test_streams_of_arrow_are_named_for_what_they_are(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"a": [1, 2]})
    for ending in ("csv", "arrow"):
        path = tmp_path / f"rows.{ending}"
        with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        with pytest.raises(InvalidDataError, match=facts("stream of Arrow")):
            read_offered(path, Reading())


# --- Arrays -----------------------------------------------------------------------------------------------------------


def test_genes_are_not_taken_for_persons(tmp_path: Path) -> None:
    """Files of single cells often hold a row for each gene. Their parts have names of their own."""
    counts = scipy.sparse.random_array((3, 7), density=0.5, rng=np.random.default_rng(0), format="csc")
    with h5py.File(tmp_path / "loom.h5", "w") as file:
        file["matrix"] = counts.toarray()
        file["row_attrs/Gene"], file["col_attrs/CellID"] = [b"g"] * 3, [b"c"] * 7
    with h5py.File(tmp_path / "tenx.h5", "w") as file:
        for part in ("data", "indices", "indptr"):
            file[f"matrix/{part}"] = getattr(counts, part)
        file["matrix/shape"], file["matrix/barcodes"] = counts.shape, [b"c"] * 7
    with pytest.raises(InvalidDataError, match=facts("loom", "genes", "matrix OTHER.npy")):
        read_offered(tmp_path / "loom.h5", Reading())
    with pytest.raises(InvalidDataError, match=facts("Cell Ranger", "names")) as refused:
        read_offered(tmp_path / "tenx.h5", Reading())
    shell(refused.value.remedy.partition(": ")[2].replace("FILE OTHER.npz", "tenx.h5 tenx.npz"), tmp_path)
    assert (scipy.sparse.load_npz(tmp_path / "tenx.npz").toarray() == counts.toarray().T).all()
    (tmp_path / "loom.h5").rename(tmp_path / "cells.loom")
    shell(conversion(tmp_path / "cells.loom", ".loom").partition(" (it turns")[0], tmp_path)
    assert (np.load(tmp_path / "cells.npy") == counts.toarray().T).all()


def test_no_link_is_followed_to_see_whether_genes_come_first(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        for part in ("data", "indices", "indptr", "shape", "barcodes"):
            file[f"matrix/{part}"] = [1]
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"], file["matrix"] = np.ones((2, 2)), h5py.ExternalLink("other.h5", "matrix")
    assert np.asarray(read_offered(tmp_path / "rows.h5", Reading()).matrix).all()


def test_numbers_that_stand_for_words_are_no_numbers(tmp_path: Path) -> None:
    kind = h5py.enum_dtype({"NO": 0, "YES": 1, "NA": 2}, basetype="i1")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file.create_dataset("x", data=np.array([[0, 1], [2, 0]], dtype="i1"), dtype=kind)
    with pytest.raises(InvalidDataError, match=facts("'NO', 'YES', 'NA'", "category")):
        read_offered(tmp_path / "rows.h5", Reading())
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = np.array([[False, True], [True, False]])
    assert np.asarray(read_offered(tmp_path / "rows.h5", Reading()).matrix).tolist() == [[0, 1], [1, 0]]


def test_arrays_may_be_named_as_their_programs_do(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"], file["g/y"] = np.zeros((2, 2)), np.ones((2, 2))
    assert np.asarray(read_offered(tmp_path / "rows.h5", Reading(array="/g/y")).matrix).all()
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        file["x"] = np.zeros((2, 2))
    with pytest.raises(InvalidDataError, match=facts("AnnData", ".h5")):
        read_offered(tmp_path / "cells.h5ad", Reading())


def test_a_zarr_folder_has_the_ending_and_is_there(tmp_path: Path) -> None:
    with pytest.raises(DpspcaError, match=facts("No such file")):
        read_offered(tmp_path / "none.zarr", Reading())
    (tmp_path / "packed.zarr").write_bytes(b"PK")
    with pytest.raises(InvalidDataError, match=facts("unzip FILE -d OTHER.zarr")):
        read_offered(tmp_path / "packed.zarr", Reading())
    assert conversion(tmp_path / "x.zarr.zip", ".zarr.zip").endswith(f"-d {tmp_path / 'x.zarr'}")
    zarr.save_array(str(tmp_path / "plain"), np.zeros((4, 4)))
    with pytest.raises(DpspcaError, match=facts(".zarr")):
        read_offered(tmp_path / "plain", Reading())


def shell(command: str, folder: Path) -> None:
    """Run a command that an error proposed."""
    words = shlex.split(command)
    subprocess.run([sys.executable, *words[1:]], cwd=folder, check=True)  # noqa: S603  # python


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("rows.parquet", b"a,b\n1,2\n", "text"),
        ("rows.npz", b"<html>Please log in</html>\r\n", "text"),
        ("rows.h5", b"{}", "text"),
        ("rows.orc", b"PAR1" + bytes(64) + b"PAR1", "Parquet"),
        ("rows.parquet", b"ARROW1" + bytes(64), "Arrow"),
        ("rows.pq", b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
        ("rows.h5ad", b"\x1f\x8b\x08" + bytes(64), "gzip"),
        ("rows.npy", b"a,b\n1,2\n", "text"),
        ("rows.npy", b"PK\x03\x04" + bytes(64), "zip"),
        ("rows.parquet", b"", "empty"),
        ("rows.npy", bytes(64), "memory map"),
        ("rows.npy", b"\xff" * 64, "memory map"),
        ("rows.arrow", b"a,b\n1,2\n", "text"),
    ],
)
def test_a_file_that_is_something_else_is_called_what_it_is(
    name: str, content: bytes, kind: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InvalidDataError, match=facts(name, kind)):
        read_offered(path, Reading())


@pytest.mark.parametrize("name", ["rows.pq", "rows.FEATHER", "rows.hdf5", "rows.npz", "rows.npy"])
def test_a_damaged_file_is_not_called_something_else(name: str, tmp_path: Path) -> None:
    beginnings = {
        ".pq": b"PAR1", ".feather": b"ARROW1", ".hdf5": b"\x89HDF\r\n\x1a\n", ".npz": b"PK\x03\x04",
        ".npy": b"\x93NUMPY\x01\x00v\x00",
    }  # fmt: skip
    path = tmp_path / name
    path.write_bytes(beginnings[path.suffix.lower()] + bytes(64))
    with pytest.raises(InvalidDataError, match=facts(name, "damaged")):
        read_offered(path, Reading())


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_arrays_of_objects_are_called_that(save: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / ("rows.npy" if save is np.save else "rows.npz")
    save(path, np.array([[1.0, "a"], [2.0, None]], dtype=object))
    with pytest.raises(DpspcaError, match=facts("objects")):
        read_offered(path, Reading())


def anndata_of(path: Path, genes: object, shape: tuple[int, int]) -> None:
    with h5py.File(path, "w") as file:
        file["X"] = np.arange(float(np.prod(shape))).reshape(shape)
        file.create_group("var").attrs["_index"] = "_index"
        file["var/_index"] = genes


def test_genes_may_have_numbers_as_names(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    anndata_of(path, np.array([7, 11]), (3, 2))
    assert read_offered(path, Reading()).names == ("7", "11")


def test_a_layer_with_rows_of_genes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    anndata_of(path, ["g1", "g2"], (2, 3))
    with pytest.raises(InvalidDataError, match=facts("2 genes", "exchanged")):
        read_offered(path, Reading())


@pytest.mark.filterwarnings("ignore")  # pyarrow itself warns of the old form
def test_the_command_for_old_feather_works(tmp_path: Path) -> None:
    old = tmp_path / "rows.feather"
    pyarrow.feather.write_feather(pa.table({"a": [1.0, 2.0]}), str(old), version=1)
    with pytest.raises(InvalidDataError) as caught:
        read_offered(old, Reading())
    program = shlex.split(str(caught.value).partition("Convert it: ")[2])[1:-2]
    subprocess.run([sys.executable, *program, old, tmp_path / "new.feather"], check=True)  # noqa: S603  # as it says
    assert read_offered(tmp_path / "new.feather", Reading()).names == ("a",)
