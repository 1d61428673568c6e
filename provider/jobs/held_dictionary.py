"""Whether a job's dictionary is the one that this provider holds, and which of its columns the job is about.

Both follow from the signed job and the provider's settings, and from no row. It is decided before anything is reserved.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from dpspca.common.dictionary import Dictionary, Preparation, feature_of
from dpspca.common.errors import DpspcaError, MissingFeatureError, OtherDictionaryError, RefusedError
from dpspca.common.job import JobSpec
from dpspca.common.log_context import THE_COORDINATOR, about

_NAMED: Final = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldDictionary:
    """A provider's settings for the dictionary of a data set; ``preparation`` is None if it has none."""

    data_set: str
    preparation: Preparation | None
    digest: str | None

    @classmethod
    def of(cls, data_set: str, preparation: Preparation | None) -> Self:
        """Take the digest once: a dictionary of a panel is long."""
        return cls(data_set, preparation, None if preparation is None else preparation.dictionary.digest())

    def public_bound(self, spec: JobSpec) -> float | None:
        """Return the norm bound that follows from the job's dictionary, or None if the job does not fit it."""
        with suppress(DpspcaError):
            if spec.dictionary is not None and spec.dictionary == self.digest:
                return self._features(spec).norm_bound()
        return None

    def require(self, spec: JobSpec) -> None:
        """Refuse a job that names another dictionary, or features that this provider does not have.

        Which dictionary is held is not sent here; only terms state it. The steward finds both digests in the log.
        """
        if spec.dictionary is None:
            return
        held = self.digest
        if spec.dictionary != held:
            _log.warning(
                "A job on '%s' was refused: it names the dictionary %s, and the settings hold %s. "
                "Compare the two files: dpspca dictionary check FILE OTHER.",
                self.data_set,
                spec.dictionary,
                held or "none",
                extra=about(THE_COORDINATOR),
            )
            raise OtherDictionaryError(
                "This provider does not hold the dictionary that the job names, so it refuses the job.",
                "The refusal cost nothing. Agree with the steward on one dictionary.",
            )
        self._features(spec)

    def _features(self, spec: JobSpec) -> Dictionary:
        """Return the features that a job is about. Refuse names that this provider does not have."""
        assert self.preparation is not None
        if spec.schema.names is None:
            raise RefusedError(
                "The job has a dictionary, but does not name its columns.", "Sign a job that names its features."
            )
        absent = list(self._absent(spec.schema.names))
        if absent:
            more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
            raise MissingFeatureError(
                f"This provider does not have: {', '.join(f'{name!a:.60}' for name in absent[:_NAMED])}{more}.",
                "The refusal cost nothing. Leave these features out, or ask other providers.",
            )
        try:
            return self.preparation.held.with_columns(spec.schema.names)
        except DpspcaError as problem:
            raise RefusedError(problem.what, problem.remedy) from None

    def _absent(self, columns: tuple[str, ...]) -> Iterator[str]:
        assert self.preparation is not None
        held = frozenset(self.preparation.held.names)
        yield from (name for name in dict.fromkeys(map(feature_of, columns)) if name not in held)
