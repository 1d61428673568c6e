"""What a provider says first: which data sets it offers, and how wide they are. No row has a part in it.

A greeting is one message, and a coordinator takes no message of more than ``rpc.MAX_MESSAGE`` bytes: a longer one would
never connect. The names of columns are the part that has no bound of its own. All data sets together may tell
``MOST_NAME_BYTES`` of them; the receipts of other providers, the names of jobs and of data sets take the rest. If there
is no room for all, the data sets with the shortest lists keep theirs. The others are offered without names, and a job
has to list their columns itself. Names are public, so which are told is, too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dpspca.protos.dpspca.v1 import federation_pb2 as pb
from dpspca.provider.data import DataSet
from dpspca.provider.jobs import ProviderSetup

SOFTWARE: Final = "dpspca"
MOST_NAME_BYTES: Final = 3 * 2**18
"""Of the names of columns, as they are sent, of all data sets together."""
MOST_OPEN_JOBS: Final = 256
"""Of which the coordinator is asked whether they are over; others are closed when they expire."""

Columns = Mapping[str, Sequence[str] | None]
"""Of each data set the names of its columns, where it has names."""


def greeting(settings: ProviderSetup, challenge: bytes) -> pb.Hello:
    """Write the greeting."""
    named = {name: rows.names for name, rows in settings.data_sets.items()}
    silent = untold(named)
    offered = [_offer(name, rows, told=name not in silent) for name, rows in sorted(settings.data_sets.items())]
    unfinished = settings.ledger.open_jobs()[:MOST_OPEN_JOBS]
    held = settings.peers.held()
    return pb.Hello(software=SOFTWARE, data_sets=offered, challenge=challenge, open_jobs=unfinished, held=held)


def untold(columns: Columns) -> tuple[str, ...]:
    """Name the data sets for whose columns' names there is no room."""
    sizes = sorted((_size(names), data_set) for data_set, names in columns.items() if names)
    left, silent = MOST_NAME_BYTES, list[str]()
    for size, data_set in sizes:
        left -= size
        if left < 0:
            silent.append(data_set)
    return tuple(sorted(silent))


def remark(columns: Columns) -> str:
    """Say what is not told and what to do about it; nothing if all is told."""
    silent = untold(columns)
    if not silent:
        return ""
    size = sum(_size(names or ()) for names in columns.values())
    return (
        f"The names of all columns take {size:,} bytes, and a greeting has room for {MOST_NAME_BYTES:,}: those of "
        f"{', '.join(silent)} are not told. A job on these has to list its columns itself. To have all told, shorten "
        "the names, or divide the data sets among several providers."
    )


def _offer(name: str, rows: DataSet, *, told: bool) -> pb.DataSet:
    return pb.DataSet(name=name, dimension=rows.dimension, columns=(rows.names or ()) if told else ())


def _size(names: Sequence[str]) -> int:
    """Give the bytes that names take as they are sent."""
    return pb.DataSet(columns=names).ByteSize()
