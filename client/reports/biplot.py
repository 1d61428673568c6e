"""A biplot without rows: how much the features weigh in the first two components, over private counts of scores.

A usual biplot shows the score of each row, and each score is about one row. This one shows none: the arrows follow from
the components, and what lies below them is the private histogram of scores, if the job asked for one. So it is
post-processing of the model and costs nothing.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from dpspca.common.arrays import FloatArray
from dpspca.common.errors import InvalidParameterError
from dpspca.common.results import SURE, Model

from .report import Destination, finish, new_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ARROWS: Final = 15
"""Features that are drawn: those with the largest loadings in the two components together."""
SHORTEST: Final = 0.1
"""Of the longest arrow, below which a feature is left out: the names of short arrows would cover each other."""
PLANE: Final = 2
_INK: Final = "#222222"
_ARROW: Final = "#0072B2"
_LETTERS: Final = 24


def arrows(model: Model) -> list[tuple[str, float, float]]:
    """Return the features to draw, longest arrow first, with their loadings on the first two components."""
    if len(model.components) < PLANE:
        raise InvalidParameterError(
            "A biplot needs two components, and this model has one.", "Ask for two components or more."
        )
    plane = model.components[:PLANE]
    lengths = np.linalg.norm(plane, axis=0)
    if not lengths.any():
        raise InvalidParameterError("The largest loading of this model is 0.", "Plot a model that was fitted.")
    long = np.count_nonzero(lengths >= SHORTEST * lengths.max())
    order = np.argsort(-lengths, kind="stable")[: min(MOST_ARROWS, long)]
    return [(model.name_of(int(place)), float(plane[0, place]), float(plane[1, place])) for place in order]


def reach_of(drawn: list[tuple[str, float, float]]) -> float:
    """Return how far the axes go on each side of zero, with room for names."""
    return 1.25 * max(max(abs(across), abs(up)) for _, across, up in drawn)


def biplot(model: Model, path: Destination | None = None) -> "Figure":
    """Draw the loadings of the first two components as arrows. Write a PNG if a path is given."""
    drawn = arrows(model)
    canvas, axes = new_canvas(width=6.4, height=6.0)
    _draw_scores(axes, model)
    reach = reach_of(drawn)
    for name, across, up in drawn:
        axes.annotate("", (across, up), (0.0, 0.0), arrowprops={"arrowstyle": "->", "color": _ARROW, "linewidth": 1.2})
        label = axes.annotate(
            name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…",
            (across, up),
            (3 if across >= 0 else -3, 3 if up >= 0 else -3),
            textcoords="offset points",
            ha="left" if across >= 0 else "right",
            va="bottom" if up >= 0 else "top",
            fontsize=8,
            color=_INK,
        )
        label.set_parse_math(False)  # print a dollar sign in a name as it is
    axes.axhline(0.0, color="#cccccc", linewidth=0.8, zorder=0)
    axes.axvline(0.0, color="#cccccc", linewidth=0.8, zorder=0)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.set_ylabel("loading on component 2", fontsize=10, color=_INK)
    title = "Features in the first two components"
    return finish(canvas, axes, title, model, path, "loading on component 1")


def shares(model: Model) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Return where rows lie above the noise: the middles of the cells along both axes, and the counts, or None.

    The axes run from -1 to 1, as loadings do, over the range of scores that the job counted.
    """
    if model.scores is None:
        return None
    counts, noise = model.scores.smoothed()
    if not counts.max() > SURE * noise:
        return None
    edges = np.linspace(-1.0, 1.0, len(counts) + 1)
    middles = edges[:-1] + np.diff(edges) / 2
    return middles, middles, np.where(counts > SURE * noise, counts, 0.0)


def _draw_scores(axes: "Axes", model: Model) -> None:
    """Draw where rows lie, faintly, if that was counted privately and shows above the noise."""
    if found := shares(model):
        along, across, counts = found
        axes.contourf(along, across, counts.T, levels=8, cmap="Greys", alpha=0.5, zorder=0)
