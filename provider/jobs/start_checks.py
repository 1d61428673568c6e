"""What is decided once, when a provider starts, so that nothing a row says shows in a refusal later."""

import logging
from collections.abc import Callable, Mapping, Sequence

from dpspca.common.errors import RefusedError
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.queries import largest_entry
from dpspca.provider.data import CheckedRows, DataSet, duplicates
from dpspca.provider.evaluate import SpectralCheck

from .permission import Allowing

_log = logging.getLogger(__name__)


def require_own_names(
    named: Mapping[str, frozenset[str]], digests: Mapping[str, str], known_as: Callable[[Sequence[str]], str | None]
) -> None:
    """Refuse rows under another name than the one under which they were spent on: that would be a second budget.

    ``named`` names rows by what they say; an earlier version of the ledger knows them by their digest. ``known_as``
    gives the data set that a ledger knows by one of some names. This is checked at the start, before anybody connects,
    so that what rows are shows in no answer and no refusal; and by ``dpspca doctor``.
    """
    beside = duplicates(named)
    before = [(known_as([*names, digests[name]]), name) for name, names in named.items()]
    for known, name in (*before, *beside):
        if known not in {None, name}:
            raise RefusedError(
                f"The rows of '{name}' are those of '{known}', whose budget they have.",
                f"Offer them as '{known}' alone: what was spent on rows stays spent, whatever they are called and in "
                "whatever form or order they are saved.",
            )


def decided_at_start(data_sets: Mapping[str, DataSet], policy: Callable[[], Allowing]) -> dict[str, SpectralCheck]:
    """Decide about every matrix on which the policy allows the unit spectral; tell the steward of those that fail."""
    found = {}
    for name, rows in data_sets.items():
        try:
            rules = policy().rules(name)
        except RefusedError:
            continue
        if rules.unit is PrivacyUnit.SPECTRAL and rules.least_bound is not None and isinstance(rows, CheckedRows):
            found[name] = SpectralCheck.of(rows, rules.least_bound)
            if not found[name].holds:
                _log.error(
                    "Every job on '%s' is refused: an entry is more than %d times the least norm_bound of the policy.",
                    name,
                    largest_entry(rows.dimension),
                )
    return found
