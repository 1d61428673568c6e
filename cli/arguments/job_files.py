"""A job's file in a command's arguments: with the flags that may not stand beside it."""

from dataclasses import replace
from pathlib import Path

from dpspca.client import jobs
from dpspca.client.jobs import JobFile
from dpspca.common.checks import check

from .job_flags import Flags, flag_name, given_flags


def from_file(path: Path, flags: Flags) -> JobFile:
    """Read a job's file. Refuse flags that describe a job too, because either could be meant."""
    others = given_flags(replace(flags, dictionary=None))
    given = [flag_name(name) if value is not False else flag_name(f"no_{name}") for name, value in others.items()]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job's file, or leave it out.")
    return JobFile.read(path, flags.dictionary)


def require_centering(job: JobFile | None, flags: Flags) -> None:
    """Refuse a job that is to be signed and does not say how rows are centred."""
    if job is not None:
        spec = job.spec
        jobs.require_centering(spec.unit, is_stated=job.says_centering, has_dictionary=spec.dictionary is not None)
    elif flags.unit is not None:
        has_dictionary = flags.dictionary is not None
        jobs.require_centering(flags.unit, is_stated=flags.centering is not None, has_dictionary=has_dictionary)


def data_set_of(job_file: JobFile, given: str | None) -> str:
    """Return the name of a job's data set, from its file or from --data-set."""
    check(
        None in {given, job_file.data_set},
        f"--data-set is {given!r:.80}, but the job's file already names {job_file.data_set!r:.80}.",
        "Remove one of the two.",
    )
    name = given or job_file.data_set
    check(name is not None, "The job names no data set.", "Name one with --data-set.")
    return str(name)
