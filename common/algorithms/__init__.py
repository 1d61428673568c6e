"""One coroutine per method. It yields queries, receives noisy aggregates and returns a model."""

from . import catalogue
from .catalogue import CATALOGUE, Method, choices
from .clip_choice import CHOICES, Lengths, best_clip
from .options import Kind, Option
from .row_steps import AUTO
from .staged_release import SPARSE_FRACTION
from .theory import for_job
from .view_steps import CLEAR, LEAST_KEPT, ReleasedFacts, kept_part

__all__ = [
    "AUTO",
    "CATALOGUE",
    "CHOICES",
    "CLEAR",
    "LEAST_KEPT",
    "SPARSE_FRACTION",
    "Kind",
    "Lengths",
    "Method",
    "Option",
    "ReleasedFacts",
    "best_clip",
    "catalogue",
    "choices",
    "for_job",
    "kept_part",
]
