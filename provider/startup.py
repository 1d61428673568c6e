"""Builds a provider's data sets and its ledger from its settings. Reads files."""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dpspca.common.errors import InvalidDataError
from dpspca.common.storage import Emit, ProviderSettings, Reading, ignore
from dpspca.common.trust import Identity

from .approval import QUEUE_FILE, ApprovalQueue, Approvals
from .data import (
    Arrivals,
    CheckedRows,
    ClusterRows,
    DataSet,
    Scratch,
    memory_cap,
    read_arriving,
    read_offered,
    width_in,
)
from .engines import count_rows, open_cluster, task_fields
from .evaluate import with_span
from .kernels import load as load_kernels
from .ledger import QUARANTINE_REMEDY, Ledger, SqliteLedger, ledger_paths
from .policy import Policy

SCRATCH_FOLDER: Final = "scratch"
UNUSABLE: Final = (
    "has rows that are not finite numbers, or that name no person. Such a row counts as a row of zeros. "
    "Run `dpspca doctor` to see how many there are."
)

_log = logging.getLogger(__name__)


def scratch_of(settings: ProviderSettings, config: Path) -> Scratch:
    """Return the folder for rows that are not in memory. By default it is in the folder of the ledger."""
    folder = settings.scratch or ledger_paths(settings, config)[0].parent / SCRATCH_FOLDER
    return Scratch(folder, memory_cap(settings.memory_mebibytes))


@contextmanager
def scratch_for_a_check(settings: ProviderSettings, config: Path) -> Iterator[Scratch]:
    """Return the provider's scratch, or a temporary folder if it is not there or is somebody else's.

    A check must not make a folder that the provider could then not use.
    """
    own = scratch_of(settings, config)
    if own.folder.is_dir() and own.folder.stat().st_uid == os.geteuid() and os.access(own.folder, os.W_OK):
        yield own
        return
    with TemporaryDirectory(prefix="dpspca-") as folder:
        yield Scratch(Path(folder) / SCRATCH_FOLDER, own.memory)


def data_sets_of(settings: ProviderSettings, scratch: Scratch | None = None) -> dict[str, DataSet]:
    """Read all data sets. Of those whose rows arrive over time, read what is there."""
    is_here = settings.arriving or settings.data_sets.keys() - settings.engines.keys()
    if is_here and load_kernels():
        _log.info("Passes over dense rows use compiled kernels.")
    arriving = {name: arriving_data_set(settings, name, scratch) for name in settings.arriving}
    return {name: read_data_set(settings, name, scratch) for name in settings.data_sets} | arriving


def read_data_set(settings: ProviderSettings, name: str, scratch: Scratch | None = None) -> CheckedRows | ClusterRows:
    """Read the rows of a data set and whose they are, and check its span if it has one.

    If it has an engine, the workers of a cluster read the rows, and this process never does.
    """
    if name in settings.engines:
        return _cluster_rows(settings, name)
    file, span = settings.data_sets[name], settings.spans.get(name)
    persons, row_entries = settings.persons.get(name), settings.row_entries.get(name)
    reading = settings.reading_of(name)
    rows = read_offered(file, reading, persons=persons, row_entries=row_entries, scratch=scratch)
    if rows.unusable is not None:
        _log.warning("The data set '%s' %s", name, UNUSABLE)
    try:
        return rows if span is None else with_span(rows, span)
    except InvalidDataError as problem:
        raise InvalidDataError(f"{file}, which has a span: {problem.what}", problem.remedy) from None


def _cluster_rows(settings: ProviderSettings, name: str) -> ClusterRows:
    """Have a cluster count and hash the rows of a data set."""
    reading, row_entries = settings.reading.get(name, Reading()), settings.row_entries.get(name)
    fields = task_fields(settings.data_sets[name], reading, settings.dictionaries.get(name), row_entries)
    rows = count_rows(open_cluster(settings.engines[name]), fields)
    if rows.unusable is not None:
        _log.warning("The data set '%s' %s", name, UNUSABLE)
    _log.info("The rows of '%s' stay with %s, in %d files.", name, rows.cluster.name, len(rows.parts))
    return rows


def arriving_data_set(settings: ProviderSettings, name: str, scratch: Scratch | None = None) -> Arrivals:
    """Count the rows that have arrived so far in a data set."""
    row_entries = settings.row_entries.get(name)
    read = partial(read_arriving, reading=settings.reading_of(name), row_entries=row_entries, scratch=scratch)
    folder = settings.arriving[name]
    return Arrivals(name, folder, read=read, width=width_in(folder, settings.reading_of(name)))


def open_ledger(settings: ProviderSettings, config: Path) -> SqliteLedger:
    """Open a provider's ledger as its one writer."""
    ledger = SqliteLedger(*ledger_paths(settings, config))
    if ledger.quarantine:
        _log.error("The ledger is in quarantine, and every job is refused: %s %s", ledger.quarantine, QUARANTINE_REMEDY)
    return ledger


def approval_queue(settings: ProviderSettings, config: Path) -> ApprovalQueue:
    """Return the queue of jobs that wait for approval. It is a file beside the ledger."""
    return ApprovalQueue(ledger_paths(settings, config)[0].parent / QUEUE_FILE)


def approvals_of(  # noqa: PLR0913, PLR0917  # what a daemon has
    settings: ProviderSettings,
    config: Path,
    ledger: Ledger,
    identity: Callable[[], Identity],
    policy: Callable[[], Policy],
    clock: Callable[[], datetime],
    events: Emit = ignore,
) -> Approvals:
    """Return the approvals of a daemon at which jobs wait for approval."""
    queue = approval_queue(settings, config)
    return Approvals(queue, ledger, identity, policy, clock, settings.approval, events=events)
