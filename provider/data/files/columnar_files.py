"""Reads Parquet, ORC, Feather and Arrow files through pyarrow. Only the columns that are used are read.

Which columns hold numbers follows from the types that the file states, and never from values. Every value of these
types is a number or missing: integers beyond 2^53 are rounded, and not refused.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidDataError, InvalidTypeError
from dpspca.common.storage import Reading
from dpspca.provider.data.tables import (
    BATCH_TRIPLETS,
    Columns,
    PersonCells,
    RawTable,
    RowBatches,
    RowSource,
    TripletBatch,
    arrow_batch,
    cell_reader,
    columns_used,
    floats,
    import_extra,
    loaded,
    require_numeric,
    require_persons,
    require_triplet_numbers,
    triplet_columns,
)

from .conversions import STREAM_TO_FILE
from .signatures import ARROW_STREAM, misnamed

_PAGE_BUFFER: Final = 2**16
"""Bytes of each column that are read from disk at a time."""
_BATCHES: Final = 8
"""After so many batches, pyarrow gives memory back that it would keep."""
_MOST_DIGITS: Final = 76
"""Of a decimal number. Pyarrow does not survive a broken file that states more."""
_ARROW_MARK: Final = b"ARROW1"
_OLD_FEATHER: Final = b"FEA1"
_CONVERT_STREAM: Final = f"Convert it: {STREAM_TO_FILE.format(file='STREAM', arrow='OTHER.arrow')}"
_NEWER: Final = (
    "python -c 'import sys; from pyarrow import feather; feather.write_feather(feather.read_table(sys.argv[1]), "
    "sys.argv[2])' FILE OTHER.feather"
)
_PANDAS_INDEX: Final = "__index_level_"
"""How pandas names the column of an index that has no name. It is never used."""
_OF_FOLDERS: Final = "names of folders"
"""The type of a column that the names of folders hold."""


def read_parquet(source: RowSource) -> RawTable:
    """Read a Parquet file in batches of rows."""
    with ExitStack() as opened:
        opened.callback(_give_back)
        file = opened.enter_context(source.path.open("rb"))
        stored = opened.enter_context(_parquet(file))
        columns = _columns(stored.schema_arrow, source)
        names = list(columns.in_file)
        batches = stored.iter_batches(source.rows_at_a_time(len(names)), columns=_in_file(names, source))
        numbers = (numbers_in(_whole_rows(batch, source), columns, source.reading) for batch in _given_back(batches))
        kind = _kind(stored.schema_arrow, columns, source.reading)
        return RawTable(RowBatches.reading(len(names), kind, numbers, opened), columns)


def _given_back(batches: Iterator[Any]) -> Iterator[Any]:
    """Give back memory between batches: pages that were decoded stay with pyarrow's threads otherwise."""
    for number, batch in enumerate(batches, start=1):
        yield batch
        if number % _BATCHES == 0:
            _give_back()


def _give_back() -> None:
    """Return memory to the system that pyarrow would keep for a next file, while jobs need it."""
    import_extra("pyarrow").default_memory_pool().release_unused()


def _parquet(file: BinaryIO) -> Any:  # noqa: ANN401  # of pyarrow
    """Open a Parquet file. Pages are read when they are needed: by default, pyarrow reads a whole group of rows."""
    return import_extra("pyarrow.parquet").ParquetFile(file, pre_buffer=False, buffer_size=_PAGE_BUFFER)


def columns_of_parquet(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with source.path.open("rb") as file, _parquet(file) as stored:
        return _columns(stored.schema_arrow, source)


def index_of_parquet(source: RowSource) -> tuple[str, ...]:
    """Name used columns that were the index of the data frame that pandas saved. One without a name is never used."""
    with source.path.open("rb") as file, _parquet(file) as stored:
        schema = stored.schema_arrow
        used = frozenset(_columns(schema, source).in_file)
    try:
        listed = (schema.pandas_metadata or {}).get("index_columns", [])
    except (ValueError, AttributeError):
        return ()  # what other programs wrote there says nothing about rows
    return tuple(name for name in listed if isinstance(name, str) and name in used)


def read_arrow(source: RowSource) -> RawTable:
    """Read a file in the Arrow IPC form, which is also what Feather is."""
    ipc = import_extra("pyarrow.ipc")
    with ExitStack() as opened:
        opened.callback(_give_back)
        file = opened.enter_context(source.path.open("rb"))
        schema = _arrow(file).schema
        columns = _columns(schema, source)
        width = len(columns.names or ())
        own = [place for place in columns.places or () if place < len(schema)]
        options = ipc.IpcReadOptions(included_fields=sorted(own))
        parts = (
            batch.slice(start, source.rows_at_a_time(width))
            for batch in map(_whole, _batches(_arrow(file, options)))
            for start in range(0, batch.num_rows, source.rows_at_a_time(width))
        )
        numbers = (numbers_in(_whole_rows(part, source), columns, source.reading) for part in parts)
        return RawTable(RowBatches.reading(width, _kind(schema, columns, source.reading), numbers, opened), columns)


def _arrow(file: BinaryIO, options: Any = None) -> Any:  # noqa: ANN401  # of pyarrow
    """Open an Arrow file. Refuse what has the same endings, and is something else."""
    ipc = import_extra("pyarrow.ipc")
    file.seek(0)
    beginning = file.read(len(_ARROW_MARK))
    file.seek(0)
    if beginning.startswith(_OLD_FEATHER):
        raise InvalidDataError("It is Feather of version 1, which is not supported.", f"Convert it: {_NEWER}")
    if beginning.startswith(ARROW_STREAM):
        raise InvalidDataError("It is a stream of Arrow, not a file.", _CONVERT_STREAM)
    if beginning != _ARROW_MARK:
        raise misnamed(Path(file.name)) or InvalidDataError(
            "It is not an Arrow file.",
            f"Rename it as what it is. If it is a stream of Arrow from before 2019: {_CONVERT_STREAM}",
        )
    return ipc.open_file(file, options=options)


def columns_of_arrow(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with source.path.open("rb") as file:
        return _columns(_arrow(file).schema, source)


def read_orc(source: RowSource) -> RawTable:
    """Read an ORC file, one stripe at a time."""
    with ExitStack() as opened:
        stored = _orc(opened.enter_context(source.path.open("rb")))
        columns = _columns(stored.schema, source)
        names = list(columns.in_file)
        step = source.rows_at_a_time(len(names))
        wanted = _in_file(names, source) or stored.schema.names[:1]  # without columns, pyarrow reads no rows
        numbers = (
            numbers_in(_whole_rows(stripe.slice(start, step), source), columns, source.reading)
            for stripe in _stripes(stored, wanted)
            for start in range(0, stripe.num_rows, step)
        )
        return RawTable(
            RowBatches.reading(len(names), _kind(stored.schema, columns, source.reading), numbers, opened), columns
        )


def columns_of_orc(source: RowSource) -> Columns:
    """Read which columns are used, and their types."""
    with source.path.open("rb") as file:
        return _columns(_orc(file).schema, source)


def triplets_of_orc(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    with source.path.open("rb") as file:
        stored = _orc(file)
        for stripe in _stripes(stored, _triplet_columns(source, stored.schema)):
            yield arrow_batch(stripe, source.reading.triplets)


def _orc(file: BinaryIO) -> Any:  # noqa: ANN401  # of pyarrow
    return import_extra("pyarrow.orc").ORCFile(file)


def _stripes(stored: Any, names: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401  # of pyarrow
    return (_whole(stored.read_stripe(place, columns=list(names))) for place in range(stored.nstripes))


def triplets_of_parquet(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    with source.path.open("rb") as file, _parquet(file) as stored:
        wanted = _triplet_columns(source, stored.schema_arrow)
        for batch in stored.iter_batches(BATCH_TRIPLETS, columns=wanted):
            yield arrow_batch(batch, source.reading.triplets)


def triplets_of_arrow(source: RowSource) -> Iterator[TripletBatch]:
    """Read triplets in batches."""
    with source.path.open("rb") as file:
        stored = _arrow(file)
        _triplet_columns(source, stored.schema)
        for batch in _batches(stored):
            yield arrow_batch(_whole(batch), source.reading.triplets)


def _triplet_columns(source: RowSource, schema: Any) -> list[str]:  # noqa: ANN401  # of pyarrow
    """Choose the columns of triplets. Names must be whole numbers or text: 1.0 and 1 would be two names."""
    wanted = triplet_columns(source, schema.names)
    types, is_numeric = import_extra("pyarrow.types"), _numeric()
    kinds = {name: schema.field(name).type for name in wanted}
    for name in wanted[:2]:
        kind = kinds[name].value_type if types.is_dictionary(kinds[name]) else kinds[name]
        if not any(is_kind(kind) for is_kind in (types.is_integer, types.is_string, types.is_large_string)):
            raise InvalidTypeError(
                f"The column {name!r:.60} of triplets has type {kind}.", "Write it as whole numbers or as text."
            )
    for name in wanted[2:]:
        require_triplet_numbers(name, str(kinds[name]), are_numbers=is_numeric(kinds[name]))
    return wanted


def _batches(stored: Any) -> Iterator[Any]:  # noqa: ANN401  # of pyarrow
    return map(stored.get_batch, range(stored.num_record_batches))


def _whole(batch: Any) -> Any:  # noqa: ANN401  # of pyarrow
    """Check that a batch has all the memory that its lengths need, which pyarrow does for Parquet alone.

    A full check would also look at values, and one of them would decide whether the file is read.
    """
    batch.validate()
    return batch


def _columns(schema: Any, source: RowSource) -> Columns:  # noqa: ANN401  # of pyarrow
    """Choose columns by the schema alone, and refuse those that hold no numbers."""
    whole, partition = _with_partition(schema, source), frozenset(name for name, _ in source.partition)
    own = [(place, field) for place, field in enumerate(whole) if not field.name.startswith(_PANDAS_INDEX)]
    chosen = columns_used([field.name for _, field in own], source.reading)
    used = [own[place] for place in (range(len(own)) if chosen.places is None else chosen.places)]
    is_numeric, is_text = _numeric(), _text()
    for name, (_, field) in zip(chosen.names or (), used, strict=True):
        if isinstance(source.reading.texts.get(name), PersonCells) and field.name not in partition:
            require_persons(name, str(field.type), is_fit=is_text(field.type) or _is_exact(field.type))
    if not source.any_type:
        require_numeric(
            [
                (field.name, str(field.type))
                for name, (_, field) in zip(chosen.names or (), used, strict=True)
                if field.name not in partition
                and not is_numeric(field.type)
                and not (source.reading.texts.get(name) and is_text(field.type))
            ],
            by_dictionary=source.reading.preparation is not None,
        )
    kinds = tuple(_OF_FOLDERS if field.name in partition else str(field.type) for _, field in used)
    return replace(chosen, places=[place for place, _ in used], kinds=kinds, width=0)  # others are not read


def _with_partition(schema: Any, source: RowSource) -> Any:  # noqa: ANN401  # of pyarrow
    """Add the columns that the names of folders hold, after those of the file."""
    arrow = import_extra("pyarrow")
    for name, _ in source.partition:
        schema = schema.append(arrow.field(name, arrow.string()))
    return schema


def _in_file(names: Sequence[str], source: RowSource) -> list[str]:
    """Leave out the columns that the names of folders hold."""
    partition = frozenset(name for name, _ in source.partition)
    return [name for name in names if name not in partition]


def _whole_rows(batch: Any, source: RowSource) -> Any:  # noqa: ANN401  # of pyarrow
    """Add the columns that the names of folders hold. Each cell is read as one of text is."""
    arrow = import_extra("pyarrow")
    first = np.zeros(batch.num_rows, dtype=np.int8)
    added = [
        arrow.DictionaryArray.from_arrays(first, arrow.array([text], arrow.string())) for _, text in source.partition
    ]
    names = [*batch.schema.names, *(name for name, _ in source.partition)]
    return arrow.RecordBatch.from_arrays([*batch.columns, *added], names=names) if added else batch


def _kind(schema: Any, columns: Columns, reading: Reading) -> "np.dtype[Any]":  # noqa: ANN401  # of pyarrow
    """Return a type that holds all numbers of these columns. It follows from the types that the file states.

    A column that says whose the rows are is no number.

    A missing value is NaN, which only floating-point numbers have. A row with one counts as zeros, or a number is
    put in its place, before rows are stored.
    """
    types = import_extra("pyarrow.types")
    named = zip(columns.names or (), columns.places or (), strict=True)
    places = [place for name, place in named if not isinstance(reading.texts.get(name), PersonCells)]
    if any(place >= len(schema) for place in places):
        return np.dtype(np.float64)  # the name of a folder may hold any number
    fields = [schema.field(place).type for place in places]
    plain = all(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) for kind in fields)
    return np.result_type(*(kind.to_pandas_dtype() for kind in fields)) if plain else np.dtype(np.float64)


def _numeric() -> Callable[[Any], bool]:
    """Return a function that says whether all values of a type are numbers or missing."""
    types = import_extra("pyarrow.types")
    kinds: Sequence[Callable[[Any], bool]] = (
        types.is_integer, types.is_floating, types.is_boolean, types.is_null,
        lambda kind: types.is_decimal(kind) and abs(kind.scale) <= _MOST_DIGITS,
    )  # fmt: skip

    def is_numeric(kind: Any) -> bool:  # noqa: ANN401  # of pyarrow
        plain = kind.value_type if types.is_dictionary(kind) else kind
        return any(is_kind(plain) for is_kind in kinds)

    return is_numeric


def _is_exact(kind: Any) -> bool:  # noqa: ANN401  # of pyarrow
    """Tell whether a type has whole numbers, which double precision holds exactly unless they are very large."""
    types = import_extra("pyarrow.types")
    plain = kind.value_type if types.is_dictionary(kind) else kind
    is_whole = types.is_integer(plain) or (types.is_decimal(plain) and plain.scale == 0)
    return bool(is_whole or types.is_float64(plain) or types.is_null(plain))


def _text() -> Callable[[Any], bool]:
    """Return a function that says whether all values of a type are text or missing."""
    types = import_extra("pyarrow.types")

    def is_text(kind: Any) -> bool:  # noqa: ANN401  # of pyarrow
        plain = kind.value_type if types.is_dictionary(kind) else kind
        return any(is_kind(plain) for is_kind in (types.is_string, types.is_large_string, types.is_string_view))

    return is_text


def numbers_in(batch: Any, columns: Columns, reading: Reading) -> FloatArray:  # noqa: ANN401  # of pyarrow
    """Convert a batch of rows. A missing value is NaN."""
    is_text = _text()
    found = [(name, batch.column(own)) for name, own in zip(columns.names or (), columns.in_file, strict=True)]
    return np.column_stack(
        [
            _levels(values, cell_reader(reading, name)) if is_text(values.type) else _column(values)
            for name, values in found
        ]
    )


def _levels(values: Any, read: Callable[[str], float]) -> FloatArray:  # noqa: ANN401  # of pyarrow
    """Convert texts of a category, each different one once. Text that is not in UTF-8 stops no reading."""
    arrow = import_extra("pyarrow")
    coded = values if isinstance(values, arrow.DictionaryArray) else values.dictionary_encode()
    is_large = import_extra("pyarrow.types").is_large_string(coded.dictionary.type)
    texts = coded.dictionary.cast(arrow.large_binary() if is_large else arrow.binary()).to_pylist()
    known = [np.nan if text is None else read(text.decode("utf-8", "replace")) for text in texts]
    return _looked_up(_column(coded.indices), np.array(known, dtype=np.float64))


def _column(values: Any) -> FloatArray:  # noqa: ANN401  # of pyarrow
    arrow = loaded("pyarrow")
    if isinstance(values, arrow.DictionaryArray):
        return _looked_up(_column(values.indices), _column(values.dictionary))
    return floats(values)


def _looked_up(places: FloatArray, dictionary: FloatArray) -> FloatArray:
    """Look up numbers by their places in a dictionary. A place that the dictionary lacks makes its own row unusable."""
    numbers = np.append(dictionary, (np.inf, np.nan))
    is_there = (places >= 0) & (places < len(dictionary))
    return numbers[np.where(is_there, places, np.where(np.isnan(places), -1, -2)).astype(np.intp)]
