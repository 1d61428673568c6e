"""What a steward sees and decides on his own machine: his rows, and the jobs that wait for him."""

from .approvals import ApprovalOffice, login_name
from .data_check import Examined, examine_file, examine_settings, reading_of_file
from .job_seconds import JobSeconds

__all__ = [
    "ApprovalOffice",
    "Examined",
    "JobSeconds",
    "examine_file",
    "examine_settings",
    "login_name",
    "reading_of_file",
]
