"""The policy as it is on disk now. Edge: the only code that opens it."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from dpspca.common.errors import DpspcaError, InvalidInputError, InvalidParameterError
from dpspca.common.storage import files

from .rules import Policy

OnRead: TypeAlias = Callable[[Path, Policy, Sequence[DpspcaError]], None]
"""Called when a policy was read, with its errors."""

_log = logging.getLogger(__name__)


def read_policy(path: Path) -> Policy:
    """Read a policy, or say what is wrong with it."""
    return Policy.parse(_text(path))


def read_readable_part(path: Path) -> tuple[Policy, list[DpspcaError]]:
    """Read what can be read of a policy, as a provider does, and give all that is wrong with it."""
    try:
        return Policy.readable_part(_text(path))
    except InvalidParameterError as problem:
        return Policy(unreadable=None), [problem]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise InvalidParameterError(
            f"The policy {path} cannot be read: {problem.strerror}.",
            "Write one: `dpspca policy suggest` drafts it for a job, `dpspca config sample policy` explains every key.",
        ) from None
    except UnicodeDecodeError:
        raise InvalidParameterError(f"The policy {path} is not text in UTF-8.", "Save it as that.") from None


class CurrentPolicy:
    """A policy that is read again when its file changes. What is wrong with it is logged once.

    A table that cannot be read closes its data set; if nothing can be read, nothing is allowed. Safe to ask from many
    threads: what it keeps is replaced whole.
    """

    def __init__(self, path: Path, on_read: "OnRead" = lambda *_: None) -> None:
        """Read a policy. At least one of its tables must be readable. ``on_read`` is called after every reading."""
        self._path = path
        self._on_read = on_read
        stamp = self._stamp()
        policy, wrong = read_readable_part(path)
        if wrong and not policy.data_sets:
            raise InvalidInputError(wrong)
        self._report(policy, wrong)
        self._kept = (stamp, policy)

    def get(self) -> Policy:
        """Give the policy."""
        stamp, policy = self._kept
        now = self._stamp()
        if now != stamp:
            policy, wrong = read_readable_part(self._path)
            self._report(policy, wrong)
            if not wrong:
                _log.info("The policy %s was read again.", self._path)
            self._kept = (now, policy)
        return policy

    def _report(self, policy: Policy, wrong: list[DpspcaError]) -> None:
        _log_faults(policy, wrong)
        self._on_read(self._path, policy, wrong)

    def _stamp(self) -> "files.Stamp | None":
        """Return the file's stamp, or None if it cannot be read: its error has the path, which is not for analysts."""
        try:
            return files.stamp(self._path, linked=True)
        except DpspcaError:
            return None


def _log_faults(policy: Policy, wrong: list[DpspcaError]) -> None:
    """Tell the operator what is closed, and why."""
    closed = "Nothing" if policy.unreadable is None else f"Nothing on {', '.join(sorted(policy.unreadable))}"
    if wrong:
        _log.error("%s is allowed until the policy is corrected: %s", closed, InvalidInputError(wrong))
