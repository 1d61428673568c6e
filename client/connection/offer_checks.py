"""Checks of the data set and the providers that a job names, against what is on offer now."""

from collections.abc import Collection

from dpspca.common.choices import choices, near_miss
from dpspca.common.errors import InvalidParameterError
from dpspca.common.names import shortened


def require_data_set(name: str, offered: Collection[str]) -> None:
    """Refuse a data set that no connected provider offers."""
    if name not in offered:
        raise InvalidParameterError(
            f"Unknown data set {shortened(name)}: no connected provider offers it.",
            f"{choices(name, set(offered))} If it is not listed, check that its providers are running.",
        )


def require_providers(data_set: str, names: Collection[str], offering: Collection[str]) -> None:
    """Refuse providers that do not offer a data set now. They may be away, or a name may be misspelt."""
    absent = [name for name in names if name not in offering]
    if absent:
        near = [each for name in absent if (each := near_miss(name, sorted(offering))) is not None]
        meant = f"Did you mean {' and '.join(map(repr, near))}? " if near else ""
        raise InvalidParameterError(
            f"These providers do not offer the data set {data_set!r} now: {', '.join(absent)}.",
            f"{meant}Available: {', '.join(sorted(offering))}. Leave the others out, or wait until they are connected.",
        )
