"""A job as its file holds it: with the data set, the providers and the dictionary that the file names.

It is read with the checks that providers use to decide what they answer.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from dpspca.client import component_count
from dpspca.client.described_jobs import attached
from dpspca.client.files import reading
from dpspca.client.private_bounds import centred, finds_bound
from dpspca.common.algorithms import AUTO, CATALOGUE, catalogue
from dpspca.common.checks import check
from dpspca.common.decoding import Source, decode, parse_json
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.job import PRIVATE, AutoCentering, Centering, CenteringChoice, JobSpec
from dpspca.common.names import check_name, shortened
from dpspca.common.plan import Plan
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.storage import JOB, other_file, read_toml

from . import job_dictionaries

DATA_KEYS: Final = ("data_set", "providers", job_dictionaries.FILE)
"""Keys that a job's file may have in addition to the job: the data set, the providers, and where its dictionary is."""
DEFAULT_METHOD: Final = str(JobSpec.__dataclass_fields__["method"].default)
"""The method of a job that names none."""
A_JOB: Final = "a job as JSON or TOML"
_AUTOMATIC: Final = tuple(each.value for each in CenteringChoice if each.is_automatic)


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a job's file: a job and, if the file names them, the data set and the providers."""

    plan: Plan
    data_set: str | None = None
    providers: tuple[str, ...] | None = None
    dictionary: Dictionary | None = None
    """The job's dictionary, if its file is known."""
    dictionary_file: Path | None = None
    """That file."""
    centering: AutoCentering | None = None
    """How to choose the centring, if the file leaves it open. The plan's was chosen for the providers in the file."""
    says_centering: bool = True
    """Whether the file says how rows are centred."""

    @classmethod
    def read(cls, path: Path, dictionary: Path | None = None) -> Self:
        """Read a job's file. ``dictionary`` is where its dictionary is, if that is known from elsewhere."""
        with reading(path, A_JOB):
            raw = _content(path)
            _require_job(path, raw)
            rows: dict[str, Any] = {name: raw.pop(name) for name in DATA_KEYS if name in raw}
            job, file = raw.get("job", raw), job_dictionaries.file_beside(rows, path.parent)
            known = None
            if job_dictionaries.names_a_file(job):
                twice = f"The job names the file of its dictionary as dictionary and as {job_dictionaries.FILE}."
                check(file is None, twice, f"Leave {job_dictionaries.FILE} out.")
                file, job, known = job_dictionaries.resolved(job, path.parent)
            says = isinstance(job, dict) and "centering" in job
            job, centering = _with_centering(_with_component_count(_with_bounds(job)), str(path))
            spec = JobSpec.from_dict(job, str(path))
            spec.schema.require_named()
            if dictionary is not None:
                file, known = dictionary, job_dictionaries.of_file(spec, dictionary)
            elif known is None and file is not None:
                known = job_dictionaries.of_written(spec, file)
            data_set, providers = _data_set_and_providers(path, rows)
            if centering is not None:
                spec = centred(spec, centering, len(providers) if providers else None)
            return cls(catalogue.plan(spec), data_set, providers, known, file if known else None, centering, says)

    def for_providers(self, count: int | None, *, sparse: bool = False) -> JobSpec:
        """Return the job with its centring chosen for this many providers, if the file leaves that open.

        ``sparse`` says that some of them offer sparse rows.
        """
        if self.centering is None:
            return self.spec
        bare = replace(self.spec, centering=Centering.NONE, mean_bound=None, public_mean=None, centering_reason=None)
        return centred(bare, self.centering, count, sparse=sparse)

    def planned(self, spec: JobSpec) -> Plan:
        """Return the plan of the file's job, or of the job that was made from it."""
        return self.plan if spec == self.spec else catalogue.plan(spec)

    @property
    def public_bound(self) -> float | None:
        """The norm bound that follows from the dictionary, if its file is known."""
        return None if self.dictionary is None else attached(self.spec, self.dictionary).norm_bound()

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.plan.spec


def require_centering(unit: PrivacyUnit, *, is_stated: bool, has_dictionary: bool) -> None:
    """Refuse a job about raw rows that does not say how they are centred. A dictionary has public centres."""
    check(
        is_stated or has_dictionary or not unit.is_row,
        "The job does not say how rows are centred.",
        'Write centering = "auto" into it, or give --centering auto: then the best centring that public facts allow is '
        'used. With "none", component 1 shows the mean of the columns, unless every column is around zero.',
    )


def _content(path: Path) -> dict[str, Any]:
    """Return the table that a job's file holds: a job, or the output of `plan --json`."""
    raw = read_toml(path) if path.suffix == ".toml" else _json(path)
    check(isinstance(raw, dict), f"{path} is {shortened(raw)}.", "Write a table: key = value, or a JSON object.")
    return dict(raw)


def _require_job(path: Path, raw: dict[str, Any]) -> None:
    """Refuse another file that people write, such as a dictionary, which names features as a job does."""
    found = other_file(raw)
    check(
        found in {None, JOB},
        f"{path} is {found.name if found else ''}, not a job.",
        "Give the file of a job. `dpspca config sample job` shows one.",
    )


def _with_bounds(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Have the method find bounds that are not given, as the estimator does, where no dictionary implies them."""
    if not isinstance(job, dict) or "dictionary" in job:
        return job
    method, unit = job.get("method", DEFAULT_METHOD), job.get("unit")
    if not isinstance(method, str) or unit not in list(PrivacyUnit) or not finds_bound(method, PrivacyUnit(unit)):
        return job
    mean = {"mean_bound": PRIVATE} if job.get("centering") == Centering.PRIVATE else {}
    return {"norm_bound": PRIVATE} | mean | job


def _with_component_count(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Replace components = "auto" by a number, and have the method leave out components that do not show.

    Whatever else is wrong with the job is left to ``JobSpec.from_dict``.
    """
    if not isinstance(job, dict) or job.get("components") != AUTO:
        return job
    method: Any = job.get("method", DEFAULT_METHOD)
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
    """Take an automatic centring out of a job, with what it says about the mean, so that the centring can be chosen."""
    if not isinstance(job, dict) or job.get("centering") not in _AUTOMATIC:
        return job, None
    known = decode(_KnownMean, {name: job[name] for name in _MEAN_KEYS if name in job}, Source(path))
    rest = {name: value for name, value in job.items() if name not in {"centering", *_MEAN_KEYS}}
    or_pairs = job["centering"] == CenteringChoice.AUTO_OR_PAIRS
    return rest, AutoCentering(known.mean_bound, known.public_mean, or_pairs=or_pairs)


@dataclass(frozen=True, slots=True)
class _KnownMean:
    """The part of a job's file about the mean."""

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


def _json(path: Path) -> Any:  # noqa: ANN401  # whatever JSON holds
    try:
        return parse_json(path.read_bytes(), str(path))
    except InvalidParameterError as problem:
        if path.suffix == ".json":
            raise
        remedy = f"{problem.remedy} The name of a job in TOML ends in .toml."
        raise InvalidParameterError(problem.what, remedy) from None
