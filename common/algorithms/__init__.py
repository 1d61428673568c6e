"""One coroutine per method. It yields queries, receives noisy aggregates and returns a model."""

from . import catalogue
from .catalogue import CATALOGUE, Method
from .dps_pca import DpsPcaOptions
from .stages import (
    CHOICES,
    CLEAR,
    LEAST_KEPT,
    SPARSE_FRACTION,
    WORTH,
    Lengths,
    ReleasedFacts,
    Spectrum,
    best_clip,
    best_scale,
    kept_part,
    noise_at,
)
from .steps import AUTO, Option, OptionKind

__all__ = [
    "AUTO",
    "CATALOGUE",
    "CHOICES",
    "CLEAR",
    "LEAST_KEPT",
    "SPARSE_FRACTION",
    "WORTH",
    "DpsPcaOptions",
    "Lengths",
    "Method",
    "Option",
    "OptionKind",
    "ReleasedFacts",
    "Spectrum",
    "best_clip",
    "best_scale",
    "catalogue",
    "kept_part",
    "noise_at",
]
