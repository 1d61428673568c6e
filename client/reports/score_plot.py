"""A picture of how many rows have which scores: contours of a private histogram, which shows no row's own scores."""

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.results import SURE, Model, ScoreMap

from .report import Destination, finish, new_canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE: Final = "How rows are spread over two components"
EMPTY: Final = "nothing shows above the noise"
NO_LEVEL: Final = "no level"
ACROSS: Final = "score on component 1 (rows beyond an edge are counted at it)"
UP: Final = "score on component 2"
_LEVELS: Final = 7
_GROUP_LEVELS: Final = 4
_SURE_OF_GROUPS: Final = 4.0
"""Times its noise, from which a cell of a group is shown: noise alone shows one in a third of plots of ten groups."""
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that colour-blind readers can tell apart."""
_LINES: Final = ("solid", "dashed", "dotted")


def score_contours(model: Model, path: Destination | None = None) -> "Figure":
    """Draw contours of the scores on the first two components. Write a PNG if a path is given.

    Nothing is drawn where noise alone may have made what is counted: the lowest contour is at three times the noise.
    Groups have contours of their own, each in its own colour, from four times the noise on, because they have many more
    cells. A group that does not show is left out.
    """
    scores = scores_of(model)
    canvas, axes = new_canvas(width=6.4, height=5.6)
    along, across = middles(scores)
    shown = _groups(axes, scores) if scores.groups else _everybody(canvas, axes, scores)
    if not shown:
        axes.text(0.5, 0.5, EMPTY, transform=axes.transAxes, ha="center", fontsize=10)
    axes.set(xlim=(along[0], along[-1]), ylim=(across[0], across[-1]))
    axes.set_ylabel(UP, fontsize=10)
    return finish(canvas, axes, TITLE, model, path, ACROSS)


def scores_of(model: Model) -> ScoreMap:
    """Return the counts of a model. Refuse a model that has none."""
    if model.scores is None:
        raise InvalidParameterError(
            "This model has no counts of scores to plot.",
            "Run the job with the method auto and its option picture. If components were rotated, plot the model as it "
            "was before: the counts are about its components.",
        )
    return model.scores


def contours_of(scores: ScoreMap, *, is_group: bool = False) -> tuple[FloatArray, FloatArray] | None:
    """Return smoothed counts, and the levels of contours from the lowest that is sure on; None if nothing is higher.

    The counts are those over the middles of cells, along the first component first.
    """
    levels, sure = (_GROUP_LEVELS, _SURE_OF_GROUPS) if is_group else (_LEVELS, SURE)
    counts, noise = scores.smoothed()
    lowest, highest = sure * noise, float(counts.max())
    return (counts, np.linspace(lowest, highest, levels + 1)) if highest > lowest else None


def _everybody(canvas: Any, axes: Any, scores: ScoreMap) -> bool:  # noqa: ANN401  # matplotlib publishes no types
    """Fill between the contours of all rows. Return whether there are any."""
    found = contours_of(scores)
    if found is None:
        return False
    counts, levels = found
    along, across = middles(scores)
    filled = axes.contourf(along, across, counts.T, levels=levels, cmap="viridis_r", extend="neither")
    axes.contour(along, across, counts.T, levels=levels[:-1], colors="#444444", linewidths=0.5)
    bar = canvas.figure.colorbar(filled, ax=axes, pad=0.02)
    bar.set_label("rows in a cell, smoothed", fontsize=10)
    bar.ax.tick_params(length=0, labelsize=8)
    return True


def _groups(axes: Any, scores: ScoreMap) -> bool:  # noqa: ANN401
    """Draw contours of each group in its own colour and line. Return whether any group has one."""
    handles = []
    for number, each in enumerate(scores.groups):
        found = contours_of(each, is_group=True)
        if found is None:
            continue
        counts, levels = found
        colour, line = COLOURS[number % len(COLOURS)], _LINES[number // len(COLOURS) % len(_LINES)]
        axes.contour(*middles(each), counts.T, levels=levels[:-1], colors=colour, linestyles=line, linewidths=1.2)
        handles += axes.plot([], [], color=colour, linestyle=line, label=each.group or NO_LEVEL)
    if handles:
        axes.legend(handles=handles, fontsize=8, frameon=False, loc="best")
    return bool(handles)


def middles(scores: ScoreMap) -> tuple[FloatArray, FloatArray]:
    """Return the middles of cells along both components."""
    along, across = (edges[:-1] + np.diff(edges) / 2 for edges in scores.edges())
    return along, across
