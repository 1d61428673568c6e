"""Views and decisions of a steward on the provider's machine: the rows, and the jobs that wait for approval."""

from .approvals import ApprovalOffice, login_name
from .balances import balance, cost
from .data_check import Examined, examine_file, examine_settings, reading_of_file
from .feature_remarks import about_absent
from .job_check import check_job
from .job_seconds import JobSeconds
from .lost_answers import answers_again, prices_in, prices_to_record
from .policy_numbers import rules_facts
from .policy_words import explanation

__all__ = [
    "ApprovalOffice",
    "Examined",
    "JobSeconds",
    "about_absent",
    "answers_again",
    "balance",
    "check_job",
    "cost",
    "examine_file",
    "examine_settings",
    "explanation",
    "login_name",
    "prices_in",
    "prices_to_record",
    "reading_of_file",
    "rules_facts",
]
