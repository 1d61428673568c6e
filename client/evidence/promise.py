"""The numbers of a privacy statement, which follow from the signed job."""

from typing import Any, Final

from dpspca.common.results import PrivacyStatement

NUMBERS: Final = (
    *("unit", "epsilon", "delta", "mu", "exact_epsilon", "accounting", "norm_bound", "mean_bound", "centering"),
    *("parties", "answers", "fresh_noise", "proven", "federated", "gaussian", "rows_per_person"),
)
"""The parts of a privacy statement that are not text."""


def promise(statement: PrivacyStatement) -> dict[str, Any]:
    """Return the numbers of a privacy statement."""
    return {name: getattr(statement, name) for name in NUMBERS}
