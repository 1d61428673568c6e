"""The jobs that people write in files and flags, with their dictionaries."""

from . import job_dictionaries
from .job_file import DEFAULT_METHOD, JobFile, require_centering

__all__ = [
    "DEFAULT_METHOD",
    "JobFile",
    "job_dictionaries",
    "require_centering",
]
