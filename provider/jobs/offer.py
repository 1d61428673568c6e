"""The data sets that a provider offers at one time, and what follows from their rows. A reload replaces all of it.

It is made and checked before it is offered, so that no answer and no refusal depends on the rows' content.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from dpspca.common.dictionary import Preparation
from dpspca.common.errors import RefusedError
from dpspca.common.job import JobSpec
from dpspca.common.privacy import PrivacyUnit
from dpspca.provider.data import DataSet, identify
from dpspca.provider.evaluate import SpectralCheck
from dpspca.provider.ledger import Ledger

from .held_dictionary import HeldDictionary
from .permission import PolicyLike
from .start_checks import check_spectral_matrices, names_of_persons, require_one_name

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OfferedData:
    """The offered data sets by name, and for each its dictionary, and the names of its rows in the ledger."""

    data_sets: Mapping[str, DataSet]
    dictionaries: Mapping[str, Preparation]
    digests: Mapping[str, str]
    fingerprints: Mapping[str, frozenset[str]]
    held: Mapping[str, HeldDictionary]
    spectral: Mapping[str, SpectralCheck]

    @classmethod
    def of(
        cls,
        data_sets: Mapping[str, DataSet],
        dictionaries: Mapping[str, Preparation],
        policy: Callable[[], PolicyLike],
        ledger: Ledger,
    ) -> Self:
        """Check what is to be offered. Refuse rows that have a budget under another name.

        What identifies rows is kept only as a name under the provider's key (``ledger/row_key.py``).
        """

        def is_known(identifier: str) -> bool:
            return ledger.data_set_of_rows([ledger.name_of(identifier)]) is not None

        identified = {name: identify(rows, is_known, name) for name, rows in data_sets.items()}
        digests = {name: ledger.name_of(digest) for name, (digest, _) in identified.items()}
        fingerprints = {name: frozenset(map(ledger.name_of, found)) for name, (_, found) in identified.items()}
        require_one_name(fingerprints, digests, ledger.data_set_of_rows)
        for name, rows in data_sets.items():
            fingerprints[name] |= names_of_persons(name, rows, fingerprints[name], ledger)
        held = {name: HeldDictionary.of(name, each) for name, each in dictionaries.items()}
        return cls(data_sets, dictionaries, digests, fingerprints, held, check_spectral_matrices(data_sets, policy))

    def dictionary_of(self, name: str) -> HeldDictionary:
        """Return the held dictionary of a data set, also if it has none."""
        return self.held.get(name) or HeldDictionary.of(name, None)

    def has_same(self, name: str, other: "OfferedData") -> bool:
        """Tell whether a data set has the same rows in another offer."""
        return name in self.digests and self.digests[name] == other.digests.get(name)

    def differs_from(self, other: "OfferedData") -> bool:
        """Tell whether others would notice a difference: other names, other rows, or other dictionaries."""
        digests = [{name: each.digest for name, each in offer.held.items()} for offer in (self, other)]
        return self.digests != other.digests or digests[0] != digests[1]

    def report_broken_promises(self, policy: Callable[[], PolicyLike], ledger: Ledger) -> None:
        """Log data sets whose policy promises more than earlier jobs protected.

        The ledger refuses every job on these. Other data sets are not affected.
        """
        for name in self.data_sets:
            with suppress(RefusedError):  # no rules: nothing is allowed, and nothing promised
                stated = policy().rules(name).promise
                try:
                    if stated:
                        ledger.require_promise(name, stated)
                except RefusedError as problem:
                    _log.error("Every job on the data set '%s' is refused: %s", name, problem)

    def require_spectral_check(self, name: str, spec: JobSpec, least_bound: float | None) -> None:
        """Refuse a job with the unit spectral if its matrix failed the check, whatever the job's bound."""
        if spec.unit is not PrivacyUnit.SPECTRAL or least_bound is None:
            return
        decided = self.spectral.get(name)
        if decided is None:
            raise RefusedError(
                "The policy did not allow the unit spectral on this data set when the provider read it.",
                "The provider's operator must reload or restart the provider.",
            )
        decided.require(least_bound)
