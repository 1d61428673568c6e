"""A column of ``obs`` says whose the rows of AnnData are: the same persons as a persons file."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse
import zarr
from facts import facts

from dpspca.common.errors import DpspcaError, InvalidDataError, InvalidTypeError
from dpspca.common.storage.reading import Reading
from dpspca.provider.data.examination.data_set_facts import examine_rows
from dpspca.provider.data.memory.scratch import Scratch
from dpspca.provider.data.offered_rows import read_offered

CELLS = np.array([[1.0, 2, 0], [3, 4, 0], [5, 6, 1], [7, 8, 0], [9, 1, 2]])
WHOSE = ["ann", "bob", "ann", "", "Zoë"]
NUMBERED = [7, 8, 7, -1, 9]
BY_DONOR = Reading(person="donor")
FORMATS: dict[str, Callable[[Path], Any]] = {"h5ad": partial(h5py.File, mode="w"), "zarr": partial(zarr.open, mode="w")}


def put(group: Any, name: str, values: Any, **attributes: str) -> None:
    """Write an array into a group of h5py or zarr."""
    if isinstance(group, h5py.Group):
        is_text = np.asarray(values).dtype.kind in "OU"
        group.create_dataset(name, data=values, **({"dtype": h5py.string_dtype()} if is_text else {}))
    else:
        array = np.asarray(values)
        group.create_array(name, data=array.astype(np.dtypes.StringDType()) if array.dtype.kind == "U" else array)
    group[name].attrs.update(attributes)


def category(frame: Any, categories: Any, codes: list[int]) -> None:
    stored = frame.create_group("donor")
    stored.attrs["encoding-type"] = "categorical"
    put(stored, "categories", categories)
    put(stored, "codes", np.array(codes, dtype=np.int8))


def masked(frame: Any, values: Any, mask: list[bool], kind: str) -> None:
    stored = frame.create_group("donor")
    stored.attrs["encoding-type"] = kind
    put(stored, "values", values)
    put(stored, "mask", np.array(mask))


NO_FOURTH = [False, False, False, True, False]
COLUMNS: dict[str, tuple[Callable[[Any], None], list[Any]]] = {
    "text": (lambda frame: put(frame, "donor", WHOSE), WHOSE),
    "category": (lambda frame: category(frame, ["Zoë", "ann", "bob"], [1, 2, 1, -1, 0]), WHOSE),
    "codes of no category": (lambda frame: category(frame, ["Zoë", "ann", "bob"], [1, 2, 1, 3, 0]), WHOSE),
    "category of numbers": (lambda frame: category(frame, np.array([7, 8, 9]), [0, 1, 0, -1, 2]), NUMBERED),
    "text with a mask": (
        lambda frame: masked(frame, ["ann", "bob", "ann", "ann", "Zoë"], NO_FOURTH, "nullable-string-array"), WHOSE,
    ),
    "numbers with a mask": (
        lambda frame: masked(frame, np.array([7, 8, 7, 7, 9]), NO_FOURTH, "nullable-integer"), NUMBERED,
    ),
}  # fmt: skip
LAYERS = {"dense": np.asarray, "csr": scipy.sparse.csr_array, "csc": scipy.sparse.csc_array}


def anndata(path: Path, layer: Any, column: Callable[[Any], None]) -> Path:
    """Write AnnData with one column of ``obs`` besides the names of cells."""
    file = FORMATS[path.suffix[1:]](path)
    if scipy.sparse.issparse(layer):
        stored = file.create_group("X")
        stored.attrs.update({"encoding-type": f"{layer.format}_matrix", "shape": list(layer.shape)})
        for part in ("data", "indices", "indptr"):
            put(stored, part, getattr(layer, part))
    else:
        put(file, "X", layer)
    variables, frame = file.create_group("var"), file.create_group("obs")
    variables.attrs["_index"], frame.attrs["_index"] = "gene", "cell"
    put(variables, "gene", ["A", "B", "donor"])
    frame.attrs["column-order"] = ["donor", "site"]
    put(frame, "cell", [f"cell {place}" for place in range(layer.shape[0])])
    column(frame)
    if isinstance(file, h5py.File):
        file.close()
    return path


def by_file(folder: Path, whose: list[Any]) -> list[int]:
    """Read the same rows with a persons file."""
    np.save(folder / "plain.npy", CELLS)
    lines = "".join(f"{'' if each == -1 else each}\n" for each in whose)
    (folder / "whose.txt").write_text(lines, encoding="utf-8")
    persons = read_offered(folder / "plain.npy", persons=folder / "whose.txt").persons
    assert persons is not None
    return persons.tolist()


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("form", COLUMNS)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_column_of_obs_names_the_same_persons_as_a_file(ending: str, form: str, layer: str, tmp_path: Path) -> None:
    """A gene may have the column's name, and stays a feature. Rows of nobody count as zeros."""
    column, whose = COLUMNS[form]
    path = anndata(tmp_path / f"cells.{ending}", LAYERS[layer](CELLS), column)
    for scratch in (None, Scratch(tmp_path / "scratch")):
        rows = read_offered(path, BY_DONOR, scratch=scratch)
        assert rows.names == ("A", "B", "donor")
        assert rows.persons is not None
        assert rows.persons.tolist() == by_file(tmp_path, whose)
        numbers: Any = rows.matrix
        found = numbers.toarray() if hasattr(numbers, "toarray") else np.asarray(numbers)
        assert found.tolist() == [*CELLS[:3].tolist(), [0, 0, 0], CELLS[4].tolist()]
    facts_found = examine_rows(path, BY_DONOR).persons
    assert facts_found is not None
    assert (facts_found.persons, facts_found.rows_of_nobody) == (3, 1)


def test_files_of_a_folder_and_codes_for_nobody(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    for name, whose in (("1", ["a", "b", "a", "NA", "b"]), ("2", ["b", "c", "d", "a", "unknown"])):
        column = partial(put, name="donor", values=whose)
        anndata(tmp_path / "cells" / f"{name}.h5ad", CELLS, lambda frame, column=column: column(frame))
    reading = Reading(person="donor", missing_codes=("NA", "unknown"))
    rows = read_offered(tmp_path / "cells", reading, scratch=Scratch(tmp_path / "scratch"))
    assert rows.persons is not None
    assert [rows.persons.tolist().index(each) for each in rows.persons] == [0, 1, 0, 3, 1, 1, 6, 7, 0, 9]


def test_codes_for_nobody_may_be_those_of_the_column(tmp_path: Path) -> None:
    path = anndata(tmp_path / "cells.h5ad", CELLS, COLUMNS["text"][0])
    rows = read_offered(path, Reading(person="donor", missing_codes={"donor": ("ann",), "A": (3,)}, missing=0.5))
    assert rows.persons is not None
    assert len(set(rows.persons.tolist())) == 5
    assert np.asarray(rows.matrix).tolist() == [[0, 0, 0], [0.5, 4, 0], [0, 0, 0], [0, 0, 0], [9, 1, 2]]


def test_a_folder_has_its_persons_in_one_form(tmp_path: Path) -> None:
    """In a later table, the last feature would pass for the persons."""
    (tmp_path / "cells").mkdir()
    anndata(tmp_path / "cells" / "1.h5ad", CELLS, COLUMNS["text"][0])
    (tmp_path / "cells" / "2.csv").write_text("A,B,C,donor\n1,2,5,x\n3,4,6,x\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=facts("cells", "AnnData", "obs")):
        read_offered(tmp_path / "cells", BY_DONOR)


def test_numbers_that_stand_for_texts_name_nobody(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    anndata(tmp_path / "cells" / "1.h5ad", CELLS, COLUMNS["text"][0])
    large = np.array([-(2**52), -(2**52) - 1, 2**52, 7, 7])
    anndata(tmp_path / "cells" / "2.h5ad", CELLS, lambda frame: put(frame, "donor", large))
    found = examine_rows(tmp_path / "cells", BY_DONOR).persons
    assert found is not None
    assert (found.persons, found.rows_of_nobody) == (4, 4)


def test_names_of_cells_may_name_persons(tmp_path: Path) -> None:
    rows = read_offered(anndata(tmp_path / "cells.h5ad", CELLS, COLUMNS["text"][0]), Reading(person="cell"))
    assert rows.persons is not None
    assert rows.persons.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize(
    ("column", "named"),
    [
        (lambda frame: put(frame, "donor", np.array([1.0, 2, 1, 2, 1])), ("'donor'", "float64")),
        (lambda frame: put(frame, "donor", np.array([True, False, True, True, False])), ("'donor'", "bool")),
        (lambda frame: category(frame, np.array([0.5, 1.5]), [0, 1, 0, 1, 0]), ("'donor'", "float64")),
        (lambda frame: put(frame, "donor", ["a", "b"]), ("'donor'", 5, 2)),
        (lambda frame: masked(frame, np.array([7]), NO_FOURTH, "nullable-integer"), ("'donor'", "mask")),
        (lambda frame: put(frame, "donor", np.array([0, 1, 0, 1, 0]), categories="there"), ("'donor'", "write_h5ad")),
    ],
    ids=[
        "decimals",
        "yes or no",
        "a category of decimals",
        "too few",
        "a longer mask",
        "an old category",
    ],
)
def test_a_column_that_cannot_name_persons_is_refused(
    ending: str, column: Callable[[Any], None], named: tuple[Any, ...], tmp_path: Path
) -> None:
    path = anndata(tmp_path / f"cells.{ending}", CELLS, column)
    with pytest.raises((InvalidDataError, InvalidTypeError), match=facts(*named)):
        read_offered(path, BY_DONOR)
    assert read_offered(path).count == len(CELLS)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    path = anndata(tmp_path / "cells.h5ad", CELLS, COLUMNS["text"][0])
    with pytest.raises(InvalidDataError, match=facts("'patient'", "cell, donor, site", "person")):
        read_offered(path, Reading(person="patient"))
    with h5py.File(path, "a") as file:
        del file["obs"]
    with pytest.raises(InvalidDataError, match=facts("obs", "persons file")):
        read_offered(path, BY_DONOR)


def test_a_column_in_another_file_is_refused(tmp_path: Path) -> None:
    def linked(frame: Any) -> None:
        frame["donor"] = h5py.ExternalLink("other.h5", "/donor")

    with pytest.raises(InvalidDataError, match=facts("'donor'", "link")):
        read_offered(anndata(tmp_path / "cells.h5ad", CELLS, linked), BY_DONOR)


def test_an_array_of_zarr_has_no_column_of_persons(tmp_path: Path) -> None:
    zarr.create_array(str(tmp_path / "rows.zarr"), data=CELLS)
    with pytest.raises(DpspcaError, match=facts("rows.zarr", "names")):
        read_offered(tmp_path / "rows.zarr", BY_DONOR)
