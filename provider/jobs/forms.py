"""Whether a job fits the form of a data set: its columns, their names, and whether the person of each row is known.

This follows from the signed job and public facts, and not from a row. So it is decided before a person is asked to
approve the job, and before rows are prepared for it.
"""

from collections.abc import Mapping

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.job import JobSpec, pairing_of
from dpspca.provider.data import Arrivals, ClusterRows, DataSet, check_names, require_unit


def require_form(data_sets: Mapping[str, DataSet], name: str, spec: JobSpec) -> None:
    """Refuse a job about a data set that is not there, or whose form does not allow it."""
    rows = data_sets.get(name)
    if rows is None:
        raise RefusedError(
            f"This provider has no data set '{name}'.", "Run `dpspca datasets` to list what is on offer."
        )
    # Check before rows are left out or reused: a refusal must not show which are left, and a matrix must be whole.
    persons, uncut = (None, None) if isinstance(rows, Arrivals) else (rows.persons, rows.uncut)
    require_unit(spec.unit, persons=persons is not None, cut=uncut is not None)
    if isinstance(rows, ClusterRows):
        _require_sums_of_rows(spec)
    if spec.dictionary is not None:
        return  # the job is about some of the columns, which ``HeldDictionary.require`` has found
    if rows.dimension != spec.schema.dimension:
        raise InvalidParameterError(
            f"The rows have {rows.dimension} columns, but the job has {spec.schema.dimension}.",
            "Give the columns that the job names, in its order.",
        )
    check_names(rows.names, spec.schema)


def _require_sums_of_rows(spec: JobSpec) -> None:
    """Refuse a job that needs more of rows than sums over them, if they are with a cluster."""
    if not spec.unit.is_row:
        raise RefusedError(
            f"A cluster holds the rows of this data set, but the unit {spec.unit} is for a matrix.",
            "Choose a unit of rows.",
        )
    if pairing_of(spec) is not None:
        raise RefusedError(
            "A cluster holds the rows of this data set, and cannot compute differences of pairs (the centering pairs).",
            "Choose another centring.",
        )
