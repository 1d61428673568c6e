"""How many rows have their scores in each cell of a plane of two components, with noise; and how to smooth that."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from dpspca.common.arrays import MATRIX, FloatArray

_WIDTHS: Final = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Standard deviations of the smoothing to choose from, in cells."""
_CLEAR: Final = 20.0
"""How many times its noise the highest cell should be."""
SURE: Final = 3.0
"""Times its noise, from which a cell is shown."""


@dataclass(frozen=True, eq=False, slots=True)
class ScoreMap:
    """Counts of the cells. The first index is along the first component.

    ``reach`` says for each component from which score, above and below zero, rows are counted at the edge. If rows were
    counted by ``groups``, the counts are those of all groups together. Each group has its name as ``group``; the last
    one has None, for rows in no other group.
    """

    counts: FloatArray
    reach: FloatArray
    noise_std: float
    groups: tuple[Self, ...] = ()
    group: str | None = None

    def __post_init__(self) -> None:
        shape = self.counts.shape
        if len(shape) != MATRIX or shape[0] != shape[1] or self.reach.shape != (2,) or not (self.reach > 0).all():
            raise ValueError
        if not self.noise_std >= 0 or not isinstance(self.group, str | None):
            raise ValueError
        if any(each.counts.shape != shape for each in self.groups):
            raise ValueError

    @classmethod
    def of_groups(cls, groups: Sequence[Self]) -> Self:
        """Add up the maps of groups, which have the same cells and noise."""
        counts: FloatArray = np.sum([each.counts for each in groups], axis=0)
        noise = groups[0].noise_std * math.sqrt(len(groups))
        return cls(counts, groups[0].reach, noise, tuple(groups))

    def smoothed(self) -> tuple[FloatArray, float]:
        """Smooth the counts as much as their noise demands, at no cost, and give the noise that is left in a cell."""
        for width in _WIDTHS:
            counts = _smooth(self.counts, width)
            left = self.noise_std * float(np.linalg.norm(_smooth(_one_in_the_middle(len(counts)), width)))
            if counts.max(initial=0.0) >= _CLEAR * left:
                break
        return counts, left

    def edges(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores between cells along both components."""
        places = np.linspace(-1.0, 1.0, len(self.counts) + 1)
        return places * self.reach[0], places * self.reach[1]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the picture, for a file or a program."""
        along, across = self.edges()
        groups = [
            {"group": each.group, "counts": each.counts.tolist(), "noise_std": each.noise_std} for each in self.groups
        ]
        return {
            "counts": self.counts.tolist(),
            "noise_std": self.noise_std,
            "edges_of_component_1": along.tolist(),
            "edges_of_component_2": across.tolist(),
        } | ({"groups": groups} if groups else {})

    @classmethod
    def from_dict(cls, raw: Any) -> Self:  # noqa: ANN401  # whatever is stored
        """Read what ``to_dict`` returned."""
        reach = [float(raw[f"edges_of_component_{number}"][-1]) for number in (1, 2)]
        groups = tuple(cls._read(each, np.array(reach), group=each["group"]) for each in raw.get("groups", ()))
        return cls._read(raw, np.array(reach), groups=groups)

    @classmethod
    def _read(cls, raw: Any, reach: FloatArray, **others: Any) -> Self:  # noqa: ANN401  # whatever is stored
        made = cls(np.array(raw["counts"], dtype=np.float64), reach, float(raw["noise_std"]), **others)
        if not np.isfinite([*made.counts.ravel(), *reach, made.noise_std]).all():
            raise ValueError
        return made


def _smooth(counts: FloatArray, width: float) -> FloatArray:
    if not width:
        return counts
    from scipy.ndimage import gaussian_filter  # noqa: PLC0415  # loading it takes time, and few jobs draw a picture

    return np.asarray(gaussian_filter(counts, width, mode="constant"))


def _one_in_the_middle(side: int) -> FloatArray:
    cells = np.zeros((side, side))
    cells[side // 2, side // 2] = 1.0
    return cells
