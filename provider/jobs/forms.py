"""Whether a job fits the form of a data set: its columns, their names, and whether it says whose each row is.

This follows from the signed job and public facts, and from no row. So it is decided before a person is asked to approve
the job, and before rows are prepared for it.
"""

from collections.abc import Mapping

from dpspca.common.errors import InvalidParameterError, RefusedError
from dpspca.common.spec import JobSpec
from dpspca.provider.data import CheckedRows, DataSet, check_names, require_unit


def require_form(data_sets: Mapping[str, DataSet], name: str, spec: JobSpec) -> None:
    """Refuse a job about a data set that is not there, or whose form does not allow it."""
    rows = data_sets.get(name)
    if rows is None:
        raise RefusedError(
            f"This provider has no data set '{name}'.", "Run `dpspca datasets` to list what is on offer."
        )
    # Check before rows are left out or reused: a refusal must not show which are left, and a matrix must be whole.
    persons, uncut = (rows.persons, rows.uncut) if isinstance(rows, CheckedRows) else (None, None)
    require_unit(spec.unit, persons=persons is not None, cut=uncut is not None)
    if spec.dictionary is not None:
        return  # the job is about some of the columns, which ``HeldDictionary.require`` has found
    if rows.dimension != spec.schema.dimension:
        raise InvalidParameterError(
            f"The rows have {rows.dimension} columns, but the job has {spec.schema.dimension}.",
            "Give the columns that the job names, in its order.",
        )
    check_names(rows.names, spec.schema)
