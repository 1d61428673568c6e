"""Reads a job from flags, with the checks that providers use to decide what they answer."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from dpspca.client import component_count
from dpspca.client.demo import check_sparsity
from dpspca.client.described_jobs import load_dictionary
from dpspca.client.files import reading
from dpspca.client.jobs import DEFAULT_METHOD, job_dictionaries
from dpspca.client.private_bounds import centred, finds_bound, methods_that_find_bounds
from dpspca.common.algorithms import AUTO, CATALOGUE
from dpspca.common.checks import check
from dpspca.common.decoding import Rule, Source, decode, parse_json
from dpspca.common.dictionary import Dictionary
from dpspca.common.errors import InvalidParameterError
from dpspca.common.job import (
    PRIVATE,
    PRIVATE_BOUND,
    Accounting,
    AutoCentering,
    Budget,
    Centering,
    CenteringChoice,
    JobSpec,
    Scalar,
    Scaling,
    Schema,
    Weights,
    check_components,
)
from dpspca.common.names import shortened
from dpspca.common.privacy import PrivacyUnit

from . import method_options

REQUIRED: Final = ("dimension", "components", "norm_bound", "unit", "epsilon", "delta")
"""Flags without a default. The norm bound has one if the method finds it: private."""
OPTIONAL: Final = (
    *("method", "accounting", "rows_per_person", "explained_variance", "weights", "seed", "minimum_providers"),
    "answer_seconds",
)
"""Flags that are keys of a job and have a default there."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """A job as the command line describes it; None if not given. ``with_job_flags`` makes each field an option."""

    dimension: Annotated[int | None, typer.Option(help="Number of columns (features) of a row.")] = None
    components: Annotated[
        str | None,
        typer.Option(
            help="Number of components to find; or auto: look for up to "
            f"{component_count.MOST_COMPONENTS}, and keep those that stand out from the noise.",
            metavar="NUMBER|auto",
        ),
    ] = None
    method: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(CATALOGUE)}. Default: {DEFAULT_METHOD}. `dpspca methods` describes each.",
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
            "from the rows. private: the method finds it, as part of the price. That is the default of methods that "
            "can. For the units entry and spectral: how large a change of the matrix is protected.",
            metavar="NUMBER|private",
        ),
    ] = None
    unit: Annotated[
        PrivacyUnit | None,
        typer.Option(
            help="Privacy unit: what is protected. The content of a row (row-replace-one), or also its presence "
            "(row-add-remove). The same for a person with all their rows (person-replace-one, person-add-remove). Some "
            "methods protect less: one entry of a matrix (entry), or a small change of the whole matrix (spectral)."
        ),
    ] = None
    rows_per_person: Annotated[
        int | None,
        typer.Option(
            help="How many rows of one person are protected together. The noise is wider by this factor. Default: 1. "
            "If the unit is a person: how many rows of each person are used."
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
    centering: Annotated[
        CenteringChoice | None,
        typer.Option(
            help="How to centre rows. auto: choose, and say why. auto-or-pairs: the same, but it may choose pairs for "
            "several providers, too. A plan may leave it out (none). A job that is signed says it, unless a "
            "dictionary does."
        ),
    ] = None
    mean_bound: Annotated[
        str | None,
        typer.Option(
            help="For --centering private or auto: bound on the length of a row before the mean is subtracted. "
            "private, the default of methods that can: the method finds it, as part of the price.",
            metavar="NUMBER|private",
        ),
    ] = None
    scaling: Annotated[
        Scaling | None,
        typer.Option(
            help="How to scale columns of different units. private: divide each column by its root mean square, which "
            "is found for a tenth of the budget; bounds are then those of scaled columns. Default: none."
        ),
    ] = None
    public_mean: Annotated[Path | None, typer.Option(help="For --centering public or auto: a JSON array of means.")] = (
        None
    )
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
            help="How much each provider counts. auto: providers with more rows count for more than their share of the "
            "rows, as far as that makes the result less noisy. equal: every row counts the same. Default: auto."
        ),
    ] = None
    dictionary: Annotated[
        Path | None,
        typer.Option(
            help="File of the shared dictionary (TOML or JSON) with which providers prepare rows. Columns and the "
            "norm bound follow from it. If a job names a dictionary by its digest: the file of that dictionary."
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
    minimum_providers: Annotated[
        int | None,
        typer.Option(
            help="The job fails if fewer providers than this remain. Default: 1, which a provider refuses if its "
            "policy requires more."
        ),
    ] = None
    answer_seconds: Annotated[int | None, typer.Option(help="Seconds to wait for an answer. Default: 600.")] = None


def from_flags(
    flags: Flags, schema: Schema | None = None, *, providers: int | None = None, sparse: bool = False
) -> JobSpec:
    """Return the job that the flags describe. Required flags have no default: each is part of the promise or the price.

    ``schema`` replaces the number of columns if the federation has sent it. ``providers`` is their number, if known,
    and ``sparse`` says that some of them offer sparse rows: both help to choose a centring.
    """
    check_given(flags, columns_known=schema is not None)
    values: dict[str, Any] = asdict(flags)
    others = {name: value for name, value in given_flags(flags).items() if name in OPTIONAL}
    known = dictionary_of(flags)
    if known is not None:
        following = job_dictionaries.follows(known, flags.feature or None, flags.centering)
        schema, others = Schema(**following["schema"]), others | {"dictionary": known.digest()}
        values = {"norm_bound": following["norm_bound"], "mean_bound": following.get("mean_bound")} | given_flags(flags)
    columns = schema or Schema(values["dimension"])
    components, options = _components(values["components"]), _options(flags)
    if components is None:
        components = component_count.automatic(columns.dimension, options.get("sparsity"))
        options[component_count.OPTION] = True
    mean: dict[str, Any] = {
        "mean_bound": _mean_bound(values["mean_bound"], flags),
        "public_mean": _public_mean(flags.public_mean) if flags.public_mean else None,
    }
    is_open = flags.centering is not None and flags.centering.is_automatic
    spec = JobSpec(
        schema=columns,
        unit=values["unit"],
        budget=Budget(values["epsilon"], values["delta"]),
        norm_bound=_bound("--norm-bound", PRIVATE if values["norm_bound"] is None else values["norm_bound"]),
        components=check_components("--components", components, columns.dimension),
        scaling=flags.scaling or Scaling.NONE,
        options=options,
        **({} if is_open else {"centering": (flags.centering or CenteringChoice.NONE).value} | mean),
        **others,
    )
    wish = AutoCentering(**mean, or_pairs=flags.centering is CenteringChoice.AUTO_OR_PAIRS)
    return centred(spec, wish, providers, sparse=sparse) if is_open else spec


def check_given(flags: Flags, *, columns_known: bool) -> None:
    """Refuse flags that do not describe a job. With ``columns_known``, the number of columns may be missing."""
    follow = ["dimension", "norm_bound"] if flags.dictionary is not None else ["dimension"] if columns_known else []
    known, own = {*given_flags(flags), *follow}, _options(flags)
    if _finds_bound(flags):
        known.add("norm_bound")
    check(not flags.feature or flags.dictionary is not None, "--feature needs --dictionary.", "Add --dictionary FILE.")
    check(
        flags.dimension is None or flags.dictionary is None,
        "Both --dimension and --dictionary are given.",
        "Leave --dimension out: columns follow from the dictionary.",
    )
    missing = [flag_name(name) for name in REQUIRED if name not in known] + method_options.missing(flags.method, own)
    check(
        not missing,
        f"Without a job's file, these flags are needed: {', '.join(missing)}.",
        f"Give them, or a job's file.{_private_bound_hint(flags) if '--norm-bound' in missing else ''}",
    )
    components, sparsity = _components(flags.components or AUTO), own.get("sparsity")
    if components is None:
        component_count.require_can_decide("--components", flags.method or DEFAULT_METHOD)
        check(
            component_count.OPTION not in own,
            f"--components auto sets the option {component_count.OPTION}, which is given too.",
            f"Leave --option {component_count.OPTION} out, or give a number of components.",
        )
    if isinstance(sparsity, int):
        check_sparsity(sparsity, components, flags.dimension)
    _check_unit_and_accounting(flags)
    _check_centering(flags)


def _private_bound_hint(flags: Flags) -> str:
    """Say whether the norm bound may be private."""
    if flags.unit is not None and not flags.unit.is_row:
        return ""
    finding = methods_that_find_bounds()
    if (flags.method or DEFAULT_METHOD) in finding:
        return f" With a unit of rows, the norm bound may be left out: that means --norm-bound {PRIVATE}."
    return f" For --norm-bound {PRIVATE}, choose a method that can find it: --method {' or '.join(finding)}."


def dictionary_of(flags: Flags) -> Dictionary | None:
    """Read the dictionary that the flags name, if they name one."""
    return None if flags.dictionary is None else load_dictionary(flags.dictionary)


def public_bound(flags: Flags) -> float | None:
    """Return the norm bound that follows from the dictionary and the features of the flags, if they name one."""
    known = dictionary_of(flags)
    return None if known is None else float(job_dictionaries.follows(known, flags.feature or None, None)["norm_bound"])


def _mean_bound(given: str | float | None, flags: Flags) -> float | None:
    """Return the bound for a private mean. Where none is given, the method finds it if it can."""
    if given is not None:
        return _bound("--mean-bound", given)
    return PRIVATE_BOUND if flags.centering is CenteringChoice.PRIVATE and _finds_bound(flags) else None


def _finds_bound(flags: Flags) -> bool:
    return flags.unit is not None and finds_bound(flags.method or DEFAULT_METHOD, flags.unit)


def _bound(flag: str, text: str | float) -> float:
    if text == PRIVATE:
        return PRIVATE_BOUND
    try:
        return float(text)
    except ValueError:
        raise InvalidParameterError(
            f"{flag} is {shortened(text)}, neither a number nor {PRIVATE}.", f"Give a number, or {PRIVATE}."
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


def given_flags(flags: Flags) -> dict[str, Any]:
    """Return the flags that were given. A repeatable flag that was not given is an empty list."""
    return {name: value for name, value in asdict(flags).items() if value is not None and value != []}


def _options(flags: Flags) -> dict[str, Scalar]:
    short = {name: getattr(flags, name) for name in method_options.OPTIONS_WITH_FLAGS}
    return method_options.parse(flags.method, flags.option or (), short)


def _check_unit_and_accounting(flags: Flags) -> None:
    """Refuse a unit or an accounting that the method does not support. The error names the flag."""
    entry, name = method_options.find_method(flags.method), flags.method or DEFAULT_METHOD
    for flag, asked, known in (
        ("--unit", flags.unit or entry.units[0], entry.units),
        ("--accounting", flags.accounting or Accounting.EXACT, entry.accounting),
    ):
        check(
            asked in known, f"{flag} is {asked}, which {name} does not support.", f"Choose one of: {', '.join(known)}."
        )


def _check_centering(flags: Flags) -> None:
    """Refuse a mean, or a bound for it, that the chosen centring does not use, and a missing one that it needs."""
    for centering, name in ((Centering.PRIVATE, "mean_bound"), (Centering.PUBLIC, "public_mean")):
        given = getattr(flags, name) is not None
        if flags.centering is not None and flags.centering.is_automatic:
            continue  # both may be of use
        if name == "mean_bound" and not given and (flags.scaling is Scaling.PRIVATE or _finds_bound(flags)):
            continue  # scaled columns have a bound that fits, and others one that is found
        check(
            given == (flags.centering == centering.value)
            or (flags.dictionary is not None and not given and name == "mean_bound"),
            f"{flag_name(name)} and --centering {centering.value} go together, but only one of the two is given.",
            f"Give both or neither{', or --centering auto' if name == 'mean_bound' else ''}.",
        )


_MEAN: Final[Any] = Annotated[tuple[float, ...], Rule("Give a mean: a JSON array of one number per column.")]


def _public_mean(path: Path) -> tuple[float, ...]:
    with reading(path, "a mean: a JSON array of one number per column"):
        return decode(_MEAN, parse_json(path.read_bytes(), str(path)), Source(str(path)))


def flag_name(name: str) -> str:
    """Return a flag as the command line has it."""
    return "--" + name.replace("_", "-")
