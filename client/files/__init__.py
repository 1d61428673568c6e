"""Files that a user gives or gets: models, scores, and what PLINK reads."""

from . import score_files
from .input_files import reading
from .model_files import load_model, save_model
from .plink import plink_scores

__all__ = [
    "load_model",
    "plink_scores",
    "reading",
    "save_model",
    "score_files",
]
