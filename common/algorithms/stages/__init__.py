"""The staged release of ``auto``, and its parts that the improved loop uses too."""

from .clip_choice import CHOICES, Lengths, best_clip
from .column_scales import ask_scales, ask_sizes, planned_scales, planned_sizes, scaled_facts, share_of_scales
from .found import Found, limited
from .last_release import WORTH, Spectrum, best_scale, noise_at
from .private_mean import ask_mean, planned_mean, share_of_rough_mean
from .product_loop import Joined, Product, ask_product, join, lengths_of
from .scaled_release import ask_scaled
from .score_picture import PICTURE, ask_picture, checked_group, planned_picture
from .score_variances import ScoreVariances, ask_variances, explains_scores, planned_variances
from .staged_release import SPARSE_FRACTION, ask_block, in_stages, planned_stages
from .two_releases import in_two_releases, planned_twice
from .view_steps import (
    CLEAR,
    LEAST_KEPT,
    NORMS,
    SHORT,
    Reach,
    ReleasedFacts,
    ask_covariance,
    ask_gain,
    ask_reach,
    kept_part,
)
from .wide_release import WIDE_COLUMNS, in_wide_stages, multiplies, planned_wide

__all__ = [
    "CHOICES",
    "CLEAR",
    "LEAST_KEPT",
    "NORMS",
    "PICTURE",
    "SHORT",
    "SPARSE_FRACTION",
    "WIDE_COLUMNS",
    "WORTH",
    "Found",
    "Joined",
    "Lengths",
    "Product",
    "Reach",
    "ReleasedFacts",
    "ScoreVariances",
    "Spectrum",
    "ask_block",
    "ask_covariance",
    "ask_gain",
    "ask_mean",
    "ask_picture",
    "ask_product",
    "ask_reach",
    "ask_scaled",
    "ask_scales",
    "ask_sizes",
    "ask_variances",
    "best_clip",
    "best_scale",
    "checked_group",
    "explains_scores",
    "in_stages",
    "in_two_releases",
    "in_wide_stages",
    "join",
    "kept_part",
    "lengths_of",
    "limited",
    "multiplies",
    "noise_at",
    "planned_mean",
    "planned_picture",
    "planned_scales",
    "planned_sizes",
    "planned_stages",
    "planned_twice",
    "planned_variances",
    "planned_wide",
    "scaled_facts",
    "share_of_rough_mean",
    "share_of_scales",
]
