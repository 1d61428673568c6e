"""Checks that are made once, when a provider starts, so that no later refusal depends on a row."""

import logging
from collections.abc import Callable, Mapping, Sequence

from dpspca.common.errors import RefusedError
from dpspca.common.privacy import PrivacyUnit
from dpspca.common.queries import largest_entry
from dpspca.provider.data import CheckedRows, DataSet, PersonNames, duplicates
from dpspca.provider.evaluate import SpectralCheck
from dpspca.provider.ledger import Ledger

from .permission import PolicyLike

_log = logging.getLogger(__name__)


def require_one_name(
    named: Mapping[str, frozenset[str]], digests: Mapping[str, str], known_as: Callable[[Sequence[str]], str | None]
) -> None:
    """Refuse rows that are offered under another name than before, because that would give them a second budget.

    ``named`` has the fingerprints of each data set's rows, and ``digests`` the digests by which an earlier version of
    the ledger knows them. ``known_as`` returns the data set that the ledger has for one of some fingerprints. This is
    checked at the start, before anybody connects, so that no answer and no refusal depends on the rows' content.
    ``dpspca doctor`` checks it too.
    """
    beside = duplicates(named)
    before = [(known_as([*names, digests[name]]), name) for name, names in named.items()]
    for known, name in (*before, *beside):
        if known not in {None, name}:
            raise RefusedError(
                f"The data set '{name}' has the same rows as '{known}', and rows have only one budget.",
                f"Offer them as '{known}' only. What was spent on rows stays spent under any name, form or order.",
            )


def names_of_persons(data_set: str, rows: DataSet, found: frozenset[str], ledger: Ledger) -> frozenset[str]:
    """Return names for which rows are whose. Log if that changed since rows of the data set were used for answers.

    What is spent protects the persons of that time. A person who had two names then, and has one now, was protected
    less than the policy says, up to as many times less as names were joined. The ledger cannot know which of the two
    is right, so no job is refused.
    """
    if not isinstance(rows, CheckedRows) or rows.persons is None:
        return frozenset()
    persons = PersonNames.of(rows.persons, data_set)
    recorded, groups = map(ledger.name_of, (persons.recorded, persons.groups))
    is_known = [ledger.data_set_of_rows(names) == data_set for names in (found, [recorded], [groups])]
    if is_known == [True, True, False]:
        _log.error(
            "The persons of the rows of '%s' are not those of earlier answers. If rows of several persons now belong "
            "to one, the lifetime of the policy does not hold for that person, because earlier answers protected each "
            "part alone. Put the earlier persons file or column back, or state a lifetime that allows for it.",
            data_set,
        )
    return frozenset({recorded, groups})


def check_spectral_matrices(
    data_sets: Mapping[str, DataSet], policy: Callable[[], PolicyLike]
) -> dict[str, SpectralCheck]:
    """Check every matrix on which the policy allows the unit spectral, and log the ones that fail."""
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
                    "Every job on '%s' is refused: an entry is above %d times the least norm_bound of the policy.",
                    name,
                    largest_entry(rows.dimension),
                )
    return found
