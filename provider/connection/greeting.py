"""A provider's first message: which data sets it offers, and their columns. It depends on no row.

A greeting is one message, and a coordinator takes no message above ``rpc.MAX_MESSAGE`` bytes: a provider with a longer
one could never connect. The names of columns are the only part without a bound of its own. All data sets together may
send ``MOST_NAME_BYTES`` of them. The receipts of other providers and the names of jobs and data sets take the rest. If
not all names fit, the data sets with the shortest lists send theirs. The others are offered without names, and a job
must list their columns itself. Names are public, so which of them are sent is public, too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dpspca.common.dictionary import PinnedDictionary
from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import DataSet
from dpspca.provider.jobs import ProviderSetup

SOFTWARE: Final = "dpspca"
MOST_NAME_BYTES: Final = 3 * 2**18
"""The most bytes of column names in a greeting, of all data sets together."""
MOST_OPEN_JOBS: Final = 256
"""The most open jobs in a greeting. The coordinator says which of them are over. Others are closed when they expire."""

Columns = Mapping[str, Sequence[str] | None]
"""For each data set, the names of its columns, if they have names."""


def greeting(settings: ProviderSetup, challenge: bytes) -> pb.Hello:
    """Make the greeting."""
    named = {name: rows.names for name, rows in settings.data_sets.items()}
    nameless = data_sets_without_names(named)
    pinned = {name: PinnedDictionary.of(held.dictionary) for name, held in settings.dictionaries.items()}
    offered = [
        _offer(name, rows, pinned.get(name), with_names=name not in nameless)
        for name, rows in sorted(settings.data_sets.items())
    ]
    waiting = (settings.approvals and settings.approvals.waiting()) or ()
    unfinished = [*settings.ledger.open_jobs(), *sorted(waiting)][:MOST_OPEN_JOBS]
    held = settings.peers.held()
    return pb.Hello(software=SOFTWARE, data_sets=offered, challenge=challenge, open_jobs=unfinished, held=held)


def data_sets_without_names(columns: Columns) -> tuple[str, ...]:
    """List the data sets whose column names do not fit into a greeting."""
    sizes = sorted((_size(names), data_set) for data_set, names in columns.items() if names)
    left, nameless = MOST_NAME_BYTES, list[str]()
    for size, data_set in sizes:
        left -= size
        if left < 0:
            nameless.append(data_set)
    return tuple(sorted(nameless))


def names_warning(columns: Columns) -> str:
    """Say which column names are not sent and what to do about it. Empty if all are sent."""
    nameless = data_sets_without_names(columns)
    if not nameless:
        return ""
    size = sum(_size(names or ()) for names in columns.values())
    return (
        f"The column names of all data sets take {size:,} bytes, and a greeting has room for {MOST_NAME_BYTES:,}. The "
        f"names of {', '.join(nameless)} are not sent, so a job on these must list its columns itself. To send all "
        "names, shorten them, or divide the data sets among several providers."
    )


def _offer(name: str, rows: DataSet, pinned: PinnedDictionary | None, *, with_names: bool) -> pb.DataSet:
    columns = (rows.names or ()) if with_names else ()
    offered = pb.DataSet(name=name, dimension=rows.dimension, columns=columns, sparse=rows.is_sparse)
    if pinned is not None:
        offered.dictionary, offered.dictionary_title = pinned.digest, pinned.title
    return offered


def _size(names: Sequence[str]) -> int:
    """Return the bytes that names take in a message."""
    return pb.DataSet(columns=names).ByteSize()
