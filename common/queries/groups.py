"""Histograms of scores for each group of rows, such as the levels of a category, all for the price of one histogram."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpspca.common.arrays import refuse
from dpspca.common.privacy import PrivacyUnit

from .base import Extent, RowCountsQuery
from .views import SCORES, SIDE, NormHistogram, ViewQuery

MOST_GROUPS: Final = 12


@dataclass(frozen=True, eq=False)
class GroupedScores(RowCountsQuery, ViewQuery):
    """How many rows of each group have their two scores in each cell (``ScoreHistogram``), and of those in no group.

    The first two axes of the view are those of the scores. Each further axis is 1 at one column and 0 elsewhere: it
    names the column of a group. A row is in the group whose column is largest, if it is above zero, and otherwise in
    none; the histogram of these comes last. Groups are read off the rows as they are prepared, before a centre is taken
    off, and before columns are scaled and rows are clipped. So a category's level is where its row's own column is.

    Each row is in one group, and there in one cell: removing it moves one count by 1, and replacing it moves two counts
    by 1 at most. So the sensitivity is 1 for add/remove and sqrt(2) for replace-one, for all histograms together,
    however many groups there are. Groups are named by public columns, so which there are tells nothing about rows.
    """

    kind = "grouped-scores"
    finds_components = False

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = self.view.axes_matrix[:, SCORES:]
        if not 2 <= groups.shape[1] <= MOST_GROUPS:  # noqa: PLR2004  # one group is no group
            refuse(f"Scores are asked for in {groups.shape[1]} groups.", f"Name 2 to {MOST_GROUPS} groups.")
        is_unit = (groups == 0) | (groups == 1)
        if not is_unit.all() or (groups.sum(axis=0) != 1).any() or (groups.sum(axis=1) > 1).any():
            refuse("An axis of a group is not 1 at one column, and 0 elsewhere.", "Name each group by its own column.")

    @property
    def group_columns(self) -> NDArray[np.intp]:
        """The columns of the groups, in their order."""
        columns: NDArray[np.intp] = self.view.columns[np.argmax(self.view.axes_matrix[:, SCORES:], axis=0)]
        return columns

    @classmethod
    def answer_shape(cls, extent: Extent) -> tuple[int, ...]:
        return (max(0, extent.columns - SCORES) + 1, SIDE, SIDE)

    @classmethod
    def sensitivity_of(cls, unit: PrivacyUnit, extent: Extent) -> float:
        return NormHistogram.sensitivity_of(unit, extent)
