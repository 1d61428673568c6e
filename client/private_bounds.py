"""Whether a job that gives no norm bound, or none for its mean, can have its method find one privately."""

from dataclasses import replace

from dpspca.common.algorithms import CATALOGUE
from dpspca.common.job import AutoCentering, JobSpec
from dpspca.common.privacy import PrivacyUnit


def finds_bound(method: str, unit: PrivacyUnit) -> bool:
    """Tell whether the method finds the norm bound if none is given: it can, and the unit protects rows."""
    return method in CATALOGUE and CATALOGUE[method].finds_bound and unit.is_row


def centred(spec: JobSpec, wish: AutoCentering, providers: int | None, *, sparse: bool = False) -> JobSpec:
    """Return the job with its centring chosen. ``providers`` is their number, if it is known.

    ``sparse`` says that some provider offers sparse rows. It would refuse to subtract a mean.
    """
    wish = replace(wish, sparse=wish.sparse or sparse)
    return wish.chosen(spec, providers=providers, finds_bound=finds_bound(spec.method, spec.unit))


def methods_that_find_bounds() -> list[str]:
    """Name the methods that can find a norm bound privately."""
    return [name for name, entry in CATALOGUE.items() if entry.finds_bound]
