"""Allowed values of the fields of a job: one enumeration for each."""

from enum import StrEnum


class Accounting(StrEnum):
    """How noise follows from a budget."""

    EXACT = "exact"
    """Gaussian differential privacy: the least noise that the budget allows."""
    PUBLISHED = "published"
    """The papers' own formulas, to reproduce their figures."""


class Centering(StrEnum):
    """Which mean is subtracted from the rows before anything else."""

    NONE = "none"
    PUBLIC = "public"
    PRIVATE = "private"
    PAIRS = "pairs"  # none: differences of pairs of rows are used (``centering.py``)


class CenteringReason(StrEnum):
    """Why the centring of a job was chosen, if it was chosen by public facts (``centering.py`` has the words)."""

    MATRIX = "matrix"
    DICTIONARY = "dictionary"
    PUBLIC_MEAN = "public-mean"
    AFFORDABLE = "affordable"
    SMALL_BUDGET = "small-budget"
    FEW_ROWS = "few-rows"
    UNKNOWN_ROWS = "unknown-rows"
    MANY_COLUMNS = "many-columns"
    SPARSE_ROWS = "sparse-rows"
    NO_MEAN_BOUND = "no-mean-bound"

    @property
    def centerings(self) -> frozenset[Centering]:
        """The ways of centring that it can be the reason for."""
        match self:
            case self.MATRIX | self.DICTIONARY:
                return frozenset({Centering.NONE})
            case self.PUBLIC_MEAN:
                return frozenset({Centering.PUBLIC})
            case self.AFFORDABLE:
                return frozenset({Centering.PRIVATE})
            case _:
                return frozenset({Centering.NONE, Centering.PAIRS})


class Scaling(StrEnum):
    """The numbers by which columns are divided, after the mean is subtracted and before rows are clipped."""

    NONE = "none"
    PRIVATE = "private"
    """The root of each column's mean square, found privately."""


class Weights(StrEnum):
    """How much each provider counts in a sum of answers."""

    AUTO = "auto"
    """Providers with more rows count for more than their rows, as far as that makes the result less noisy."""
    EQUAL = "equal"
    """Every row counts the same, at every provider."""
