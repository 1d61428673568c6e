"""The errors of this package. The type says whose fault it was; the message says what is wrong and what to do.

Each error has a stable ``code`` for programs, which may be sent over the network. Its two sentences are for people. A
message never contains a value from the data, because a refusal must not depend on a row.
"""

import re
from collections.abc import Sequence
from typing import ClassVar, Final


class DpspcaError(Exception):
    """Base of all errors that this package raises on purpose."""

    code: ClassVar[str] = "error"

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what, remedy)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}"


class InvalidParameterError(DpspcaError, ValueError):
    """A parameter is not valid, whatever the data are."""

    code = "invalid-parameter"


class InvalidInputError(InvalidParameterError):
    """Raw input with one mistake or several. It says all of them, one after the other."""

    def __init__(self, faults: Sequence[DpspcaError]) -> None:
        *others, last = faults
        super().__init__(" ".join([*map(str, others), last.what]), last.remedy)
        self.args = (faults,)
        self.faults = tuple(faults)


class PlanOverBudgetError(InvalidParameterError):
    """A job's plan costs more privacy than the job's own budget."""

    code = "plan-over-budget"


class NoiseTooWideError(InvalidParameterError):
    """The noise of a query would be wider than the lattice of answers has room for."""

    code = "noise-too-wide"


class InvalidDataError(DpspcaError, ValueError):
    """The data cannot be used as they are."""

    code = "invalid-data"


class InvalidTypeError(DpspcaError, TypeError):
    """A value has the wrong type."""

    code = "invalid-type"


class InvalidQueryError(DpspcaError, ValueError):
    """A query that no provider may answer."""

    code = "invalid-query"


class NotCanonicalQueryError(InvalidQueryError):
    """A query that is not in the one form in which such a query is sent."""

    code = "not-canonical-query"


class RefusedError(DpspcaError):
    """A well-formed request that the rules do not allow now. It cost no privacy."""

    code = "refused"


class OtherDictionaryError(RefusedError):
    """The provider does not hold the dictionary that the job names. The text is the same for every job."""

    code = "other-dictionary"


class MissingFeatureError(RefusedError):
    """The provider does not have a feature that the job is about."""

    code = "missing-feature"


class JobEndedError(RefusedError):
    """The job has ended at this provider, and is not answered again."""

    code = "job-ended"


class DataChangedError(RefusedError):
    """The data changed since the job was opened, or while it was opened."""

    code = "data-changed"


class RowsNotReadyError(RefusedError):
    """The rows of a query have not arrived yet, or cannot be read now. The same query may be sent again later."""

    code = "rows-not-ready"


class DataSetUnusableError(RefusedError):
    """A fault was found in a data set, and it answers nothing until the provider's operator has corrected it."""

    code = "data-set-unusable"


class AskAgainError(RefusedError):
    """A query was paid for and not answered. The same query may be sent again, and costs nothing more."""

    code = "ask-again"


class LostDrawsError(RefusedError):
    """The provider was restarted, and no longer has the random draws that the rest of the job needs."""

    code = "draws-lost"


class BudgetExceededError(RefusedError):
    """An answer would cost more privacy than the budget has left. Nothing was spent."""

    code = "budget-exceeded"


class InvalidAnswerError(DpspcaError):
    """A provider's answer does not have the form that the query requires."""

    code = "invalid-answer"


class CorruptModelError(DpspcaError, ValueError):
    """Stored bytes are not a model that this version can read."""

    code = "corrupt-model"


class MissingExtraError(DpspcaError, ImportError):
    """A feature needs packages that the basic installation leaves out."""

    code = "missing-extra"


class NotTrustedError(RefusedError):
    """A certificate, signature or revocation list does not prove what it claims."""

    code = "not-trusted"


class MalformedProofError(NotTrustedError):
    """Bytes that are no certificate, request or revocation list of the form that this version writes."""

    code = "malformed-proof"


class WrongSignerError(NotTrustedError):
    """Another key or another authority than the expected one signed this, or is certified by it."""

    code = "wrong-signer"


class RevokedError(NotTrustedError):
    """The certificate was revoked."""

    code = "revoked"


class WrongRoleError(RefusedError):
    """The party is identified, but its role does not allow this."""

    code = "wrong-role"


class WrongAudienceError(RefusedError):
    """A valid job for another provider or another federation."""

    code = "wrong-audience"


class NotNowError(RefusedError):
    """A certificate, revocation list or job that is not yet valid, or that has expired."""

    code = "not-now"


class MalformedJobError(RefusedError, ValueError):
    """The bytes are not the canonical form of a signed job."""

    code = "malformed-job"


class UnsafeFileError(DpspcaError):
    """A file or folder is missing or unreadable, can be read or replaced by others, or would be overwritten."""

    code = "unsafe-file"


class OccupiedFolderError(UnsafeFileError):
    """Something is there already, and would be overwritten."""

    code = "occupied-folder"


class DamagedFileError(UnsafeFileError):
    """A file of this package is cut short, or was changed by something else."""

    code = "damaged-file"


class BusyError(RefusedError):
    """Too many requests at the moment. The same call may be repeated a little later."""

    code = "busy"


class FaultError(DpspcaError):
    """An internal error. Its details are in the log and are not sent to the caller."""

    code = "fault"

    def __init__(self) -> None:
        super().__init__("The coordinator had an internal error.", "Ask its operator, whose log has the details.")


_CODE: Final = re.compile(r"[a-z]{1,20}(-[a-z]{1,20}){0,3}")


def is_code(text: str) -> bool:
    """Return whether a text from outside has the form of a code, so that a message may quote it."""
    return _CODE.fullmatch(text) is not None


def require_trust(
    holds: bool,  # noqa: FBT001  # reads as: require that it holds
    what: str,
    remedy: str,
    kind: type[NotTrustedError] = NotTrustedError,
) -> None:
    """Raise ``NotTrustedError``, or a narrower kind of it, unless the condition holds."""
    if not holds:
        raise kind(what, remedy)


class DpspcaWarning(UserWarning):
    """Something that a user must know before relying on a job or a result.

    It follows only from the job and its releases, never from a row. A ``RowsWarning`` is the exception.
    """


class RowsWarning(DpspcaWarning):
    """Something about the rows that the caller gave. It is for the caller alone, and is neither stored nor sent."""
