"""Reports on a model: in words, as values and as plots."""

from . import report, score_plot
from .plots import Plots
from .readings import in_words
from .report import new_canvas, remarks, with_noise

__all__ = [
    "Plots",
    "in_words",
    "new_canvas",
    "remarks",
    "report",
    "score_plot",
    "with_noise",
]
