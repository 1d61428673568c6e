"""The policy as it is on disk now. Edge: the only code that opens it."""

import logging
from pathlib import Path

from dpspca.common.errors import DpspcaError, InvalidParameterError
from dpspca.common.transport import files

from .policy import Policy

_log = logging.getLogger(__name__)


def read_policy(path: Path) -> Policy:
    """Read a policy, or say what is wrong with it."""
    try:
        return Policy.parse(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InvalidParameterError(
            f"The policy {path} cannot be read: {problem.strerror}.",
            "Write one: `dpspca policy suggest` begins it for a job, `dpspca config sample policy` explains every key.",
        ) from None
    except UnicodeDecodeError:
        raise InvalidParameterError(f"The policy {path} is not text in UTF-8.", "Save it as that.") from None


class CurrentPolicy:
    """A policy that is read again when its file changes. One that has gone bad allows nothing, and is logged once.

    Safe to ask from many threads: what it keeps is replaced whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = (files.stamp(path), read_policy(path))

    def get(self) -> Policy:
        """Give the policy."""
        stamp, policy = self._kept
        now = files.stamp(self._path)
        if now != stamp:
            policy = self._read_again()
            self._kept = (now, policy)
        return policy

    def _read_again(self) -> Policy:
        try:
            read = read_policy(self._path)
        except DpspcaError as problem:
            _log.error("Nothing is allowed until the policy is mended: %s", problem)
            return Policy()
        _log.info("The policy %s was read again.", self._path)
        return read
