"""Values that the estimator is given, checked."""

import secrets
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np

from dpspca.client.private_bounds import centred, finds_bound
from dpspca.common.algorithms import AUTO, catalogue
from dpspca.common.checks import check, check_bound, choice
from dpspca.common.errors import InvalidParameterError
from dpspca.common.frames import column_names, numeric_array, require_table
from dpspca.common.job import PRIVATE, PRIVATE_BOUND, AutoCentering, Centering, CenteringChoice, JobSpec, Scalar
from dpspca.common.plan import Plan
from dpspca.provider.data import check_rows

from .unit_names import unit_named


def rows_of(rows: Any, *, least: int) -> tuple[Any, Any]:  # noqa: ANN401  # whatever holds numbers
    """Return a table as scikit-learn takes it, and its rows, checked.

    scikit-learn does not see the names of the columns of a batch of Arrow, so the batch becomes a table.
    """
    if type(rows).__name__ == "RecordBatch":
        rows = import_module("pyarrow").Table.from_batches([rows])
    return rows, check_rows(_numbers_of(rows), least=least).matrix


def _numbers_of(rows: Any) -> Any:  # noqa: ANN401  # whatever holds numbers
    """Convert an array of Python objects that are numbers to a numeric array, as scikit-learn's callers expect."""
    check(rows is not None, "X is None.", "Give X, or a federation and the name of a data set.")
    if not isinstance(rows, Mapping):
        require_table(rows)
    if hasattr(rows, "tocsr") or column_names(rows) or np.ma.is_masked(rows):
        return rows
    return numeric_array(rows)


def check_one_source(local: Mapping[str, Any], federation: Any, remote: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Refuse arguments about rows here beside a federation, and those about a federation's rows without one."""
    unfit = [name for name, value in (remote if federation is None else local).items() if value is not None]
    beside = "but no" if federation is None else "and a"
    remedy = (
        "X has the rows. To fit to a federation's rows, give federation=, too."
        if federation is None
        else "the providers hold the rows, and know whose they are."
    )
    listed = " and ".join(unfit)
    check(not unfit, f"fit was given {listed} {beside} federation.", f"Leave {listed} out: {remedy}")


class KnownRows(NamedTuple):
    """What is publicly known of the rows of a fit: how many providers hold them, how many there are, and their form."""

    providers: int | None = 1
    rows: int | None = None
    sparse: bool = False


ONE_PROVIDER: Final = KnownRows()


def job_of(values: Mapping[str, Any], of: KnownRows) -> JobSpec:
    """Make a job, and choose its centring by public facts if those decide. Its constructor checks the values."""
    asked = choice(CenteringChoice, "centering", values["centering"] or CenteringChoice.NONE)
    if not asked.is_automatic:
        return JobSpec(**{**values, "centering": asked.value})
    known = {"mean_bound", "public_mean"}
    job = JobSpec(**{name: value for name, value in values.items() if name not in {"centering", *known}})
    or_pairs = asked is CenteringChoice.AUTO_OR_PAIRS
    wish = AutoCentering(**{name: values[name] for name in known}, rows=of.rows, sparse=of.sparse, or_pairs=or_pairs)
    return centred(job, wish, of.providers)


def bounds_of(given: Any, public: float | None) -> dict[str, Any]:  # noqa: ANN401  # an estimator
    """Return an estimator's norm bound and that of a private mean, which the constructor of the job checks.

    Those that are not given follow from its dictionary, whose ``public`` bound is given then; or the method finds them,
    if it can.
    """
    usual = public
    if public is None and finds_bound(str(given.method), unit_named(given.unit)):
        usual = PRIVATE_BOUND
    norm, mean = map(_found_if_private, (given.norm_bound, given.mean_bound))
    if mean is None and given.centering == Centering.PRIVATE.value:
        mean = usual
    return {"norm_bound": check_bound("norm_bound", usual if norm is None else norm), "mean_bound": mean}


def _found_if_private(bound: Any) -> Any:  # noqa: ANN401  # the caller's value, not yet checked
    return PRIVATE_BOUND if isinstance(bound, str) and bound == PRIVATE else bound


def sparsity_of(given: Scalar, method: catalogue.Method, columns: int, unit: str | None) -> Scalar:
    """Return the method's option for ``sparsity``. A method that needs a value gets the number of all columns.

    Components of a symmetric matrix are not sparse.
    """
    option = method.option("sparsity")
    if given == AUTO and not unit_named(unit).is_row:
        return None
    return columns if given is None and option is not None and option.required else given


def rounds_of(plan: Plan) -> int:
    """Count the planned queries that the components are found from."""
    return sum(step.query.finds_components and not step.explains for step in plan)


def methods_with(option: str) -> list[str]:
    """Name the methods that have an option."""
    return [name for name, entry in catalogue.CATALOGUE.items() if entry.option(option)]


def seeds_of(random_state: Any) -> tuple[int, int | None]:  # noqa: ANN401  # what scikit-learn takes
    """Return a public seed for the start, and a seed for the noise, which is None unless the run must repeat."""
    from sklearn.utils import check_random_state  # noqa: PLC0415  # an extra

    if random_state is None:
        return secrets.randbits(63), None
    try:
        state = check_random_state(random_state)
    except ValueError as problem:
        raise InvalidParameterError(f"random_state: {problem}.", "Give None, an integer or a RandomState.") from None
    start, noise = state.randint(0, 2**31 - 1, size=2)
    return int(start), int(noise)
