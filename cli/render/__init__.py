"""The output of commands: tables, progress, logs and JSON."""

from . import absent_providers, approval_hint, logs, output, progress
from .connection import connected
from .output import (
    PLOTS,
    VEGA_LITE,
    Folder,
    print_output,
    print_table,
    print_text,
    require_new,
    show_count,
    show_rows,
    to_json,
    write_file,
)
from .progress import participants, show_job_progress
from .terms import fit_facts, print_fit, print_terms, terms_facts

__all__ = [
    "PLOTS",
    "VEGA_LITE",
    "Folder",
    "absent_providers",
    "approval_hint",
    "connected",
    "fit_facts",
    "logs",
    "output",
    "participants",
    "print_fit",
    "print_output",
    "print_table",
    "print_terms",
    "print_text",
    "progress",
    "require_new",
    "show_count",
    "show_job_progress",
    "show_rows",
    "terms_facts",
    "to_json",
    "write_file",
]
