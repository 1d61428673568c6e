"""The forecast of a job before it is signed: computed from public facts, without a look at any data."""

from . import expected_error, words
from .candidates import Within, as_it_is
from .curves import Curves, curves, draw
from .forecast import Forecast, forecast, of_hints, require_rows
from .methods import MethodForecast, chance, of_job
from .population import Hints
from .questions import Answers, answer

__all__ = [
    "Answers",
    "Curves",
    "Forecast",
    "Hints",
    "MethodForecast",
    "Within",
    "answer",
    "as_it_is",
    "chance",
    "curves",
    "draw",
    "expected_error",
    "forecast",
    "of_hints",
    "of_job",
    "require_rows",
    "words",
]
