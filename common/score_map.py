"""How many rows have their scores in each cell of a plane of two components, with noise; and how to smooth that."""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from scipy.ndimage import gaussian_filter

from .arrays import MATRIX, FloatArray

_WIDTHS: Final = (0.0, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
"""Standard deviations of the smoothing to choose from, in cells."""
_CLEAR: Final = 20.0
"""How many times its noise the highest cell should be."""
SURE: Final = 3.0
"""Times its noise, from which a cell is shown."""


@dataclass(frozen=True, eq=False, slots=True)
class ScoreMap:
    """Counts of the cells, of which the first place is along the first component.

    ``reach`` says for each component from which score, above and below zero, rows are counted at the edge.
    """

    counts: FloatArray
    reach: FloatArray
    noise_std: float

    def __post_init__(self) -> None:
        shape = self.counts.shape
        if len(shape) != MATRIX or shape[0] != shape[1] or self.reach.shape != (2,) or not (self.reach > 0).all():
            raise ValueError
        if not self.noise_std >= 0:
            raise ValueError

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
        """Return what is in the picture, for a file or a program."""
        along, across = self.edges()
        return {
            "counts": self.counts.tolist(),
            "noise_std": self.noise_std,
            "edges_of_component_1": along.tolist(),
            "edges_of_component_2": across.tolist(),
        }

    @classmethod
    def from_dict(cls, raw: Any) -> Self:  # noqa: ANN401  # whatever is stored
        """Read what ``to_dict`` returned."""
        reach = [float(raw[f"edges_of_component_{number}"][-1]) for number in (1, 2)]
        made = cls(np.array(raw["counts"], dtype=np.float64), np.array(reach), float(raw["noise_std"]))
        if not np.isfinite([*made.counts.ravel(), *reach, made.noise_std]).all():
            raise ValueError
        return made


def _smooth(counts: FloatArray, width: float) -> FloatArray:
    return np.asarray(gaussian_filter(counts, width, mode="constant")) if width else counts


def _one_in_the_middle(side: int) -> FloatArray:
    cells = np.zeros((side, side))
    cells[side // 2, side // 2] = 1.0
    return cells
