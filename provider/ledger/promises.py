"""The neighbours that the budget of a data set protects, and whether a policy may still promise that. Pure.

Each job is signed for a unit and an extent: a number of rows of one person together or, for a matrix, a change up to
its norm bound. Its price holds for all neighbours up to that extent, and for none beyond. Prices add up for neighbours
that all jobs protect. So the lifetime's promise holds up to the least extent of any job that was asked a query, and a
policy that states more is wrong.

- A policy may state less later. What was spent so far protected more than that, so the new sum is right.
- A policy may not state more than the least extent. For the larger neighbours, earlier answers cost more than the
  ledger shows. (With m times the rows, mu is up to m times as large.)
- A policy may not state another unit, because prices in that unit are about other neighbours.

Jobs that were never asked a query count only while they are open. An earlier version of the ledger did not record
extents. Every job about rows protected at least one row, so such a job counts for one row. For a matrix no extent is
certain: the policy is refused until the provider's operator states what these jobs protected (``Vouched``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dpspca.common.errors import RefusedError
from dpspca.common.privacy import PrivacyUnit

UNKNOWN: Final = 0.0
ONE_ROW: Final = 1.0
_MATRICES: Final = frozenset({str(unit) for unit in PrivacyUnit if not unit.is_row})


@dataclass(frozen=True, slots=True)
class Promise:
    """The neighbours that are protected: those of this unit, up to this extent."""

    unit: str
    extent: float = UNKNOWN

    @property
    def least_extent(self) -> float:
        """The extent or, if it was not recorded, the least that it can be."""
        return self.extent or (UNKNOWN if self.unit in _MATRICES else ONE_ROW)

    def __str__(self) -> str:
        if self.unit in _MATRICES:
            return f"changes of the matrix up to {self.least_extent:g}"
        return (
            "one row of a person"
            if self.least_extent == ONE_ROW
            else f"{self.least_extent:.0f} rows of a person together"
        )

    @property
    def key(self) -> str:
        """The policy key that states the extent."""
        return "the least norm_bound" if self.unit in _MATRICES else "rows_per_person"


class KeptPromises:
    """For each data set, what all jobs that were asked a query protect."""

    def __init__(self) -> None:
        self._least: dict[str, Promise] = {}
        self._unrecorded: dict[str, Promise] = {}
        """The same for jobs whose extent was not recorded, as an operator stated it later."""

    def add(self, data_set: str, promise: Promise) -> None:
        """Add what a job protects."""
        jobs = self._unrecorded if promise.extent == UNKNOWN else self._least
        jobs[data_set] = min(jobs.get(data_set, promise), promise, key=_extent)

    def vouch(self, data_set: str, extent: float) -> None:
        """Set what an operator states that jobs without a recorded extent protected."""
        self._unrecorded[data_set] = Promise(self._unrecorded[data_set].unit, extent)

    def lacks(self, data_set: str) -> bool:
        """Tell whether there are jobs whose extent was neither recorded nor stated by an operator."""
        found = self._unrecorded.get(data_set)
        return found is not None and found.extent == UNKNOWN

    def of(self, data_set: str, others: Iterable[Promise] = ()) -> Promise | None:
        """Return the promise that all jobs on a data set and ``others`` keep together, or None if there are none."""
        known = [jobs[data_set] for jobs in (self._least, self._unrecorded) if data_set in jobs]
        return min([*known, *others], key=_extent, default=None)


def extent_of(unit: PrivacyUnit, rows_per_person: int, norm_bound: float) -> float:
    """Return the extent up to which a job, or all jobs of a policy, protect neighbours.

    If the unit is a person, the provider uses at most as many rows of each person as the job was signed for, and noise
    is sized for these. So every such job protects a whole person, whatever that number is.
    """
    if unit.is_person:
        return ONE_ROW
    return float(rows_per_person) if unit.is_row else norm_bound


def _extent(promise: Promise) -> float:
    return promise.least_extent


def require_kept(data_set: str, kept: Promise | None, stated: Promise) -> None:
    """Refuse a stated promise that goes beyond ``kept``, the least that any job protected."""
    if kept is None:
        return
    if kept.unit != stated.unit:
        raise RefusedError(
            f"Earlier jobs on the data set '{data_set}' protect {kept.unit}. This job would protect {stated.unit}.",
            f"Sign a job with unit = {kept.unit}. The unit of a data set cannot change after its first answer, because "
            "prices in two units do not add up.",
        )
    if kept.least_extent >= stated.extent:
        return
    if kept.least_extent == UNKNOWN:
        raise RefusedError(
            f"The policy states that jobs on the data set '{data_set}' protect {stated}. What earlier jobs protected "
            "was not recorded, because version 0.1.0 wrote the ledger.",
            "The provider's operator must stop the daemon and state it: see `dpspca ledger vouch --help`.",
        )
    raise RefusedError(
        f"The policy states that all jobs on the data set '{data_set}' together protect {stated}; jobs that count "
        f"against its budget protected {kept}, so what is spent would not cover that promise.",
        f"The steward must set {kept.key} back to {kept.least_extent:g} or less in the policy. No job is "
        "answered until then.",
    )
