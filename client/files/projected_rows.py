"""Scores of rows: what a file holds, in the form and the order of a model's features, projected onto its components."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.checks import check
from dpspca.common.dictionary import (
    Dictionary,
    Genotype,
    MappedFeature,
    Preparation,
    feature_of,
    in_one_warning,
    unlikely_values_of,
)
from dpspca.common.errors import DpspcaError, RowsWarning
from dpspca.common.results import Model
from dpspca.common.storage import Reading, located
from dpspca.common.warn import warn
from dpspca.provider.data import CheckedRows, Genotypes, examine_rows, features_in, read_rows, stated_names

_NAMED: Final = 8
_WITHOUT_SETTINGS: Final = "Without settings, read the file yourself, for example with pandas, and give the data frame."


def rows_of_model(read: Model, rows: Path, reading_as: Reading, *, by_position: bool) -> CheckedRows:
    """Return the rows of a file with the model's features in their order, prepared by the dictionary of its job."""
    if read.statement.dictionary:
        return _rows_of_dictionary(read, rows, reading_as, by_position=by_position)
    found = read_rows(rows, reading_as, least=1)
    order = None if by_position else _columns_in_model_order(read, found.names, rows)
    return found if order is None else replace(found, matrix=found.matrix[:, order], names=None)


def _rows_of_dictionary(read: Model, rows: Path, reading_as: Reading, *, by_position: bool) -> CheckedRows:
    """Prepare the rows of a file by the model's dictionary, and take the model's features."""
    table = read_rows(rows, _prepared_by(read, rows, reading_as, by_position=by_position), least=1)
    held_names = table.names or ()
    absent = [name for name in read.feature_names or () if name not in held_names]
    check(
        not absent,
        f"The data set does not have {', '.join(absent[:8])}.",
        "Components need all of their features, also in new rows.",
    )
    return table.with_columns(read.feature_names)


def doubts_about_samples(matrix: Any) -> list[str]:  # noqa: ANN401  # of any form
    """Say how many samples have no genotype that the components use."""
    count = int(matrix.without_any().sum()) if isinstance(matrix, Genotypes) else 0
    samples = "1 sample has" if count == 1 else f"{count} samples have"
    shown = f"{samples} no genotype that the components use. The scores are those of missing genotypes: the centre."
    return [shown] if count else []


def doubts_about(read: Model, rows: Path, reading_as: Reading, *, by_position: bool) -> list[str]:
    """Name the model's features for which many values of a file have no level, or lie outside the public range.

    This reads the file once more. Genotypes have neither.
    """
    if not read.statement.dictionary:
        return []
    reading_as = _prepared_by(read, rows, reading_as, by_position=by_position)
    asked = {feature_of(column) for column in read.feature_names or ()}
    features = {each.feature.name: each.feature for each in _mapped(reading_as) if each.feature.name in asked}
    if all(isinstance(each, Genotype) for each in features.values()):
        return []
    facts = [each for each in examine_rows(rows, reading_as).features if each.name in features]
    doubt = in_one_warning({
        each.name: unlikely_values_of(features[each.name], each.values, each.below + each.above + each.unknown)
        for each in facts
    })  # fmt: skip
    return [doubt] if doubt else []


def _mapped(reading_as: Reading) -> Sequence[MappedFeature]:
    return () if reading_as.preparation is None else reading_as.preparation.mapped


def _prepared_by(read: Model, rows: Path, reading_as: Reading, *, by_position: bool) -> Reading:
    """Return how a file is read for the model's dictionary.

    If the settings map columns to features, the dictionary must be the model's. Otherwise columns are features by
    their names or by their positions, and the settings say how the file is read.
    """
    if reading_as.preparation is None:
        check(
            read.dictionary is not None,
            f"Rows must be prepared with the dictionary {read.statement.dictionary:.12}, which the model lacks.",
            "Give --dictionary FILE, or --config and --data-set of a provider that has it.",
        )
        assert read.dictionary is not None
        return _with_dictionary(read, read.dictionary, rows, reading_as, by_position=by_position)
    check(
        not by_position,
        "--by-position is given, but the settings map columns to features.",
        "Leave --by-position out.",
    )
    held = reading_as.preparation.dictionary.digest()
    check(
        held == read.statement.dictionary,
        f"The model's job names the dictionary {read.statement.dictionary}, and the settings hold {held}.",
        "Use the settings with the dictionary of the job.",
    )
    return reading_as


def _with_dictionary(
    read: Model, dictionary: Dictionary, rows: Path, reading_as: Reading, *, by_position: bool
) -> Reading:
    """Add the model's dictionary to what the settings say about the file. What the model does not use is not read.

    The dictionary says which columns are used, so that ``columns`` and ``leave_out`` matter for positions alone.
    """
    every = replace(reading_as, columns=None, leave_out=())
    columns, absent = None, list[str]()
    if by_position:
        stated = stated_names(rows, reading_as)
        names = stated or dictionary.names
        check(
            len(names) == len(dictionary.names),
            f"{rows} has {len(names)} columns, but the model has {len(dictionary.names)} features.",
            f"Give one column for each, in this order: {', '.join(f'{name!r:.60}' for name in dictionary.names[:20])}.",
        )
        columns = dict(zip(dictionary.names, names, strict=True))
        if stated is None:
            reading_as = replace(reading_as, names=names)
    else:
        absent = _unused(read, dictionary, rows, every)
    codes = reading_as.missing_codes
    if isinstance(codes, Mapping):
        codes = {name: each for name, each in codes.items() if name not in absent}
    chosen = replace(reading_as, columns=None, leave_out=(), missing_codes=codes)
    return chosen.prepared(Preparation.parse(dictionary, columns, absent))


def _unused(read: Model, dictionary: Dictionary, rows: Path, reading_as: Reading) -> list[str]:
    """Return the features that the model does not use. Refuse a file that lacks one that it uses."""
    used = dictionary.subset(dict.fromkeys(feature_of(column) for column in read.feature_names or dictionary.columns))
    there = features_in(rows, used, reading_as)
    needed = [] if there is None else [f"{name!r:.60}" for name in sorted(set(used.names) - set(there))]
    more = f" and {len(needed) - _NAMED} more" if len(needed) > _NAMED else ""
    check(
        not needed,
        f"{rows} lacks {'the column' if len(needed) == 1 else 'the columns'} {', '.join(needed[:_NAMED])}{more}, which "
        "the components need.",
        "Name columns as the features, or map them with --config and --data-set of a provider's settings. If a value "
        "was never measured, add a column of missing values: each counts as the dictionary says.",
    )
    return sorted(set(dictionary.names) - set(used.names))


def _columns_in_model_order(read: Model, names: Sequence[str] | None, rows: Path) -> NDArray[np.intp] | None:
    """Match columns to features by name. Refuse if only the model has names: the file's columns may have any order."""
    check(
        names is not None or read.feature_names is None,
        f"{rows} has no column names, but the model's features have names, so columns cannot be matched to features.",
        "Give a file with names, such as .csv or .parquet. Or give --by-position if the columns are in the order of "
        "the features, which `dpspca model export` shows.",
    )
    return read.order_of(names)


def scores_of_file(read: Model, path: str | PathLike[str], *, by_position: bool) -> NDArray[np.float64]:
    """Project the rows of a file that needs no settings to be read."""
    check(str(path) != "", "The path of the rows is empty.", "Give the path of a file or folder, or a table.")
    rows, reading_as = located(Path(), fspath(path)), Reading()
    try:
        matrix = rows_of_model(read, rows, reading_as, by_position=by_position).matrix
        for doubt in (*doubts_about_samples(matrix), *doubts_about(read, rows, reading_as, by_position=by_position)):
            warn(doubt, RowsWarning)
        return scores_of(read, matrix)
    except DpspcaError as problem:
        if "[reading]" not in problem.remedy:
            raise
        raise type(problem)(problem.what, f"{problem.remedy} {_WITHOUT_SETTINGS}") from None


def scores_of(read: Model, matrix: Any) -> NDArray[np.float64]:  # noqa: ANN401  # of any form
    """Project rows, which are prepared. Genotypes are widened some at a time."""
    blocks = (each.toarray() for each in matrix.blocks()) if isinstance(matrix, Genotypes) else [matrix]
    return np.concatenate([read.transform(each, by_position=True, prepared=True) for each in blocks])
