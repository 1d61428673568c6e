"""Read a job from a file, with the checks that providers use to decide what they answer."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from dpspca.client import component_count
from dpspca.client.files import reading
from dpspca.client.job_file import JobFile
from dpspca.common.algorithms import AUTO, CATALOGUE, catalogue
from dpspca.common.checks import check
from dpspca.common.decoding import Source, decode, parse_json
from dpspca.common.errors import DpspcaError
from dpspca.common.job import AutoCentering, JobSpec
from dpspca.common.names import check_name, shortened
from dpspca.common.storage import read_toml

from . import job_dictionaries, method_options
from .job_flags import SHORT_UNITS, Flags, UnitFlag, flag_name, given_flags

DATA_KEYS: Final = ("data_set", "providers", job_dictionaries.FILE)
"""Keys that a job's file may have in addition to the job: the data set, the providers, and where its dictionary is."""
A_JOB: Final = "a job as JSON or TOML"


def from_file(path: Path, flags: Flags) -> JobFile:
    """Read a job's file. Refuse flags that describe a job too, because either could be meant."""
    others = given_flags(replace(flags, dictionary=None))
    given = [flag_name(name) if value is not False else flag_name(f"no_{name}") for name, value in others.items()]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job's file, or leave it out.")
    with reading(path, A_JOB):
        raw = _content(path)
        rows: dict[str, Any] = {name: raw.pop(name) for name in DATA_KEYS if name in raw}
        job, file = _with_full_unit_name(raw.get("job", raw)), job_dictionaries.file_beside(rows, path.parent)
        known = None
        if job_dictionaries.names_a_file(job):
            twice = f"The job names the file of its dictionary as dictionary and as {job_dictionaries.FILE}."
            check(file is None, twice, f"Leave {job_dictionaries.FILE} out.")
            file, job, known = job_dictionaries.resolved(job, path.parent)
        job, centering = _with_centering(_with_component_count(job), str(path))
        spec = JobSpec.from_plain(job, str(path))
        spec.schema.require_named()
        if flags.dictionary is not None:
            file, known = flags.dictionary, job_dictionaries.of_file(spec, flags.dictionary)
        elif known is None and file is not None:
            known = job_dictionaries.of_written(spec, file)
        data_set, providers = _data_set_and_providers(path, rows)
        if centering is not None:
            spec = centering.chosen(spec, providers=len(providers) if providers else None)
        return JobFile(catalogue.plan(spec), data_set, providers, known, file if known else None, centering)


def _content(path: Path) -> dict[str, Any]:
    """Return the table that a job's file holds: a job, or the output of `plan --json`."""
    raw = read_toml(path) if path.suffix == ".toml" else parse_json(path.read_bytes(), str(path))
    check(isinstance(raw, dict), f"{path} is {shortened(raw)}.", "Write a table: key = value, or a JSON object.")
    return dict(raw)


def _with_full_unit_name(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Replace the estimator's short name of a unit by the full name."""
    if isinstance(job, dict) and job.get("unit") in SHORT_UNITS:
        return job | {"unit": UnitFlag(job["unit"]).unit.value}
    return job


def _with_component_count(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Replace components = "auto" by a number, and have the method leave out components that do not show.

    Whatever else is wrong with the job is left to ``JobSpec.from_plain``.
    """
    if not isinstance(job, dict) or job.get("components") != AUTO:
        return job
    method: Any = job.get("method", job.get("algorithm", method_options.DEFAULT_METHOD))
    options = job.get("options", {})
    schema = job.get("schema")
    columns = schema.get("dimension") if isinstance(schema, dict) else None
    if method not in CATALOGUE or not isinstance(options, dict) or not isinstance(columns, int):
        return job | {"components": component_count.MOST_COMPONENTS}
    component_count.require_can_decide("components", method)
    check(
        component_count.OPTION not in options,
        f'components = "auto" sets the option {component_count.OPTION}, which is given too.',
        f"Leave the option {component_count.OPTION} out, or give a number of components.",
    )
    number = component_count.automatic(columns, options.get("sparsity"))
    return job | {"components": number, "options": options | {component_count.OPTION: True}}


def _with_centering(job: Any, path: str) -> tuple[Any, AutoCentering | None]:  # noqa: ANN401  # whatever the file holds
    """Take centering = "auto" out of a job, with what it says about the mean, so that the centring can be chosen."""
    if not isinstance(job, dict) or job.get("centering") != AUTO:
        return job, None
    known = decode(_KnownMean, {name: job[name] for name in _MEAN_KEYS if name in job}, Source(path))
    rest = {name: value for name, value in job.items() if name not in {"centering", *_MEAN_KEYS}}
    return rest, AutoCentering(known.mean_bound, known.public_mean)


@dataclass(frozen=True, slots=True)
class _KnownMean:
    """What a job's file says about the mean."""

    mean_bound: float | None = None
    public_mean: tuple[float, ...] | None = None


_MEAN_KEYS: Final = ("mean_bound", "public_mean")


def _data_set_and_providers(path: Path, rows: dict[str, Any]) -> tuple[str | None, tuple[str, ...] | None]:
    data_set, providers = rows.get("data_set"), rows.get("providers")
    check(
        providers is None or isinstance(providers, list),
        f"{path}: providers is {providers!r:.120}.",
        "Give a list of names, or leave it out to query all providers.",
    )
    try:
        named = None if data_set is None else check_name("data_set", data_set)
        return named, None if providers is None else tuple(check_name("a provider", each) for each in providers)
    except DpspcaError as problem:
        raise type(problem)(f"{path}: {problem.what}", problem.remedy) from None


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
