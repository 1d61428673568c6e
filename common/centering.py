"""How rows are centred: differences of pairs of rows, and what is chosen where nobody says.

**Differences of pairs.** Each provider puts its rows in an order that follows from the job's seed and their number
alone, takes them two by two, and uses (x - y) / sqrt(2) in their place. A mean that both rows share cancels, so no mean
is asked for, no bound on it is needed, and offsets between providers are gone. The second moments of differences are
those of the rows about their mean. There are half as many, so that sampling error is sqrt(2) times as large.

Why differences are as private as rows, if rows are replaced: their number is public, so that neighbours are paired
alike. The replaced row is in one pair. All other differences stay as they are, and its own one becomes any other. So
neighbouring tables have differences that are neighbours in the same sense, and every bound for rows holds for them.
Rows of one person, m at most, are in m pairs at most.

Why they are refused for all other units: with a row more or less, the order of all rows changes, and with it every
pair, so that one row may move every difference. No rule by position helps, and one by content would tell what rows
contain. A person of several rows may have fewer of them in a neighbouring table.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .checks import check
from .privacy import PrivacyUnit, usable_mu
from .spec import Budget, Centering, JobSpec

LEAST_MU: Final = 0.2
"""From this budget on a private mean is worth its price. It is that of epsilon .86 with a delta of 1e-6."""


class Center(StrEnum):
    """What a user may ask for: a way to centre rows, or to choose one by public facts."""

    AUTO = "auto"
    NONE = "none"
    PUBLIC = "public"
    PRIVATE = "private"
    PAIRS = "pairs"


@dataclass(frozen=True, slots=True)
class ChosenCentering:
    """A way to centre rows, and why it was chosen."""

    centering: Centering
    reason: str


def choose(
    unit: PrivacyUnit, budget: Budget, *, has_dictionary: bool, has_mean_bound: bool, providers: int | None
) -> ChosenCentering:
    """Choose how to centre rows, by public facts alone.

    ``providers`` is their number, if it is known. Differences of pairs take offsets between providers away, which may
    be what a job is about; so they are chosen for one provider only.
    """
    if not unit.is_row:
        return ChosenCentering(Centering.NONE, "A matrix is not centred.")
    if has_dictionary:
        return ChosenCentering(Centering.NONE, "The dictionary has a public centre for each column.")
    affords = usable_mu(budget.epsilon, budget.delta) >= LEAST_MU
    if affords and has_mean_bound:
        return ChosenCentering(Centering.PRIVATE, "The budget affords a private mean.")
    why = "No bound for the mean is known." if affords else "A private mean would cost too much of this budget."
    if unit is PrivacyUnit.ROW_REPLACE_ONE and providers == 1:
        return ChosenCentering(Centering.PAIRS, f"{why} Differences of pairs of rows need no mean.")
    more = (
        "Differences of pairs (center = pairs) would also take away how providers differ; ask for them if that is not "
        "wanted."
        if unit is PrivacyUnit.ROW_REPLACE_ONE
        else f"Differences of pairs need the unit {PrivacyUnit.ROW_REPLACE_ONE}."
    )
    return ChosenCentering(Centering.NONE, f"{why} {more} So rows are not centred.")


def check_pairs(spec: JobSpec, *, uses_all_rows: bool) -> None:
    """Refuse differences of pairs where they would not be as private as rows, or would not be the same rows."""
    if spec.centering is not Centering.PAIRS:
        return
    check(
        spec.unit is PrivacyUnit.ROW_REPLACE_ONE,
        f"centering is {spec.centering}, but the unit is {spec.unit}: with a row more or less, all rows would be in "
        "other pairs.",
        f"Use the unit {PrivacyUnit.ROW_REPLACE_ONE}, or another centring.",
    )
    check(
        uses_all_rows,
        f"centering is {spec.centering}, but {spec.method} takes rows as they arrive.",
        "Leave block_rows out, or use another centring.",
    )


def pairing_of(spec: JobSpec) -> int | None:
    """Return the seed of the pairing, or None if rows are not paired."""
    return spec.seed if spec.centering is Centering.PAIRS else None


def pairs_of(rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the second row of each pair. They follow from the seed and the number of rows alone.

    The order is random, because neighbours in a file are often alike. If the number is odd, one row is left over.
    """
    order = np.random.Generator(np.random.Philox(key=[seed, 1])).permutation(rows)
    half = rows // 2
    return order[:half].astype(np.intp), order[half : 2 * half].astype(np.intp)
