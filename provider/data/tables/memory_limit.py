"""Refuses rows that have to be in memory as a whole and take more than the provider's settings allow. Pure.

Sparse rows, genotypes and lists of persons are held in memory. How much they take is forecast from how many numbers a
file says it has, before they are read, so that no provider is killed by the system for its memory. These sizes count as
public, as the length of a file does: a provider that was killed would give away the same.
"""

from math import ceil
from typing import Final

from dpspca.common.errors import InvalidDataError

SPARSE: Final = 48
"""Bytes for each stored number while sparse rows are read, measured. 12 remain."""
TRIPLET: Final = 60
"""Bytes for each triplet that is used while rows are made of them, measured. 12 to 14 remain."""
PERSON: Final = 170
"""Bytes for each row while its person is read, measured. 8 remain."""
GENOTYPE: Final = 0.5
"""Bytes for each genotype while they are read: a quarter in memory, twice."""
_MEBIBYTE: Final = 2**20


def require_room(what: str, count: int, each: float, room: int | None) -> None:
    """Refuse ``count`` numbers of ``each`` bytes if there is not so much room. None is any room."""
    need = ceil(count * each / _MEBIBYTE)
    if room is not None and need * _MEBIBYTE > max(room, _MEBIBYTE):
        raise InvalidDataError(
            f"{count:,} {what} take about {need:,} MiB of memory while they are read. Of what the settings allow, "
            f"{room // _MEBIBYTE:,} MiB are left.",
            f"Raise memory_mebibytes in the provider's settings by {need - room // _MEBIBYTE:,}, if the machine has so "
            "much memory. By default it is half of the machine's. Otherwise use fewer rows or columns, or divide the "
            "rows among several providers.",
        )
