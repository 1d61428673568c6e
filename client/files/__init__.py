"""Files that a user gives or gets: models, scores, and what PLINK reads."""

from . import score_files
from .component_files import TABLES, loadings_facts
from .input_files import reading
from .model_files import load_model, save_model
from .phenotypes import FORMS, Phenotypes
from .plink import plink_scores
from .projected_rows import doubts_about, doubts_about_samples, rows_of_model, scores_of, scores_of_file

__all__ = [
    "FORMS",
    "TABLES",
    "Phenotypes",
    "doubts_about",
    "doubts_about_samples",
    "load_model",
    "loadings_facts",
    "plink_scores",
    "reading",
    "rows_of_model",
    "save_model",
    "score_files",
    "scores_of",
    "scores_of_file",
]
