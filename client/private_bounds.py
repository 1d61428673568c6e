"""Whether a job that gives no norm bound can have its method find one privately."""

from dpspca.common.algorithms import CATALOGUE
from dpspca.common.privacy import PrivacyUnit


def finds_bound(method: str, unit: PrivacyUnit) -> bool:
    """Tell whether the method finds the norm bound if none is given: it can, and the unit protects rows."""
    return method in CATALOGUE and CATALOGUE[method].finds_bound and unit.is_row


def methods_that_find_bounds() -> list[str]:
    """Name the methods that can find a norm bound privately."""
    return [name for name, entry in CATALOGUE.items() if entry.finds_bound]
