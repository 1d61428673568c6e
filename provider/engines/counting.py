"""Prepares a data set of a cluster: workers list its files, count and hash their rows, and compute fingerprints.

Fingerprints are those of the same rows in a file that this provider reads itself, so a budget that was spent on rows
stays spent wherever they are read. They are sums, which workers add up in three passes. One thing is not recognised: a
square table [[0, M], [M^T, 0]] that holds a table M.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Reading
from dpspca.common.version import __version__
from dpspca.provider.data import Cluster, ClusterRows, Part, check_size, names_of

from .messages import PartFacts, PartTask, Task, Words, Work, read_arrays, written
from .task_sender import ask, grouped

_A_STAGE: Final = 2
"""Number of sums for each stage of rows while they are counted: totals of rows as they stand, and keys of columns."""


def task_fields(
    source: Path, reading: Reading, preparation: Preparation | None, row_entries: int | None
) -> dict[str, Any]:
    """Return the fields of every task that say how a data set is read. Workers get the whole dictionary."""
    return {
        "version": __version__,
        "source": str(source),
        "reading": reading.written(),
        "preparation": None if preparation is None else preparation.written(),
        "row_entries": row_entries,
    }


def count_rows(cluster: Cluster, fields: dict[str, Any]) -> ClusterRows:
    """Have workers count and hash the rows of all files. Refuse files that they cannot read, or that do not fit."""
    facts, prints = _count(cluster, fields)
    form, parts = facts[0], [Part(each.file, each.count, each.digest) for each in facts]
    check_size(sum(part.count for part in parts), form.dimension, least=0)
    names = _fingerprints(cluster, fields, parts, prints)
    row_entries = fields["row_entries"]
    is_changed = len(prints) > _A_STAGE or (row_entries is not None and row_entries < form.dimension)
    return ClusterRows(
        cluster,
        fields,
        tuple(parts),
        form.names,
        form.dimension,
        names,
        sum(each.unusable for each in facts),
        names if is_changed else None,
        width=max(each.width for each in facts),
    )


def _count(cluster: Cluster, fields: dict[str, Any]) -> tuple[list[PartFacts], list[Words]]:
    """Return the facts of each file, and the sums with which fingerprints begin, added up over all files."""
    (listed, _), *_ = ask(cluster, [(Task(work=Work.LIST, **fields), b"")])
    if not listed.files:
        raise InvalidDataError(f"{fields['source']} holds 0 files.", "Put at least one file there.")
    found: dict[str, PartFacts] = {}
    totals = list[Words]()
    for reply, content in ask(cluster, _tasks(cluster, fields, Work.COUNT, [PartTask(each) for each in listed.files])):
        arrays, each_has = read_arrays(content), len(reply.facts)
        for place, facts in enumerate(reply.facts):
            found[facts.file] = facts
            size = len(arrays) // each_has
            own = arrays[place * size : (place + 1) * size]
            _require_form(facts, next(iter(found.values())))
            totals = _added(totals, own)
    if sorted(found) != sorted(listed.files):
        raise InvalidDataError(f"{cluster.name} did not count every file of {fields['source']}.", "Start again.")
    return [found[each] for each in listed.files], totals


def _require_form(facts: PartFacts, first: PartFacts) -> None:
    """Refuse a file with other columns."""
    if (facts.dimension, facts.names) != (first.dimension, first.names):
        raise InvalidDataError(
            f"The columns of {facts.file} differ from those of {Path(first.file).name}.",
            "Give all files of a folder the same columns in the same order.",
        )


def _fingerprints(
    cluster: Cluster, fields: dict[str, Any], parts: Sequence[Part], begun: Sequence[Words]
) -> frozenset[str]:
    as_they_stand, first_keys = begun[::_A_STAGE], begun[1::_A_STAGE]
    tasks = [PartTask(part.file, digest=part.digest) for part in parts]
    keys = _print(cluster, fields, tasks, first_keys, is_last=False)
    ordered = _print(cluster, fields, tasks, keys, is_last=True)
    prints = (names_of(each.view(np.uint64)) for each in (*as_they_stand, *ordered))
    return frozenset().union(*prints)


def _print(
    cluster: Cluster, fields: dict[str, Any], parts: Sequence[PartTask], keys: Sequence[Words], *, is_last: bool
) -> list[Words]:
    tasks = _tasks(cluster, fields, Work.PRINT, parts, written(keys), is_last=is_last)
    return reduce(_added, (read_arrays(content) for _, content in ask(cluster, tasks)), list[Words]())


def _tasks(  # noqa: PLR0913  # all that a task says
    cluster: Cluster,
    fields: dict[str, Any],
    what: Work,
    parts: Sequence[PartTask],
    content: bytes = b"",
    *,
    is_last: bool = False,
) -> Iterable[tuple[Task, bytes]]:
    for group in grouped(parts, cluster.tasks()):
        yield Task(work=what, parts=tuple(group), is_last=is_last, **fields), content


def _added(total: list[Words], arrays: list[Words]) -> list[Words]:
    """Add arrays, whose numbers are taken modulo 2^64."""
    if total and [each.shape for each in total] != [each.shape for each in arrays]:
        raise InvalidDataError("Workers counted rows of several forms.", "Give all files the same columns.")
    return [one + other for one, other in zip(total, arrays, strict=True)] if total else arrays
