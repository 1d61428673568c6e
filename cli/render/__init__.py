"""The output of commands: tables, progress, logs and JSON."""

from . import absent_providers, logs, output, progress
from .output import PLOTS, Folder, counting, print_table, say, tell, to_json, write_file
from .progress import following, participants

__all__ = [
    "PLOTS",
    "Folder",
    "absent_providers",
    "counting",
    "following",
    "logs",
    "output",
    "participants",
    "print_table",
    "progress",
    "say",
    "tell",
    "to_json",
    "write_file",
]
