"""What a job would ask, worked out from the job alone by the code that providers use to decide what they answer."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.common.algorithms import catalogue
from dpspca.common.algorithms.catalogue import CATALOGUE
from dpspca.common.errors import DpspcaError
from dpspca.common.privacy.units import PrivacyUnit
from dpspca.common.spec import Accounting, Budget, Centering, JobSpec, Scalar, Schema, check
from dpspca.common.transport.config import read_toml
from dpspca.common.transport.names import check_name

from . import options
from .reading import reading

NEEDED: Final = ("dimension", "components", "norm_bound", "unit", "epsilon", "delta")
ROWS: Final = ("data_set", "providers")
"""What a job's file may say besides the job: of which rows, and whose."""
HAVE_DEFAULTS: Final = (
    *("algorithm", "accounting", "rows_per_person", "explained_variance", "seed", "minimum_parties", "answer_seconds"),
)
"""Flags that are a job's own keys, and that a job need not have."""
A_JOB: Final = "a job as JSON or TOML"


class Unit(StrEnum):
    """The units of privacy by their own names and, for those of rows, by the estimator's."""

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
        """Give the unit that the name stands for."""
        return PrivacyUnit(f"row-{self.value}" if self.value in SHORT_UNITS else self.value)


SHORT_UNITS: Final = (Unit.REPLACE_ONE.value, Unit.ADD_REMOVE.value)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A job as the command line describes it; what was not given is None. ``flags.spread`` makes options of them."""

    dimension: Annotated[int | None, typer.Option(help="How many features a row has.")] = None
    components: Annotated[int | None, typer.Option(help="How many components to look for.")] = None
    algorithm: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(CATALOGUE)}; {options.USUAL} if left out. `dpspca algorithms` says what each does.",
            autocompletion=options.names,
            metavar="NAME",
        ),
    ] = None
    option: Annotated[
        list[str] | None,
        typer.Option(help="What only the algorithm knows; once for each option.", metavar="NAME=VALUE"),
    ] = None
    sparsity: Annotated[
        int | None,
        typer.Option(
            help="Short for --option sparsity=...: how many features may take part, all components together; at most "
            "as many as there are."
        ),
    ] = None
    norm_bound: Annotated[
        float | None,
        typer.Option(
            help="Longer rows are shortened to this; from public knowledge, not from the rows. For the units entry and "
            "spectral, the change of a matrix that is hidden."
        ),
    ] = None
    unit: Annotated[
        Unit | None,
        typer.Option(
            help="What is hidden of a row: what it holds (replace-one), or also that it is there (add-remove); or of a "
            "person with all their rows (person-replace-one, person-add-remove). Some algorithms hide less: one entry "
            "(entry), or a change of the whole matrix that is small (spectral)."
        ),
    ] = None
    rows_per_person: Annotated[
        int | None,
        typer.Option(
            help="How many rows of one person are protected together, at as many times the noise; 1 if left out. Where "
            "the unit is a person, no more rows of each are used."
        ),
    ] = None
    epsilon: Annotated[
        float | None, typer.Option(help="Privacy budget for each provider's rows: smaller is more private.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="Privacy budget: keep it far below one over the rows.")] = None
    accounting: Annotated[
        Accounting | None,
        typer.Option(help="The least noise that the budget allows (exact, if left out), or the paper's own formula."),
    ] = None
    rounds: Annotated[int | None, typer.Option(help="Short for --option rounds=...; left out, the budget decides.")] = (
        None
    )
    center: Annotated[Centering | None, typer.Option(help="Which mean is taken off the rows; left out, none.")] = None
    mean_bound: Annotated[float | None, typer.Option(help="For a private mean, longer rows are shortened to this.")] = (
        None
    )
    public_mean: Annotated[Path | None, typer.Option(help="A public mean: a JSON array of a number a column.")] = None
    explained_variance: Annotated[
        bool | None,
        typer.Option(
            "--explained-variance/--no-explained-variance",
            help="Whether to ask, too, what the components explain; left out, it is asked.",
        ),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="A public number that what is random and no secret follows from; 0 if left out.")
    ] = None
    minimum_parties: Annotated[
        int | None,
        typer.Option(
            help="Fail when fewer providers than this are left; 1 if left out, which is refused where a policy asks "
            "for more."
        ),
    ] = None
    answer_seconds: Annotated[
        int | None, typer.Option(help="How long to wait for a provider's answer; 600 if left out.")
    ] = None


@dataclass(frozen=True, slots=True)
class Order:
    """What a file asks for: a job, and, where it says so, of which rows."""

    spec: JobSpec
    data_set: str | None = None
    providers: tuple[str, ...] | None = None


def from_file(path: Path, flags: Flags) -> Order:
    """Read a job; flags beside it would leave open which of the two counts."""
    given = [_flag(name) if value is not False else _flag(f"no_{name}") for name, value in _given(flags).items()]
    check(not given, f"Both a job and flags are given: {', '.join(given)}.", "Change the job, or leave it out.")
    with reading(path, A_JOB):
        job, rows = _job_in(path)
        spec = JobSpec.from_json(job)
        spec.schema.require_named()
        catalogue.plan(spec)  # an algorithm reads its options only now
        return Order(spec, *_names(path, rows))


def from_flags(flags: Flags, schema: Schema | None = None) -> JobSpec:
    """Make a job of the flags. None of those needed has a default: each is part of what is promised or paid for.

    ``schema`` stands in for the number of columns, where a federation has told them.
    """
    check_given(flags, columns_known=schema is not None)
    values: dict[str, Any] = asdict(flags)
    others = {name: value for name, value in _given(flags).items() if name in HAVE_DEFAULTS}
    return JobSpec(
        schema=schema or Schema(values["dimension"]),
        unit=values["unit"].unit,
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=values["norm_bound"],
        components=values["components"],
        centering=flags.center or Centering.NONE,
        mean_bound=flags.mean_bound,
        public_mean=_public_mean(flags.public_mean) if flags.public_mean else None,
        options=_options(flags),
        **others,
    )


def check_given(flags: Flags, *, columns_known: bool) -> None:
    """Refuse flags that make no job; the number of columns may come from elsewhere."""
    known, own = {*_given(flags), *(["dimension"] if columns_known else [])}, _options(flags)
    missing = [_flag(name) for name in NEEDED if name not in known] + options.missing(flags.algorithm, own)
    check(not missing, f"Without a job, these flags are needed: {', '.join(missing)}.", "Give them, or a job.")
    sparsity = own.get("sparsity")
    if isinstance(sparsity, int):
        check_sparsity(sparsity, flags.components, flags.dimension)
    _check_promise(flags)
    _check_center(flags)


def _given(flags: Flags) -> dict[str, Any]:
    """Give the flags that were given; one that may be repeated and was not is an empty list."""
    return {name: value for name, value in asdict(flags).items() if value is not None and value != []}


def _options(flags: Flags) -> dict[str, Scalar]:
    short = {name: getattr(flags, name) for name in options.SHORT}
    return options.read(flags.algorithm, flags.option or (), short)


def _check_promise(flags: Flags) -> None:
    """Refuse a unit or an accounting that the algorithm does not have, in the words of the flags."""
    entry, name = options.chosen(flags.algorithm), flags.algorithm or options.USUAL
    for flag, asked, known in (
        ("--unit", flags.unit.unit if flags.unit else entry.units[0], entry.units),
        ("--accounting", flags.accounting or Accounting.EXACT, entry.accounting),
    ):
        check(asked in known, f"{flag} is {asked}, which {name} does not have.", f"It has: {', '.join(known)}.")


def check_sparsity(sparsity: int, components: int | None, columns: int | None) -> None:
    """Refuse fewer features than components, or more than there are, in the words of the flags."""
    check(
        components is None or sparsity >= components,
        f"--sparsity is {sparsity} and --components is {components}: that many components cannot be at right angles to "
        "one another on fewer features than there are components.",
        f"Give a --sparsity of at least {components}, or fewer components.",
    )
    check(
        columns is None or sparsity <= columns,
        f"--sparsity is {sparsity}, and there are {columns} features.",
        f"Give a --sparsity of at most {columns}.",
    )


def _job_in(path: Path) -> tuple[str | bytes, dict[str, Any]]:
    """Take a job out of TOML, or of a plan as `plan --json` prints it, and what it says of rows.

    Any other job stays as it is, byte for byte.
    """
    text = path.read_bytes()
    try:
        raw = read_toml(path) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=_once_each)
    except DpspcaError:
        raise
    except ValueError:
        return text, {}  # the reader of jobs says what is wrong
    if not isinstance(raw, dict):
        return text, {}
    if path.suffix != ".toml" and not (raw.keys() & {*ROWS, "job"} or raw.get("unit") in SHORT_UNITS):
        return text, {}
    rows = {name: raw.pop(name) for name in ROWS if name in raw}
    return json.dumps(_with_whole_unit(raw.get("job", raw))), rows


def _with_whole_unit(job: Any) -> Any:  # noqa: ANN401  # whatever the file holds
    """Take a unit by the estimator's name too, as the flags do."""
    if isinstance(job, dict) and job.get("unit") in SHORT_UNITS:
        return job | {"unit": Unit(job["unit"]).unit.value}
    return job


def _names(path: Path, rows: dict[str, Any]) -> tuple[str | None, tuple[str, ...] | None]:
    data_set, providers = map(rows.get, ROWS)
    check(
        providers is None or isinstance(providers, list),
        f"{path}: providers is {providers!r:.120}.",
        "Give a list of names, or leave it out to ask all.",
    )
    try:
        named = None if data_set is None else check_name("data_set", data_set)
        return named, None if providers is None else tuple(check_name("a provider", each) for each in providers)
    except DpspcaError as problem:
        raise type(problem)(f"{path}: {problem.what}", problem.remedy) from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Read no object that gives a key twice: written anew, it would seem to have given it once."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _check_center(flags: Flags) -> None:
    """Refuse a mean or a bound on it that the centring asked for would not use, or lacks."""
    for center, name in ((Centering.PRIVATE, "mean_bound"), (Centering.PUBLIC, "public_mean")):
        given = getattr(flags, name) is not None
        check(
            given == (flags.center is center),
            f"{_flag(name)} goes with --center {center.value}, and only one of the two is given.",
            "Give both or neither.",
        )


def _public_mean(path: Path) -> tuple[float, ...]:
    with reading(path, "a mean: a JSON array of one number a column"):
        return tuple(json.loads(path.read_bytes()))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
