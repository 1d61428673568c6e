"""Errors between a client and a coordinator."""

from typing import Self

from dpspca.common.errors import DpspcaError, NotTrustedError


class FederationError(DpspcaError):
    """The coordinator refused a call, or could not be reached."""

    code = "federation"


class AwayError(FederationError):
    """The coordinator cannot be reached now."""

    code = "coordinator-away"


class JobFailedError(FederationError):
    """The job ended without a model."""

    code = "job-failed"


class UnpaidJobError(JobFailedError):
    """The job ended without a model before a provider was sent a query, says the coordinator. It cost nothing."""

    code = "job-failed-unpaid"


class DishonestCoordinatorError(NotTrustedError):
    """The coordinator sent what an honest coordinator never sends."""

    code = "coordinator-dishonest"


class TooMuchError(FederationError):
    """The coordinator sent more than an honest coordinator ever sends."""

    code = "coordinator-sent-too-much"

    @classmethod
    def of(cls, sent: str, allowed: int) -> Self:
        """Return the error for what was sent, with the limit that it exceeds."""
        return cls(
            f"The coordinator sent {sent}. The limit is {allowed}.",
            "An honest coordinator of this version never exceeds it. Do not trust this one, and tell its operator.",
        )


class UnreadableReplyError(FederationError):
    """The coordinator sent bytes that are not a message of its service."""

    code = "coordinator-unreadable"
