"""Read a job from a file or from flags, with the checks that providers use to decide what they answer."""

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.client import component_count
from dpspca.client.demo import check_sparsity
from dpspca.client.described_jobs import attached, load_dictionary
from dpspca.client.input_files import reading
from dpspca.common.algorithms import AUTO, CATALOGUE, catalogue
from dpspca.common.checks import check
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.names import check_name, shortened
from dpspca.common.plan import Plan
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.spec import PRIVATE, PRIVATE_BOUND, Accounting, Budget, Centering, JobSpec, Scalar, Schema, Weights
from dpspca.common.storage import read_toml

from . import job_dictionaries, method_options

REQUIRED: Final = ("dimension", "components", "norm_bound", "unit", "epsilon", "delta")
DATA_KEYS: Final = ("data_set", "providers")
"""Keys that a job's file may have besides the job: the data set and the providers."""
OPTIONAL: Final = (
    *("method", "accounting", "rows_per_person", "explained_variance", "weights", "seed", "minimum_parties"),
    "answer_seconds",
)
"""Flags that are keys of a job and have a default there."""
A_JOB: Final = "a job as JSON or TOML"


class UnitFlag(StrEnum):
    """The privacy units by their full names and, for rows, also by the short names that the estimator uses."""

    ROW_REPLACE_ONE = "row-replace-one"
    ROW_ADD_REMOVE = "row-add-remove"
    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"
    PERSON_REPLACE_ONE = "person-replace-one"
    PERSON_ADD_REMOVE = "person-add-remove"
    ENTRY = "entry"
    SPECTRAL = "spectral"

    @property
    def unit(self) -> PrivacyUnit:
        """The unit that the name stands for."""
        return PrivacyUnit(f"row-{self.value}" if self.value in SHORT_UNITS else self.value)


SHORT_UNITS: Final = (UnitFlag.REPLACE_ONE.value, UnitFlag.ADD_REMOVE.value)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A job as the command line describes it; None if not given. ``with_job_flags`` makes each field an option."""

    dimension: Annotated[int | None, typer.Option(help="Number of columns (features) of a row.")] = None
    components: Annotated[
        str | None,
        typer.Option(
            help="Number of components to find; or auto: look for up to "
            f"{component_count.MOST_COMPONENTS}, and keep those that show above the noise.",
            metavar="NUMBER|auto",
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(CATALOGUE)}. Default: {method_options.DEFAULT_METHOD}. `dpspca methods` describes each.",
            autocompletion=method_options.names,
            metavar="NAME",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the method. Repeat for each option.", metavar="NAME=VALUE"),
    ] = None
    sparsity: Annotated[
        str | None,
        typer.Option(
            help="Short for --option sparsity=...: largest number of columns in the support, for all components "
            "together, or auto for methods that can decide it.",
            metavar="NUMBER|auto",
        ),
    ] = None
    norm_bound: Annotated[
        str | None,
        typer.Option(
            help="Bound on the length of a row. Longer rows are clipped to it. Choose it from public knowledge, not "
            "from the rows; or private: methods that can find it, as part of the price. For the units entry and "
            "spectral: how large a change of the matrix is protected.",
            metavar="NUMBER|private",
        ),
    ] = None
    unit: Annotated[
        UnitFlag | None,
        typer.Option(
            help="Privacy unit: what is protected. The content of a row (replace-one), or also its presence "
            "(add-remove). The same for a person with all their rows (person-replace-one, person-add-remove). Some "
            "methods protect less: one entry of a matrix (entry), or a small change of the whole matrix (spectral)."
        ),
    ] = None
    rows_per_person: Annotated[
        int | None,
        typer.Option(
            help="How many rows of one person are protected together. The noise is wider by this factor. Default: 1. "
            "If the unit is a person, no more rows of each person are used."
        ),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget for each provider's rows: smaller is more private.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="Privacy budget: keep it far below 1 / (number of rows).")] = None
    accounting: Annotated[
        Accounting | None,
        typer.Option(
            help="How wide the noise is: the least that the budget allows (exact, the default), or the paper's own "
            "formula (published)."
        ),
    ] = None
    rounds: Annotated[int | None, typer.Option(help="Short for --option rounds=.... Default: by the budget.")] = None
    center: Annotated[Centering | None, typer.Option(help="Mean to subtract from the rows. Default: none.")] = None
    mean_bound: Annotated[float | None, typer.Option(help="For --center private: norm bound for the mean.")] = None
    public_mean: Annotated[Path | None, typer.Option(help="For --center public: a JSON array of means.")] = None
    explained_variance: Annotated[
        bool | None,
        typer.Option(
            "--explained-variance/--no-explained-variance",
            help="Whether to also query the variance that the components explain. Default: yes.",
        ),
    ] = None
    weights: Annotated[
        Weights | None,
        typer.Option(
            help="How much each provider counts. auto: providers with more rows count for more than their rows, as far "
            "as that makes the result less noisy. equal: every row counts the same. Default: auto."
        ),
    ] = None
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="File of the shared dictionary (TOML or JSON) by which providers prepare their rows. Columns and the "
            "norm bound follow from it. With a job that names a dictionary by its digest: the file of that dictionary."
        ),
    ] = None
    feature: Annotated[
        list[str] | None,
        typer.Option(
            help="Feature of the dictionary to use. Repeat for each, in the order of the model. Default: all.",
            metavar="NAME",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Public seed for randomness that need not be secret. Default: 0.")
    ] = None
    minimum_parties: Annotated[
        int | None,
        typer.Option(
            help="The job fails if fewer providers than this remain. Default: 1, which a provider refuses if its "
            "policy requires more."
        ),
    ] = None
    answer_seconds: Annotated[int | None, typer.Option(help="Seconds to wait for an answer. Default: 600.")] = None


@dataclass(frozen=True, slots=True)
class JobFile:
    """The content of a job's file: a job and, if the file names them, the data set and the providers."""

    plan: Plan
    data_set: str | None = None
    providers: tuple[str, ...] | None = None
    dictionary: Dictionary | None = None
    """The job's dictionary, if its file is known."""

    @property
    def public_bound(self) -> float | None:
        """The norm bound that follows from the dictionary, if its file is known."""
        return None if self.dictionary is None else attached(self.spec, self.dictionary).norm_bound()

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return self.plan.spec


def from_file(path: Path, flags: Flags) -> JobFile:
    """Read a job's file. Refuse flags that describe a job too, because either could be meant."""
    others = _given_flags(replace(flags, dictionary=None))
    given = [_flag(name) if value is not False else _flag(f"no_{name}") for name, value in others.items()]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job's file, or leave it out.")
    with reading(path, A_JOB):
        job, rows, known = _read_job(path)
        spec = JobSpec.from_json(job)
        spec.schema.require_named()
        if flags.dictionary is not None:
            known = load_dictionary(flags.dictionary)
            attached(spec, known)
        return JobFile(catalogue.plan(spec), *_data_set_and_providers(path, rows), known)


def from_flags(flags: Flags, schema: Schema | None = None) -> JobSpec:
    """Return the job that the flags describe. Required flags have no default: each is part of the promise or the price.

    ``schema`` replaces the number of columns if the federation has sent it.
    """
    check_given(flags, columns_known=schema is not None)
    values: dict[str, Any] = asdict(flags)
    others = {name: value for name, value in _given_flags(flags).items() if name in OPTIONAL}
    known = dictionary_of(flags)
    if known is not None:
        told = job_dictionaries.follows(known, flags.feature or None, flags.center)
        schema, others = Schema(**told["schema"]), others | {"dictionary": known.digest()}
        values = {"norm_bound": told["norm_bound"], "mean_bound": told.get("mean_bound")} | _given_flags(flags)
    columns = schema or Schema(values["dimension"])
    components, options = _components(values["components"]), _options(flags)
    if components is None:
        components = component_count.automatic(columns.dimension, options.get("sparsity"))
        options[component_count.OPTION] = True
    return JobSpec(
        schema=columns,
        unit=values["unit"].unit,
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=_norm_bound(values["norm_bound"]),
        components=components,
        centering=flags.center or Centering.NONE,
        mean_bound=values["mean_bound"],
        public_mean=_public_mean(flags.public_mean) if flags.public_mean else None,
        options=options,
        **others,
    )


def check_given(flags: Flags, *, columns_known: bool) -> None:
    """Refuse flags that do not describe a job. With ``columns_known``, the number of columns may be missing."""
    follow = ["dimension", "norm_bound"] if flags.dictionary is not None else ["dimension"] if columns_known else []
    known, own = {*_given_flags(flags), *follow}, _options(flags)
    check(not flags.feature or flags.dictionary is not None, "--feature needs --dictionary.", "Add --dictionary FILE.")
    check(
        flags.dimension is None or flags.dictionary is None,
        "Both --dimension and --dictionary are given.",
        "Leave --dimension out: columns follow from the dictionary.",
    )
    missing = [_flag(name) for name in REQUIRED if name not in known] + method_options.missing(flags.method, own)
    check(
        not missing,
        f"Without a job's file, these flags are needed: {', '.join(missing)}.",
        "Give them, or a job's file.",
    )
    components, sparsity = _components(flags.components or AUTO), own.get("sparsity")
    if components is None:
        component_count.require_can_decide("--components", flags.method or method_options.DEFAULT_METHOD)
        check(
            component_count.OPTION not in own,
            f"--components auto sets the option {component_count.OPTION}, which is given too.",
            f"Leave --option {component_count.OPTION} out, or give a number of components.",
        )
    if isinstance(sparsity, int):
        check_sparsity(sparsity, components, flags.dimension)
    _check_unit_and_accounting(flags)
    _check_center(flags)


def dictionary_of(flags: Flags) -> Dictionary | None:
    """Read the dictionary that the flags name, if they name one."""
    return None if flags.dictionary is None else load_dictionary(flags.dictionary)


def _norm_bound(text: str | float) -> float:
    if text == PRIVATE:
        return PRIVATE_BOUND
    try:
        return float(text)
    except ValueError:
        raise InvalidParameterError(
            f"--norm-bound is {shortened(text)}, neither a number nor {PRIVATE}.", f"Give a number, or {PRIVATE}."
        ) from None


def _components(text: str) -> int | None:
    """Return the number of components, or None for auto."""
    number = None if text == AUTO else method_options.parse_whole_number(text)
    check(
        text == AUTO or number is not None,
        f"--components is {shortened(text)}, neither a whole number nor {AUTO}.",
        f"Give a whole number, or {AUTO}.",
    )
    return number


def _given_flags(flags: Flags) -> dict[str, Any]:
    """Return the flags that were given. A repeatable flag that was not given is an empty list."""
    return {name: value for name, value in asdict(flags).items() if value is not None and value != []}


def _options(flags: Flags) -> dict[str, Scalar]:
    short = {name: getattr(flags, name) for name in method_options.OPTIONS_WITH_FLAGS}
    return method_options.parse(flags.method, flags.option or (), short)


def _check_unit_and_accounting(flags: Flags) -> None:
    """Refuse a unit or an accounting that the method does not support. The error names the flag."""
    entry, name = method_options.find_method(flags.method), flags.method or method_options.DEFAULT_METHOD
    for flag, asked, known in (
        ("--unit", flags.unit.unit if flags.unit else entry.units[0], entry.units),
        ("--accounting", flags.accounting or Accounting.EXACT, entry.accounting),
    ):
        check(
            asked in known, f"{flag} is {asked}, which {name} does not support.", f"Choose one of: {', '.join(known)}."
        )


def _read_job(path: Path) -> tuple[str | bytes, dict[str, Any], Dictionary | None]:
    """Return a job from TOML or from the output of `plan --json`, the file's data set and providers, its dictionary.

    Any other job is returned unchanged, byte for byte.
    """
    text = path.read_bytes()
    try:
        raw = read_toml(path) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=_refuse_repeated_keys)
    except DpspcaError:
        raise
    except ValueError:
        return text, {}, None  # JobSpec.from_json reports what is wrong
    if not isinstance(raw, dict):
        return text, {}, None
    is_own_form = raw.keys() & {*DATA_KEYS, "job"} or _has_short_forms(raw) or job_dictionaries.names_a_file(raw)
    if path.suffix != ".toml" and not is_own_form:
        return text, {}, None
    rows = {name: raw.pop(name) for name in DATA_KEYS if name in raw}
    job, known = _with_full_unit_name(raw.get("job", raw)), None
    if job_dictionaries.names_a_file(job):
        job, known = job_dictionaries.resolved(job, path.parent)
    return json.dumps(_with_component_count(job)), rows, known


def _has_short_forms(job: dict[str, Any]) -> bool:
    """Return whether a file has values that a job spec does not have: a short unit name, or components = "auto"."""
    return job.get("unit") in SHORT_UNITS or job.get("components") == AUTO


def _with_full_unit_name(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Replace the estimator's short name of a unit by the full name."""
    if isinstance(job, dict) and job.get("unit") in SHORT_UNITS:
        return job | {"unit": UnitFlag(job["unit"]).unit.value}
    return job


def _with_component_count(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Replace components = "auto" by a number, and have the method leave out components that do not show.

    Whatever else is wrong with the job is left to ``JobSpec.from_json``.
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


def _data_set_and_providers(path: Path, rows: dict[str, Any]) -> tuple[str | None, tuple[str, ...] | None]:
    data_set, providers = map(rows.get, DATA_KEYS)
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


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that gives a key twice: when it is written again, only one would be left."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _check_center(flags: Flags) -> None:
    """Refuse a mean, or a bound for it, that the chosen centring does not use, and a missing one that it needs."""
    for center, name in ((Centering.PRIVATE, "mean_bound"), (Centering.PUBLIC, "public_mean")):
        given = getattr(flags, name) is not None
        check(
            given == (flags.center is center) or (flags.dictionary is not None and not given and name == "mean_bound"),
            f"{_flag(name)} and --center {center.value} go together, but only one of the two is given.",
            "Give both or neither.",
        )


def _public_mean(path: Path) -> tuple[float, ...]:
    with reading(path, "a mean: a JSON array of one number per column"):
        return tuple(json.loads(path.read_bytes()))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
