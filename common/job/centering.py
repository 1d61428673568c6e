"""How rows are centred: differences of pairs of rows, and how a way to centre them is chosen automatically.

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

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.checks import check, check_bound, check_whole
from dpspca.common.privacy import MAX_ROWS, PrivacyUnit, usable_mu

from .spec import PRIVATE_BOUND, Centering, CenteringReason, JobSpec, Scaling

LEAST_MU: Final = 0.2
"""The least budget for a private mean if the number of rows is not known: epsilon .86 with a delta of 1e-6."""
MEAN_SHARE: Final = 0.10
"""Share of mu^2 for a private mean."""
MOST_COLUMNS: Final = 1000
"""Columns up to which a mean is asked for if the number of rows is not known."""
LONGEST_NOISE: Final = 0.25
"""The noise of a mean, in lengths of a row, up to which it is better than none (``bench/centering.py``)."""
LONGEST_NOISE_BESIDE_PAIRS: Final = 0.03
"""The same where differences of pairs are possible: they lose half of the rows, which is little beside a noisy mean."""


class CenteringChoice(StrEnum):
    """The centrings that a user may choose: a way to centre rows, or the choice of one by public facts."""

    AUTO = "auto"
    AUTO_OR_PAIRS = "auto-or-pairs"
    """As "auto", but the choice may also be pairs if there are several providers: how they differ may be lost."""
    NONE = "none"
    PUBLIC = "public"
    PRIVATE = "private"
    PAIRS = "pairs"

    @property
    def is_automatic(self) -> bool:
        """Tell whether public facts decide."""
        return self in {CenteringChoice.AUTO, CenteringChoice.AUTO_OR_PAIRS}


@dataclass(frozen=True, slots=True)
class AutoCentering:
    """A request to choose the centring of a job, with what is publicly known about the mean.

    ``rows`` is the number of rows of all providers together, if it is publicly known.
    """

    mean_bound: float | None = None
    public_mean: Any = None
    rows: int | None = None
    sparse: bool = False
    """Whether rows are stored without their zeros, which subtracting a mean would fill."""
    or_pairs: bool = False
    """Whether differences of pairs may be chosen for several providers too, and so how these differ may be lost."""

    def __post_init__(self) -> None:
        if self.mean_bound is not None:
            check_bound("mean_bound", self.mean_bound)
        if self.rows is not None:
            check_whole("the number of rows", self.rows, least=1, most=MAX_ROWS)

    def chosen(self, spec: JobSpec, *, providers: int | None, finds_bound: bool = False) -> JobSpec:
        """Return a job with its centring chosen by public facts alone, and with the reason for it.

        The job itself must not have a centring yet. ``providers`` is their number, if it is known. Differences of pairs
        remove offsets between providers, which may be what a job is about. So they are for one provider only, unless
        ``or_pairs`` says otherwise.
        ``finds_bound`` says whether the job's method can find a bound for the mean if none is known.

        Privacy: nothing but the job and public facts decides, so the choice tells nothing about rows. The number of
        rows is public only if rows are replaced, and is used only then.
        """
        check(
            spec.centering is Centering.NONE,
            f"AutoCentering is to choose the centring, but the job already has centering {spec.centering}.",
            "Leave one of the two out.",
        )
        if not spec.unit.is_row:
            return replace(spec, centering_reason=CenteringReason.MATRIX)
        if self.public_mean is not None and not self.sparse:
            given = {"centering": Centering.PUBLIC, "public_mean": self.public_mean}
            return replace(spec, **given, centering_reason=CenteringReason.PUBLIC_MEAN)
        if spec.dictionary is not None:
            return replace(spec, centering_reason=CenteringReason.DICTIONARY)
        may_pair = spec.unit is PrivacyUnit.ROW_REPLACE_ONE and (providers == 1 or self.or_pairs)
        bound = PRIVATE_BOUND if self.mean_bound is None and finds_bound else self.mean_bound
        has_bound = bound is not None or spec.scaling is Scaling.PRIVATE
        against = self._against_a_mean(spec, providers or 1, has_bound=has_bound, may_pair=may_pair)
        if against is None:
            given = {"centering": Centering.PRIVATE, "mean_bound": bound}
            return replace(spec, **given, centering_reason=CenteringReason.AFFORDABLE)
        return replace(spec, centering=Centering.PAIRS if may_pair else Centering.NONE, centering_reason=against)

    def _against_a_mean(
        self, spec: JobSpec, providers: int, *, has_bound: bool, may_pair: bool
    ) -> CenteringReason | None:
        """Return what is against a private mean, or None if it is worth its price."""
        mu = usable_mu(spec.budget.epsilon, spec.budget.delta)
        if self.sparse:
            return CenteringReason.SPARSE_ROWS
        if not has_bound:
            return CenteringReason.NO_MEAN_BOUND if mu >= LEAST_MU else CenteringReason.SMALL_BUDGET
        if self.rows is not None and spec.unit is PrivacyUnit.ROW_REPLACE_ONE:
            moved = 2 * spec.rows_per_person * math.sqrt(spec.schema.dimension * providers)
            noise = moved / (math.sqrt(MEAN_SHARE) * mu * self.rows)
            longest = LONGEST_NOISE_BESIDE_PAIRS if may_pair else LONGEST_NOISE
            return CenteringReason.FEW_ROWS if noise > longest else None
        if mu < LEAST_MU:
            return CenteringReason.SMALL_BUDGET
        if may_pair and self.mean_bound is None:
            return CenteringReason.UNKNOWN_ROWS
        return CenteringReason.MANY_COLUMNS if spec.schema.dimension > MOST_COLUMNS else None


def reason_in_words(centering: Centering, reason: CenteringReason | None, unit: PrivacyUnit) -> str:
    """Say how rows are centred and why, or return nothing if a person said how."""
    if reason is None:
        return ""
    if reason in _PLAIN:
        return _PLAIN[reason]
    why = _WHY_NO_MEAN[reason]
    if centering is Centering.PAIRS:
        return f"differences of pairs, because {why}, and differences need no mean"
    return f"rows are not centred, because {why}, and {_WHY_NO_PAIRS[unit is PrivacyUnit.ROW_REPLACE_ONE]}"


_PLAIN: Final = {
    CenteringReason.MATRIX: "no centring, because a matrix has no rows to centre",
    CenteringReason.DICTIONARY: "public centre from the dictionary",
    CenteringReason.PUBLIC_MEAN: "a public mean, because one is given",
    CenteringReason.AFFORDABLE: "a private mean, because the budget allows one",
}
_WHY_NO_MEAN: Final = {
    CenteringReason.SMALL_BUDGET: "a private mean would cost too much of this budget",
    CenteringReason.FEW_ROWS: "a private mean of so few rows would be too noisy",
    CenteringReason.UNKNOWN_ROWS: "a job does not say how many rows there are, and a mean of few would be noisy",
    CenteringReason.MANY_COLUMNS: "a private mean of so many columns may be too noisy",
    CenteringReason.SPARSE_ROWS: "a mean would make sparse rows dense",
    CenteringReason.NO_MEAN_BOUND: "no bound for the mean is known (mean_bound)",
}
_WHY_NO_PAIRS: Final = {
    True: "differences of pairs hide how several providers differ, so they are chosen only with "
    f"centering = {CenteringChoice.AUTO_OR_PAIRS}",
    False: f"differences of pairs need the unit {PrivacyUnit.ROW_REPLACE_ONE}",
}


def check_pairs(spec: JobSpec, *, uses_all_rows: bool) -> None:
    """Refuse differences of pairs where they would not be as private as rows, or would not be the same rows."""
    if spec.centering is not Centering.PAIRS:
        return
    check(
        spec.unit is PrivacyUnit.ROW_REPLACE_ONE,
        f"centering is {spec.centering}, but the unit is {spec.unit}: if a row is added or removed, all pairs change.",
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
    key = np.array([seed, 1], dtype=np.uint64)  # a list with a large seed would be rounded
    order = np.random.Generator(np.random.Philox(key=key)).permutation(rows)
    half = rows // 2
    return order[:half].astype(np.intp), order[half : 2 * half].astype(np.intp)
