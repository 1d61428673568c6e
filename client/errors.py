"""What can go wrong between a client and a coordinator."""

from typing import Self

from dpspca.common.errors import DpspcaError


class FederationError(DpspcaError):
    """The coordinator refused, or could not be reached."""

    code = "federation"


class AwayError(FederationError):
    """The coordinator cannot be reached now."""

    code = "coordinator-away"


class TooMuchError(FederationError):
    """The coordinator sent more than an honest one ever does."""

    code = "coordinator-sent-too-much"

    @classmethod
    def of(cls, sent: str, allowed: int) -> Self:
        """Say what was sent, and how much of it is allowed."""
        return cls(
            f"The coordinator sent {sent}; at most {allowed} are allowed.",
            "An honest coordinator of this version does not do that. Do not trust it, and tell its operator.",
        )


class UnreadableError(FederationError):
    """The coordinator sent what is no message of its service."""

    code = "coordinator-unreadable"
