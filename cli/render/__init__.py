"""The output of commands: tables, progress, logs and JSON."""

from . import absent_providers, logs, output, progress
from .output import PLOTS, Folder, print_output, print_table, print_text, show_count, to_json, write_file
from .progress import participants, show_job_progress

__all__ = [
    "PLOTS",
    "Folder",
    "absent_providers",
    "logs",
    "output",
    "participants",
    "print_output",
    "print_table",
    "print_text",
    "progress",
    "show_count",
    "show_job_progress",
    "to_json",
    "write_file",
]
