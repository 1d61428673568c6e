"""Reads a file once in a process of its own, with a time limit, before the provider reads it.

Libraries that read HDF5 and .pgen may loop for ever or crash on a damaged file, and would take the daemon with them. So
such files are first read by another process, which is ended if it takes too long. What it reads is thrown away.

The limit follows from the size of the file, which counts as public, as its number of rows does.
"""

import json
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading

from .files import label_of, names_of_variants
from .tables import PersonCells, RowBatches, RowSource

_PGEN: Final = ".pgen"
SECONDS: Final = 60.0
BYTES_A_SECOND: Final = 5e6
"""Ten times slower than the slowest disk and decompression."""


def require_readable(source: RowSource, seconds: float = SECONDS) -> None:
    """Refuse a file with which another process does not come to an end, well or with an error."""
    limit = seconds + source.path.stat().st_size / BYTES_A_SECOND
    reading = source.reading
    alleles = None if reading.alleles is None else str(reading.alleles.absolute())
    job = {
        "path": str(source.path.absolute()),
        "columns": reading.columns,
        "leave_out": reading.leave_out,
        "array": reading.array,
        "person": reading.person,
        "alleles": alleles,
        "preparation": _dictionary_needed(source),
        "room": source.room,
        "partition": source.partition,
    }
    try:
        ended = subprocess.run(  # noqa: S603  # this module
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(job).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InvalidDataError(
            f"Reading it did not end within {limit:.0f} seconds: it is damaged, or no regular file.", "Write it again."
        ) from None
    if ended.returncode < 0:
        raise InvalidDataError(
            f"The library that reads it crashed (signal {-ended.returncode}): it is damaged.", "Write it again."
        )


def _dictionary_needed(source: RowSource) -> dict[str, Any] | None:
    """Return a dictionary if variants are found by their places in it. It takes seconds to write a large one."""
    preparation = source.reading.preparation
    if preparation is None or source.path.suffix.lower() != _PGEN:
        return None
    return None if frozenset(preparation.columns) <= names_of_variants(source) else preparation.written()


def main() -> None:
    """Read what the first process asks for. It meets any error itself."""
    from .formats import format_of  # noqa: PLC0415  # it knows this module

    task = json.load(sys.stdin)
    person, preparation = task["person"], task["preparation"]
    reading = Reading(
        columns=None if task["columns"] is None else tuple(task["columns"]),
        leave_out=tuple(task["leave_out"]),
        array=task["array"],
        person=person,
        texts={} if person is None else {person: PersonCells(label_of)},
        alleles=None if task["alleles"] is None else Path(task["alleles"]),
        preparation=None if preparation is None else Preparation.from_written(preparation),
    )
    source = RowSource(Path(task["path"]), reading, room=task["room"], partition=tuple(map(tuple, task["partition"])))
    numbers = format_of(source).read(source).numbers
    if isinstance(numbers, RowBatches):
        deque(numbers.batches, maxlen=0)


if __name__ == "__main__":
    main()
