"""Jobs that analysts sign, and terms that providers state: values and rules, without a price."""

from .budget import Budget
from .centering import MEAN_SHARE, AutoCentering, CenteringChoice, check_pairs, pairing_of, pairs_of, reason_in_words
from .rows_used import rows_used
from .spans import Span
from .spec import (
    MAX_COMPONENT_ENTRIES,
    MAX_DIMENSION,
    MAX_QUERIES,
    PRIVATE,
    PRIVATE_BOUND,
    JobSpec,
    MethodOptions,
    Scalar,
    Schema,
    check_components,
)
from .spec_values import Accounting, Centering, CenteringReason, Scaling, Weights
from .terms import Bounds, Conditions, StatedCap, Terms, columns_digest, scaled_bounds

__all__ = [
    "MAX_COMPONENT_ENTRIES",
    "MAX_DIMENSION",
    "MAX_QUERIES",
    "MEAN_SHARE",
    "PRIVATE",
    "PRIVATE_BOUND",
    "Accounting",
    "AutoCentering",
    "Bounds",
    "Budget",
    "Centering",
    "CenteringChoice",
    "CenteringReason",
    "Conditions",
    "JobSpec",
    "MethodOptions",
    "Scalar",
    "Scaling",
    "Schema",
    "Span",
    "StatedCap",
    "Terms",
    "Weights",
    "check_components",
    "check_pairs",
    "columns_digest",
    "pairing_of",
    "pairs_of",
    "reason_in_words",
    "rows_used",
    "scaled_bounds",
]
