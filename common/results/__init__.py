"""The results of a job: the model, where it comes from, how providers were weighed, and its privacy statement."""

from .decision import Decision, ReleasePath
from .model import INTERVAL_LEVEL, Model, fix_signs
from .origin import Origin, Participant
from .rotation import varimax
from .score_map import SURE, ScoreMap
from .statement import LARGE_DELTA, NOT_FOR_RELEASE, PrivacyStatement
from .weights import FULL, ProviderWeights, Weighed, even_rows, rows_in, weighted

__all__ = [
    "FULL",
    "INTERVAL_LEVEL",
    "LARGE_DELTA",
    "NOT_FOR_RELEASE",
    "SURE",
    "Decision",
    "Model",
    "Origin",
    "Participant",
    "PrivacyStatement",
    "ProviderWeights",
    "ReleasePath",
    "ScoreMap",
    "Weighed",
    "even_rows",
    "fix_signs",
    "rows_in",
    "varimax",
    "weighted",
]
