"""Plots of one model: ``model.plot.scree()``, ``.loadings()``, ``.biplot()``, ``.scores()``, as figures or Vega-Lite.

A plot is post-processing of the model, so it costs no privacy, and it shows the promise. Figures need matplotlib (the
extra ``plots``); Vega-Lite needs nothing.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dpspca.common.checks import check_known
from dpspca.common.results import Model

from . import vega_lite
from .biplot import PLANE, biplot
from .report import Destination, loadings, scree
from .score_plot import score_contours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VEGA_LITE: Final = MappingProxyType(
    {
        "scree": vega_lite.scree,
        "loadings": vega_lite.loadings,
        "biplot": vega_lite.biplot,
        "scores": vega_lite.scores,
    }
)


@dataclass(frozen=True, slots=True)
class Plots:
    """The plots of a model. Each returns a matplotlib figure, and writes it as PNG if a path is given."""

    model: Model

    def scree(self, path: Destination | None = None) -> "Figure":
        """Plot how much each component explains, with the noise of each number."""
        return scree(self.model, path)

    def loadings(self, path: Destination | None = None) -> "Figure":
        """Plot which features make up each component."""
        return loadings(self.model, path)

    def biplot(self, path: Destination | None = None) -> "Figure":
        """Plot how much features weigh in the first two components. No row's scores are shown."""
        return biplot(self.model, path)

    def scores(self, path: Destination | None = None) -> "Figure":
        """Plot contours of how many rows have which scores, if the job asked for such a picture. It shows no row."""
        return score_contours(self.model, path)

    def vega_lite(self, name: str) -> dict[str, Any]:
        """Return a plot as a Vega-Lite specification."""
        check_known("plot", name, VEGA_LITE)
        return VEGA_LITE[name](self.model)

    @property
    def names(self) -> tuple[str, ...]:
        """The plots that this model has.

        A scree plot needs explained variances, a biplot two components, and a plot of scores private counts of them.
        """
        lacking = set() if self.model.explained_variance is not None else {"scree"}
        if len(self.model.components) < PLANE:
            lacking.add("biplot")
        if self.model.scores is None:
            lacking.add("scores")
        return tuple(name for name in VEGA_LITE if name not in lacking)
