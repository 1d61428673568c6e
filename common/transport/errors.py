"""Why a party, a job or a file on disk is turned away. Refusals at this door cost no privacy and change nothing."""

from dpspca.common.errors import DpspcaError, RefusedError


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
