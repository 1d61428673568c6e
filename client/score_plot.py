"""A picture of how many rows have which scores: contours of a private histogram, which shows no row's own scores."""

import numpy as np

from dpspca.common.errors import InvalidParameterError
from dpspca.common.model import Model
from dpspca.common.score_map import SURE

from .report import Destination, finish, new_canvas

_LEVELS = 7


def score_contours(model: Model, path: Destination) -> None:
    """Write a PNG of contours of the scores on the first two components.

    Nothing is drawn where noise alone may have made what is counted: the lowest contour is at three times the noise.
    """
    if model.scores is None:
        raise InvalidParameterError(
            "This model has no counts of scores to plot.", "Run the job with the method auto and its option picture."
        )
    counts, noise = model.scores.smoothed()
    along, across = (edges[:-1] + np.diff(edges) / 2 for edges in model.scores.edges())
    canvas, axes = new_canvas(width=6.4, height=5.6)
    lowest, highest = SURE * noise, float(counts.max())
    if highest > lowest:
        levels = np.linspace(lowest, highest, _LEVELS + 1)
        filled = axes.contourf(along, across, counts.T, levels=levels, cmap="viridis_r", extend="neither")
        axes.contour(along, across, counts.T, levels=levels[:-1], colors="#444444", linewidths=0.5)
        bar = canvas.figure.colorbar(filled, ax=axes, pad=0.02)
        bar.set_label("rows in a cell, smoothed", fontsize=10)
        bar.ax.tick_params(length=0, labelsize=8)
    else:
        axes.text(0.5, 0.5, "nothing shows above the noise", transform=axes.transAxes, ha="center", fontsize=10)
    axes.set(xlim=(along[0], along[-1]), ylim=(across[0], across[-1]))
    axes.set_ylabel("score on component 2", fontsize=10)
    title = "How rows are spread over two components"
    finish(canvas, axes, title, model, path, "score on component 1 (rows beyond an edge are counted at it)")
