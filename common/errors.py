"""One tree of errors: the type says whose fault it was, the message what was wrong and what to do.

Every error carries a stable ``code`` that may cross a network and be matched by a program; its two sentences
are for people. No message is ever made from a value in the data: a refusal must not depend on a row.
"""

from typing import ClassVar


class DpspcaError(Exception):
    """Base of everything this package raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


class InvalidParameterError(DpspcaError, ValueError):
    """The caller asked for something that no data could satisfy."""

    code = "invalid-parameter"


class InvalidDataError(DpspcaError, ValueError):
    """The data at hand cannot be used as they are."""

    code = "invalid-data"


class InvalidTypeError(DpspcaError, TypeError):
    """A value of the wrong kind altogether."""

    code = "invalid-type"


class InvalidQueryError(DpspcaError, ValueError):
    """Whoever asks sent a query that no provider may answer."""

    code = "invalid-query"


class RefusedError(DpspcaError):
    """A well-formed query that this provider's rules do not allow now; it cost nothing."""

    code = "refused"


class BudgetExceededError(RefusedError):
    """Answering would spend more privacy than was granted; nothing was spent."""

    code = "budget-exceeded"


class InvalidAnswerError(DpspcaError):
    """A provider's answer does not have the form that the query fixes."""

    code = "invalid-answer"


class CorruptModelError(DpspcaError, ValueError):
    """Stored bytes are not a model that this version can read."""

    code = "corrupt-model"


class MissingExtraError(DpspcaError, ImportError):
    """A feature needs packages that the light installation leaves out."""

    code = "missing-extra"


class NotTrustedError(RefusedError):
    """A certificate, signature or revocation list does not prove what it claims."""

    code = "not-trusted"


class WrongRoleError(RefusedError):
    """The party is who it says, but its role may not do this."""

    code = "wrong-role"


class WrongAudienceError(RefusedError):
    """A true job, meant for another provider or another federation."""

    code = "wrong-audience"


class NotNowError(RefusedError):
    """True, but before its time or past it."""

    code = "not-now"


class MalformedJobError(RefusedError, ValueError):
    """The bytes are not the one way in which a signed job is written."""

    code = "malformed-job"


class UnsafeFileError(DpspcaError):
    """A file or folder that others could read or replace, that is missing, or that would be overwritten."""

    code = "unsafe-file"


class BusyError(RefusedError):
    """Nothing is wrong but the moment: the same call may be made again a little later."""

    code = "busy"


class FaultError(DpspcaError):
    """Something went wrong here that is no business of whoever called; what it was is in the log."""

    code = "fault"

    def __init__(self) -> None:
        super().__init__("The coordinator met a fault.", "Its operator's log says more.")


def require_trust(holds: bool, what: str, remedy: str) -> None:  # noqa: FBT001  # reads as: require that it holds
    """Refuse to trust unless the condition holds."""
    if not holds:
        raise NotTrustedError(what, remedy)


class DpspcaWarning(UserWarning):
    """A result, or a job, of which something has to be known before it is relied on.

    It follows from the job and from what was released for it, never from a row.
    """
