"""Flags that name the data set of a job and its providers. They override those in the job's file."""

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from dpspca.client.jobs import JobFile
from dpspca.common.names import check_name

DataSet: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Data set to query. Overrides the one in the job's file. If only one is on offer, it need not be named."
    ),
]
Providers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Provider to query. Repeat the flag for each provider. Overrides those in the job's file. If none is "
        "named: all that offer the data set."
    ),
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The data set of a job and its providers, as far as they are named."""

    data_set: str | None
    providers: tuple[str, ...] | None

    @classmethod
    def of(cls, job_file: JobFile | None, data_set: str | None, provider: list[str] | None) -> "Chosen":
        """Return the choice that the flags make, or else the job's file."""
        named = tuple(check_name("--provider", each) for each in provider or ())
        in_file = (job_file.data_set, job_file.providers) if job_file else (None, None)
        given = None if data_set is None else check_name("--data-set", data_set)
        return cls(in_file[0] if given is None else given, named or in_file[1])
